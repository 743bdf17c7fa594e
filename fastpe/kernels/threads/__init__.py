"""Threads: a team of workers for a kernel (`team`), how they share out tasks (`task_counter`), and OpenMP's
settings."""
