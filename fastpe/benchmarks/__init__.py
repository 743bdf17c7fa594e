"""Measurements of speed, compared with other libraries and with the peak of the machine. Results are checked first.

`measure` of `step`, `attention`, `frameworks`, `products`, `fills` and `scaling` each returns one table as plain JSON
values. Every library runs in a separate process (`worker`), because the thread pools of two libraries in one process
disturb each other. The process checks its results before anything is timed. Then the libraries take turns: only one
runs at a time, so that a disturbance of the machine affects all of them. Every figure is the best of many turns unless
stated otherwise.

From outside: `attention`, `disturbance`, `encodings`, `figures`, `fills`, `frameworks`, `jobs`, `models`, `numpy_ways`,
`peers`, `products`, `scaling`, `step`, `turns`.
"""
