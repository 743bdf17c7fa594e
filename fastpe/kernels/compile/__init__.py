"""How kernels are compiled, and where machine code is stored. No other module decides either.

    decorators.py  decorators for functions: `entry`, `inner`, `inlined`
    pipeline.py    Numba's compilation pipeline, without passes that fastpe does not need
    cache.py       machine code on disk
    sources.py     digests of the sources that machine code comes from
    switches.py    builds that environment variables select

Private interfaces of Numba are used only in the first three, and in `threads.team`, `threads.openmp` and `simd`; a
comment at each use says what happens without it. Without those used here, everything is compiled by Numba unchanged, or
again in every process.

LLVM's pointers do not say what they point to, while llvmlite's do, and Numba reads that in fifty places. Kernels also
work with LLVMLITE_ENABLE_IR_LAYER_TYPED_POINTERS=0, with which LLVM is no longer told (.ci/run). Once llvmlite drops
typed pointers, as Numba then must, kernels need the type at each `load` (`typ`), `gep` (`source_etype`) and call of an
address in `simd`, `threads.team` and `products.bfloat16`.
"""
