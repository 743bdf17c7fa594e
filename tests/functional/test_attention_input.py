"""What attention refuses: one error that names the argument, before anything is computed."""

import numpy as np
import pytest
from attention_problems import SLOTS, problem
from foreign_arrays import CudaTensor, Dlpack

import fastpe
from fastpe.functional import passes

B, H, N, M, D = 2, 4, 5, 7, 6
PLAIN = problem(np.random.default_rng(0), SLOTS, b=B, h=H, hk=2, n=N, m=M, d=D)


@pytest.fixture(autouse=True)
def _no_work(monkeypatch):
    def run_team(*arguments):
        raise AssertionError("something was computed")

    monkeypatch.setattr(passes, "run_team", run_team)


def refused(kind, words, **arguments):
    for call in (fastpe.attention, fastpe.attention_vjp):
        if "wrt" in arguments and call is fastpe.attention:
            continue
        with pytest.raises(kind) as caught:
            call(**{"causal": True, **PLAIN, **arguments})
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("q", (D,)), ("q", (B, 0, N, D)), ("q", (B, H, N, 0)), ("q", (1, B, H, N, D)),
        ("k", (H, M, D)), ("k", (B + 1, 2, M, D)), ("k", (B, 2, M, D + 1)), ("k", (B, 0, M, D)), ("k", (M, D)),
        ("v", (B, 2, M + 1, D)), ("v", (B, 1, M, D)), ("v", (B, 2, M, 0)), ("rel_value", (H, 9, D - 1)),
        ("sinks", (1, H)), ("sinks", (H + 1,)), ("mask", (M, N)), ("mask", (1, B, H, N, M)), ("mask", (B, H, N, 3)),
        ("rel_gain", (H, 9, D + 1)), ("rel_key", (H, 8, D)), ("rel_query", (2, 9, D)), ("rel_value", (9, D)),
        ("key_bias", (1, D)), ("key_bias", (H, D + 1)), ("gain", (H, 10)), ("gain", (1, 9)), ("bias", (9,)),
        ("bias", (H + 1, 9)), ("bias", (3, H, 9)), ("bias", (H, 0)), ("values", (1, 7)), ("values", (H, 0)),
        ("scores", (H, N, M + 1)), ("scores", (H, M, N)), ("scores", (1, N, M)), ("angles", (1, N, 3)),
        ("angles", (2, M, 3)), ("angles", (1, M, 4)), ("growth", (N, 3)), ("growth", (M, 4)), ("growth", (M, 2)),
        ("scale", (1,)), ("scale", (H, 1)),
    ],
)  # fmt: skip
def test_shapes(name, shape):
    refused(ValueError, f"{name} must ", **{name: np.ones(shape)})


def test_heads_of_keys_divide_those_of_queries():
    keys = np.ones((B, 3, M, D))
    refused(ValueError, "k must have a number of heads that divides q's 4, not 3", k=keys, v=keys)


@pytest.mark.parametrize("shape", [(N, M + 1), (M, N), (B + 1, N, M), (H, N, M)])
def test_the_shape_of_index(shape):
    refused(ValueError, "index must have the shape (N, M)", index=np.zeros(shape, np.int64))


@pytest.mark.parametrize(
    "name", [name for name in PLAIN if name not in ("index", "scale", "angles", "growth", "key_offset")]
)
def test_one_dtype(name):
    words = "k must have the dtype of q, float32, not float64" if name == "q" else "must have the dtype of q, float64"
    refused(TypeError, words, **{name: PLAIN[name].astype(np.float32)})


@pytest.mark.parametrize("dtype", [np.int64, np.longdouble, np.complex128, bool, object])
@pytest.mark.parametrize("name", [name for name in PLAIN if name not in ("index", "scale")])
def test_real_numbers_of_two_dtypes(name, dtype):
    refused(TypeError, f"{name} must ", **{name: np.ones(PLAIN[name].shape).astype(dtype)})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", SLOTS)
def test_slots_are_finite(name, bad):
    spoilt = PLAIN[name].copy()
    spoilt[(-1,) * spoilt.ndim] = bad
    refused(ValueError, f"{name} must be finite", **{name: spoilt})


def test_a_scale_beyond_the_dtype():
    single = {name: PLAIN[name].astype(np.float32) for name in "qkv"}
    with pytest.raises(ValueError, match="scale must be finite in float32, not 1e\\+39"):
        fastpe.attention(**single, scale=1e39)


@pytest.mark.parametrize(
    ("kind", "words", "arguments"),
    [
        (TypeError, "slope is not an argument of attention", {"slope": 1.0}),
        (TypeError, "table is added to the embeddings", {"table": np.zeros((N, D))}),
        (TypeError, "causal must be True or False, not 1", {"causal": 1}),
        (TypeError, "rectify must be True or False", {"rectify": np.zeros(3)}),
        (TypeError, "return_lse must be True or False", {"return_lse": "yes"}),
        (ValueError, "pairs must be 'interleaved' or 'half', not 'split'", {"pairs": "split"}),
        (ValueError, "growth needs causal=True", {"causal": False}),
        (ValueError, "index and values must be given together", {"index": None}),
        (ValueError, "index and values must be given together", {"values": None}),
        (ValueError, "index must lie in [0, 6], not 7 at index [0, 0]", {"index": np.eye(N, M, dtype=int) * 7}),
        (ValueError, "tolerance must lie in [0, 1), not 1", {"tolerance": 1}),
        (ValueError, "tolerance must lie in [0, 1), not -0.1", {"tolerance": -0.1}),
        (ValueError, "tolerance must be finite, not nan", {"tolerance": float("nan")}),
        (TypeError, "tolerance must be a number, not 'none'", {"tolerance": "none"}),
        (TypeError, "tolerance must be a number, not True", {"tolerance": True}),
        (TypeError, "scale must hold real numbers, not <U3", {"scale": "big"}),
        (ValueError, "lengths of keys must have the shape (B,) = (2,), not 3", {"lengths": 3}),
        (ValueError, "lengths of keys must have the shape (B,)", {"lengths": [1, 2, 3]}),
        (ValueError, "lengths of keys must lie in [0, 7], not 8 at index 1", {"lengths": [1, 8]}),
        (ValueError, "lengths of queries must have the shape (B,) = (2,), not 3", {"lengths": (3, None)}),
        (ValueError, "lengths of queries must have the shape (B,) = (2,)", {"lengths": ([3], [1, 1])}),
        (TypeError, "lengths of queries must be an array", {"lengths": ([[1], [1, 2]], [1, 1])}),
        (ValueError, "wrt names 'index'", {"wrt": ("index",)}),
        *((TypeError, f"wrt must be a tuple of names, as in ('q', 'bias'), not {wrt!r}", {"wrt": wrt})
          for wrt in ("bias", "q", 3, True, ("q", 3), [["q"]], {"q": 1}.items())),
        (TypeError, "wrt must be a tuple of names", {"wrt": 3, "mask": np.eye(N, M, dtype=bool)[::-1]}),
        (ValueError, "wrt names 'pairs'", {"wrt": ("pairs",)}),
        (ValueError, "wrt names 'rel_gain'", {"wrt": ("rel_gain",), "rel_gain": None}),
        (ValueError, "wrt names 'table'", {"wrt": ("q", "table")}),
    ],
)  # fmt: skip
def test_values(kind, words, arguments):
    refused(kind, words, **arguments)


@pytest.mark.parametrize("name", PLAIN)
def test_memory_of_another_device(name):
    refused(TypeError, f"{name} must be in CPU memory", **{name: CudaTensor(PLAIN[name])})


@pytest.mark.parametrize("dout", [np.ones((B, H, N, D + 1)), np.ones((H, N, D)), np.ones((B, H, N, D), np.int64)])
def test_dout(dout, monkeypatch):
    computed = []
    monkeypatch.setattr(passes, "run_team", lambda *arguments: computed.append(arguments))
    pullback = fastpe.attention_vjp(**PLAIN, causal=True)[1]
    before = len(computed)
    with pytest.raises((TypeError, ValueError), match="dout must"):
        pullback(dout)
    assert len(computed) == before > 0


def test_arrays_of_any_maker(monkeypatch):
    monkeypatch.undo()
    expected = fastpe.attention(**PLAIN, causal=True)
    made = {name: Dlpack(array) for name, array in PLAIN.items() if name != "scale"}
    np.testing.assert_array_equal(fastpe.attention(**made, scale=PLAIN["scale"], causal=True), expected)
