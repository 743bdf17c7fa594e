"""Tasks: what a model is trained on and tested by. One file is one task; the file's name is its key.

What a file defines is in `task`, how it becomes sequences of tokens in `frame`, how many there are in `sizes`. A task
of one's own is a file of the same kind, anywhere (`template`).

From outside: `frame`, `registry`, `sizes`, `targets`, `task`.
"""

from fastpe.tasks.registry import list_tasks as list_tasks
from fastpe.tasks.registry import load_task as load_task
from fastpe.tasks.registry import page as page
from fastpe.tasks.registry import register as register
from fastpe.tasks.task import Chance as Chance
from fastpe.tasks.task import Lengths as Lengths
from fastpe.tasks.task import Task as Task
