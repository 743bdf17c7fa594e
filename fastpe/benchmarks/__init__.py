"""Timings of fastpe, compared with other libraries and with the peak of the machine. Results are checked first.

`measure` of `step`, `attention`, `frameworks`, `products`, `fills` and `scaling` each gives one table as plain JSON
values. Every library runs in a separate process (`worker`), because in one process the thread pools of two libraries
disturb each other. A worker checks its results before anything is timed. Then the workers take turns: only one runs at
a time, so a disturbance of the machine slows all of them down. Every figure is the best of many turns, unless its
description says otherwise.

From outside: `attention`, `disturbance`, `encodings`, `figures`, `fills`, `frameworks`, `jobs`, `models`, `numpy_ways`,
`peers`, `products`, `scaling`, `step`, `turns`.
"""
