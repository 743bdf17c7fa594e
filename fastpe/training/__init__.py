"""Training and testing models on a task, run folders, and measurements of a trained model on a text.

From outside: `config`, `config_file`, `data`, `estimate`, `evaluation`, `events`, `forms`, `inspection`,
`length_curve`, `lengths`, `logging`, `loop`, `metrics_file`, `presets`, `progress`, `receptive_field`, `result_file`,
`run_folder`, `settings`, `starting_weights`, `text_data`, `text_metrics`.
"""
