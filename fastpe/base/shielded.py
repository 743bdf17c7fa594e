"""Calls that signal handlers cannot interrupt: an interrupt could leave data half changed."""

import _thread
import sys
import threading
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, cast


def load(module: str) -> ModuleType:
    """Import a module such that interrupts cannot leave it, or its imports, half initialised.

    A separate thread imports the module (see `shielded`). But that thread would wait for imports that this thread has
    begun. So if an import is in progress, this thread imports the module itself.
    """
    if module in sys.modules:
        return import_module(module)
    return cast(ModuleType, shielded(import_module, _is_importing)(module))


def _is_importing() -> bool:
    return any(getattr(getattr(each, "__spec__", None), "_initializing", False) for each in [*sys.modules.values()])


def shielded(function: Callable[..., Any], inside: Callable[[], bool] = lambda: False) -> Callable[..., Any]:
    """Return the function, changed so that it runs in a separate thread if the main thread calls it.

    Python runs signal handlers only in the main thread. If a handler raises an exception, as Ctrl-C does, the main
    thread stops waiting for the call, but the call runs to its end. If the process exits during the call, it waits for
    the end of the call. If no thread can be started, the function runs in the calling thread. This happens if there are
    too many threads, or if the process is about to exit.

    Parameters
    ----------
    function : callable
        The function. Its errors are raised in the caller.
    inside : callable
        Returns whether the calling thread holds something that another thread would wait for. If so, the function runs
        in the calling thread.

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
            # `start` runs in a thread, too: an exception could interrupt the start of a thread in Python code
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
