"""Timings of fastpe, compared with other libraries and with the peak of the machine. Results are checked first.

The functions `measure` of `step`, `encodings`, `attention`, `frameworks`, `products`, `fills` and `scaling` each return
one table as plain JSON values. Every library runs in a separate process (`worker`), because the thread pools of two
libraries in one process disturb each other. A worker checks its results before anything is timed. Then the workers take
turns. Only one of them runs at a time, so a disturbance of the machine slows all of them down. Every figure is the best
of many turns, unless its description says otherwise. Where a description says "judged", the figure is a dict with its
goal, as `figures.judged` returns it.

From outside: `attention`, `disturbance`, `encodings`, `figures`, `fills`, `frameworks`, `jobs`, `models`, `numpy_ways`,
`peers`, `products`, `scaling`, `step`, `turns`.
"""
