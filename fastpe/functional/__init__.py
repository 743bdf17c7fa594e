"""One call of attention: its arguments checked, its slots as arrays that kernels take, its passes; and rotation alone.

From outside: `arguments`, `attention`, `bands`, `by_name`, `decode`, `rotation`, `slot_arrays`, `slots`, `two_sided`,
`visibility`.
"""
