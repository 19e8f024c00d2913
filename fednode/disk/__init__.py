"""Files and folders: whole or not at all, locked, private."""
