"""The page of an encoding: every quantity of the theory that has a meaning for it.

- `collect` computes the page as a dict of records; `record` defines a record.
- `subject` builds the slots of the encoding at every length.
- `of_table`, `of_bias`, `of_rotation`, `of_relative`, `of_model` and `of_run` compute the quantities of one kind.
- `quantities` has the name of each quantity and what it decides.
- `key_quantities` selects the quantities that decide a choice of encoding.
- `words` formats numbers and whole pages as text.
"""
