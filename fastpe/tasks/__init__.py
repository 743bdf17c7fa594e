"""One file = one task; the file's name is its key.

A task is a module with ``sample(seed, stream, count, length, dtype, step=0) -> (x, y)``, or ``(x, y, weights)`` where
not every target counts alike (some of every batch must count), and whatever reference points a result must be compared
with.

From outside: `running_sum`.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpe.base.validation import nearest

if TYPE_CHECKING:
    import numpy as np


class Sequences(NamedTuple):
    """Inputs and targets (count, length), and what each target counts, 0 being nothing; None where all count alike."""

    x: "np.ndarray"
    y: "np.ndarray"
    weights: "np.ndarray | None" = None


def draw(task: Any, *arguments: Any, **options: Any) -> Sequences:
    """What the task's `sample` gives, as one record.

    Examples
    --------
    >>> found = draw(load_task("running_sum"), 0, "train", 2, length=3)
    >>> found.y.shape, found.weights is None
    ((2, 3), True)
    """
    return Sequences(*task.sample(*arguments, **options))


def list_tasks() -> tuple[str, ...]:
    """Return the keys of all tasks, sorted; imports none of them.

    Examples
    --------
    >>> list_tasks()
    ('running_sum',)
    """
    return tuple(sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_")))


def load_task(name: str) -> ModuleType:
    """Return the module of the task with this key.

    Parameters
    ----------
    name : str
        One of `list_tasks`.

    Raises
    ------
    ValueError
        If there is no such task; the message names the nearest keys.

    Examples
    --------
    >>> load_task("running_sum").zero_predictor(50)
    25.5
    """
    if name not in list_tasks():
        raise ValueError(f"task {name!r} is unknown; {nearest(str(name), list_tasks())}")
    return import_module(f"{__name__}.{name}")
