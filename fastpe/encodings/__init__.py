"""Position encodings: what one is, how it is found, added up and built, and all of them.

One file of `input/`, `rotation/`, `relative/` or `bias/` is one encoding, in the folder of where it acts; what several
of them share is in `parts/`. An encoding of one's own is a file of the same kind, anywhere (`own`, `template`).

From outside: `build`, `catalogue`, `combined`, `encoding`, `input.wavelet`, `needed`, `own`,
`parts.daubechies`, `registry`, `resize`, `slots`.
"""
