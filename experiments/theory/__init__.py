"""The studies behind the scripts `experiments/theory_*.py`, part by part."""
