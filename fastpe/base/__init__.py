"""What everything stands on: checks of what callers hand in, random numbers, files that are whole or not there.

From outside: `files`, `forks`, `initial_values`, `random`, `validation`.
"""
