"""The paper: its tables made of our studies, and its claims judged by them."""
