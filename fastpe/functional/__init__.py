"""Attention calls: check the arguments, convert slots to the arrays that kernels take, run the passes. Also rotation.

From outside: `arguments`, `attention`, `bands`, `by_name`, `decode`, `rotation`, `slot_arrays`, `slots`,
`two_sided`, `visibility`.
"""
