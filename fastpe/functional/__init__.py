"""Calls of attention, and rotation. Modules check arguments, convert slots to the arrays of kernels, and run passes.

From outside: `arguments`, `attention`, `bands`, `by_name`, `decode`, `rotation`, `slot_arrays`, `slots`,
`two_sided`, `visibility`.
"""
