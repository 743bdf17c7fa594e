"""Foundations: checks of arguments, random numbers, locks, atomic files and their formats, registries of encodings and
tasks (fastpe's and user-defined ones), and their options.

From outside: `draws`, `files`, `forks`, `frames`, `guard`, `initial_values`, `option`, `own`, `own_files`, `patterns`,
`pulled`, `random`, `registry`, `shielded`, `stored`, `tables`, `validation`, `version`.
"""
