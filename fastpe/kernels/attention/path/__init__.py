"""Attention with reflections between key and query (PaTH)."""
