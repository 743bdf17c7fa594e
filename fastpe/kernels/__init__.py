"""Compiled code, forward and backward, which knows slots and sizes but no encoding.

From outside: `activation`, `arrays`, `attention.beside`, `attention.calls`, `attention.cells`, `attention.columns`,
`attention.counted`, `attention.decode`, `attention.draining`, `attention.mlp`, `attention.mlp_calls`,
`attention.records`, `attention.reflected`, `attention.reflected_backward`, `attention.reflected_blocks`,
`attention.reflected_products`, `attention.reflected_room`, `attention.reflected_rows`, `attention.room`,
`attention.score`, `attention.split_softmax`, `attention.unfolding`, `attention.words`, `bfloat16.on_arrays`,
`bfloat16.pack`, `bfloat16.product`, `bfloat16.way`, `compile.cache`, `compile.decorators`, `compile.sources`,
`dropout`, `gemm`, `model`, `model_batch`, `model_gates`, `model_memory`, `model_network`, `model_reflections`,
`model_selective`, `openmp`, `pack`, `polar`, `rotate`, `rotors`, `sides`, `simd`, `table`, `threads`, `trig`.
"""
