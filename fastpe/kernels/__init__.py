"""Compiled code for forward and backward passes. It depends on slots and sizes, not on the encoding that fills them.

From outside: `arrays`, `attention.bf16_panels`, `attention.calls`, `attention.dape.calls`, `attention.dape.maps`,
`attention.dape.network`, `attention.decode`, `attention.expand_relative_bias`, `attention.inputs`,
`attention.path.backward`, `attention.path.calls`, `attention.score`, `attention.sinks`, `attention.slots`,
`attention.split_softmax`, `attention.terms.contextual_positions`, `attention.terms.key_query_offsets`,
`attention.tile`, `attention.workspace`, `compile.cache`, `compile.decorators`, `compile.sources`, `fills.sides`,
`fills.table`, `fills.trig`, `model.batch`, `model.dape`, `model.gates`, `model.memory`, `model.pack`,
`model.reflections`, `model.selective_angles`, `products.bfloat16.isa`, `products.bfloat16.on_arrays`,
`products.bfloat16.pack`, `products.bfloat16.product`, `products.float_gemm`, `products.gemm`, `rows.activation`,
`rows.block_maps`, `rows.dropout`, `rows.polar`, `rows.rotate`, `simd`, `threads.openmp`, `threads.team`.
"""
