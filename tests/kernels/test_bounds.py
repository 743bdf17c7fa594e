"""The build that checks bounds (FASTPE_CHECK_BOUNDS=1) catches whatever leaves its memory, and nothing else."""

import json
import os
import re
import subprocess
import sys

import pytest

from fastpe.kernels.compile import sources, switches

# Makes the calls that are allowed; then each of the others in a child, as a violation ends the process, and prints that
# one's exit status and standard error.
PROGRAM = """
import json, os, resource
from typing import NamedTuple
import numpy as np
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import (
    aligned_zeros, at, get, load, load_first, part, plain, pointer, put, region, row, store, store_first,
    store_past_caches, store_rounded, total, transpose_block,
)
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team, run_exclusively

class Layout(NamedTuple):
    first: int
    second: int
    other: int

LAYOUT = Layout(region(0, 8), region(8, 5), region(16, 16))
x = aligned_zeros(64, np.float64)
x[...] = np.arange(64.0)

@entry
def read(x, j): return get(pointer(x), j)
@entry
def read_on(x, j, k): return get(at(at(pointer(x), j), k), 0)
@entry
def write(x, j): put(pointer(x), j, 1.0)
@entry
def whole(x, j): return total(load(pointer(x), j))
@entry
def first(x, j, n): return total(load_first(pointer(x), j, n))
@entry
def stored(x, j): store(pointer(x), j, load(pointer(x), 0))
@entry
def stored_first(x, j, n): store_first(pointer(x), j, load(pointer(x), 0), n)
@entry
def rounded(x, y, j): store_rounded(pointer(y), j, load(pointer(x), 0), 4)
@entry
def past_caches(x, j): store_past_caches(pointer(x), j, load(pointer(x), 0))
@entry
def transposed(x, y): transpose_block(pointer(x), x.shape[1], pointer(y), y.shape[1], False)
@entry
def of_part(x, j): return get(part(pointer(x), 8, 8), j)
@entry
def of_row(x, i, j): return get(row(x, i), j)
@entry
def of_region(x, layout, j): return get(at(pointer(x), layout.second), j)
@entry
def in_region(x, layout, j): return get(at(pointer(x), layout.second + j), 0)
@entry
def moved_region(x, layout, n, j): return get(at(pointer(x), n + layout.second), j)
@entry
def region_in_region(x, layout, j): return get(at(pointer(x), layout.other + layout.second), j)
@entry
def without_region(x, layout, j): return get(at(pointer(x), plain(layout.second)), j)
@inner
def _in_worker(worker, p, x, j, indexed):
    put(p, worker * j, x[worker * j] if indexed else 0.0)
@entry
def workers(team, counters, x, j, indexed): on_team(team, _in_worker, (pointer(x), x[:8], j, indexed))

def workers_of(threads, j, indexed): run_exclusively(threads, workers, x, j, indexed)

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
inside, outside = json.loads(os.environ["CALLS"])
for text in inside:
    eval(text)
for text in outside:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 2)
        eval(text)
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said]), flush=True)
workers_of(2, 7, True)  # last: threads do not survive a fork
"""
READ = 1 + PROGRAM.splitlines().index("def read(x, j): return get(pointer(x), j)")

INSIDE = (
    "read(x, 63)", "read(x[::-1], -63)", "read(x[::2], 62)", "read_on(x, 1000, -937)", "write(x, 63)", "whole(x, 0)",
    "first(x, 63, 1)", "first(x, 1000, 0)", "first(x, 1000, -3)", "stored(x, 0)", "stored_first(x, 63, 1)",
    "rounded(x, x.astype(np.float32)[:5], 1)", "past_caches(x, 0)", "transposed(x.reshape(8, 8), x.reshape(8, 8))",
    "of_part(x, 7)", "of_row(x.reshape(8, 8), 2, 7)", "of_region(x, LAYOUT, 4)", "in_region(x, LAYOUT, 4)",
    "moved_region(x, LAYOUT, 40, 4)", "region_in_region(x, LAYOUT, 4)", "without_region(x, LAYOUT, 5)",
)  # fmt: skip
OUTSIDE = {
    "read(x, 64)": f"read, line {READ}: element 64 of memory that has 64 elements of 8 bytes",
    "read(x, -1)": "element -1 of",
    "read(x[:0], 0)": "element 0 of memory that has 0",
    "read(x[::-1], 1)": "element 64 of",
    "read(x.reshape(8, 8)[2:4, 1:3], -1)": "element -1 of memory that has 10",
    "read_on(x, 1000, -936)": "element 64 of",
    "write(x, 64)": "element 64 of",
    "whole(x, 63)": r"elements 63 to \d+ of memory that has 64",
    "first(x, 63, 2)": "elements 63 to 64 of",
    "stored(x, 63)": r"elements 63 to \d+ of",
    "stored_first(x, 63, 2)": "elements 63 to 64 of",
    "rounded(x, x.astype(np.float32)[:5], 4)": r"elements 4 to \d of memory that has 5 elements of 4 bytes",
    "past_caches(x, 64)": r"elements 64 to \d+ of",
    "transposed(x.reshape(8, 8), x.reshape(1, 64))": "elements 64 to",
    "of_part(x, 8)": "element 8 of memory that has 8",
    "of_part(x, -1)": "element -1 of memory that has 8",
    "of_row(x.reshape(8, 8), 2, 8)": "element 8 of memory that has 8",
    "of_region(x, LAYOUT, 5)": "element 5 of memory that has 5",
    "in_region(x, LAYOUT, -1)": "element -1 of memory that has 5",
    "moved_region(x, LAYOUT, 40, 5)": "element 5 of memory that has 5",
    "region_in_region(x, LAYOUT, 5)": "element 5 of memory that has 5",
    "workers_of(2, 64, False)": "_in_worker, line .*element 64 of",
    "workers_of(2, 8, True)": "workers, line .*an index outside an array",
}


@pytest.fixture(scope="module")
def outcomes():
    """Exit status and standard error of every call that leaves its memory."""
    if not hasattr(os, "fork"):
        pytest.skip("a process for each case is forked")
    environment = {**os.environ, "FASTPE_CHECK_BOUNDS": "1", "CALLS": json.dumps([INSIDE, [*OUTSIDE]])}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")  # what stays inside is let through
    return dict(zip(OUTSIDE, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.full("starts processes")
@pytest.mark.parametrize("call", OUTSIDE)
def test_access_out_of_bounds_ends_the_process_and_names_the_line(outcomes, call):
    status, said = outcomes[call]
    assert status < 0
    assert re.search(r"^fastpe: out of bounds in __main__\..*" + OUTSIDE[call], said), said


@pytest.mark.full("starts processes")
def test_gradients_of_attention_stay_within_their_memory():
    """The largest kernels; they once called address 0 in the checked build."""
    program = """
import numpy as np, fastpe
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 2, 130, 8)) for _ in "qkv")
out, pullback = fastpe.attention_vjp(q, k, v, causal=True, bias=rng.standard_normal((2, 9)))
print(sum(float(abs(x).sum()) for x in pullback(out).values()))
"""
    found = []
    for checked in ("0", "1"):
        environment = {**os.environ, "FASTPE_CHECK_BOUNDS": checked}
        environment.pop("NUMBA_DISABLE_JIT", None)
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        found.append(float(done.stdout))
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_the_checked_build_has_a_cache_of_its_own(monkeypatch):
    digests = []
    for checked in (False, True):
        monkeypatch.setattr(switches, "CHECK_BOUNDS", checked)
        digests.append(sources.digest_of("fastpe.kernels.products.gemm"))
    assert None not in digests
    assert digests[0] != digests[1]


def test_a_value_that_is_no_switch_is_refused(monkeypatch):
    for value, meant in {"": False, "0": False, "1": True}.items():
        monkeypatch.setenv("FASTPE_CHECK_BOUNDS", value)
        assert switches.switch("FASTPE_CHECK_BOUNDS") is meant
    monkeypatch.setenv("FASTPE_CHECK_BOUNDS", "yes")
    with pytest.raises(ValueError, match=r"^FASTPE_CHECK_BOUNDS must be 0 or 1, not 'yes'$"):
        switches.switch("FASTPE_CHECK_BOUNDS")


def test_memory_is_reached_through_pointers_alone():
    """An address that is made elsewhere is not checked."""
    package = sources.PACKAGE
    makers = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if ".gep(" in path.read_text()}
    assert makers == {"kernels/simd/pointers.py"}
