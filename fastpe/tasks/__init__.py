"""Tasks that models are trained and tested on. Each file defines one task; the file's name is its key.

`task` describes what such a file defines. `frame` builds sequences of tokens from a task, and `sizes` counts their
tokens and positions. You can define a task of your own in a file of the same form, in any folder; `template` is an
example.

From outside: `frame`, `registry`, `sizes`, `targets`, `task`.
"""

from fastpe.tasks.registry import list_tasks as list_tasks
from fastpe.tasks.registry import load_task as load_task
from fastpe.tasks.registry import page as page
from fastpe.tasks.registry import register as register
from fastpe.tasks.task import Chance as Chance
from fastpe.tasks.task import Lengths as Lengths
from fastpe.tasks.task import Recipe as Recipe
from fastpe.tasks.task import Task as Task
