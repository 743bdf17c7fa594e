"""The small transformer: its settings, where its parameters lie, its passes, its optimiser.

From outside: `adam`, `config`, `cost`, `encoding`, `model_file`, `parameters`, `transformer`.
"""
