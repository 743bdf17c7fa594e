"""The page of an encoding: every quantity of the theory that has a meaning for it, a file for each place where it acts.

`collect` makes a page, of what `subject` fills at each length; `record` is one number of it, `quantities` what each of
them is called and decides, and `words` says a page in lines.
"""
