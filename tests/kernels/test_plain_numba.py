"""Numba as it is compiles everything too: .ci/run runs this file with FASTPE_PLAIN_NUMBA=1, as with a version of which
`kernels.compile.pipeline` does not know enough."""

import os

import numba
import numpy as np
import pytest
from numba.core.compiler import Compiler

import fastpe
from fastpe import reference
from fastpe.doctor import diagnosis
from fastpe.kernels.compile import decorators, sources, switches
from fastpe.kernels.fills import table

CHECKS = (
    "kernel exp float32", "kernel exp float64", "kernel gemm float32", "kernel transpose float64",
    "kernel gelu_backward float32", "kernel layer_norm_backward float32", "kernel cross_entropy float32",
    "kernel adam_step float32", "kernel drop float32",
    "kernel attention float32", "kernel attention_vjp float32",
    "fill sinusoidal float32", "fill rope float32", "fill alibi float32", "fill fire float32", "fill wavelet float64",
    "pull learned float32", "pull alibi float32", "step alibi float32",
)  # fmt: skip

plain = pytest.mark.skipif(not switches.PLAIN_NUMBA, reason="FASTPE_PLAIN_NUMBA=1 is not set")


def test_the_switch_is_obeyed():
    assert (os.environ.get("FASTPE_PLAIN_NUMBA") == "1") == switches.PLAIN_NUMBA
    assert bool(decorators._LINKED) != switches.PLAIN_NUMBA
    if not numba.config.DISABLE_JIT:
        compilers = {each._compiler.pipeline_class for each in (table.largest_of, table.finish)}
        assert (compilers == {Compiler}) == switches.PLAIN_NUMBA


def test_it_has_machine_code_of_its_own(monkeypatch):
    digests = set()
    for chosen in (False, True):
        monkeypatch.setattr(switches, "PLAIN_NUMBA", chosen)
        digests.add(sources.digest_of("fastpe.kernels.products.gemm"))
    assert len(digests) == 2


@plain
@pytest.mark.parametrize("title", CHECKS)
def test_what_it_compiles_is_right(title):
    (check,) = diagnosis.checks([title])
    verdict = diagnosis.judge(check)
    assert verdict.passed, verdict


@plain
def test_half_precision_is_read():
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 40, 16)).astype(np.float16)
    expected = reference.attention(*(x.astype(np.float64) for x in (q, k, v)), causal=True)
    np.testing.assert_allclose(fastpe.attention(q, k, v, causal=True), expected, rtol=1e-2, atol=1e-3)
