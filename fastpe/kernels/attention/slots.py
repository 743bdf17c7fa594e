"""The table of slots, the array arguments of attention: shape, dtype, layout and gradient of each.

To add an array argument, add a row here. `functional.slots` lists the combinations of arguments that are not supported.
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
        "H1" is H or 1, "T" an odd 2K+1, "R" at most D/2, "L" max(N, M), "L1" L or 1; "V", "P" and "W" are any size.
    meaning : str
        What the array is: a phrase of the table in the docstring of `fastpe.attention`.
    dtype : str
        "q": the dtype of q; "float64": any float dtype, converted to float64; "q or float64": as "q", but float64 is
        accepted and rounded to the dtype of q; "int32": integers.
    batched : bool
        Whether an axis B is allowed before `axes`.
    layout : str
        How kernels read the array: "offsets", expanded to one entry for each offset of key and query in the call;
        "cells", one entry for each query and key; "rows", unchanged; "" if the scores of a tile do not read the array.
    gradient : str
        How attention kernels compute the array's gradient: "sum", summed over the queries and keys of a head, in order;
        "cells", one entry for each query and key; "" if these kernels do not compute the gradient.
    bounded : bool
        Whether the score is still at most |scale| |q| |k| + bias + key_offset with this slot, so that tiles may be
        skipped (see the docstring of `kernels.attention`). With any slot that is not bounded, no tile is skipped.
    needs_products : bool
        Whether the backward pass needs the products of queries and keys before the scale is applied.
    in_passes : bool
        Whether the term is applied in a separate pass over the tile, between the products and the bias.
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
        "factor on each channel of the product of query and key, by offset",
        layout="rows",
        gradient="sum",
    ),
    "rel_key": Slot(
        ("H1", "T", "D"),
        "vector for each offset; its product with the query is added",
        layout="rows",
        gradient="sum",
    ),
    "rel_query": Slot(
        ("H1", "T", "D"), "vector for each offset; its product with the key is added", layout="rows", gradient="sum"
    ),
    "rel_value": Slot(("H1", "T", "Dv"), "vector for each offset, added to the value", layout="rows", gradient="sum"),
    "key_bias": Slot(("H", "D"), "vector whose product with the key is added", layout="rows", gradient="sum"),
    "gain": Slot(
        ("H", "T"),
        "factor on the scaled product of query and key, by offset",
        layout="offsets",
        gradient="sum",
        needs_products=True,
        in_passes=True,
    ),
    "bias": Slot(("H", "T"), "added to the score, by offset", layout="offsets", gradient="sum", bounded=True),
    "values": Slot(
        ("H", "V"),
        "numbers; `index` selects the one that is added to the score of a query and key",
        layout="rows",
        gradient="sum",
        in_passes=True,
    ),
    "index": Slot(
        ("N", "M"), "which entry of `values` is added for each query and key; integers", "int32", layout="cells"
    ),
    "scores": Slot(
        ("H", "N", "M"), "added to the score of each query and key", layout="cells", gradient="cells", in_passes=True
    ),
    "rotors": Slot(
        ("H1", "L1", "D/b", "b", "b"),
        "matrices by which blocks of b channels of queries and keys are multiplied, before `angles`",
        "q or float64",
        bounded=True,
    ),
    "polar": Slot(
        ("H1", "D"),
        "phases of keys: each channel x becomes a pair, radius softplus(x) at this angle; `angles` then has D columns",
        bounded=True,
    ),
    "angles": Slot(
        ("H1", "L", "R"), "radians by which pairs of channels of queries and keys are rotated", "float64", bounded=True
    ),
    "growth": Slot(
        ("L", "R"),
        "logarithms of factors on pairs of channels of queries; keys are multiplied by the inverse factors",
        "float64",
        layout="rows",
    ),
    "sinks": Slot(("H",), "score of one extra key per head; this key has no value", batched=False, bounded=True),
    "key_offset": Slot(("H1", "M"), "added to every score of a key", "float64", layout="rows", bounded=True),
    "key_slope": Slot(("H1", "M"), "multiplied by the offset, then added to the score", layout="rows"),
    "query_slope": Slot(("H1", "N"), "multiplied by the offset, then added to the score", layout="rows"),
    "row_scale": Slot(("H1", "N"), "factor on each query, after rotation", bounded=True),
    "counts": Slot(
        ("H1", "P", "D"),
        "vector for each number of counted keys (CoPE); its product with the query is added",
        layout="rows",
        gradient="sum",
        in_passes=True,
    ),
    "theta": Slot(("R",), "radians per unit of the positions in `bands`", "float64", batched=False, bounded=True),
    "reflectors": Slot(("H1", "M", "D"), "direction along which each token between key and query reflects (PaTH)"),
    "reflect": Slot(("H1", "M"), "strength of the reflection of each token"),
    "mlp_in": Slot(
        ("W", "2H", "T"),
        "first matrix of a network over the scores and biases of all heads (DAPE), with 2K+1 taps along the keys",
        batched=False,
    ),
    "mlp_bias": Slot(("W",), "bias of the hidden layer of the DAPE network", batched=False),
    "mlp_out": Slot(
        ("H", "W", "T"), "second matrix of the DAPE network; its output is added to the scores", batched=False
    ),
}
"""Every array argument, by name."""

_OTHERS = {
    "mask": Slot(("H1", "N", "M"), "added to the score last", layout="cells", gradient="cells"),  # may also be bool
    "growth_k": Slot(("M", "R"), "the rows of `growth` that keys read", "float64", layout="rows"),
}
ROWS = SLOTS | _OTHERS
"""All arrays of a kernel's table, in the order of their numbers."""


def slot_number(name: str) -> np.int64:
    """Return the number by which kernels know a slot."""
    return np.int64(list(ROWS).index(name))


BIAS, COUNTS, GAIN, GROWTH, GROWTH_K, INDEX, KEY_BIAS, KEY_OFFSET, KEY_SLOPE, MASK = map(
    slot_number,
    ("bias", "counts", "gain", "growth", "growth_k", "index", "key_bias", "key_offset", "key_slope", "mask"),
)
QUERY_SLOPE, REL_GAIN, REL_KEY, REL_QUERY, REL_VALUE, SCORES, VALUES = map(
    slot_number, ("query_slope", "rel_gain", "rel_key", "rel_query", "rel_value", "scores", "values")
)

# Columns of the table that kernels receive, which has a row for each slot: whether the slot is given, whether its
# gradient is wanted, strides of batch and head, numbers of rows and elements of a head, address and size of the array.
GIVEN, WANTED, BATCH, HEAD, ROW_COUNT, COUNT, ADDRESS, SIZE = (np.int64(number) for number in range(8))
COLUMNS = np.int64(8)
SIZES = int(ADDRESS)
"""Number of leading columns. These are equal for all calls with equal shapes; the columns after them may differ."""


@inner
def has_slot(table, slot):
    """Whether a slot is given. table: pointer to the first element of the table."""
    return get(table, slot * COLUMNS + GIVEN)


@inner
def wants_gradient(table, slot):
    """Whether a slot's gradient is wanted."""
    return get(table, slot * COLUMNS + WANTED)


@inner
def rows_of(table, slot):
    """Return the number of rows of one head's array, or of entries if that array has one axis."""
    return get(table, slot * COLUMNS + ROW_COUNT)


class Terms(NamedTuple):
    """Which part of a slot is read: the index of the sample (or of the layer of a model), and the head."""

    sample: int
    head: int


@inner
def floats_of(table, slot, terms, like):
    """Return a pointer to the part of a slot's array that belongs to one head. The caller of the kernel must keep the
    array alive.

    like: a pointer to elements of the same type.
    """
    row = slot * COLUMNS
    whole = float_pointer(get(table, row + ADDRESS), get(table, row + SIZE), like)
    return part(whole, _start(table, row, terms), get(table, row + COUNT))


@inner
def doubles_of(table, slot, terms):
    """Return a pointer as `floats_of` does, but to float64."""
    row = slot * COLUMNS
    whole = double_pointer(get(table, row + ADDRESS), get(table, row + SIZE))
    return part(whole, _start(table, row, terms), get(table, row + COUNT))


@inner
def integers_of(table, slot, terms):
    """Return a pointer as `floats_of` does, but to int32."""
    row = slot * COLUMNS
    whole = int32_pointer(get(table, row + ADDRESS), get(table, row + SIZE))
    return part(whole, _start(table, row, terms), get(table, row + COUNT))


@inner
def _start(table, row, terms):
    return terms.sample * get(table, row + BATCH) + terms.head * get(table, row + HEAD)
