"""Encoding-agnostic compiled kernels: each file holds a forward pass, then its backward pass."""
