"""Runs: a model trained on a task, tested, kept in a folder, resumed.

From outside: `config`, `config_file`, `estimate`, `evaluation`, `events`, `lengths`, `loop`, `presets`,
`progress`, `result_file`, `run_folder`.
"""
