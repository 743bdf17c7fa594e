"""The command line in processes of its own: interrupted, on a terminal, from its first import on."""

import os
import re
import signal
import subprocess
import sys
from importlib import metadata

import pytest
from command_line import TINY, fastpe

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("module", ["click", "json", "fastpe_cli.main", "fastpe_cli.train", "fastpe.training.config"])
def test_ctrl_c_while_the_command_is_being_imported_is_one_line(module):
    """Ctrl-C comes as the import of a module begins."""
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        f"assert {module!r} not in sys.modules\n"
        "import runpy\n"
        "runpy.run_module('fastpe', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code, "encodings"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fastpe: interrupted\n")


def test_ctrl_c_inside_a_callback_is_not_lost():
    """The compiler calls back into Python, where an exception goes no further."""
    code = (
        "import ctypes, signal, time\n"
        "import fastpe_cli.main\n"
        "from fastpe_cli.start import start\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job begins with it ignored
        "@ctypes.CFUNCTYPE(None)\n"
        "def callback():\n"
        "    raise KeyboardInterrupt\n"
        "def main():\n"
        "    callback()\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "fastpe_cli.main.main = main\n"
        "start()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fastpe: interrupted\n")


def test_the_installed_command_begins_where_nothing_is_imported():
    (command,) = metadata.entry_points(group="console_scripts", name="fastpe")
    assert command.value == "fastpe_cli.start:start"


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_ctrl_c_says_how_to_resume_and_resuming_ends_in_the_same_bits(folder):
    arguments = ["train", "--encoding", "nope", *TINY, "--epochs", "40"]
    assert fastpe(*arguments, "--out", "whole").exit_code == 0
    command = [sys.executable, "-m", "fastpe", *arguments, "--epochs", "40", "--out", "run"]
    slow = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=slow)
    while not process.stderr.readline().startswith("epoch"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "fastpe: interrupted; continue with: fastpe train --resume --out run"
    assert fastpe("train", "--resume", "--out", "run").exit_code == 0
    assert (folder / "run" / "model.safetensors").read_bytes() == (folder / "whole" / "model.safetensors").read_bytes()


@pytest.mark.full("starts processes")
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_bar(folder):
    import pty

    arguments = ["train", "--encoding", "nope", *TINY, "--samples", "20000", "--out", "run"]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fastpe", *arguments]
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # how a pseudo-terminal says that the other end was closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    with process.stdout:
        out = process.stdout.read()
    assert process.wait() == 0
    assert b"\x1b[" not in out
    assert re.search(rb"epoch .*loss .*[\d,]+ sequences/s", shown)
    assert b"\x1b[" in shown
