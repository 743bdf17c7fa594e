"""Calls of attention: checks of arguments, conversion of slots to the arrays that kernels take, passes. Also rotation.

From outside: `arguments`, `attention`, `bands`, `by_name`, `decode`, `rotation`, `slot_arrays`, `slots`,
`two_sided`, `visibility`.
"""
