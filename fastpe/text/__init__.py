"""Texts as training data: `vocabulary` maps symbols to tokens, `corpus` reads files as one array of tokens.

From outside: `vocabulary`, `corpus`.
"""
