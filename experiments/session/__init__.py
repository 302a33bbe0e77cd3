"""A study as an object: describe it, train it, look at its results."""
