"""Calls that no signal's handler interrupts: what they leave half changed would stay so."""

import _thread
import sys
import threading
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, cast


def load(module: str) -> ModuleType:
    """A module, imported where no interrupt leaves it, or what it imports, half made.

    Where this thread may be importing another module, which a second thread would wait for, it is imported here.
    """
    if module in sys.modules:
        return import_module(module)
    return cast(ModuleType, shielded(import_module, _is_importing)(module))


def _is_importing() -> bool:
    return any(getattr(getattr(each, "__spec__", None), "_initializing", False) for each in [*sys.modules.values()])


def shielded(function: Callable[..., Any], inside: Callable[[], bool] = lambda: False) -> Callable[..., Any]:
    """The function, run in a thread of its own where the main thread calls it.

    Python runs handlers in the main thread alone. What one raises, Ctrl-C for instance, ends the wait for the call, and
    the call goes on to its end; a process that ends meanwhile waits for it. Where no thread can be started, there being
    too many, or the process about to end, it is run where it is.

    Parameters
    ----------
    function : callable
        Its errors are raised where it was called.
    inside : callable
        Whether the call comes from within another one, and holds what another thread would wait for: then it is run
        where it is.

    Examples
    --------
    >>> shielded(divmod)(7, 3)
    (2, 1)
    """

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() or inside():
            return function(*arguments, **named)
        results, errors, ended = list[Any](), list[BaseException](), _thread.allocate_lock()

        def run() -> None:
            try:
                results.append(function(*arguments, **named))
            except BaseException as error:
                errors.append(error)
            finally:
                ended.release()

        def start() -> None:
            try:
                threading.Thread(target=run, name=f"fastpe: {function.__name__}").start()
            except BaseException:
                refused.append(True)
                ended.release()

        refused = list[bool]()
        ended.acquire()
        try:
            # by a thread that nothing interrupts either: what starts one in Python does not survive an exception
            _thread.start_new_thread(start, ())
        except RuntimeError:
            return function(*arguments, **named)
        ended.acquire()
        if refused:
            return function(*arguments, **named)
        if errors:
            raise errors.pop()
        return results.pop()

    return call
