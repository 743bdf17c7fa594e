"""`fastpe.columns`: numbers that the authors' programs give (fixture F), sums of NumPy, gradients by differences."""

import numpy as np
import pytest
from fixture_attention import K, Q, V, results
from pullbacks import assert_gradients, differences

import fastpe
from fastpe import columns, reference

F = 1 + 0.5 * np.sin(np.arange(4.0))  # the logits of four tokens
G = np.cos(0.5 * np.arange(4.0)[:, None] - np.arange(4.0))  # the gradient of the output
FOUR = {name: x[None] for name, x in (("q", Q), ("k", K), ("v", V))}
U, WEIGHT = np.array([[1.0, 0, 0, 0]]), np.array([0.541324855])


def gradients_of(slot, column):
    """The gradient of sum(G out) with regard to a column, in the kernels and in the reference."""
    found = [
        attend(**FOUR, causal=True, **{slot: column})[1](G[None])[slot]
        for attend in (fastpe.attention_vjp, reference.attention_vjp)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-15)
    return found[0]


# ---------------------------------------------------------------------------------------------------------------------
# Forget gates


def test_forget_gates_are_those_of_the_forgetting_transformer():
    offset, pullback = columns.forget_gate_vjp(F[None])
    np.testing.assert_allclose(np.diff(offset[0]), [0.216349567, 0.209841363, 0.294769263], atol=1e-9)
    np.testing.assert_allclose(offset[0, [0, 3]], [0.313261688, 1.034221880], atol=1e-9)
    _, score, *rest = results({"key_offset": offset}, causal=True)
    np.testing.assert_allclose(score - offset[0, 3], -1.176063592, atol=1e-9)
    np.testing.assert_allclose(rest, [0.118020298, 0.386237961, 0.682754316], atol=1e-9)
    doffset = gradients_of("key_offset", offset)
    np.testing.assert_allclose(-doffset[0], [0.117206519, 0.099867610, -0.145901047, -0.071173083], atol=1e-9)
    dlogits = pullback(doffset)["logits"]
    np.testing.assert_allclose(dlogits[0], [0, -0.022802096, -0.041089344, -0.018170246], atol=1e-9)


def test_a_sink_is_compared_with_whole_scores():
    offset = columns.forget_gate(F[None])
    sinks = np.array([0.3])
    dropped = fastpe.attention(**FOUR, causal=True, key_offset=offset, sinks=sinks)
    assert abs(dropped[0, 2, 0] - 0.257872204) > 0.05  # each row's own sum would have been forgotten
    out, lse = fastpe.attention(**FOUR, causal=True, key_offset=offset, return_lse=True)
    found = columns.with_sinks(out, lse, sinks, offset)
    np.testing.assert_allclose(found[0, 2, 0], 0.257872204, atol=1e-9)
    scores = reference.attention_scores(FOUR["q"], FOUR["k"], stage="masked", causal=True) + offset - offset[..., None]
    powers = np.exp(np.concatenate([scores[0], np.full((4, 1), 0.3)], axis=1))
    whole = powers[:, :4] / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[0], whole @ V, rtol=0, atol=1e-15)


def test_gradients_with_a_sink_go_through_both():
    """All of the gate's logits, through attention, by differences."""
    sinks = np.array([0.3])

    def forward(logits):
        offset, back = columns.forget_gate_vjp(logits)
        (out, lse), pull = fastpe.attention_vjp(**FOUR, causal=True, key_offset=offset, return_lse=True)
        found, sunk = columns.with_sinks_vjp(out, lse, sinks, offset)
        return found, back, pull, sunk

    _, back, pull, sunk = forward(F[None])
    above = sunk(G[None])
    through = pull((above["out"], above["lse"]))
    dlogits = back(through["key_offset"] + above["own_offset"])["logits"]
    expected = differences(lambda x: forward(x)[0], F[None], G[None])
    np.testing.assert_allclose(dlogits, expected, rtol=0, atol=1e-9)


def test_a_cache_goes_on_where_it_ended():
    whole = columns.forget_gate(F)
    rest = columns.forget_gate(F[2:], before=whole[1])
    np.testing.assert_allclose(np.concatenate([columns.forget_gate(F[:2]), rest]), whole, rtol=1e-15)
    first = np.array([[3.0], [4.0]])
    assert columns.forget_gate([F, F], before=first).shape == (2, 4)
    assert_gradients(columns.forget_gate_vjp, {"logits": np.stack([F, -F]), "before": first})


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sums_are_made_in_float64(dtype):
    logits = np.full(65536, 5, dtype)
    offset = columns.forget_gate(logits)
    assert offset.dtype == np.float64
    assert abs(offset[-1] - 65536 * np.log1p(np.exp(-5))) < 1e-9
    assert columns.forget_gate_vjp(logits)[1](np.ones(65536))["logits"].dtype == dtype
    assert columns.forget_gate([1e4])[0] == 0.0  # nothing overflows
    assert columns.forget_gate([-1e4])[0] == 1e4


def test_cable_is_the_gate_of_the_other_sign():
    offset = columns.cable(F[None])
    _, score, *rest = results({"key_offset": offset, "scale": 1.0}, causal=True)
    np.testing.assert_allclose(score - offset[0, 3], -4.372725276, atol=1e-9)
    np.testing.assert_allclose(rest, [0.002976562, 0.469222870, 0.614489243], atol=1e-9)
    assert_gradients(columns.cable_vjp, {"logits": F[None], "before": np.array(0.7)})


def test_decays_are_those_of_mamba_2():
    offset = columns.decay(F[None] - 2, [np.log(1.5)])
    _, score, *rest = results({"key_offset": offset}, causal=True)
    np.testing.assert_allclose(score - offset[0, 3], -1.856346019, atol=1e-9)
    np.testing.assert_allclose(rest, [0.056340142, 0.421776912, 0.675384511], atol=1e-9)


@pytest.mark.parametrize("weighs", [False, True])
def test_decays_and_their_gradients(weighs):
    rng = np.random.default_rng(1)
    steps, rate = rng.standard_normal((2, 3, 5)), rng.standard_normal(3)
    delta = np.log1p(np.exp(steps))
    found = columns.decay(steps, rate, weighs_keys=weighs)
    for j in range(5):
        sums = delta[..., : j + 1].sum(axis=-1) * np.exp(rate) + (np.log(delta[..., j]) if weighs else 0)
        np.testing.assert_allclose(found[..., j], sums, rtol=1e-13)
    arguments = {"steps": steps, "log_rate": rate, "before": np.ones((3, 1))}
    assert_gradients(lambda **given: columns.decay_vjp(**given, weighs_keys=weighs), arguments)


def test_gradients_of_with_sinks():
    rng = np.random.default_rng(2)
    arguments = {"out": rng.standard_normal((2, 3, 5, 4)), "lse": rng.standard_normal((2, 3, 5)),
                 "sinks": rng.standard_normal(3), "own_offset": rng.standard_normal((3, 5))}  # fmt: skip
    assert_gradients(columns.with_sinks_vjp, arguments)
    arguments["lse"][0, 0, 0] = -np.inf  # a query that sees no key
    found = columns.with_sinks(**arguments)
    np.testing.assert_array_equal(found[0, 0, 0], 0)


# ---------------------------------------------------------------------------------------------------------------------
# Gated slopes

GRAPE = {
    "key": (-0.112816018, -0.121759623, -0.784268984, 0.147396665, 0.371512303, 0.694265964),
    "query": (-0.065217402, -0.091131174, -0.736670368, 0.150825033, 0.370044006, 0.693885604),
    "both": (-0.178033420, -0.212890797, -0.849486386, 0.138068398, 0.376072621, 0.693252199),
}


@pytest.mark.parametrize("kind", GRAPE)
def test_gated_slopes_are_those_of_grape(kind):
    slots = {}
    if kind != "query":
        slots["key_slope"] = columns.gated_slopes(FOUR["k"], U, slopes=[1 / 16], weight=WEIGHT)
    if kind != "key":
        slots["query_slope"] = columns.gated_slopes(FOUR["q"], U, slopes=[1 / 16], weight=WEIGHT)
    zero = {"q": 0 * FOUR["q"], "k": FOUR["k"]}
    bias = fastpe.attention_scores(**zero, stage="biased", **slots)[0]
    _, score, *rest = results(slots, causal=True)
    found = bias[3, 1], bias[2, 0], score, *rest
    np.testing.assert_allclose(found, GRAPE[kind], rtol=0, atol=2e-9)


def test_gradients_of_gated_slopes_are_those_of_grape():
    slope, pullback = columns.gated_slopes_vjp(FOUR["k"], U, slopes=[1 / 16], weight=WEIGHT)
    found = pullback(gradients_of("key_slope", slope))
    np.testing.assert_allclose(found["weight"], [0.018436669], atol=1e-9)
    np.testing.assert_allclose(found["direction"], [[0, 0.007901183, 0.006301079, 0.004138119]], atol=1e-9)


def test_gated_slopes_by_head_and_their_gradients():
    rng = np.random.default_rng(3)
    x, direction = rng.standard_normal((2, 2, 3, 5)), rng.standard_normal((4, 5))
    slopes, weight = rng.uniform(0.1, 1, 4), rng.standard_normal(4)
    found = columns.gated_slopes(x, direction, slopes=slopes, weight=weight)
    assert found.shape == (2, 4, 3)
    for h in range(4):
        z = x[:, h // 2] @ direction[h] / np.linalg.norm(direction[h]) / np.sqrt(5)
        expected = slopes[h] * np.log1p(np.exp(weight[h])) * np.log1p(np.exp(z))
        np.testing.assert_allclose(found[:, h], expected, rtol=1e-13)

    def vjp(**given):
        return columns.gated_slopes_vjp(**given, slopes=slopes)

    assert_gradients(vjp, {"x": x, "direction": direction, "weight": weight})
    assert_gradients(vjp, {"x": x[0], "direction": direction, "weight": weight})
    single = columns.gated_slopes_vjp(x.astype(np.float32), direction, slopes=slopes, weight=weight)
    assert single[0].dtype == single[1](found)["x"].dtype == np.float32
    nothing = columns.gated_slopes(x, 0 * direction, slopes=slopes, weight=weight)
    assert np.isfinite(nothing).all()


# ---------------------------------------------------------------------------------------------------------------------
# What is taken

ONES = np.ones((1, 2, 3))
WRONG = {
    "logits": lambda: columns.forget_gate(["a"]),
    "logits must be finite": lambda: columns.forget_gate([np.nan]),
    "before": lambda: columns.cable([1.0], before=[np.inf]),
    r"log_rate must have the shape \(H,\)": lambda: columns.decay(ONES, [1.0]),
    "weighs_keys": lambda: columns.decay(ONES, [1.0, 2.0], weighs_keys=1),
    r"doffset must have the shape of the offsets, \(1, 2, 3\)": lambda: columns.forget_gate_vjp(ONES)[1](ONES[0]),
    r"direction must have the shape \(H, D\)": lambda: columns.gated_slopes(ONES, np.ones((2, 4)), slopes=1, weight=1),
    r"slopes must have the shape \(H,\) = \(2,\)": lambda: columns.gated_slopes(
        ONES, np.ones((2, 3)), slopes=[1], weight=[1, 1]
    ),
    r"weight must have the shape \(H,\) = \(2,\)": lambda: columns.gated_slopes(
        ONES, np.ones((2, 3)), slopes=[1, 1], weight=1
    ),
    "out, lse, sinks and own_offset must have": lambda: columns.with_sinks(
        ONES, ONES[..., 0], [0.0, 0.0], np.ones((3, 2))
    ),
    "sinks must be finite": lambda: columns.with_sinks(ONES, ONES[..., 0], [np.nan], [0.0, 0.0]),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_one_clear_error(text):
    with pytest.raises((TypeError, ValueError), match=f"^{text}"):
        WRONG[text]()
