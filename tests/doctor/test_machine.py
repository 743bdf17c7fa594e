"""What fastpe says of the machine that it runs on, and that its measurements measure what they name."""

import time

import numpy as np
import pytest
from click.testing import CliRunner

import fastpe
from fastpe.doctor import machine, probe
from fastpe.kernels.compile import cache, sources
from fastpe.kernels.threads.team import run_exclusively
from fastpe_cli.main import main


def test_the_cache_is_measured_and_a_change_of_sources_makes_it_stale(tmp_path, monkeypatch):
    for number, size in enumerate((10, 20)):
        (tmp_path / f"f{number}.code").write_bytes(b"x" * size)
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(cache, "problem", None)
    facts = {"folder": str(tmp_path), "problem": None, "files": 2, "bytes": 30, "stale": False}
    monkeypatch.setattr(sources, "_START", time.time())
    assert machine.compile_cache() == facts
    monkeypatch.setattr(sources, "_START", 0.0)
    assert machine.compile_cache()["stale"]
    monkeypatch.setattr(cache, "problem", "read-only")
    assert machine.compile_cache()["folder"] is None
    result = CliRunner().invoke(main, ["doctor", "--only", "exp"], standalone_mode=False)
    assert "none, each process compiles again: read-only" in result.stdout


def test_versions_name_what_is_missing(monkeypatch):
    monkeypatch.setattr(machine, "_OPTIONAL", ("numpy", "no-such-package"))
    found = machine.versions()
    assert found["no-such-package"] is None
    assert (found["fastpe"], found["numpy"]) == (fastpe.__version__, np.__version__)
    assert machine.cpu()["register_bytes"] in (16, 32, 64)
    assert 1 <= machine.usable_cores() <= machine.cpu()["cores"]


@pytest.mark.parametrize("lanes", [1, 3])
def test_what_is_measured_does_what_it_says(lanes):
    x, y = np.arange(4 * 1024, dtype=np.float32) % 7, np.zeros(4 * 1024, np.float32)
    sums = np.zeros(lanes, np.float32)
    run_exclusively(lanes, probe._stream, x, y, sums, True, False)
    assert sums.sum() == x.sum()
    run_exclusively(lanes, probe._stream, x, y, sums, True, True)
    np.testing.assert_array_equal(y, x)
    sums[...] = 5
    run_exclusively(lanes, probe._stream, x, y, sums, False, True)
    np.testing.assert_array_equal(y, 5)
    a, b = (np.random.default_rng(seed).random((20, 20), np.float32) for seed in (0, 1))
    c = np.zeros((lanes, 20, 20), np.float32)
    run_exclusively(lanes, probe._repeat_gemm, a, b, c, 2)
    np.testing.assert_allclose(c, np.broadcast_to(a @ b, c.shape), rtol=1e-5)


@pytest.mark.full("starts processes")
def test_speeds_are_finite_and_a_blas_that_cannot_be_measured_is_left_out(monkeypatch):
    assert set(probe.bandwidth(2, size=2**16)) == {"read", "write", "copy"}
    assert all(np.isfinite(rate) and rate > 0 for rate in probe.bandwidth(1, size=2**16).values())
    assert np.isfinite(probe.sgemm_peak(1))
    assert probe.blas_peak(1) > 0
    monkeypatch.setattr(probe, "_BLAS", "raise SystemExit(3)")
    assert probe.blas_peak(1) is None
