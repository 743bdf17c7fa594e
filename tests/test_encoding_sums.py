"""Encodings used together: slots add, multiply or exclude each other, and gradients reach every part."""

from dataclasses import replace

import numpy as np
import pytest

import fastpe
from fastpe import encoding, sums
from fastpe.encoding import Encoding, Part


def test_a_sum_fills_the_slots_of_both() -> None:
    both = fastpe.build("wavelet+alibi", 6, dim=8, heads=2, **{"wavelet.scale": 2.0, "alibi.slope": 0.5})
    np.testing.assert_array_equal(both["table"], fastpe.build("wavelet", 6, dim=8, scale=2.0)["table"])
    np.testing.assert_array_equal(both["bias"], fastpe.build("alibi", 6, heads=2, slope=0.5)["bias"])


def test_tables_add_and_gradients_reach_every_part() -> None:
    name = "learned+sinusoidal+legendre"
    options = {"legendre.learned": True}
    params = fastpe.init(name, dim=4, train_length=5, dtype=np.float64, **options)
    assert set(params) == {"learned.table", "legendre.gamma"}
    keywords = {"dim": 4, "dtype": np.float64}
    total = fastpe.build(name, 5, params=params, **keywords, **options)["table"]
    terms = [
        params["learned.table"],
        fastpe.build("sinusoidal", 5, **keywords)["table"],
        fastpe.build("legendre", 5, **keywords)["table"],
    ]
    np.testing.assert_allclose(total, sum(terms), rtol=0, atol=4e-16 * 4)
    dtable = np.random.default_rng(1).normal(size=(5, 4))
    pulled = fastpe.pull(name, 5, {"table": dtable}, params=params, **keywords, **options)
    np.testing.assert_array_equal(pulled["learned.table"], dtable)
    alone = fastpe.pull("legendre", 5, {"table": dtable}, params={"gamma": [1.0]}, learned=True, **keywords)
    np.testing.assert_array_equal(pulled["legendre.gamma"], alone["gamma"])


def _made_up(slot: str, value: float, shape: tuple[int, ...]) -> Encoding:
    def fill(spec: object, params: object, out: dict, **options: object) -> None:
        out[slot][...] = value

    return replace(encoding.get("nope"), slots=(slot,), fill=fill, shapes=lambda spec, **options: {slot: shape})


def test_gains_multiply_and_what_cannot_be_shared_is_an_error() -> None:
    spec = encoding.make_spec(3)
    parts = [Part("a", _made_up("gain", 3.0, (1, 5)), {}), Part("b", _made_up("gain", 5.0, (1, 5)), {})]
    out = sums.allocate(parts, spec)
    sums.fill(parts, spec, {}, out)
    np.testing.assert_array_equal(out["gain"], 15.0)
    parts = [Part("a", _made_up("taps", 3.0, (3, 4)), {}), Part("b", _made_up("taps", 5.0, (3, 4)), {})]
    with pytest.raises(ValueError, match=r"both fill slot 'taps'"):
        sums.allocate(parts, spec)
    parts = [Part("a", _made_up("bias", 3.0, (1, 5)), {}), Part("b", _made_up("bias", 5.0, (1, 3)), {})]
    with pytest.raises(ValueError, match=r"'bias' has different shapes in 'a\+b': \(1, 5\), \(1, 3\)"):
        sums.allocate(parts, spec)
