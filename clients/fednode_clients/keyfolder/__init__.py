"""A member's folder on disk: keys, tasks, and the record of what it signed."""
