"""Attention with a small network that corrects the scores (DAPE)."""
