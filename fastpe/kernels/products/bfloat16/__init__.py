"""Products whose operands are rounded to bfloat16 (to nearest, ties to even) and summed in float32.

A kernel computes with such products when its pointers are `RoundingPointer`s (`way.rounding`), and in nothing else: the
one `products.gemm` goes where they say. There are three ways, the fastest that the CPU has is taken:

    amx          tiles of 16 x 16 sums, 32 terms an instruction (AMX-BF16); Linux asks for a permission, once a process
    avx512bf16   pairs of terms in vectors (AVX512_BF16)
    shifts       any CPU: pairs are widened by shifts, float32 multiply-adds; not faster than float32

What is equal between them: the rounded operands, to the bit, with values below 2^-126 as zeros. What is not: the order
of the float32 sums, and that the instructions take denormal sums for zeros, so results agree within the error law of a
sum of so many terms. On one machine the way is the same for any number of threads, and so are the bits.

    way.py       which way, and pointers that round
    pack.py      operands in the order that the instructions read
    tiles.py     the instructions
    sums.py      the sums of a block
    product.py   the product
"""
