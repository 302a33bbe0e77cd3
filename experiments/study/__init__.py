"""A study: configuration, methods, programs, training and folder."""
