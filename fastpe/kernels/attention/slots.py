"""The table of slots: the arrays that a score is made of, with what checks, kernels and gradients need to know of each.

To add an array argument, add a row here. `functional.slots` says what it cannot be given with.
"""

from typing import NamedTuple

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import double_pointer, float_pointer, get, int32_pointer, part


class Slot(NamedTuple):
    """An array argument of attention.

    Attributes
    ----------
    axes : tuple of str
        "H1" is H or 1, "T" an odd 2K+1, "R" at most D/2, "L" max(N, M), "L1" that or 1, "V", "P" and "W" any size.
    meaning : str
        What the array is, as `fastpe.attention` documents it.
    dtype : str
        "q": that of q; "float64": read in float64, whatever it has; "q or float64": float64 is rounded to that of q;
        "int32": integers.
    batched : bool
        Whether there may be an axis B before these.
    layout : str
        How kernels read it: "offsets", one entry for each offset of key and query that a call meets; "cells", one for
        each query and key; "rows", as it is given; "" where a tile's scores do not read it.
    gradient : str
        Where kernels sum its gradient: "sum" over the queries and keys of a head, in order; "cells", for each query
        and key; "" elsewhere, or nowhere.
    bounded : bool
        Whether the score stays at most |scale| |q| |k| + bias + key_offset with it, so that tiles may be left out (see
        the docstring of `kernels.attention`). With any term that is not bounded, no tile is left out.
    needs_products : bool
        Whether the backward pass needs the products before they are scaled.
    in_passes : bool
        Whether it is added in a pass of its own over the tile, between the products and the bias.
    """

    axes: tuple[str, ...]
    meaning: str
    dtype: str = "q"
    batched: bool = True
    layout: str = ""
    gradient: str = ""
    bounded: bool = False
    needs_products: bool = False
    in_passes: bool = False


SLOTS: dict[str, Slot] = {
    "rel_gain": Slot(
        ("H1", "T", "D"),
        "a factor on every channel of the product of query and key, by offset",
        layout="rows",
        gradient="sum",
    ),
    "rel_key": Slot(
        ("H1", "T", "D"),
        "a vector for each offset, whose product with the query is added",
        layout="rows",
        gradient="sum",
    ),
    "rel_query": Slot(
        ("H1", "T", "D"), "a vector for each offset, whose product with the key is added", layout="rows", gradient="sum"
    ),
    "rel_value": Slot(("H1", "T", "Dv"), "a vector for each offset, added to the value", layout="rows", gradient="sum"),
    "key_bias": Slot(("H", "D"), "a vector whose product with the key is added", layout="rows", gradient="sum"),
    "gain": Slot(
        ("H", "T"),
        "a factor on the scaled product, by offset",
        layout="offsets",
        gradient="sum",
        needs_products=True,
        in_passes=True,
    ),
    "bias": Slot(("H", "T"), "added to the score, by offset", layout="offsets", gradient="sum", bounded=True),
    "values": Slot(
        ("H", "V"),
        "numbers of which `index` chooses the one that is added to the score",
        layout="rows",
        gradient="sum",
        in_passes=True,
    ),
    "index": Slot(("N", "M"), "integers, which of `values` each query and key has", "int32", layout="cells"),
    "scores": Slot(
        ("H", "N", "M"), "added to the score of each query and key", layout="cells", gradient="cells", in_passes=True
    ),
    "rotors": Slot(
        ("H1", "L1", "D/b", "b", "b"),
        "maps of blocks of b channels of queries and keys, before `angles`",
        "q or float64",
        bounded=True,
    ),
    "polar": Slot(
        ("H1", "D"),
        "phases of keys: each channel x becomes the radius softplus(x) at this angle; `angles` then have D columns",
        bounded=True,
    ),
    "angles": Slot(
        ("H1", "L", "R"), "radians by which pairs of channels of queries and keys are rotated", "float64", bounded=True
    ),
    "growth": Slot(
        ("L", "R"),
        "logarithms of factors on pairs of channels of queries; keys have the inverse",
        "float64",
        layout="rows",
    ),
    "sinks": Slot(("H",), "the score of one more key of each head, which has no value", batched=False, bounded=True),
    "key_offset": Slot(("H1", "M"), "added to all scores of a key", "float64", layout="rows", bounded=True),
    "key_slope": Slot(("H1", "M"), "times the offset of key and query, added to the score", layout="rows"),
    "query_slope": Slot(("H1", "N"), "times the offset of key and query, added to the score", layout="rows"),
    "row_scale": Slot(("H1", "N"), "a factor on each query after rotation", bounded=True),
    "counts": Slot(
        ("H1", "P", "D"),
        "a vector for each count of keys, whose product with the query is added",
        layout="rows",
        gradient="sum",
        in_passes=True,
    ),
    "theta": Slot(("R",), "radians for a step of one place of `bands`", "float64", batched=False, bounded=True),
    "reflectors": Slot(("H1", "M", "D"), "what each token between query and key reflects the query along"),
    "reflect": Slot(("H1", "M"), "how far it reflects"),
    "mlp_in": Slot(
        ("W", "2H", "T"),
        "the first matrix of a network over the scores and biases of all heads, 2K+1 taps along keys",
        batched=False,
    ),
    "mlp_bias": Slot(("W",), "its bias", batched=False),
    "mlp_out": Slot(("H", "W", "T"), "its second matrix, whose output is added to the scores", batched=False),
}
"""Every array argument by name."""

_OTHERS = {
    "mask": Slot(
        ("H1", "N", "M"), "added to the score at last", layout="cells", gradient="cells"
    ),  # an argument that may be of bool
    "growth_k": Slot(("M", "R"), "what keys read of growth", "float64", layout="rows"),
}
ROWS = SLOTS | _OTHERS
"""As kernels number them."""


def slot_number(name: str) -> np.int64:
    """The number by which kernels know a slot."""
    return np.int64(list(ROWS).index(name))


BIAS, COUNTS, GAIN, GROWTH, GROWTH_K, INDEX, KEY_BIAS, KEY_OFFSET, KEY_SLOPE, MASK = map(
    slot_number,
    ("bias", "counts", "gain", "growth", "growth_k", "index", "key_bias", "key_offset", "key_slope", "mask"),
)
QUERY_SLOPE, REL_GAIN, REL_KEY, REL_QUERY, REL_VALUE, SCORES, VALUES = map(
    slot_number, ("query_slope", "rel_gain", "rel_key", "rel_query", "rel_value", "scores", "values")
)

# Columns of the table that a call hands to kernels, a row for each slot: whether it is given and its gradient wanted,
# strides of batch and head, rows of a head's array, its elements; where the array lies and how long it is.
GIVEN, WANTED, BATCH, HEAD, ROW_COUNT, COUNT, ADDRESS, SIZE = (np.int64(number) for number in range(8))
COLUMNS = np.int64(8)
SIZES = int(ADDRESS)
"""The first columns, without what differs between calls of equal sizes."""


@inner
def has_slot(table, slot):
    """Whether a slot is given; table: pointer to the first element of the table."""
    return get(table, slot * COLUMNS + GIVEN)


@inner
def wants_gradient(table, slot):
    """Whether a slot's gradient is wanted."""
    return get(table, slot * COLUMNS + WANTED)


@inner
def rows_of(table, slot):
    """The number of rows of a head's array; entries, where it has one axis."""
    return get(table, slot * COLUMNS + ROW_COUNT)


class Terms(NamedTuple):
    """Whose slots are read: the sample, or the layer of a model, and the head."""

    sample: int
    head: int


@inner
def floats_of(table, slot, terms, like):
    """A head's array of a slot; like: a pointer to elements of its type. The call's arguments keep it alive."""
    row = slot * COLUMNS
    whole = float_pointer(get(table, row + ADDRESS), get(table, row + SIZE), like)
    return part(whole, _start(table, row, terms), get(table, row + COUNT))


@inner
def doubles_of(table, slot, terms):
    """As `floats_of`, of float64."""
    row = slot * COLUMNS
    whole = double_pointer(get(table, row + ADDRESS), get(table, row + SIZE))
    return part(whole, _start(table, row, terms), get(table, row + COUNT))


@inner
def integers_of(table, slot, terms):
    """As `floats_of`, of int32."""
    row = slot * COLUMNS
    whole = int32_pointer(get(table, row + ADDRESS), get(table, row + SIZE))
    return part(whole, _start(table, row, terms), get(table, row + COUNT))


@inner
def _start(table, row, terms):
    return terms.sample * get(table, row + BATCH) + terms.head * get(table, row + HEAD)
