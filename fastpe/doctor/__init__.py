"""Whether everything compiled is right on this machine, and how fast the machine is.

From outside: `accuracy`, `diagnosis`, `encoding_checks`, `machine`, `probe`, `task_checks`.
"""
