"""What everything stands on: checks of what callers hand in, random numbers, one call at a time,
files that are whole or not there, and what they hold.

From outside: `files`, `forks`, `guard`, `initial_values`, `random`, `shielded`, `stored`, `validation`.
"""
