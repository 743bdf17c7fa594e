"""The small transformer: its settings, where its parameters lie, its passes, its optimiser.

From outside: `adam`, `banded`, `config`, `cost`, `encoding`, `generation`, `loading`, `model_file`, `parameters`,
`positions`, `precision`, `schedules`, `transformer`.
"""
