"""Texts that models learn from: symbols as tokens, files as one long row of them.

From outside: `vocabulary`, `corpus`.
"""
