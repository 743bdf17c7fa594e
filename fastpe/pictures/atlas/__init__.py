"""The atlas: one page in HTML of all encodings, to read, to search and to choose from.

`page` makes it of a `card` for each; `drawing` draws what `fastpe show` computes, small; `prose` is an encoding's own
page in HTML; `findings` are what the studies of this repository found, a file that `bench/findings.py` makes.
"""
