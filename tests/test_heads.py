"""Scores of attention heads: heads made by hand, whose scores are known, and wrong arguments."""

import numpy as np
import pytest

from fastpe import attention_scores
from fastpe.heads import SCORES, frequency_share, frequency_use, head_scores, position_share

T = 8
TWICE = np.tile(np.arange(T), 2)[None]


def weights(targets):
    """Weights of one head: all weight of query i is on the key targets[i]."""
    return np.eye(len(targets))[targets][None, None]


def scores(rows, **options):
    return {name: value.item() for name, value in head_scores([rows], TWICE, **options).items()}


def test_a_previous_token_head():
    found = scores(weights([0, *range(15)]))
    assert found == {"previous": 1, "duplicate": 0, "induction": 0, "sink": 1 / 15, "distance": 1, "entropy": 0}


def test_a_uniform_head():
    found = scores(np.tril(np.ones((16, 16)))[None, None] / np.arange(1, 17)[:, None])
    harmonic = np.cumsum(1 / np.arange(1, 17))
    expected = {
        "previous": (harmonic[15] - 1) / 15, "sink": (harmonic[15] - 1) / 15, "distance": 4.0,
        "duplicate": (harmonic[15] - harmonic[7]) / 8, "induction": (harmonic[15] - harmonic[7]) / 8,
        "entropy": np.log(np.arange(2, 17)).mean(),
    }  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-12)


def test_an_induction_head_that_rests_on_the_first_key():
    found = scores(weights([0] * T + [*range(1, T + 1)]), start=T)
    assert found == {"previous": 0, "duplicate": 0, "induction": 1, "sink": 0, "distance": T - 1, "entropy": 0}


def test_a_duplicate_token_head_that_rests_on_the_first_key():
    found = scores(weights([0] * T + [*range(T)]), start=T)
    assert found == {"previous": 0, "duplicate": 1, "induction": 0, "sink": 1 / 8, "distance": T, "entropy": 0}


def test_two_layers_set_by_hand_induce():
    """A first layer that attends to the previous token by a bias, and a second whose keys are the first's outputs."""
    tokens = np.array([[T, *range(T), *range(T)]])
    n, beta, gamma = tokens.shape[1], 8.0, 16.0
    ones = np.eye(T + 1)[tokens[0]]
    bias = np.zeros((1, 2 * n - 1))
    bias[0, n - 2] = beta
    none = np.zeros((1, 1, n, T + 1))
    first = attention_scores(none, none, causal=True, bias=bias)
    queries, keys = gamma * ones, first[0, 0] @ ones
    second = attention_scores(queries[None, None], keys[None, None], causal=True, scale=1.0)
    found = head_scores([np.concatenate([first, second], axis=1)], tokens)
    assert found["previous"][0] * 16 / 17 == pytest.approx(0.9385, abs=2e-3)
    assert found["induction"][1] > 0.999


def test_blocks_of_queries_give_the_same_scores():
    rng = np.random.default_rng(0)
    q, tokens = rng.normal(size=(2, 3, 16, 4)), rng.integers(5, size=(2, 16))
    whole = attention_scores(q, q, causal=True)
    blocks = [whole[:, :, :1, :1], whole[:, :, 1:9, :9], whole[:, :, 9:]]
    for start in (0, 1, 7):
        one, many = (
            head_scores([whole], tokens, start=start, sink=2),
            head_scores(iter(blocks), tokens, start=start, sink=2),
        )
        for name in SCORES:
            np.testing.assert_allclose(many[name], one[name], rtol=1e-12)


def test_weights_of_the_first_keys_are_0_for_other_keys():
    tokens = np.array([[1, 2, 3, 1]])
    whole = np.zeros((1, 1, 4, 4))
    whole[..., 0] = 1.0
    for blocks in ([whole[..., :1]], [whole[:, :, :2, :1], whole[:, :, 2:, :2]]):
        found, right = head_scores(blocks, tokens), head_scores([whole], tokens)
        assert right["duplicate"] == 1
        assert right["induction"] == 0
        assert found == right


def test_scores_against_their_formulas():
    rng = np.random.default_rng(1)
    q, tokens = rng.normal(size=(2, 3, 12, 4)), rng.integers(5, size=(2, 12))
    a = attention_scores(q, q, causal=True)
    sums, counts = {name: np.zeros(3) for name in SCORES}, dict.fromkeys(SCORES, 0)
    for b in range(2):
        for i in range(1, 12):
            earlier = [j for j in range(i) if tokens[b, j] == tokens[b, i]]
            row = a[b, :, i]
            one = {
                "previous": row[:, i - 1], "sink": row[:, 0], "distance": row @ (i - np.arange(12)),
                "entropy": -(row[:, : i + 1] * np.log(row[:, : i + 1])).sum(-1),
            }  # fmt: skip
            if earlier:
                one |= {"duplicate": row[:, earlier].sum(-1), "induction": row[:, [j + 1 for j in earlier]].sum(-1)}
            for name, value in one.items():
                sums[name] += value
                counts[name] += 1
    found = head_scores([a], tokens)
    for name in SCORES:
        np.testing.assert_allclose(found[name], sums[name] / counts[name], rtol=1e-12)


def test_scores_of_copies_are_nan_without_copies():
    found = head_scores([weights([0, 0, 0])], [[1, 2, 3]])
    assert np.isnan([found["duplicate"], found["induction"]]).all()
    assert found["sink"] == 1


@pytest.mark.parametrize(
    ("rows", "tokens", "options", "message"),
    [
        (np.ones((1, 1, 2, 2)), [1, 2], {}, "tokens must have the shape"),
        (np.ones((1, 1, 1, 1)), [[1]], {}, "at least 2 tokens"),
        (np.ones((1, 1, 2)), [[1, 2]], {}, "weights must have the shape"),
        (np.ones((1, 1, 3, 2)), [[1, 2]], {}, "weights must have the shape"),
        (np.ones((1, 1, 2, 3)), [[1, 2]], {}, "weights must have the shape"),
        (np.ones((2, 1, 2, 2)), [[1, 2]], {}, "weights must have the shape"),
        (np.ones((1, 1, 1, 2)), [[1, 2]], {}, "a row for each of the 2 tokens, not 1"),
        (np.ones((1, 1, 2, 2)), [[1, 2]], {"start": 2}, "start must be"),
        (np.ones((1, 1, 2, 2)), [[1, 2]], {"sink": 0}, "sink must be"),
    ],
)
def test_wrong_arguments_of_head_scores(rows, tokens, options, message):
    with pytest.raises(ValueError, match=message):
        head_scores([rows], tokens, **options)


def test_tokens_must_be_integers():
    with pytest.raises(TypeError, match="tokens"):
        head_scores([np.ones((1, 1, 2, 2))], [[0.5, 1.0]])


@pytest.mark.parametrize("pairs", ["interleaved", "half"])
def test_frequency_use_is_the_product_of_mean_norms(pairs):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 4, 5, 8)), rng.normal(size=(2, 2, 6, 8))
    found = frequency_use(q, k, rotated=6, pairs=pairs, scale=0.5)
    for pair in range(3):
        channels = [2 * pair, 2 * pair + 1] if pairs == "interleaved" else [pair, pair + 3]
        for head in range(4):
            of_queries = np.linalg.norm(q[:, head][..., channels], axis=-1).mean()
            of_keys = np.linalg.norm(k[:, head // 2][..., channels], axis=-1).mean()
            assert found[head, pair] == pytest.approx(0.5 * of_queries * of_keys)


def test_frequency_use_of_one_pair():
    q = np.zeros((1, 1, 3, 8))
    q[..., 2:4] = [0.6, 0.8]
    assert frequency_use(q, q, rotated=8, scale=1.0)[0] == pytest.approx([0, 1, 0, 0])


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((1, 2, 4), (1, 2, 4)), {"rotated": 4}, "q and k must have the shapes"),
        (((1, 3, 2, 4), (1, 2, 2, 4)), {"rotated": 4}, "Hk must divide H"),
        (((1, 3, 2, 4), (1, 0, 2, 4)), {"rotated": 4}, "without empty axes"),
        (((1, 1, 2, 4), (1, 1, 0, 4)), {"rotated": 4}, "without empty axes"),
        (((2, 1, 2, 4), (1, 1, 2, 4)), {"rotated": 4}, "q and k must have the shapes"),
        (((1, 1, 2, 4), (1, 1, 2, 4)), {"rotated": 3}, "rotated must be even"),
        (((1, 1, 2, 4), (1, 1, 2, 4)), {"rotated": 6}, "rotated must be at most 4"),
        (((1, 1, 2, 4), (1, 1, 2, 4)), {"rotated": 4, "pairs": "whole"}, "pairs must be"),
    ],
)
def test_wrong_arguments_of_frequency_use(shapes, options, message):
    with pytest.raises(ValueError, match=message):
        frequency_use(*map(np.ones, shapes), **options)


@pytest.mark.parametrize("blocks", [[], [np.ones((1, 1, 2))], [np.ones((1, 1, 0, 2))]])
def test_wrong_arguments_of_position_share(blocks):
    with pytest.raises(ValueError, match="scores must have"):
        position_share(blocks)


@pytest.mark.parametrize(
    ("blocks", "options", "message"),
    [
        ([np.ones((1, 1, 2, 3))], {}, "a row for each of the 3 queries, not 2"),
        ([np.ones((1, 1, 4, 4))], {}, "scores must have the shape"),
        ([np.ones((1, 3))], {}, "scores must have the shape"),
        ([np.ones((1, 1, 3, 3))], {"rotated": 3}, "rotated must be even"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_frequency_share(blocks, options, message):
    rows = np.ones((1, 1, 3, 4))
    with pytest.raises(ValueError, match=message):
        frequency_share(rows, rows, blocks, **{"rotated": 4, **options})


def test_hidden_and_later_keys_do_not_count():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(2, 3, 9, 9))
    later, hidden = scores.copy(), scores.copy()
    later[..., np.triu(np.ones((9, 9), bool), 1)] = 7.0
    hidden[:, :, 5:, 2] = -np.inf
    assert position_share([later]) == pytest.approx(position_share([scores]), rel=1e-12)
    seen = np.isfinite(hidden) & np.tril(np.ones((9, 9), bool))
    distance = np.arange(9)[:, None] - np.arange(9)
    for head in range(3):
        own, at = hidden[:, head][seen[:, head]], np.broadcast_to(distance, (2, 9, 9))[seen[:, head]]
        left = sum(np.sum((own[at == d] - own[at == d].mean()) ** 2) for d in range(9))
        expected = 1 - left / np.sum((own - own.mean()) ** 2)
        assert position_share([hidden])[head] == pytest.approx(expected)


def test_equal_scores_have_no_shares():
    rows = np.ones((1, 1, 3, 4))
    assert np.isnan(position_share([np.ones((1, 1, 3, 3))])).all()
    assert np.isnan(frequency_share(rows, rows, [np.ones((1, 1, 3, 3))], rotated=4)).all()
