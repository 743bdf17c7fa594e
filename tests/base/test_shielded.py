"""Calls that no interrupt reaches."""

import signal
import subprocess
import sys
import threading
import time
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from interrupts import Interrupted

from fastpe.base.shielded import load, shielded


def test_results_errors_and_where_it_runs():
    where = shielded(threading.get_ident)
    assert where() != threading.get_ident()
    assert shielded(threading.get_ident, lambda: True)() == threading.get_ident()
    found = []
    thread = threading.Thread(target=lambda: found.extend((where(), threading.get_ident())))
    thread.start()
    thread.join()
    assert found[0] == found[1]
    with pytest.raises(ZeroDivisionError):
        shielded(divmod)(1, 0)


FIRST_CALL = """
import signal, sys
import fastpe

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
try:
    fastpe.Transformer(fastpe.ModelConfig("rope", width=8, hidden=8, train_length=4))
except KeyboardInterrupt:
    print("interrupted")
signal.setitimer(signal.ITIMER_REAL, 0)
print(fastpe.Transformer(fastpe.ModelConfig("rope", width=8, hidden=8, train_length=4)).config.width)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
@pytest.mark.full("takes seconds")
def test_an_interrupt_while_modules_are_imported_leaves_none_half_made():
    """Those of NumPy and Numba among them, of which Python would keep what there is."""
    said = []
    for delay in (0.01, 0.05, 0.1, 0.2, 0.4):
        command = [sys.executable, "-c", FIRST_CALL, str(delay)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.endswith("8\n"), done.stderr
        said.append(done.stdout)
    assert any("interrupted" in each for each in said)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
def test_an_interrupt_ends_the_wait_and_not_the_call():
    def interrupt(*_):
        raise Interrupted

    done, old = threading.Event(), signal.signal(signal.SIGALRM, interrupt)

    def work():
        time.sleep(0.2)
        done.set()

    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            shielded(work)()
        assert not done.is_set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert done.wait(10)


@pytest.mark.parametrize(("importing", "here"), [("", False), ("fastpe.half", True), ("others.half", True)])
def test_a_module_is_imported_here_where_a_second_thread_would_wait_for_this_one(
    importing, here, tmp_path, monkeypatch
):
    name = f"probe_{importing.replace('.', '_')}_"
    (tmp_path / f"{name}.py").write_text("import threading\nTHREAD = threading.get_ident()\n")
    monkeypatch.syspath_prepend(tmp_path)
    if importing:
        half = ModuleType(importing)
        half.__spec__ = ModuleSpec(importing, None)
        half.__spec__._initializing = True
        monkeypatch.setitem(sys.modules, importing, half)
    try:
        assert (threading.get_ident() == load(name).THREAD) == here
        assert load(name) is sys.modules[name]
    finally:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("refused", ["_thread.start_new_thread", "threading.Thread.start"])
def test_where_no_thread_can_be_started_it_is_run_here(monkeypatch, refused):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(refused, refuse)
    assert shielded(threading.get_ident)() == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        shielded(divmod)(1, 0)
