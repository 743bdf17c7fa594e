"""One file = one task; the file's name is its key."""
