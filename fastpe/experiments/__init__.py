"""What is run again and judged: many runs over worker processes, their statistics, the claims of a paper.

From outside: `claims_report`, `compare`, `grid`, `kept`, `plan`, `sections`, `study`, `study_figure`, `study_page`,
`study_report`, `sweep`, `table5`, `tables_report`.
"""
