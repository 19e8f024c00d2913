"""A cache in files: one file a value."""
