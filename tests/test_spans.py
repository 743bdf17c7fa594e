"""`fastpe.spans`: every builder beside what it says of each query and key; what is wrong is one clear error."""

import numpy as np
import pytest

from fastpe import spans

KEYS = np.arange(7)


def seen(made, keys=KEYS):
    """(B or 1, N, M): whether a query sees a key."""
    return (made[..., :1] <= keys) & (keys < made[..., 1:])


def test_causal_and_window_follow_positions():
    for offset in (None, 0, 3, [0, 2, 6]):
        starts = np.atleast_1d(7 - 4 if offset is None else offset)
        distance = KEYS - (starts[:, None] + np.arange(4))[..., None]
        np.testing.assert_array_equal(seen(spans.causal(4, 7, offset=offset)), distance <= 0)
        made = spans.window(4, 7, back=2, ahead=1, offset=offset)
        np.testing.assert_array_equal(seen(made), (distance >= -2) & (distance <= 1))
        prefix = spans.prefix(3, 4, 7, offset=offset)
        np.testing.assert_array_equal(seen(prefix), (distance <= 0) | (KEYS < 3))


def test_documents_are_runs_of_ids():
    ids = np.array([[4, 4, 1, 1, 1, 9, 9], [2, 2, 2, 2, 2, 2, 0]])
    np.testing.assert_array_equal(seen(spans.documents(ids)), ids[:, :, None] == ids[:, None])
    np.testing.assert_array_equal(spans.documents(cu_seqlens=[0, 2, 2, 5, 7]), spans.documents(ids[:1]))
    assert spans.documents([0, 1, 0]).tolist() == [[[0, 1], [1, 2], [2, 3]]]


def test_padding_is_neither_seen_nor_sees():
    first, last = np.array([[0], [2], [7]]), np.array([[6], [4], [7]])
    real = (first <= KEYS) & (last > KEYS)
    made = spans.padding(7, left=[0, 2, 7], right=[1, 3, 0])
    np.testing.assert_array_equal(seen(made), real[:, None] & real[:, :, None])
    few = spans.padding(7, left=[0, 2, 7], right=[1, 3, 0], queries=2)
    np.testing.assert_array_equal(seen(few), np.repeat(real[:, None], 2, axis=1))


def test_intersections_are_those_of_what_is_seen():
    parts = spans.causal(7), spans.window(7, back=2, ahead=2), spans.documents([[0, 0, 0, 1, 1, 1, 1], [0] * 7])
    both = np.logical_and.reduce([np.broadcast_to(seen(part), (2, 7, 7)) for part in parts])
    np.testing.assert_array_equal(seen(spans.intersect(*parts)), both)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: spans.causal(-1), ValueError, "queries must be at least 0, not -1"),
        (lambda: spans.causal(2.5), TypeError, "queries must be an integer, not 2.5"),
        (lambda: spans.causal(2, offset=[[1]]), ValueError, "offset must be an integer, or one for each"),
        (lambda: spans.window(3, back=-1), ValueError, "back must be at least 0, not -1"),
        (lambda: spans.documents(), ValueError, "documents needs exactly one of ids and cu_seqlens"),
        (lambda: spans.documents(cu_seqlens=[1, 2]), ValueError, r"cu_seqlens must rise from 0, not \[1, 2\]"),
        (lambda: spans.documents([[[1]]]), ValueError, r"ids must have the shape \(N,\) or \(B, N\), not \(1, 1, 1\)"),
        (lambda: spans.prefix([1, 2], 4, offset=[0, 0, 0]), ValueError,
         "lengths and offset must have the same number of samples, or one for all, not lengths 2, offset 3"),
        (lambda: spans.padding(3, left=9), ValueError, r"left must lie in \[0, 3\], not 9"),
        (lambda: spans.padding(3, right=[0, 4]), ValueError, r"right must lie in \[0, 3\], not 4 at index 1"),
        (lambda: spans.padding(3, left=[0, 1], right=[0, 0, 1]), ValueError, "left and right must have"),
        (lambda: spans.intersect(), ValueError, r"spans must have the shape \(B or 1, N, 2\), not \[\]"),
        (lambda: spans.intersect(spans.causal(3), spans.causal(4)), ValueError,
         r"spans must have the same number of queries, not \[3, 4\]"),
        (lambda: spans.intersect(spans.causal(3, offset=[0, 1]), spans.causal(3, offset=[0, 1, 2])), ValueError,
         r"spans\[0\] and spans\[1\] must have the same number of samples"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_clear_error(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
