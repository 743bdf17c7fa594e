"""Experiments: many runs with the same settings and seeds, and the statistics of their results.

Four terms are used throughout.

===========  =========================================================================================================
Study        The definition of all runs: encodings x tasks x seeds with the same settings (`study.Study`). A `RunKey`
             names one run of the study, a `Trial` one tuning run. `tuning` chooses between settings by validation.
Job          A run that an engine must make (`jobs.Job`). There are two engines: `local` uses processes of this
             machine, `cluster` uses dask.distributed. Both run the code in `worker`.
Run          A model that was trained on one task with one seed, in a run folder. A `FinishedRun` is its outcome. The
             run folders of a study are in the study folder (`study_folder`).
Comparison   Statistics of an encoding and the baseline over seeds (`comparison.Comparison`). `statistics` computes
             intervals, `aggregate` computes statistics over several tasks, and `results` collects both for a study.
===========  =========================================================================================================

`compare` makes the runs of a study and writes the report; `existing_runs` writes the report of runs that exist. The
report is made in `study_report` and `study_page`; `study_answer` has its words. `table5` is the study of Table 5 of
Li (2025), and `claims` judges the paper's claims about this table.

`inspection_page` is the page of `fastpe inspect`.

From outside: `claims_report`, `compare`, `existing_runs`, `inspection_page`, `jobs`, `local`, `plan`, `sections`,
`study`, `study_answer`, `study_folder`, `study_page`, `study_report`, `table5`, `tables_report`.
"""
