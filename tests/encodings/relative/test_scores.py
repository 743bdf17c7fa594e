"""Relative vectors and multipliers: attention with their slots against the papers' scores, pair by pair."""

import math

import mpmath
import numpy as np
import pytest
from relative_encodings import drawn
from scipy.special import softmax
from through_attention import assert_same_along

import fastpe


def sinusoid(m: int, width: int, *, base: float = 1e4, over: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    angles = m * base ** (-np.arange(width // 2) / (width / 2 if over is None else over))
    return np.sin(angles), np.cos(angles)


def shaw(q, k, p, h, i, j, *, reach):
    return q @ (k + p["key"][np.clip(j - i, -reach, reach) + reach]) / math.sqrt(len(q))


def li_eq5(q, k, p, h, i, j, *, reach, scaled):
    return (
        q @ k / (math.sqrt(len(q)) if scaled else 1) + p["vector"] @ p["table"][np.clip(i - j, -reach, reach) + reach]
    )


def transformer_xl(q, k, p, h, i, j, *, clamp_len):
    m = np.clip(i - j, -clamp_len, clamp_len)
    r = np.concatenate(sinusoid(m, 2 * len(q))) @ p["weight"][:, h * len(q) : (h + 1) * len(q)]
    return ((q + p["u"][h]) @ k + (q + p["v"][h]) @ r) / math.sqrt(len(q))


def tener(q, k, p, h, i, j, *, form, scaled=False):
    s = 1 / math.sqrt(len(q)) if scaled else 1
    if form == "paper":
        r = np.stack(sinusoid(i - j, len(q)), axis=1).ravel()
        return s * (q @ k + q @ r + p["u"][h] @ k + p["v"][h] @ r)
    ahead, behind = (np.concatenate(sinusoid(m, len(q), over=len(q) / 2 - 1)) for m in (j - i, i - j))
    return s * ((q + p["u"][h]) @ k + (q + p["v"][h]) @ ahead + k @ behind)


def huang(q, k, p, h, i, j, *, method, reach, per_head=False):
    w, s = p["weight"][h if per_head else 0], 1 / math.sqrt(len(q))
    if method == 1:
        return s * q @ k * w[min(abs(i - j), reach - 1)]
    w = w[np.clip(j - i, 1 - reach, reach - 1) + reach - 1]
    return {2: s * q @ k * w, 3: s * np.sum(q * k * w), 4: s * np.sum(q * k + q * w + k * w)}[method]


def deberta(q, k, p, h, i, j, *, reach, p2c_index):
    x, y = (np.clip(m + reach, 0, 2 * reach - 1) for m in (i - j, j - i))
    mine = slice(h * len(q), (h + 1) * len(q))
    key, query = (p["table"] @ p[name][:, mine] for name in ("key", "query"))
    return (q @ k + q @ key[x] + k @ query[x if p2c_index == "code" else y]) / math.sqrt(3 * len(q))


def da(q, k, p, h, i, j):
    w, v = p["w"][h], p["v"][h]
    return max(q @ k, 0) * (1 + math.exp(v)) / (1 + math.exp(v - w * abs(i - j))) / math.sqrt(len(q))


PRINTED = [
    (shaw, "shaw", {"reach": 2}),
    (li_eq5, "li_eq5", {"reach": 2, "scaled": True}),
    (li_eq5, "li_eq5", {"reach": 2, "scaled": False}),
    (transformer_xl, "transformer_xl", {"clamp_len": 3}),
    (transformer_xl, "transformer_xl", {"clamp_len": 9}),
    (tener, "tener", {"form": "paper"}),
    (tener, "tener", {"form": "code"}),
    (tener, "tener", {"form": "paper", "scaled": True}),
    (tener, "tener", {"form": "code", "scaled": True}),
    *((huang, f"huang{method}", {"reach": 3, "per_head": own}) for method in (1, 2, 3, 4) for own in (False, True)),
    (deberta, "deberta", {"reach": 3, "p2c_index": "code"}),
    (deberta, "deberta", {"reach": 3, "p2c_index": "paper"}),
    (da, "da", {}),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("score", "name", "options"), PRINTED)
def test_attention_is_that_of_the_printed_score(score, name, options, causal) -> None:
    n, heads, width = 6, 2, 4
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, heads, n, width))
    sizes = {"dim": heads * width, "heads": heads, "causal": causal, **options}
    params = drawn(name, rng, train_length=n, **sizes)
    given = options | ({"method": int(name[-1])} if score is huang else {})
    scores = np.full((heads, n, n), -np.inf)
    for h, i, j in np.ndindex(heads, n, n):
        if j <= i or not causal:
            scores[h, i, j] = score(q[h, i], k[h, j], params, h, i, j, **given)
    weights = softmax(scores, axis=-1)
    expected = weights @ v
    if name == "shaw":
        rows = np.clip(np.arange(n) - np.arange(n)[:, None], -2, 2) + 2
        expected += np.einsum("hij,ijd->hid", weights, params["value"][rows])
    slots = fastpe.build(name, n, dtype=np.float64, params=params, **sizes)
    np.testing.assert_allclose(fastpe.attention(q, k, v, causal=causal, **slots), expected, rtol=0, atol=2e-14)


CLIPPED = [
    ("shaw", {"reach": 2}),
    ("shaw", {"reach": 3, "use_values": False}),
    ("li_eq5", {"reach": 2, "scaled": False}),
    ("transformer_xl", {"clamp_len": 2}),
    *((f"huang{method}", {"reach": 2, "per_head": True}) for method in (1, 2, 3, 4)),
    ("deberta", {"reach": 3}),
    ("deberta", {"reach": 3, "p2c_index": "paper"}),
    ("deberta", {"reach": 4, "buckets": 4}),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("name", "options"), CLIPPED)
def test_gradients_where_offsets_are_clipped(name: str, options: dict, causal: bool) -> None:
    assert_same_along(name, 6, 3, dim=4, heads=2, causal=causal, **options)


def test_transformer_xl_equals_the_released_shift_of_rows() -> None:
    """The released code projects the distances N-1 .. 0 and shifts each query's row into place: right for j <= i."""
    n, rng = 7, np.random.default_rng(1)
    q, v = rng.standard_normal((n, 4)), rng.standard_normal((1, 4))
    params = {"u": np.zeros((1, 4)), "v": v, "weight": rng.standard_normal((4, 4))}
    r = np.array([np.concatenate(sinusoid(m, 4)) for m in range(n - 1, -1, -1)]) @ params["weight"]
    by_distance = (q + v) @ r.T
    shifted = np.concatenate([np.zeros((n, 1)), by_distance], axis=1).reshape(n + 1, n)[1:]
    slots = fastpe.build("transformer_xl", n, dim=4, dtype=np.float64, params=params)
    rows = np.arange(n) - np.arange(n)[:, None] + n - 1
    ours = np.einsum("id,ijd->ij", q, slots["rel_key"][0, rows]) + 2 * slots["bias"][0, rows]
    np.testing.assert_allclose(np.tril(ours), np.tril(shifted), rtol=0, atol=1e-13)


def test_sinusoids_keep_their_phase_at_large_distances() -> None:
    n, far = 2**17 + 1, [65537, 99991, 2**17]
    for form, slowest in (("paper", 2), ("code", 4)):
        rows = fastpe.build("tener", n, dim=4, form=form, dtype=np.float64)["rel_key"][0]
        sines, cosines = (rows[:, 0::2], rows[:, 1::2]) if form == "paper" else (rows[:, :2], rows[:, 2:])
        for m in far:
            row = n - 1 + (-m if form == "paper" else m)
            with mpmath.workdps(40):
                angles = [mpmath.mpf(m), m * mpmath.mpf(10) ** -slowest]
                expected = [[float(f(angle)) for angle in angles] for f in (mpmath.sin, mpmath.cos)]
            np.testing.assert_allclose([sines[row], cosines[row]], expected, rtol=0, atol=2.3e-16)
