"""`fastpe doctor`: what it prints, its exit status, what it compiles beforehand, and the histograms of its accuracy."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import fastpe
from fastpe.doctor import diagnosis
from fastpe.encodings.registry import built_in, get
from fastpe.kernels import arrays
from fastpe.kernels.compile import cache
from fastpe_cli.main import main

SOURCES = Path(fastpe.__file__).parent


def fastpe_command(*arguments, folder=None, **environment):
    """Run the command line in a process of its own, and in a folder, whose own package `fastpe` it then runs."""
    command, variables = [sys.executable, "-m", "fastpe", *arguments], {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done


def run(*arguments):
    return CliRunner().invoke(main, ["doctor", *arguments], standalone_mode=False)


def test_it_prints_a_line_per_check_where_asked_to_and_tells_success_by_its_status():
    result = run("--only", "gelu", "--only", "exp", "--verbose")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert sum(line.startswith("PASS  kernel ") for line in lines) == 10
    assert re.fullmatch(r"all 10 checks passed, \d+\.\d s", lines[-1])
    short = run("--only", "gelu", "--only", "exp").stdout.splitlines()
    words = [line.split()[0] for line in short if line[:1].strip()]
    assert words == ["versions", "CPU", "cache", "threads", "10", "all"]
    assert short[-2] == "10 checks; only failures are printed (-v prints all)"


def test_a_fault_is_named_and_the_status_is_1(monkeypatch):
    right = arrays.gelu_forward
    monkeypatch.setattr(arrays, "gelu_forward", lambda x: right(x) + x.dtype.type(1e-4))
    result = run("--only", "gelu")
    assert result.exit_code == 1
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert [line.split()[1:4] for line in failed] == [["kernel", "gelu_forward", d] for d in diagnosis.DTYPES]
    assert all(" error 0.0001 " in line and " bound " in line for line in failed)
    assert "PASS" not in result.stdout
    assert result.stdout.splitlines()[-1].startswith("2 of 8 checks failed, ")


def test_json_holds_everything_and_no_number_that_json_lacks(monkeypatch):
    monkeypatch.setattr(arrays, "exp", lambda x: x * np.nan)
    result = run("--only", "exp", "--json")
    assert result.exit_code == 1
    facts = json.loads(result.stdout, parse_constant=pytest.fail)
    assert facts["passed"] is False
    assert set(facts) == {"schema", "passed", "versions", "cpu", "cache", "threads", "checks"}
    assert facts["checks"][0] == {
        **{"name": "kernel exp", "dtype": "float32", "passed": False, "error": None, "bound": None},
        "note": "a result is not finite",
    }


@pytest.mark.full("starts processes")
def test_unknown_words_are_a_users_mistake():
    done = fastpe_command("doctor", "--only", "nonsense")
    assert done.returncode == 2
    assert done.stderr.startswith("fastpe: error: no check has 'nonsense' in its name; the checks are: kernel gemm, ")
    assert not done.stdout


@pytest.mark.full("starts processes")
def test_without_compilation_it_says_that_it_cannot_check():
    done = fastpe_command("doctor", NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "fastpe: error: NUMBA_DISABLE_JIT is set: the kernels only work compiled\n"


@pytest.mark.full("starts processes")
def test_an_edited_kernel_is_found_by_a_new_process(tmp_path):
    shutil.copytree(SOURCES, tmp_path / "fastpe", ignore=shutil.ignore_patterns("__pycache__"))
    kernel = tmp_path / "fastpe" / "kernels" / "model" / "adam.py"
    source = kernel.read_text()
    assert "rates * m" in source
    kernel.write_text(source.replace("rates * m", "rates * g"))
    only = ("--only", "adam_step", "--only", "transpose float32")
    done = fastpe_command("doctor", *only, folder=tmp_path, FASTPE_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert done.stdout.count("FAIL  kernel adam_step") == 2
    assert done.stdout.splitlines()[-1].startswith("2 of 3 checks failed, ")


# ----------------------------------------------------------------------------------------------------------- compiling


@pytest.mark.full("starts processes")
def test_warming_says_what_it_compiles_and_does_it_once(tmp_path):
    command, cache = ("doctor", "--warm", "--only", "fill learned float"), {"FASTPE_CACHE_DIR": str(tmp_path)}
    first = fastpe_command(*command, **cache).stdout.splitlines()
    assert first[0].startswith("fill learned ")
    assert first[0].endswith(" s  learned table (float64)")  # of its positions
    assert first[-1].startswith("2 functions compiled, ")
    again = fastpe_command(*command, "--json", **cache)
    facts = json.loads(again.stdout)
    assert again.returncode == 0
    assert facts["passed"] is True
    assert [(part["name"], part["dtype"], part["compiled"]) for part in facts["parts"]] == [
        ("fill learned", dtype, []) for dtype in diagnosis.DTYPES
    ]
    assert facts["cache"]["files"] > 0 < facts["cache"]["bytes"]


@pytest.mark.full("starts processes")
def test_after_warming_a_training_compiles_nothing(tmp_path):
    parts = ("fill learned float32", "pull learned float32", "step learned float32", "threads float32")
    assert fastpe_command("doctor", "--warm", *(word for part in parts for word in ("--only", part))).returncode == 0
    run = ("--samples", "8", "--epochs", "1", "--out", str(tmp_path / "run"))
    trained = fastpe_command("train", "--encoding", "learned", *run)
    assert trained.returncode == 0, trained.stderr
    assert "compiling" not in trained.stderr


def test_warming_covers_all_but_the_checks_of_single_kernels():
    assert {check.name for check in diagnosis.compiling()} == {
        check.name for check in diagnosis.checks() if not check.name.startswith("kernel ")
    }


def test_warming_without_a_cache_is_an_error(monkeypatch):
    monkeypatch.setattr(cache, "problem", "the disk is full")
    with pytest.raises(click.ClickException, match="compiled code cannot be cached: the disk is full"):
        CliRunner().invoke(main, ["doctor", "--warm"], standalone_mode=False, catch_exceptions=False)


# ----------------------------------------------------------------------------------------------------------- accuracy


@pytest.mark.full("takes seconds")
def test_accuracy_prints_histograms_and_what_float32_angles_cost():
    done = CliRunner().invoke(main, ["doctor", "--accuracy", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    seen = {(each["name"], each["dtype"]) for each in found["histograms"]}
    filling = [name for name in built_in() if set(get(name).slots) - {"scale", "pairs"}]
    # only what has an oracle in decimals is counted in float64; beside a float64 reference it would count that one's
    exactly = {("sinusoidal", "float64"), ("legendre", "float64"), ("wavelet", "float64"), ("learned", "float64")}
    assert seen == {(name, "float32") for name in filling} | exactly | {("alibi", "float64")}
    for each in found["histograms"]:
        of_positions_alone = each["name"] in ("log_n", "temperature")  # a factor of each of 50
        assert sum(each["counts"]) == each["values"]
        assert each["values"] == 50 if of_positions_alone else each["values"] > 100, each["name"]
    assert all(each["worst"] <= 1 for each in found["histograms"] if each["dtype"] == "float32")
    assert "next to zeros of Legendre polynomials" in found["limits"]
    assert all(each["float32_angles"] > 100 * each["fastpe"] for each in found["sinusoidal_errors"])


def test_accuracy_stands_alone():
    done = CliRunner().invoke(main, ["doctor", "--accuracy", "--warm"])
    assert done.exit_code == 2
    assert "--accuracy cannot be combined with --warm or --only" in done.output
