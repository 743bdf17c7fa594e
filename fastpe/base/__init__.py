"""What everything stands on: checks of what callers hand in, random numbers, one call at a time, files that are whole
or not there, and what they hold; what is found by name, of fastpe or of a user's own file, and its options.

From outside: `draws`, `files`, `forks`, `guard`, `initial_values`, `option`, `own`, `own_files`, `patterns`, `pulled`,
`random`, `registry`, `shielded`, `stored`, `tables`, `validation`, `version`.
"""
