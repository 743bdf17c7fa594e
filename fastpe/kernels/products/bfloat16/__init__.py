"""Products whose operands are rounded to bfloat16 (to nearest, ties to even) and summed in float32.

A kernel computes with such products only if its pointers are `RoundingPointer`s (`isa.rounding`): `products.gemm`
selects the product by the pointers. There are three instruction sets; the fastest that the CPU has is used:

    amx          tiles of 16 x 16 sums, 32 terms per instruction (AMX-BF16); a process must ask Linux for permission
    avx512bf16   pairs of terms in vectors (AVX512_BF16)
    shifts       any CPU: shifts widen the numbers to float32 for multiply-adds; not faster than float32 products

All three round the operands to the same bits; values below 2^-126 become zero. They differ in the order of the float32
sums, and the instructions of AMX and AVX512 treat denormal sums as zeros. So results agree within the error bound of a
float32 sum with as many terms. On one machine, all threads use the same instruction set, so results are bitwise equal
for any number of threads.

    isa.py       the instruction set, and pointers that round
    pack.py      operands in the order that the instructions read
    tiles.py     the instructions
    sums.py      the sums of a block
    product.py   the product
    on_arrays.py the product on NumPy arrays
"""
