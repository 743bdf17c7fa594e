"""Runs: a model trained on a task, tested, kept in a folder, resumed; and what a trained model makes of a text.

From outside: `config`, `config_file`, `data`, `estimate`, `evaluation`, `events`, `forms`, `length_curve`, `lengths`,
`loop`, `metrics_file`, `presets`, `progress`, `receptive_field`, `result_file`, `run_folder`, `starting_weights`,
`text_data`, `text_metrics`.
"""
