"""Position encodings: their definition, lookup, sums and construction, and all encodings of fastpe.

Each file in `input/`, `rotation/`, `relative/`, `bias/` or `content/` defines one encoding; the folder says where it
acts. Code shared by several encodings is in `parts/`. You can define your own encoding in a file of the same form, in
any folder; see the modules `own` and `template`.

From outside: `build`, `catalogue`, `combined`, `encoding`, `input.wavelet`, `needed`, `own`,
`parts.daubechies`, `registry`, `resize`, `slots`.
"""
