"""Settings of all tests."""

collect_ignore = ["make_torch_values.py"]  # a script for the extra `peers`
