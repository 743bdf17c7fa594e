"""What is run again and judged: many runs over worker processes, their statistics, the claims of a paper.

From outside: `compare`, `plot`, `report`, `study`, `study_report`, `sweep`, `table5`.
"""
