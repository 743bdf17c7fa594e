"""What the fills of encodings' tables share: blocks that stay in cache, rows by distance, sine and cosine."""
