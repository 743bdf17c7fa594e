"""Code shared by several encodings; this folder defines no encoding.

A bias by offset can be filled in three ways. `offset_biases.blocks` evaluates the formula in NumPy, a block at a time:
use it by default, and if positions are given. `distance_runs` is several times faster if the bias of each head is a
smooth or piecewise constant function of the distance; it uses series, whose error the caller must bound. For other
biases an encoding compiles its own function, such as a network (`fire`, `swinv2_cpb`) or waves (`sandwich`).
"""
