"""One call of attention: its arguments checked, its slots as arrays that kernels take, its passes.

From outside: `arguments`, `attention`, `positions`, `slot_arrays`.
"""
