"""Rules by which positions follow from tokens: the values that the authors' programs give, and that each is a fold."""

import numpy as np
import pytest

from fastpe import attention
from fastpe.base.random import Stream
from fastpe.model.drawn_positions import drawn as drawn_positions
from fastpe.model.drawn_positions import with_gap
from fastpe.model.positions import Coupled, canonical, completed, rule_of
from fastpe.model.token_positions import begun, drawn, follow, spans

RULES = ["digits:20:0-9", "coupled:40:0-9:12:reversed", "documents:10", "documents:10:first", "segments:10,13"]
RULES += ["segments:10:first"]


def places(setting, tokens):
    """Rows of the table and of rotations of one sequence in a test."""
    rule = rule_of(setting)
    return begun(rule, follow(rule, np.array([tokens])))[:, 0].tolist()


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([12, 3, 1, 4, 10, 1, 5, 11, 4, 6, 4, 12], [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 0]),
        ([9, 9, 10, 1, 11, 0, 0, 1, 12, 12, 12, 12], [1, 2, 0, 1, 0, 1, 2, 3, 0, 0, 0, 0]),
    ],
)
def test_places_within_numbers_are_those_of_abacus(tokens, expected):
    """By Abacus.helper of mcleish7/arithmetic (abacus.py)."""
    assert places("digits:20:0-9", tokens)[0] == expected


@pytest.mark.parametrize(
    ("order", "answer", "expected"),
    [("answer_reversed", [2, 0, 7, 0], [1, 2, 3, 4, 5]), ("ordinary", [0, 7, 0, 2], [6, 5, 4, 3, 2])],
)
def test_digits_of_one_significance_share_a_place(order, answer, expected):
    """653 + 049 = 0702, by AdditionDatasetWithCoupledPositions of HanseulJo/position-coupling."""
    tokens = [6, 5, 3, 10, 0, 4, 9, 12, *answer]
    assert places(f"coupled:132:0-9:12:{order}", tokens)[0] == [4, 3, 2, 1, 4, 3, 2, *expected]
    turned = [3, 5, 6, 10, 9, 4, 0, 12, 2, 0, 7, 0]
    assert places("coupled:132:0-9:12:reversed", turned)[0] == [2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("tokens", "within", "number"),
    [
        ([5, 6, 869, 7, 8, 9, 13, 10, 11, 12], [0, 1, 2, 0, 1, 2, 3, 0, 1, 2], [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]),
        ([869, 1, 2, 3, 869, 869, 4, 5, 6, 7], [0, 0, 1, 2, 3, 0, 0, 1, 2, 3], [0, 1, 1, 1, 1, 2, 3, 3, 3, 3]),
    ],
)
def test_segments_are_those_of_bipe(tokens, within, number):
    """By get_bilevel_ids of zhenyuhe00/BiPE, whose separators end their segments."""
    assert places("segments:13,869", tokens) == [within, number]
    assert places("documents:13,869", tokens) == [within, within]
    long = [1] * 1500
    assert places("segments:13", long) == [[*range(1024), *[1023] * 476], [0] * 1500]


def test_a_separator_may_begin_its_document():
    tokens = [10, 1, 2, 10, 10, 3]
    assert places("documents:10:first", tokens)[0] == [0, 1, 2, 0, 0, 1]
    assert places("segments:10:first", tokens) == [[0, 1, 2, 0, 0, 1], [0, 0, 0, 1, 2, 2]]
    assert places("segments:10:first", [1, 10, 2]) == [[0, 0, 1], [0, 1, 1]]
    assert max(places("segments:10:first", [10] * 6)[1]) == 5  # a row for each is enough


@pytest.mark.parametrize("setting", RULES)
def test_tokens_in_pieces_have_the_places_of_the_whole(setting):
    rule, rng = rule_of(setting), np.random.default_rng(0)
    tokens = rng.choice([1, 2, 3, 10, 11, 12, 13], (7, 30))
    whole = follow(rule, tokens)
    for pieces in (range(31), [0, 4, 5, 17, 30], [0, 29, 30]):
        state, found = None, []
        for first, last in zip(pieces, [*pieces][1:], strict=False):
            piece = follow(rule, tokens[:, first:last], state)
            state = piece.state
            found.append(np.stack(piece[:2]))
        np.testing.assert_array_equal(np.concatenate(found, axis=2), np.stack(whole[:2]))


def test_an_answer_goes_on_behind_a_prompt_that_says_where_operands_end():
    for order in ("answer_reversed", "ordinary"):
        rule, tokens = rule_of(f"coupled:40:0-9:12:{order}"), np.array([[11, 6, 5, 3, 10, 4, 9, 12, 2, 0, 7, 0, 1]])
        whole, prompt = follow(rule, tokens), follow(rule, tokens[:, :8])
        state, rest = prompt.state, []
        for token in tokens[0, 8:]:
            piece = follow(rule, np.array([[token]]), state)
            state, rest = piece.state, [*rest, piece.table[0, 0]]
        assert [*prompt.table[0], *rest] == whole.table[0].tolist()
        with pytest.raises(ValueError, match=r"^prompt must include token 12, after which the answer follows"):
            follow(rule, tokens[:, 5:], follow(rule, tokens[:, :5]).state)


def test_a_training_step_moves_places():
    within = np.ones((3, 12), bool)
    tokens = np.array([[11, 1, 2, 3, 10, 4, 5, 12, 6, 7, 3, 11], [1, 10, 1, 12, 2, 11, 11, 11, 11, 11, 11, 11]] * 2)[:3]
    digits, seen = rule_of("digits:4:0-9"), set()
    base = follow(digits, tokens)
    for step in range(60):
        table = drawn(digits, base, within, Stream(0, "places", step))[0]
        (moved,) = {int(each) for each in (table - base.table)[base.table > 0]}  # one for the whole batch
        assert (table[base.table == 0] == 0).all()
        seen.add(moved)
    assert seen == {0, 1, 2, 3, 4}
    coupled = rule_of("coupled:9:0-9:12:reversed")
    base, within[1, 6:] = follow(coupled, tokens), False
    starts = [
        (drawn(coupled, base, within, Stream(0, "places", step))[0] - base.table)[:, 0].tolist() for step in range(200)
    ]
    tops = np.where(within, base.table, 0).max(axis=1)
    assert np.min(starts, axis=0).tolist() == [1, 1, 1]
    assert np.max(starts, axis=0).tolist() == (9 - tops).tolist()  # the last row is reached, and none beyond
    assert any(len(set(own)) > 1 for own in starts)  # each sequence has its own


@pytest.mark.parametrize("causal", [True, False])
def test_documents_see_themselves_alone(causal):
    rng = np.random.default_rng(0)
    tokens, lengths = rng.choice([1, 2, 9], (5, 20), p=[0.4, 0.4, 0.2]), np.array([20, 11, 5, 20, 1])
    rule = rule_of("documents:9")
    found = follow(rule, tokens).table
    seen = spans(found, lengths, 20, None, causal=causal)
    number = np.cumsum(np.pad(tokens == 9, ((0, 0), (1, 0)))[:, :-1], axis=1)
    i, j = np.mgrid[:20, :20]
    for b, n in enumerate(lengths):
        mask = (number[b][:, None] == number[b][None]) & (j < n) & ((j <= i) | (not causal))
        ours = (j >= seen[0, b, :, :1]) & (j < seen[0, b, :, 1:])
        np.testing.assert_array_equal(ours[:n], mask[:n])


def test_blocked_attention_has_the_values_of_the_masked_softmax():
    """Worked out with NumPy apart from this library: causal attention of two documents of two tokens."""
    i, c = np.arange(4.0)[:, None], np.arange(4.0)
    q, k, v = np.sin(i + 1 + 0.5 * c), np.cos(0.7 * i + 0.3 * c), np.sin(0.2 * i * (c + 1) + 0.1)
    found = spans(follow(rule_of("documents:9"), np.array([[1, 9, 1, 1]])).table, np.array([4]), 4, None, causal=True)
    out = attention(q[None, None], k[None, None], v[None, None], causal=True, spans=found[0])[0, 0]
    np.testing.assert_allclose([out[1, 0], out[2, 0], out[3, 3]], [0.190044817, 0.479425539, 0.712049792], atol=6e-10)


def test_a_gap_is_that_of_pose():
    """By train_preprocess_function_pose of dwzhu-pku/PoSE, seed 0, 8 of 12 tokens, up to 32."""
    assert with_gap(8, 4, 1).tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert drawn_positions("pose", 32, 8, Stream(0, "positions", "test.0"), training=False).tolist() == [*range(8)]
    found = [drawn_positions("pose", 32, 8, Stream(0, "positions", step), training=True) for step in range(400)]
    assert {int(each[0]) for each in found} == {0}
    assert max(each[-1] for each in found) == 31
    assert {int(np.diff(each).argmax()) + 1 for each in found if each[-1] > 7} == {1, 2, 3, 4}
    reals = drawn_positions("float", 32, 8, Stream(0, "positions", 0), training=True)
    assert (np.diff(reals) > 0).all()
    assert 0 <= reals[0] < reals[-1] < 31
    assert (reals % 1 > 0).any()


def test_settings_are_written_in_one_way():
    same = {
        "digits:07:9,0-8": "digits:7:0-9", "coupled:10": "coupled:10", "documents:3,1,2": "documents:1-3",
        "segments:5:first": "segments:5:first", "float:64": "float:64", "pose:50": "pose:50",
        "coupled:9:1,0:3:reversed": "coupled:9:0-1:3:reversed",
    }  # fmt: skip
    for given, wanted in same.items():
        assert canonical(given, 50) == wanted
        assert canonical(wanted, 50) == wanted
    assert rule_of(completed("coupled:9", "it", (0, 1), 3, "reversed")) == Coupled(9, (0, 1), 3, "reversed")


@pytest.mark.parametrize(
    "wrong",
    [
        "digits", "digits:", "digits:x", "digits:-1", "digits:1023", "digits:3:", "digits:3:a", "digits:3:5-2", "often",
        "digits:3:0-9:1", "coupled:1", "coupled:9:0-9", "coupled:9:0-9:3:reversed", "coupled:9:0-9:12:upwards", 3,
        "documents:", "documents:10:last", "documents:1.5", "segments", "float:49", "pose:x", None, "random:",
    ],
)  # fmt: skip
def test_what_is_no_setting_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^positions (must|'float:L' need) "):
        canonical(wrong, 50)


def test_who_has_no_digits_is_named():
    with pytest.raises(ValueError, match=r"^positions='digits:5' need digits, and task 'x' has none$"):
        completed("digits:5", "task 'x'", ())
    with pytest.raises(ValueError, match=r"^positions='coupled:5' need to know where the digits of numbers are"):
        completed("coupled:5", "task 'x'", (1, 2))
