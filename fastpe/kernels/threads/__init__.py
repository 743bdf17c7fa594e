"""Threads: a team of workers for a kernel (`team`), how workers share tasks (`task_counter`), and settings of
OpenMP."""
