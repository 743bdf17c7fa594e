"""The command `fastpe reproduce table5`: what it writes, how it goes on, what it refuses."""

import errno
import json
import os
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner

from fastpe.experiments import table5, table5_facts
from fastpe.pictures import canvas, plots
from fastpe_cli.main import main

TINY = {"samples": 32, "epochs": 2, "test_sequences": 8}
COMMAND = [sys.executable, "-c", "from fastpe_cli.main import main; main()", "reproduce", "table5"]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(table5, "QUICK", TINY)


def call(*arguments):
    return CliRunner().invoke(main, ["reproduce", "table5", *map(str, arguments)])


@pytest.mark.full("takes seconds")
def test_the_whole_path(tiny, tmp_path):
    out = tmp_path / "out"
    done = call("--quick", "--seeds", 2, "--workers", 2, "--out", out)
    assert done.exit_code == 0, done.output
    assert "no claim of the paper is judged" in done.stderr
    assert "[28/28]" in done.stderr
    assert "does not hold" not in done.stdout.lower()  # a quick run judges nothing
    assert "The paper's four encodings, pair by pair" in done.stdout
    figures = {f"task-{reading}.{kind}" for reading in table5_facts.READINGS for kind in ("svg", "pdf")}
    names = {"report.html", "results.csv", "results.json", "results.md", "study.toml", "failed.json", "runs", *figures}
    assert {entry.name for entry in out.iterdir()} == names
    before = {entry.name: entry.read_bytes() for entry in out.iterdir() if entry.is_file()}
    again = call("--quick", "--seeds", 2, "--out", out, "--json", "--vary", "batch=256,32")
    assert "28 of them already finished" in again.stderr  # 256 is what the paper has
    found = json.loads(again.stdout)
    assert found["batch=256"]["cells"] == json.loads(before["results.json"])["cells"]
    assert (out / "batch=32" / "report.html").is_file()
    assert not (out / "batch=32" / "runs").exists()
    call("--quick", "--seeds", 2, "--out", out)
    assert {name: (out / name).read_bytes() for name in before} == before


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="kills processes")
@pytest.mark.full("takes seconds")
def test_a_killed_command_leaves_no_worker_and_goes_on(tmp_path):
    """SIGKILL of the parent at any moment: workers end by themselves, and the next start ends in the same table."""
    code = f"from fastpe.experiments import table5; table5.QUICK = {TINY}\n" + COMMAND[2]
    command = [sys.executable, "-c", code, *COMMAND[3:], "--quick", "--seeds", "1", "--json"]
    arguments = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    parent = subprocess.Popen([*command, "--out", str(tmp_path / "killed")], **arguments)
    seen = threading.Event()

    def read():
        with parent.stderr as lines:
            for line in lines:
                if line.startswith("[3/14]"):
                    seen.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert seen.wait(60)
    children = subprocess.run(["pgrep", "-P", str(parent.pid)], capture_output=True, text=True).stdout.split()
    parent.kill()
    parent.wait()
    reader.join(20)
    assert not reader.is_alive()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{child}/exe") for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{child}/exe") for child in children)
    resumed = subprocess.run([*command, "--out", str(tmp_path / "killed")], capture_output=True, text=True, check=True)
    assert "already finished" in resumed.stderr
    whole = subprocess.run([*command, "--out", str(tmp_path / "whole")], capture_output=True, text=True, check=True)
    assert resumed.stdout == whole.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "'--seeds': 0 is not in the range"),
        (["--vary", "batches=32"], "'batches' is not a setting that the paper leaves open and that can be varied; did"),
        (["--vary", "norm=layernorm"], "'norm' is not a setting"),
        (["--vary", "batch=many"], "batch must be sequences per update, e.g. 64, 128, 256, 10000, not 'many'"),
        (["--vary", "wavelet.wavelet=bior2.2"], "vary: wavelet.wavelet=bior2.2: "),
        (
            ["--vary", "alibi.slope=1", "--vary", "alibi.alpha0=2"],
            "vary: alibi.slope=1, alibi.alpha0=2: alibi on bidirectional: options 'slope' (1) and",
        ),
        (["--vary", "legendre.map=linear,log", "--vary", "legendre.learned=true"], "option 'learned' needs map 'tanh'"),
        (["--vary", "batch"], "must be SETTING=VALUE,VALUE,..., not 'batch'"),
        (["--vary", "batch=32", "--vary", "batch=64"], "vary 'batch' is given twice"),
    ],
)
def test_a_user_s_mistake_is_one_line(tmp_path, arguments, words):
    done = call(*arguments, "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    done = call("--out", tmp_path / "file" / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "is not a folder" in done.stderr
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = call("--out", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "no permission" in done.stderr


@pytest.mark.full("takes seconds")
def test_a_disk_that_fills_while_the_report_is_written_leaves_whole_files(tiny, no_pdf, tmp_path, monkeypatch):
    assert call("--quick", "--seeds", 1, "--workers", 1, "--out", tmp_path / "out").exit_code == 0
    before = {entry.name: entry.read_bytes() for entry in (tmp_path / "out").iterdir() if entry.is_file()}
    move = os.replace

    def fill(source, target):
        if str(target).endswith("results.json"):
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        move(source, target)

    monkeypatch.setattr(os, "replace", fill)
    done = call("--quick", "--seeds", 1, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith("No space left on device")
    after = {entry.name: entry.read_bytes() for entry in (tmp_path / "out").iterdir() if entry.is_file()}
    assert after == before  # of the same runs the same bytes, and no half of a file beside them


@pytest.mark.full("takes seconds")
def test_without_matplotlib_there_are_no_pdf_and_it_says_so(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    done = call("--quick", "--seeds", 1, "--workers", 1, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert "no .pdf, which needs matplotlib: pip install matplotlib" in done.stderr
    assert not list((tmp_path / "out").glob("*.pdf"))
    with pytest.raises(ModuleNotFoundError, match="need matplotlib"):
        plots.draw([], "pdf")
