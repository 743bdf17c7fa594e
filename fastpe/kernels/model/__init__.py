"""The small transformer: its layers, its loss and its optimiser, with forward and backward passes on packs of
sequences."""
