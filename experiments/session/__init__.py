"""A study as an object: configuration, training, results."""
