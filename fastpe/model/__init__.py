"""The small transformer: its settings, the layout of its parameters, its forward and backward passes, its optimiser.

From outside: `adam`, `banded`, `by_layer`, `changed`, `config`, `cost`, `encoding`, `generation`, `loading`,
`model_file`, `parameters`, `positions`, `precision`, `schedules`, `sight`, `transformer`.
"""
