"""Finds tasks and their options by name, using `fastpe.base.registry`.

Importing this module imports neither NumPy nor Numba, so that the command line can list tasks quickly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from fastpe.base import own
from fastpe.base.option import Option
from fastpe.base.own import Kind
from fastpe.base.registry import Registry
from fastpe.base.validation import nearest, shown
from fastpe.tasks import task
from fastpe.tasks.task import FUNCTIONS, KINDS, Chosen, Lengths, Task


def _completed(module: ModuleType, path: Path) -> Task:
    """Check the task of a module and return it, completed by functions of the module. Errors name the file."""
    own.declared(TASKS.kind, module, path, Task)
    found = task.of_module(module)
    if wrong := _fault(found):
        raise ValueError(f"{path.name}: {wrong}")
    functions = {name: getattr(found, name) for name in FUNCTIONS}
    given: dict[str, Any] = {name: own.told(each, path) for name, each in functions.items() if callable(each)}
    return replace(found, **given, file=path.name)


TASKS: Registry[Task] = Registry(
    Kind(
        "task", "TASK", "fastpe.tasks.Task", _completed,
        how="by --task on the command line or fastpe.tasks.register in Python",
    ),
    "fastpe.tasks", ("",), ("task", "registry", "frame", "sizes", "targets", "filler", "template"), task.of_module,
)  # fmt: skip


def _fault(found: Task) -> str:
    """What is wrong with a task or missing from it, or "" if it is complete."""
    if found.kind not in KINDS:
        return f"kind must be one of {', '.join(KINDS)}, not {found.kind!r}"
    for name in ("summary", "source"):
        if not isinstance(getattr(found, name), str):
            return f"{name} must be a str, not {getattr(found, name)!r}"
    if not isinstance(found.options, Mapping) or not all(isinstance(each, Option) for each in found.options.values()):
        return f"options must be a dict of names to fastpe.Option, not {found.options!r}"
    for name in FUNCTIONS:
        value = getattr(found, name)
        fixed = (name == "symbols" and type(value) is int) or (name == "lengths" and isinstance(value, Lengths))
        if value is not None and not callable(value) and not fixed:
            return f"{name} must be a function, not {value!r}"
    if found.kind == "numbers" and found.squares is None:
        return "the mean squares of the answers are missing: define squares(length, **options) -> (length,)"
    if found.sample is None:
        return "the function that draws is missing: define sample(draws, length, count, **options) -> (inputs, answers)"
    if (found.kind == "numbers") != (found.symbols == 0):
        wanted = "0 for numbers" if found.kind == "numbers" else "at least 1 for tokens"
        return f"symbols must be {wanted}, not {found.symbols!r}"
    for name, option in found.options.items():
        if not isinstance(name, str) or not name.isidentifier() or name in ("draws", "length", "count"):
            return f"options: {name!r} is not a valid name for an option of a task"
        try:
            option.validate(name, option.default)
        except (TypeError, ValueError) as error:
            return f"the default of {error}"
    return _fault_of_tests(found)


def _fault_of_tests(found: Task) -> str:
    """What is wrong with the named tests of a task, or ""."""
    for name, options in found.tests.items() if isinstance(found.tests, Mapping) else [("tests", None)]:
        if not isinstance(name, str) or not isinstance(options, Mapping) or not set(options) <= set(found.options):
            return f"tests must be a dict of names to dicts of the task's options, not {found.tests!r}"
        for option, value in options.items():
            try:
                found.options[option].validate(option, value)
            except (TypeError, ValueError) as error:
                return f"test {name!r}: {error}"
    return ""


def list_tasks() -> tuple[str, ...]:
    """Return the sorted keys of all tasks: those of fastpe, of installed packages, and registered ones.

    Examples
    --------
    >>> {"reverse", "running_sum", "sort"} <= set(list_tasks())
    True
    """
    return TASKS.names()


def load_task(name: str) -> Task:
    """Return the task with this key.

    Parameters
    ----------
    name : str
        One of `list_tasks`, or the path of your own file, which is registered.

    Raises
    ------
    ValueError
        If there is no such task; the message names the nearest keys.

    Examples
    --------
    >>> load_task("reverse").kind
    'answer'
    """
    return TASKS.get(TASKS.resolve(name))


def register(module_or_path: Any) -> str:
    """Register a task of your own, so that it can be used like those of fastpe.

    The file's docstring is the page of the task. The file defines `TASK` and the functions listed in
    `fastpe.tasks.Task`; only `sample` is required.
    ``fastpe check --template task`` prints a file to start from, and ``fastpe check FILE`` tests a file.

    Parameters
    ----------
    module_or_path : module, str or pathlib.Path
        A module, or the path of a Python file, which is run.

    Returns
    -------
    str
        The key of the task: the name of the module or file.

    Raises
    ------
    ValueError
        If the key is taken, or the file does not define a task; the message names the file and, if known, the line.

    Examples
    --------
    >>> import tempfile
    >>> text = '''
    ... from fastpe.tasks import Task
    ...
    ... def sample(draws, length, count):
    ...     bits = draws.integers(2, (count, length))
    ...     return bits, bits[:, :1]
    ...
    ... TASK = Task("answer", "the first bit", symbols=2)
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "first_bit.py")
    ...     _ = path.write_text(text)
    ...     key = register(path)
    >>> load_task(key).summary
    'the first bit'
    """
    return TASKS.register(module_or_path)


def page(name: str) -> str:
    """The page of a task: the question, the format, chance, controls and the source. Raises the errors of `load_task`.

    Examples
    --------
    >>> print(page("reverse").splitlines()[0])
    The input from its end to its beginning.
    """
    return TASKS.page(TASKS.resolve(name))


def choose(name: str, options: Mapping[str, Any] | None = None) -> Chosen:
    """Return a task with all its options: the given options, which are validated, and the defaults of the others.

    Raises
    ------
    ValueError, TypeError
        If there is no such task or option, or the value of an option is invalid.

    Examples
    --------
    >>> choose("reverse", {"symbols": 3}).symbols
    3
    """
    key = TASKS.known(name)
    found = TASKS.get(key)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options of a task must be a mapping of names to values, not {shown(options)}")
    with _telling_whose(key):
        given = {each: _option(key, each).validate(each, value) for each, value in (options or {}).items()}
        chosen = Chosen(key, found, {option: each.default for option, each in found.options.items()} | given)
        _ = chosen.symbols, chosen.lengths  # computing these raises an error for options that do not go together
    return chosen


def parse_option(name: str, option: str, text: str) -> Any:
    """The typed value of an option that a command line gives as text.

    >>> parse_option("reverse", "symbols", "3")
    3
    """
    with _telling_whose(name):
        return _option(name, option).parse(option, text)


@contextmanager
def _telling_whose(name: str) -> Iterator[None]:
    """Add the name of the task to errors about an option, because encodings have options with the same names."""
    try:
        yield
    except (TypeError, ValueError) as error:
        whose, found = re.subn(r"^(option '\w+') (?=must )", rf"\1 of task {name!r} ", str(error))
        if not found:
            raise
        raise type(error)(whose) from None


def _option(name: str, option: str) -> Option:
    known = TASKS.get(name).options
    if option not in known:
        others = f"; {nearest(str(option), known)}" if known else ": it has none"
        raise ValueError(f"option {option!r} of task {name!r} is unknown{others}")
    return known[option]
