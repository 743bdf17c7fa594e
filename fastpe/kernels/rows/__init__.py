"""Kernels on rows of channels: rotation, block matrices, polar form, growth, norms, activation, dropout."""
