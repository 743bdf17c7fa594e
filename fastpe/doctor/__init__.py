"""Checks of the compiled code on this machine, and measurements of its speed.

From outside: `accuracy`, `diagnosis`, `encoding_checks`, `machine`, `probe`, `task_checks`.
"""
