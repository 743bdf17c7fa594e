"""TAPE's stream of positions: the authors' maps and scores, RoPE where it starts, gradients by central differences."""

import numpy as np
import pytest
from content_checks import NEAR, causal, differences
from fixture_attention import K, Q, V
from scipy.special import expit

from fastpe import reference

ANGLES = np.arange(4.0)[:, None] * [1, 0.01]
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)
ROPE = np.concatenate([COS, SIN], axis=1)
X = np.sin(0.8 * np.arange(4.0)[:, None] + 0.4 * np.arange(8.0))  # a layer's input
BOTH = {name: np.stack([x, x]) for name, x in (("q", Q), ("k", K), ("v", V))}


def maps(width: int = 3, heads: int = 2) -> dict:
    """The printed ones."""
    return {
        "up": np.cos(0.5 * np.arange(width * heads)).reshape(width, heads),
        "gate": np.sin(0.4 * np.arange(8 * width)).reshape(width, 8),
        "down": np.cos(1 + 0.3 * np.arange(heads * width)).reshape(heads, width),
    }


def streams() -> np.ndarray:
    """The printed positions of two heads, neither of which has unit length in the second."""
    return np.stack([ROPE, np.concatenate([COS / 2, 2 * SIN], axis=1)])


def test_scores_and_maps_are_the_authors():
    weights, rest = reference.tape(
        **{**BOTH, "v": np.stack([np.eye(4)] * 2)}, positions=streams(), weight=np.zeros((2, 2))
    )
    np.testing.assert_array_equal(rest, streams())
    own = [Q[3] @ K[3] / 2, sum((Q[3] * K[3])[c] * (COS[3] ** 2 / 4 + 4 * SIN[3] ** 2)[c % 2] for c in range(4)) / 2]
    scores = np.log(weights[:, 3, 1] / weights[:, 3, 3]) + own
    np.testing.assert_allclose(scores, [0.165591276, 0.039250571], **NEAR)
    # head by head, what the map of token 2 is
    units = [np.zeros((2, 4, 4)), np.zeros((2, 4, 4))]
    for head, unit in enumerate(units):
        unit[head, 2] = 1.0
    moved = [reference.tape_map(unit, X, **maps())[:, 2, 0] - unit[:, 2, 0] for unit in units]
    printed = [[-0.039495573, -0.027143710], [0.101044335, 0.145922196]]
    np.testing.assert_allclose(np.stack(moved, axis=1), printed, **NEAR)


def test_initial_tape_is_rope():
    outs, positions = reference.tape(**BOTH, positions=np.stack([ROPE] * 2), weight=np.zeros((2, 2)))
    expected = reference.attention(**BOTH, causal=True, angles=ANGLES[None], pairs="half")
    np.testing.assert_allclose(outs, expected, rtol=0, atol=1e-15)
    unchanged = reference.tape_map(positions, X, **{**maps(), "up": np.zeros((3, 2))})
    np.testing.assert_array_equal(unchanged, np.stack([ROPE] * 2))


def test_a_layer_agrees_with_its_formula():
    """Two samples, two heads: rotations as matrices, positions as pairs, heads token by token."""
    rng = np.random.default_rng(0)
    q, k, v, positions = rng.normal(size=(4, 2, 2, 4, 4))
    weight, x = rng.normal(size=(2, 2)), rng.normal(size=(2, 4, 8))
    outs, mixed = reference.tape(q, k, v, positions, weight, scale=0.3)
    rest = reference.tape_map(mixed, x, **maps())
    for b in range(2):
        streams = []
        for h in range(2):
            turn = []
            for cos, sin in zip(positions[b, h, :, :2], positions[b, h, :, 2:], strict=True):
                turn.append(np.block([[np.diag(cos), -np.diag(sin)], [np.diag(sin), np.diag(cos)]]))
            scores = [[0.3 * (turn[i] @ q[b, h, i]) @ (turn[j] @ k[b, h, j]) for j in range(4)] for i in range(4)]
            weights = causal(np.array(scores))
            np.testing.assert_allclose(outs[b, h], weights @ v[b, h], rtol=0, atol=1e-13)
            streams.append(positions[b, h] + weight[h].sum() * weights @ positions[b, h])
        np.testing.assert_allclose(mixed[b], streams, rtol=0, atol=1e-13)
        for n in range(4):
            inner = maps()["gate"] @ x[b, n]
            own = maps()["down"] @ np.diag(inner * expit(inner)) @ maps()["up"]
            heads = np.array(streams)[:, n]
            np.testing.assert_allclose(rest[b, :, n], heads + own @ heads, rtol=0, atol=1e-12)


def test_gradients_of_a_layer():
    """Through both functions, the first of which has two outputs."""
    rng = np.random.default_rng(1)
    given = dict(zip(("q", "k", "positions"), rng.normal(size=(3, 2, 2, 3, 4)), strict=True))
    given |= {"v": rng.normal(size=(2, 2, 3, 5)), "weight": rng.normal(size=(2, 2)), "x": rng.normal(size=(2, 3, 8))}
    given |= maps()
    first = ("q", "k", "v", "positions", "weight")
    douts = rng.normal(size=(2, 2, 3, 5)), rng.normal(size=(2, 2, 3, 4))

    def layer(vjp=False, **arrays):
        (out, mixed), back = reference.tape_vjp(**{name: arrays[name] for name in first})
        rest, back_of_map = reference.tape_map_vjp(
            mixed, **{name: x for name, x in arrays.items() if name not in first}
        )
        if not vjp:
            return np.sum(out * douts[0]) + np.sum(rest * douts[1])
        found = back_of_map(douts[1])
        return found | back((douts[0], found.pop("positions")))

    found = layer(vjp=True, **given)
    assert set(found) == set(given)
    for name, array in given.items():
        expected = differences(lambda moved, name=name: layer(**{**given, name: moved}), array)
        np.testing.assert_allclose(found[name], expected, atol=2e-8, err_msg=name)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("tape", {name: x[0] for name, x in BOTH.items()}, r"q, k and v must have heads and an even .*, not \(4, 4\)"),
        ("tape", {name: x[..., :3] for name, x in BOTH.items()}, r"q, k and v must have heads .*, not \(2, 4, 3\)"),
        ("tape", {"positions": ROPE}, r"positions must have the shape of q \(2, 4, 4\), not \(4, 4\)"),
        ("tape", {"weight": np.zeros(2)}, r"weight must have shape \(2, 2\), not \(2,\)"),
        ("tape_map", {"positions": ROPE}, r"positions must have shape \(..., H, N, D\), not \(4, 4\)"),
        ("tape_map", {"x": X[:3]}, r"x must have shape \(4, 'C'\), not \(3, 8\)"),
        ("tape_map", {"up": np.zeros((3, 4))}, r"up must have shape \(W, 2\), not \(3, 4\)"),
        ("tape_map", {"gate": np.zeros((3, 4))}, r"gate must have shape \(3, 8\), not \(3, 4\)"),
        ("tape_map", {"down": np.zeros((3, 2))}, r"down must have shape \(2, 3\), not \(3, 2\)"),
    ],
)
def test_what_does_not_fit_is_named(name, changed, message):
    given = {
        "tape": {**BOTH, "positions": streams(), "weight": np.zeros((2, 2))},
        "tape_map": {"positions": streams(), "x": X, **maps()},
    }
    with pytest.raises(ValueError, match=f"^{message}$"):
        getattr(reference, name)(**{**given[name], **changed})
