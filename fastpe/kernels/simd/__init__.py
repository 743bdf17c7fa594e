"""A vector of floats as a Numba type, and its operations.

Numba's own vectoriser picks half-width registers on many CPUs and calls a scalar `exp`; the kernels here use explicit
vectors instead. A kernel gets *pointers* to float32 or float64 elements and works on whole vectors:

    for j in range(0, n, lanes(x)):
        store_first(y, j, load_first(x, j, n - j) * splat(alpha), n - j)

The pointer determines the element type, and the CPU the width: 64 bytes with AVX-512, 32 with AVX2, 16 otherwise. The
source is the same for all of them. Everything here is inlined into its caller, and bounds are not checked: callers are
responsible for sizes. To check bounds, run with FASTPE_CHECK_BOUNDS=1: in this build, pointers hold the bounds of their
memory (`pointers.py`).

Offsets count elements. `load_first` and `store_first` touch only the first `n` lanes, so rows of any length work.

    half_precision.py  half precision, which is read as float32; bfloat16, which is rounded when stored
    vector.py          the vector type, the width of its registers, aligned memory
    memory.py          loads and stores
    pointers.py        the pointer type, and the build in which it is checked
    arithmetic.py      operations on vectors in registers
    code.py            pieces of LLVM code used by the modules above, for kernels that need other instructions
"""

from fastpe.kernels.simd.arithmetic import (
    absolute,
    any_negative,
    backwards,
    blend,
    counting,
    evens_first,
    exp,
    fma,
    interleaved,
    keep_first,
    largest,
    maximum,
    minimum,
    minus,
    relu,
    running_sums,
    splat,
    sqrt,
    swapped,
    swapped_eights,
    swapped_fours,
    swapped_twos,
    total,
    where_negative,
    where_zero,
    zeros,
)
from fastpe.kernels.simd.half_precision import bits_of
from fastpe.kernels.simd.memory import (
    at,
    before_boundary,
    bring_near,
    double_pointer,
    fence,
    float_pointer,
    get,
    int32_pointer,
    lanes,
    load,
    load_first,
    load_wide,
    part,
    plain,
    pointer,
    put,
    put_totals,
    row,
    same_place,
    scalar,
    store,
    store_first,
    store_interleaved,
    store_past_caches,
    store_rounded,
    transpose_block,
    with_pointers,
)
from fastpe.kernels.simd.pointers import region
from fastpe.kernels.simd.vector import (
    FUSED,
    REGISTER_BYTES,
    Vector,
    aligned_empty,
    aligned_zeros,
    llvm_vector,
    start_of,
    whole_vectors,
)

__all__ = [
    "FUSED", "REGISTER_BYTES", "Vector", "absolute", "aligned_empty", "aligned_zeros", "any_negative", "at",
    "backwards", "before_boundary", "bits_of", "blend", "bring_near", "counting", "double_pointer", "evens_first",
    "exp", "fence", "float_pointer", "fma", "get", "int32_pointer", "interleaved", "keep_first", "lanes", "largest",
    "llvm_vector", "load", "load_first", "load_wide", "maximum", "minimum", "minus", "part", "plain", "pointer",
    "put", "put_totals", "region", "relu", "row", "running_sums", "same_place", "scalar", "splat", "sqrt",
    "start_of", "store", "store_first", "store_interleaved", "store_past_caches", "store_rounded", "swapped",
    "swapped_eights", "swapped_fours", "swapped_twos", "total", "transpose_block", "where_negative", "where_zero",
    "whole_vectors", "with_pointers", "zeros",
]  # fmt: skip
