"""How everything here is compiled, and where the machine code is kept: the only place that chooses either.

    decorators.py  what is put before functions: `entry`, `inner`, `inlined`
    pipeline.py    what Numba does to a function, less what ours have no use for
    cache.py       machine code on disk
    sources.py     digests of the sources that machine code comes from
    switches.py    the builds that environment variables choose

Numba's interfaces that are private are used in the first three alone, and in `threads.team`, `threads.openmp` and
`simd`; a comment at each says what becomes of fastpe without it. Without those used here everything is compiled by
Numba as it is, or once more in every process.

LLVM's pointers do not say what they point to, while llvmlite's do, and Numba asks them in fifty places. Kernels are
right with LLVMLITE_ENABLE_IR_LAYER_TYPED_POINTERS=0, where they no longer say it to LLVM (.ci/run). Once llvmlite's
have forgotten it, as Numba then must have, ours need it said at each `load` (`typ`), `gep` (`source_etype`) and call
of an address in `simd`, `threads.team` and `products.bfloat16`.
"""
