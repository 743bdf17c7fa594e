"""Code shared by the fills of encodings: blocks that stay in cache, rows by distance, sine and cosine."""
