"""One file = one encoding; the file's name is its key. Files that start with an underscore are shared helpers."""
