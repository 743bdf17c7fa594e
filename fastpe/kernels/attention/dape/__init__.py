"""Attention whose scores go through a small network (DAPE)."""
