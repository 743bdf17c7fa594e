"""`fastpe.bands`: what the schemes give, beside their look-backs written out cell by cell, and the authors' numbers."""

import math

import numpy as np
import pytest

import fastpe
from fastpe import bands, temperatures

NUMBERS = np.arange(12)
Q = np.sin(NUMBERS[:, None] + 1 + 0.5 * np.arange(4))
K = np.cos(0.7 * NUMBERS[:, None] + 0.3 * np.arange(4))
V = np.sin(0.2 * NUMBERS[:, None] * (np.arange(4) + 1) + 0.1)
THETA = [1.0, 0.01]
LOG_N = temperatures.log_n(12, 4, dtype="float64")
MSCALE = temperatures.dual_chunk(12, 8, 4)

# what the authors' attention functions give: S[9, 1], S[9, 7], P[9, 1], O[9, 0], O[11, 3]
AUTHORS = {
    "plain": (bands.self_extend(12, group=1, window=4), {},
              (0.151866820, -0.519178441, 0.079442737, 0.657341076, 0.134845381)),
    "self_extend 2": (bands.self_extend(12, group=2, window=4), {},
                      (-0.624214984, -0.519178441, 0.055784683, 0.718631125, 0.125031831)),
    "self_extend 3": (bands.self_extend(12, group=3, window=4), {},
                      (-0.624214984, -0.519178441, 0.041859908, 0.735766386, 0.128572626)),
    "rerope": (bands.rerope(12, window=4), {"row_scale": LOG_N},
               (-0.374804655, -0.862336725, 0.071229747, 0.698311506, 0.119472069)),
    "leaky_rerope": (bands.leaky_rerope(12, window=4, step=2), {"row_scale": LOG_N},
                     (-1.036798647, -0.862336725, 0.024833348, 0.714699799, 0.032784904)),
    "dual_chunk": (bands.dual_chunk(12, chunk=6, local=2), {},
                   (-0.606015576, -0.519178441, 0.055229103, 0.743154218, 0.180288337)),
    "dual_chunk, mscale": (bands.dual_chunk(12, chunk=6, local=2), {"scale": MSCALE},
                           (-0.630836469, -0.540442700, 0.053167475, 0.744309922, 0.179059416)),
    "lm_infinite": (bands.lm_infinite(12, window=4, start=2), {},
                    (-0.225654888, -0.519178441, 0.232839804, 0.654100681, 0.485826275)),
    "streaming": (bands.streaming(12, start=2, recent=3), {},
                  (0.164782313, -0.519178441, 0.393644001, 0.524491519, 0.545235750)),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTHORS)
def test_attention_gives_what_the_authors_programs_give(name):
    own, slots, (s91, s97, p91, o90, o113) = AUTHORS[name]
    given = {"bands": own, "theta": THETA, "pairs": "half", **slots}
    if name == "dual_chunk, mscale":
        assert slots["scale"] * 2 == pytest.approx(1.020273255**2, abs=2e-9)
    for attention in (fastpe.attention, fastpe.reference.attention):
        out = attention(Q, K, V, **given)
        np.testing.assert_allclose([out[9, 0], out[11, 3]], [o90, o113], rtol=0, atol=6e-10)
    scores, weights = (fastpe.attention_scores(Q, K, stage=stage, **given) for stage in ("products", "weights"))
    seen = [weights[9, 1]] if name == "streaming" else [scores[9, 1], scores[9, 7], weights[9, 1]]
    np.testing.assert_allclose(seen, [p91] if name == "streaming" else [s91, s97, p91], rtol=0, atol=6e-10)
    # with identity values attention gives its weights
    found = fastpe.attention(Q, K, np.eye(12), **given)
    np.testing.assert_allclose(found, weights, rtol=0, atol=1e-14)


def test_gradients_are_those_of_automatic_differentiation():
    dout = np.cos(4.0 * NUMBERS[:, None] + np.arange(4))
    for attention_vjp in (fastpe.attention_vjp, fastpe.reference.attention_vjp):
        _, pullback = attention_vjp(Q, K, V, bands=bands.self_extend(12, group=2, window=4), theta=THETA, pairs="half")
        found = pullback(dout)
        np.testing.assert_allclose(
            found["q"][9], [-0.013052594, -0.176872112, -0.067971343, -0.284190116], rtol=0, atol=6e-10
        )
        np.testing.assert_allclose(
            found["k"][1], [0.145182829, 0.111411932, -0.009472397, -0.059657138], rtol=0, atol=6e-10
        )


def test_rows_of_look_backs_are_those_of_the_papers():
    def last(own):
        return bands.look_back(own)[0, 11].tolist()

    assert last(bands.shifted(12, shift=5, window=2)) == [8, 7, 6, 5, 4, 3, 2, 4, 3, 2, 1, 0]

    assert last(bands.self_extend(12, group=2, window=4)) == [7, 7, 6, 6, 5, 5, 4, 4, 3, 2, 1, 0]
    assert last(bands.self_extend(12, group=3, window=4)) == [6, 6, 6, 5, 5, 5, 4, 4, 3, 2, 1, 0]
    assert last(bands.leaky_rerope(12, window=4, step=2)) == [7.5, 7, 6.5, 6, 5.5, 5, 4.5, 4, 3, 2, 1, 0]
    assert last(bands.dual_chunk(12, chunk=6, local=2)) == [6, 5, 4, 3, 6, 5, 4, 3, 3, 2, 1, 0]
    streamed = np.array(last(bands.streaming(12, start=2, recent=3)))
    assert np.flatnonzero(~np.isnan(streamed)).tolist() == [0, 1, 9, 10, 11]
    assert streamed[~np.isnan(streamed)].tolist() == [4, 3, 2, 1, 0]


# ---------------------------------------------------------------------------------------------------------------------
# Look-backs as the papers' tables print them, cell by cell


def of_self_extend(i, j, group, window):
    m = i - j
    return m if m < window else i // group - j // group + window - window // group


def of_rerope(i, j, window, causal=True):
    return math.copysign(min(abs(i - j), window), i - j)


def of_leaky_rerope(i, j, window, step, causal=True):
    m = abs(i - j)
    return math.copysign(m if m < window else window + (m - window) / step, i - j)


def of_dual_chunk(i, j, chunk, local):
    c = chunk - local
    if i // c == j // c:
        return i - j
    return (min(i % c + c, chunk) if i // c == j // c + 1 else min(2 * c - 1, chunk)) - j % c


def of_shifted(i, j, shift, window):
    return i - j if i - j < shift else i - j - shift + window


def of_lm_infinite(i, j, window, start):
    return min(i - j, window) if i - j < window or j < start else None


def of_streaming(i, j, start, recent):
    """By the cache itself: its tokens, and places in it."""
    cache = [t for t in range(i + 1) if t < start or i - t < recent]
    return len(cache) - 1 - cache.index(j) if j in cache else None


SCHEMES = {
    "self_extend": (of_self_extend, [{"group": g, "window": w} for g, w in ((1, 3), (2, 4), (3, 1), (8, 100), (5, 7))]),
    "rerope": (of_rerope, [{"window": w, "causal": c} for w in (1, 3, 40) for c in (True, False)]),
    "leaky_rerope": (of_leaky_rerope, [
        {"window": w, "step": s, "causal": c}
        for w, s, c in ((1, 2, True), (3, 16, False), (4, 1, True), (40, 3, False))
    ]),
    "dual_chunk": (of_dual_chunk, [{"chunk": c, "local": e} for c, e in ((6, 2), (1, 0), (7, 0), (5, 4), (64, 8))]),
    "shifted": (of_shifted, [{"shift": s, "window": w} for s, w in ((5, 2), (1, 0), (4, 4), (50, 3))]),
    "lm_infinite": (of_lm_infinite, [{"window": w, "start": s} for w, s in ((1, 0), (4, 2), (2, 9), (50, 3))]),
    "streaming": (of_streaming, [{"start": s, "recent": r} for s, r in ((0, 1), (2, 3), (9, 2), (4, 50))]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("queries", "keys", "offset"),
    [(13, None, None), (1, 17, None), (5, 11, [2, 6]), (0, 3, None), (1, 1, None), (4, 9, [20])],
)
@pytest.mark.parametrize("name", SCHEMES)
def test_look_backs_are_the_formulas(name, queries, keys, offset):
    formula, options = SCHEMES[name]
    for each in options:
        found = bands.look_back(getattr(bands, name)(queries, keys, offset=offset, **each))
        count = queries if keys is None else keys
        for sample, first in enumerate([count - queries] if offset is None else offset):
            for row, i in enumerate(range(first, first + queries)):
                for j in range(count):
                    seen = j <= i or not each.get("causal", True)
                    expected = formula(i, j, **each) if seen else None
                    own = found[sample, row, j]
                    assert math.isnan(own) if expected is None else own == pytest.approx(expected), (each, i, j)


def of_lampe(i, j, keys, near, far, length):
    """By the authors' formulas: groups a of positions, and the two numbers that join the three parts."""
    a = [math.floor(length * place / (keys - 1)) for place in range(keys)]
    while far + 1 < keys and a[far] == a[far + 1]:
        far += 1
    b1 = near - a[near] - 1
    b2 = keys - 1 - far - a[keys - 1 - far] - b1
    m = i - j
    return m if m <= near or keys < 2 * near else m - b2 if m >= keys - far else a[i] - a[j] + b1


def test_offsets_of_lampe_are_those_of_the_authors_formulas():
    printed = [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 14]
    np.testing.assert_array_equal(bands.look_back(bands.lampe(24, near=4, far=3, length=12))[0, 23, ::-1], printed)
    for near, far, length in ((4, 3, 12), (2, 0, 5), (7, 7, 100), (3, 2, 1), (20, 5, 10)):
        own = bands.lampe(24, near=near, far=far, length=length)
        assert len(own) == (1 if near == 20 else 3)
        found = bands.look_back(own)[0]
        for i in range(24):
            expected = [of_lampe(i, j, 24, near, far, length) for j in range(i + 1)]
            np.testing.assert_array_equal(found[i, : i + 1], expected, err_msg=f"{near, far, length, i}")
            assert np.isnan(found[i, i + 1 :]).all()
    last = bands.look_back(bands.lampe(2, 24, near=4, far=3, length=12, offset=[22]))[0]
    np.testing.assert_array_equal(last[1, ::-1], printed)
    with pytest.raises(ValueError, match=r"^far must be at most near = 4, not 5"):
        bands.lampe(24, near=4, far=5)


def test_one_query_and_its_cache_are_the_last_row_of_all():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 3, 40, 8)) for _ in range(3))
    theta = bands.frequencies("rope", 40, dim=8)
    for name, (_, options) in SCHEMES.items():
        each = {**options[1], "causal": True} if "causal" in options[1] else options[1]
        make = getattr(bands, name)
        whole = fastpe.attention(q, k, v, bands=make(40, **each), theta=theta)
        last = fastpe.attention(q[:, :, -1:], k, v, bands=make(1, 40, **each), theta=theta)
        np.testing.assert_allclose(last, whole[:, :, -1:], rtol=0, atol=1e-13, err_msg=name)


@pytest.mark.parametrize(("name", "options"), [
    ("rope", {}), ("rope_linear", {"factor": 4.0}), ("rope_ntk", {}), ("rope_yarn", {}),
    ("rope_linear", {"rotated": 8}), ("rope_llama3", {}), ("rope_dynamic", {}),
])  # fmt: skip
def test_frequencies_are_an_encodings(name, options):
    request = {"dim": 16, "train_length": 32, **options}
    theta = bands.frequencies(name, 100, **request)
    built = fastpe.build(name, 100, dtype=np.float64, **request)
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, 100, 16)) for _ in range(3))
    own = bands.self_extend(100, group=1, window=9)
    found = fastpe.attention(q, k, v, bands=own, theta=theta, **{s: x for s, x in built.items() if s != "angles"})
    np.testing.assert_allclose(found, fastpe.attention(q, k, v, causal=True, **built), rtol=0, atol=1e-12)


def test_a_trained_model_is_read_with_bands_by_the_reference():
    config = fastpe.ModelConfig("rope", width=8, heads=2, hidden=8, causal=True, train_length=8, dtype="float64")
    model = fastpe.Transformer(config)
    x, theta = np.random.default_rng(6).standard_normal((1, 20)), bands.frequencies("rope", 20, dim=4)
    found = [
        fastpe.reference.model_forward(config, model.parameters, {"bands": own, "theta": theta}, x).ravel()
        for own in (bands.self_extend(20, group=1, window=4), bands.self_extend(20, group=4, window=4))
    ]
    exact = model(x)[0]
    np.testing.assert_allclose(found[0], exact, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found[1][:4], exact[:4], rtol=0, atol=1e-14)
    assert abs(found[1][8:] - exact[8:]).min() > 1e-7


@pytest.mark.parametrize(("name", "request_"), [
    ("alibi", {}), ("rope_longrope", {"start_tokens": 2, "long": [2.0] * 4, "train_length": 4}), ("sinusoidal", {}),
    ("rope_yarn", {"rotated": 4}),
])  # fmt: skip
def test_encodings_without_frequencies_are_refused(name, request_):
    with pytest.raises(ValueError, match=f"not '{name}'"):
        bands.frequencies(name, 20, **{"dim": 8, "train_length": 20, **request_})


@pytest.mark.parametrize(("call", "named"), [
    (lambda: bands.self_extend(-1), "queries"), (lambda: bands.self_extend(4, window=0), "window"),
    (lambda: bands.self_extend(4, group=0), "group"), (lambda: bands.self_extend(4, group=2.5), "group"),
    (lambda: bands.rerope(4, window=2, causal=1), "causal"), (lambda: bands.rerope(4, offset=[-1]), "offset"),
    (lambda: bands.leaky_rerope(4, step=0), "step"), (lambda: bands.dual_chunk(4, chunk=3, local=3), "local"),
    (lambda: bands.dual_chunk(4, chunk=0), "chunk"), (lambda: bands.lm_infinite(4, start=-1), "start"),
    (lambda: bands.streaming(4, recent=0), "recent"), (lambda: bands.streaming(4, start="a"), "start"),
    (lambda: temperatures.dual_chunk(4, 0, 8), "train_length"), (lambda: bands.frequencies("rope", 0, dim=4), "length"),
])  # fmt: skip
def test_mistakes_are_refused_by_name(call, named):
    with pytest.raises((TypeError, ValueError), match=named):
        call()
