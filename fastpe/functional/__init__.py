"""One call of attention: its arguments checked, its slots as arrays that kernels take, its passes; and rotation alone.

From outside: `arguments`, `attention`, `bands`, `by_name`, `decode`, `polar`, `positions`, `rotation`, `visibility`,
`slot_arrays`, `slots`, `two_sided`.
"""
