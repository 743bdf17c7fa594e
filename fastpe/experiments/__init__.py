"""Experiments: many runs with the same settings and seeds, and the statistics of their results.

Four terms are used throughout.

===========  =========================================================================================================
Study        What is to be run: encodings x tasks x seeds with the same settings (`study.Study`). A `RunKey` names one
             run of it, a `Trial` one tuning run; `tuning` chooses between settings by validation.
Job          A run to be done (`jobs.Job`). Two engines do jobs: `local` in processes of this machine and `cluster` on
             dask.distributed. Both run the code in `worker`.
Run          A model that was trained on one task with one seed, in a run folder. A `FinishedRun` is its outcome. The
             runs of a study are in its folder (`study_folder`).
Comparison   Statistics of an encoding and the baseline over seeds (`comparison.Comparison`). `statistics` has
             intervals, `aggregate` has statistics over several tasks, and `results` collects those of a study.
===========  =========================================================================================================

`compare` makes the runs of a study and writes the report; `existing_runs` writes it from runs that exist. The report is
made in `study_report`, `study_page` and `study_figure`. `table5` is the study of Table 5 of Li (2025), and `claims`
judges what the paper says of it.

From outside: `claims_report`, `compare`, `existing_runs`, `jobs`, `local`, `plan`, `sections`, `study`, `study_figure`,
`study_folder`, `study_page`, `study_report`, `table5`, `tables_report`.
"""
