"""What is timed beside its peers and beside the machine's peak, after it was checked.

`measure` of `step`, `attention`, `frameworks`, `products`, `fills` and `scaling` each gives one table as plain JSON
values. Every library lives in a process of its own (`worker`), which checks its results before anything is timed and
then takes turns with the others: only one runs at a time, and what slows the machine down slows all of them down. In
one process the pools of threads of two libraries disturb each other. Every figure is the best of many turns unless it
says otherwise.

From outside: `attention`, `disturbance`, `encodings`, `figures`, `fills`, `frameworks`, `jobs`, `models`, `numpy_ways`,
`peers`, `products`, `scaling`, `step`, `turns`.
"""
