"""Which keys the queries of each layer see. A setting is one of these, or a pattern over layers, as for encodings:

    all         every key; in a causal model every key up to the query
    window:W    keys at positions j with |i - j| < W; in a causal model i - W < j <= i
    chunks:C    keys in the query's chunk, floor(j / C) = floor(i / C)

Several models released since 2023 have a window (Gemma 2 and 3, Command A, OLMo 3, gpt-oss) or chunks (Llama 4) in
most layers, and see all keys in the others: "window:512*5,all" is Gemma 3's pattern, in which the first five of every
six layers see 512 keys.
"""

from typing import Any

from fastpe.base.patterns import expanded, shortest

_MOST = 2**27  # positions


def canonical(value: Any) -> str:
    """Return the pattern in its shortest spelling.

    >>> canonical("window:08, window:8,all")
    'window:8*2,all'
    """
    return shortest([_one(item, value) for item in expanded("sight", value)])


def _one(item: str, value: Any) -> str:
    way, colon, count = item.partition(":")
    if item == "all":
        return item
    if (
        way in ("window", "chunks")
        and colon
        and count.isascii()
        and count.isdigit()
        and len(count) < 12
        and 0 < int(count) <= _MOST
    ):
        return f"{way}:{int(count)}"
    raise ValueError(
        f"sight must be 'all', 'window:W', 'chunks:C', or a pattern of them such as 'window:512*5,all', with numbers "
        f"of positions from 1 to 2**27, not {value!r}"
    )


def of_layers(pattern: str, layers: int) -> tuple[str, ...]:
    """Return what each of `layers` layers sees: the pattern, repeated as needed.

    >>> of_layers("window:8*2,all", 4)
    ('window:8', 'window:8', 'all', 'window:8')
    """
    items = expanded("sight", pattern)
    return tuple(items[layer % len(items)] for layer in range(layers))


def bounds(item: str, i: Any, length: int, *, causal: bool) -> tuple[Any, Any]:
    """Return the first key that query i sees, and the last one plus 1. i: an integer, or an array of integers.

    >>> bounds("chunks:4", 5, 20, causal=False), bounds("window:3", 5, 20, causal=True)
    ((4, 8), (3, 6))
    """
    way, _, count = item.partition(":")
    first, last = 0 * i, 0 * i + length
    if way == "window":
        first, last = i - int(count) + 1, i + int(count)
    elif way == "chunks":
        first = i // int(count) * int(count)
        last = first + int(count)
    if causal:
        last = i + 1
    return _within(first, length), _within(last, length)


def _within(place: Any, length: int) -> Any:
    clip = getattr(place, "clip", None)
    return clip(0, length) if clip else min(max(place, 0), length)


def visible_pairs(item: str, length: int, *, causal: bool) -> int:
    """Return the number of pairs of a query and a key that the query sees.

    >>> visible_pairs("all", 4, causal=True), visible_pairs("window:2", 4, causal=False)
    (10, 10)
    """
    if item == "all":
        return length * (length + 1) // 2 if causal else length * length
    seen = (bounds(item, i, length, causal=causal) for i in range(length))
    return sum(last - first for first, last in seen)


def spans(pattern: str, layers: int, length: int, *, causal: bool) -> Any:
    """Return, for each layer and query, the first key that the query sees, and the last one plus 1.

    The result is (layers, N, 2) int64, or None if every layer sees all keys.

    >>> spans("window:2,all", 2, 3, causal=True).tolist()
    [[[0, 1], [0, 2], [1, 3]], [[0, 1], [0, 2], [0, 3]]]
    """
    import numpy as np  # the command line checks patterns without NumPy

    if pattern == "all":
        return None
    i = np.arange(length)
    seen = [np.stack(bounds(item, i, length, causal=causal), axis=-1) for item in of_layers(pattern, layers)]
    return np.stack(seen).astype(np.int64)
