"""Checkpoints of Hugging Face's transformers: models written for it, and its models read, without PyTorch.

`families` describes each architecture once, for both directions.

From outside: `export`, `in_torch`, `loading`.
"""
