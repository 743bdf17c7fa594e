"""Kernels on rows of channels: rotations, maps of blocks, polar form, growth, normalisation, activation, dropout."""
