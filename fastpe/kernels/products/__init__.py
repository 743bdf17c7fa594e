"""Matrix products: `gemm`, in float32 and float64, and `bfloat16`, of operands rounded to bfloat16."""
