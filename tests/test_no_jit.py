"""Fills and pulls as plain Python: .ci/run runs this file (and the references' tests) with NUMBA_DISABLE_JIT=1 too."""

import os

import numba
import numpy as np
import pytest

import fastpe


def test_the_switch_is_obeyed():
    assert bool(numba.config.DISABLE_JIT) == (os.environ.get("NUMBA_DISABLE_JIT", "0") != "0")


@pytest.mark.parametrize("name", fastpe.list_encodings())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fills_agree_with_their_references(name, dtype):
    sizes = {"dim": 12, "heads": 3, "train_length": 9, "dtype": dtype}
    exact = fastpe.build(name, 9, **sizes, reference=True)
    built = fastpe.build(name, 9, **sizes)
    assert list(built) == list(exact)
    for slot, array in built.items():
        np.testing.assert_allclose(array, exact[slot], atol=4 * np.finfo(dtype).eps * np.abs(exact[slot]).max())


@pytest.mark.parametrize(
    ("name", "options"), [("learned", {}), ("alibi", {"learned": True}), ("legendre", {"learned": True})]
)
def test_pulls_run(name, options):
    sizes = {"dim": 6, "heads": 2, "train_length": 5, "dtype": np.float64}
    params = fastpe.init(name, **sizes, **options)
    slots = fastpe.build(name, 5, **sizes, params=params, **options)
    gradients = fastpe.pull(
        name, 5, {slot: np.ones_like(array) for slot, array in slots.items()}, params=params, **sizes, **options
    )
    assert {key: value.shape for key, value in gradients.items()} == {key: value.shape for key, value in params.items()}
    assert all(np.abs(value).max() > 0 for value in gradients.values())
