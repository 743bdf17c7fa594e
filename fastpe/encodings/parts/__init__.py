"""What several encodings share; no encoding is here.

A bias by offset can be filled in three ways. The plain one, `offset_biases.blocks`, evaluates the formula in NumPy, a
piece at a time: take it first, and where positions are given. `distance_runs` is several times as fast where the bias
is a smooth or constant function of the distance, one for each head, with series whose error its callers bound. A
compiled entry of an encoding's own is for what is neither: a network (`fire`, `swinv2_cpb`), waves (`sandwich`).
"""
