"""Products whose operands are rounded to bfloat16 (to nearest, ties to even) and summed in float32.

A kernel computes with such products only if its pointers are `RoundingPointer`s (`isa.rounding`): `products.gemm`
selects the product by the pointers. There are three instruction sets; the fastest that the CPU has is used:

    amx          tiles of 16 x 16 sums, 32 terms an instruction (AMX-BF16); Linux needs a permission, once per process
    avx512bf16   pairs of terms in vectors (AVX512_BF16)
    shifts       any CPU: pairs are widened by shifts, float32 multiply-adds; not faster than float32

They have equal rounded operands, bit by bit, with values below 2^-126 as zeros. They differ in the order of the float32
sums, and the instructions treat denormal sums as zeros, so results agree within the error bound of a sum of that many
terms. On one machine the instruction set is the same for any number of threads, and so are the bits.

    isa.py       the instruction set, and pointers that round
    pack.py      operands in the order that the instructions read
    tiles.py     the instructions
    sums.py      the sums of a block
    product.py   the product
    on_arrays.py the product on NumPy arrays
"""
