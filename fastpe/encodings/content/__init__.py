"""Encodings whose distances depend on the content: gates computed from a layer's input, and rotations by it."""
