"""How kernels are compiled, and where their machine code is stored. Only this package decides this.

    decorators.py  decorators for functions: `entry`, `inner`, `inlined`
    pipeline.py    Numba's compilation pipeline, without passes that fastpe does not need
    cache.py       machine code on disk
    sources.py     digests of the sources that machine code comes from
    switches.py    builds that environment variables select

Only the first three of these modules, `threads.team`, `threads.openmp` and `simd` use private interfaces of Numba. A
comment at each use says what happens if a version of Numba lacks the interface. Without the interfaces that this
package uses, Numba's default pipeline compiles everything, or everything is compiled again in every process.

In llvmlite, a pointer has the type of its element, which Numba reads in fifty places. In LLVM, pointers have no such
type. Kernels also work with LLVMLITE_ENABLE_IR_LAYER_TYPED_POINTERS=0, with which llvmlite writes pointers without
types (.ci/run tests this). Once llvmlite and Numba drop typed pointers, each `load`, `gep` and call of an address in
`simd`, `threads.team` and `products.bfloat16` must name the type (`typ` for `load`, `source_etype` for `gep`).
"""
