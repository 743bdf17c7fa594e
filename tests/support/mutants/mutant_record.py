"""Which functions of fastpe each test calls, and how long it takes: a pytest plugin for mutants.py.

    FASTPE_RECORD=calls.jsonl PYTHONPATH=tests/support/mutants python -m pytest -p mutant_record

One line for each test: its name, its seconds, and the functions called while it ran, its fixtures included, as
``module:qualified name``. Compiled functions are seen where Python calls them: mutant_map.py knows what is inside. With
``--collect-only`` the names alone are written, for tests that need not or cannot be recorded.
"""

import json
import os
import sys
import threading
import time

import numba
import pytest

_called: set[str] = set()


def _trace(frame, event, argument):
    module = frame.f_globals.get("__name__", "")
    if module.startswith(("fastpe.", "fastpe_cli.")):
        _called.add(f"{module}:{frame.f_code.co_qualname}")


def _record_entries() -> None:
    """Let the compiled functions that Python calls say so."""
    original = numba.njit

    def njit(*arguments, **options):
        made = original(*arguments, **options)
        if not callable(getattr(made, "py_func", None)):
            return lambda function: _recorded(made(function))
        return _recorded(made)

    numba.njit = njit


def _recorded(dispatcher):
    base = type(dispatcher)
    name = f"{dispatcher.py_func.__module__}:{dispatcher.py_func.__qualname__}"
    if name.startswith("fastpe"):

        def call(self, *arguments):
            _called.add(name)
            return base.__call__(self, *arguments)

        dispatcher.__class__ = type(base.__name__, (base,), {"__call__": call, "__slots__": ()})
    return dispatcher


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests():
    _record_entries()


def _write(test, seconds, calls):
    line = json.dumps({"test": test, "seconds": seconds, "calls": calls}) + "\n"
    file = os.open(os.environ["FASTPE_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, line.encode())  # at once: other processes write lines too
    os.close(file)


def pytest_collection_finish(session):
    if session.config.option.collectonly:
        for item in session.items:
            _write(item.nodeid, 0.3, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _called.clear()
    start = time.perf_counter()
    threading.settrace(_trace)
    sys.settrace(_trace)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        seconds = time.perf_counter() - start
        _write(item.nodeid, round(seconds, 3), sorted(_called))
