"""Texts as training data.

`vocabulary` maps symbols to tokens, `subwords` reads and trains tokenizers, `token_files` reads files of tokens, and
`corpus` reads a text as one array of tokens.

From outside: `vocabulary`, `corpus`, `subwords`, `token_files`.
"""
