"""The small transformer: its layers, loss and optimiser, forward and backward, on packs of sequences."""
