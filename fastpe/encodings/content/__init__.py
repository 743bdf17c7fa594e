"""Encodings whose distances the content decides: gates of a layer's input, and rotations by it."""
