"""A study as a Flower app."""
