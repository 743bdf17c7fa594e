"""Hermite functions of the scaled and centred position, added to the embeddings.

    PE[p, l] = psi_l(x(p)),   x(p) = span (2p/N - 1),   l = 0 .. C - 1
    psi_0 = pi^(-1/4) e^(-x^2/2),   psi_1 = sqrt(2) x psi_0,
    psi_{l+1} = sqrt(2/(l+1)) x psi_l - sqrt(l/(l+1)) psi_{l-1}

N is the training length, not the length of the sequence.

Source: our own construction, after the Legendre encoding of Li (2025), "Theoretical Analysis of Positional Encodings in
Transformer Models", section 6.2. Hermite functions replace the Legendre polynomials. They are orthonormal on the whole
line: the integral of psi_k psi_l is 1 for k = l and 0 otherwise (Szego 1939, "Orthogonal Polynomials", section 5.5).

**Slot**: `table` (N, C). **Learns**: nothing by default; with the option `learned`, the number `span` (1,).

**Options**
- `span`: x at the end of the training length; x at its start is -span. Default: sqrt(2C - 1), the turning point of the
  last function. The function psi_l oscillates between its turning points ±sqrt(2l + 1) and falls like e^(-x^2/2)
  outside them.
- `learned`: whether the span is learned. The option `span` then sets its initial value.
- `scale`: multiplies the table.

Positions may be real numbers.

**Past the training length**: defined. Rows tend to zero; the larger the span, the sooner. With the default span and C =
64, they are zero up to rounding for p >= 1.2 N and for p <= -0.2 N. With a third of the default span, the functions
oscillate up to p = 2 N.

**Facts.** Columns oscillate at different local frequencies; the largest is sqrt(2C - 1) / (2 pi) turns per unit of x.
Entries are at most pi^(-1/4) = 0.75 in absolute value, and a row's norm is about (2C - x^2)^(1/4) / sqrt(pi), less
towards the ends.

**Traps.** x = 0 is the middle of the training length, not its start. If 2 span / N exceeds pi / sqrt(2C - 1), integer
positions are too far apart for the fastest oscillations. The columns are then linearly dependent, for example for C =
64 and N = 50.

**Accuracy.** Given x, an entry is within (4C + 16) 2^-52 of the exact value; in a row of small entries, this bound is
multiplied by the largest of them. Rounding x adds sqrt(2C) |x| 2^-52. The recurrence uses numbers with a wider range of
exponents than float64, so nothing is lost where psi_0 underflows in float64. For example, psi_4095(90) is correct,
although psi_0(90) = 1e-1759.
"""

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.frequencies import exact_product
from fastpe.encodings.parts.row_blocks import points_of, row_blocks
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inlined
from fastpe.kernels.fills.table import LARGE, columns_to_table, finish
from fastpe.kernels.fills.trig import PI
from fastpe.kernels.simd import (
    absolute,
    aligned_zeros,
    any_negative,
    at,
    fma,
    lanes,
    load_first,
    minus,
    pointer,
    splat,
    store_rounded,
    where_negative,
    whole_vectors,
)

Array = np.ndarray[Any, Any]

_LN2 = Decimal(2).ln()
_LN2_FIRST = float(_LN2)
_LN2_REST = float(_LN2 - Decimal(_LN2_FIRST))
_GROUND = math.pi**-0.25  # psi_0(0)
_POWER = 256  # numbers are scaled by 2^(_POWER k), k an integer
_FADED = 40.0  # at this distance past its turning point a function is less than e^-800


def parameters(spec: Spec, *, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """The span, if it is learned."""
    return {"span": (1,)} if learned else {}


def init(spec: Spec, rng: Any, *, span: float | None, learned: bool, **options: Any) -> dict[str, Any]:
    """The option `span`."""
    return {"span": np.array([_chosen(spec, span)])} if learned else {}


def _chosen(spec: Spec, span: float | None) -> float:
    return math.sqrt(2 * spec.dim - 1) if span is None else span


def _places(spec: Spec, points: Array, span: float) -> Array:
    """x, limited to the point from which all functions are zero."""
    farthest = math.sqrt(2 * spec.dim + 1) + _FADED
    with np.errstate(over="ignore"):
        return np.clip(span * (2.0 * points / spec.train_length - 1.0), -farthest, farthest)


def reference(spec: Spec, params: dict[str, Any], *, span: float | None, learned: bool, scale: float) -> dict[str, Any]:
    """The recurrence of Szego 1939, section 5.5, on numbers with separate exponents; psi_0 in decimal arithmetic."""
    x = _places(spec, spec.points(), float(params["span"][0]) if learned else _chosen(spec, span))
    value, power = np.empty(x.shape), np.empty(x.shape, np.int64)
    with localcontext() as context:
        context.prec = 60
        for index in np.ndindex(x.shape):
            logarithm = -(Decimal(float(x[index])) ** 2) / 2 - PI.ln() / 4
            power[index] = int(logarithm / _LN2)
            value[index] = float((logarithm - int(power[index]) * _LN2).exp())
    older, columns = np.zeros(x.shape), []
    for degree in range(spec.dim):
        columns.append(np.ldexp(value, power))
        older, value = value, np.sqrt(2 / (degree + 1)) * x * value - np.sqrt(degree / (degree + 1)) * older
        shift = np.frexp(np.maximum(abs(value), abs(older)))[1]
        older, value, power = np.ldexp(older, -shift), np.ldexp(value, -shift), power + shift
    return {"table": scale * np.stack(columns, axis=-1)}


def _ground(x: Array) -> tuple[Array, Array]:
    """Return psi_0(x) 2^(_POWER k), which is at most 1, and k, both as float64."""
    square, lost = exact_product(x, x)
    halvings = np.rint(square * (0.5 / _LN2_FIRST))
    product, rest = exact_product(halvings, _LN2_FIRST)
    exponent = (((product - 0.5 * square) + rest) - 0.5 * lost) + halvings * _LN2_REST
    owed = np.floor(halvings / _POWER)
    return np.ldexp(_GROUND * np.exp(exponent), (owed * _POWER - halvings).astype(np.int64)), owed


def _fill_with(spec: Spec, table: Array, span: float, scale: float, dim: int) -> None:
    """Write the first `dim` functions to a table (..., dim)."""
    degree = np.arange(1.0, dim + 1)
    rise, fall = np.sqrt(2.0 / degree), np.sqrt((degree - 1.0) / degree)
    at_once, wide = 2 * whole_vectors(1, np.float64), whole_vectors(1, table.dtype)
    columns, tile = aligned_zeros((dim + wide, at_once), table.dtype), aligned_zeros((wide, wide), table.dtype)
    block = aligned_zeros((at_once, dim), table.dtype)
    for rows, first, row_step, step in row_blocks(table):
        x = _places(spec, points_of(spec, rows), span)
        large = table.nbytes >= LARGE
        _fill(x, *_ground(x), scale, first, row_step, step, large, rise, fall, columns, block, tile)


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, span: float | None, learned: bool, scale: float
) -> None:
    """Fill `table`."""
    chosen = float(params["span"][0]) if learned else _chosen(spec, span)
    _fill_with(spec, out["table"], chosen, scale, spec.dim)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, scale: float, **options: Any
) -> None:
    """dspan = sum over p and l of dPE[p, l] (sqrt(l/2) psi_{l-1} - sqrt((l+1)/2) psi_{l+1}) (2p/N - 1)."""
    table = np.empty((*spec.batch, spec.length, spec.dim + 1))
    _fill_with(spec, table, float(params["span"][0]), 1.0, spec.dim + 1)
    along = scale * (2.0 * spec.points().ravel() / spec.train_length - 1.0)
    roots = np.sqrt(np.arange(spec.dim + 1.0) / 2.0)
    _pull(along, table.reshape(-1, spec.dim + 1), roots, dslots["table"].reshape(-1, spec.dim), dparams["span"])


@entry(label="Hermite functions")
def _fill(
    x: Array, ground: Array, owed: Array, scale: float, first: Array, row_step: int, step: int, large: bool,
    rise: Array, fall: Array, columns: Array, block: Array, tile: Array,
) -> None:  # fmt: skip
    # Lanes are positions; two vectors of them are processed together. psi_l is the value of the recurrence times
    # 2^(-_POWER k), with one k (`owed`) for each position. psi_l grows with l while x is past the turning point, and
    # then stays below 1. In eight degrees it grows by less than 2^_POWER, so only every eighth degree is checked:
    # values above 2^_POWER are divided by 2^_POWER, and their k is reduced by 1.
    width, dim = lanes(splat(0.0)), block.shape[1]
    rows = 2 * width
    for i in range(0, x.shape[0], rows):
        count = min(rows, x.shape[0] - i)
        places, grounds, debts = at(pointer(x), i), at(pointer(ground), i), at(pointer(owed), i)
        x0, x1 = load_first(places, 0, count), load_first(places, width, count - width)
        newer0, newer1 = load_first(grounds, 0, count), load_first(grounds, width, count - width)
        owed0, owed1 = load_first(debts, 0, count), load_first(debts, width, count - width)
        older0, older1 = splat(0.0), splat(0.0)
        paid0, paid1 = _power(owed0), _power(owed1)
        for degree in range(dim):
            column = at(pointer(columns), degree * rows)
            store_rounded(column, 0, splat(scale) * (newer0 * paid0), width)
            store_rounded(column, width, splat(scale) * (newer1 * paid1), width)
            older0, newer0 = newer0, _next(x0, newer0, older0, rise[degree], fall[degree])
            older1, newer1 = newer1, _next(x1, newer1, older1, rise[degree], fall[degree])
            if degree % 8 == 7:
                room0, room1 = splat(_HIGH) - absolute(newer0), splat(_HIGH) - absolute(newer1)
                if any_negative(room0) or any_negative(room1):
                    older0, newer0, owed0 = _lower(room0, older0), _lower(room0, newer0), _pay(room0, owed0)
                    older1, newer1, owed1 = _lower(room1, older1), _lower(room1, newer1), _pay(room1, owed1)
                    paid0, paid1 = _power(owed0), _power(owed1)
        columns_to_table(
            pointer(columns), rows, count, dim, pointer(block), pointer(tile), at(pointer(first), i * row_step),
            row_step, step, large,
        )  # fmt: skip
    finish(large)


_HIGH, _LOW = 2.0**_POWER, 2.0**-_POWER
_ONCE, _TWICE, _THRICE, _FOUR_TIMES = (2.0 ** (-_POWER * k) for k in range(1, 5))


@inlined
def _next(x, newer, older, rise, fall):  # type: ignore[no-untyped-def]
    """psi_{l+1} = rise x psi_l - fall psi_{l-1}."""
    return fma(splat(rise) * x, newer, minus(splat(fall) * older))


@inlined
def _lower(room, value):  # type: ignore[no-untyped-def]
    """The value, divided by 2^_POWER in lanes where `room` is negative."""
    return where_negative(room, splat(_LOW) * value, value)


@inlined
def _pay(room, owed):  # type: ignore[no-untyped-def]
    """Subtract 1 from k (`owed`) in the lanes where `room` is negative, whose values `_lower` divides."""
    return where_negative(room, owed - splat(1.0), owed)


@inlined
def _power(owed):  # type: ignore[no-untyped-def]
    """2^(-_POWER k) for k = `owed`; 0 from k = 5 on, where every product with it would be 0."""
    far = where_negative(owed - splat(4.5), splat(_FOUR_TIMES), splat(0.0))
    far = where_negative(owed - splat(3.5), splat(_THRICE), far)
    far = where_negative(owed - splat(2.5), splat(_TWICE), far)
    far = where_negative(owed - splat(1.5), splat(_ONCE), far)
    return where_negative(owed - splat(0.5), splat(1.0), far)


@entry(label="gradient of the span of Hermite functions")
def _pull(along: Array, table: Array, roots: Array, dtable: Array, dspan: Array) -> None:
    total = 0.0
    for i in range(dtable.shape[0]):
        change = 0.0
        for degree in range(dtable.shape[1]):
            below = roots[degree] * table[i, degree - 1] if degree else 0.0
            change += float(dtable[i, degree]) * (below - roots[degree + 1] * table[i, degree + 1])
        total += change * along[i]
    dspan[0] += total


ENCODING = Encoding(
    summary="Hermite functions of the centred position",
    formula=r"""
        \mathrm{PE}[p, l] &= \psi_l(x(p)), \quad x(p) = \mathrm{span} \left(\frac{2 p}{N} - 1\right),
            \quad l = 0, \dots, C - 1 \\
        \psi_0 &= \pi^{-1/4} e^{-x^2/2}, \quad \psi_1 = \sqrt{2}\, x\, \psi_0 \\
        \psi_{l+1} &= \sqrt{\frac{2}{l + 1}}\, x\, \psi_l - \sqrt{\frac{l}{l + 1}}\, \psi_{l-1}
    """,
    use_when="you study features of the position that fade out beyond the training length",
    not_to_be_confused={
        "PoPE (arXiv:2405.04585)": "a polynomial encoding with Legendre polynomials: `legendre`",
    },
    use="study",
    slots=("table",),
    options={
        "span": Option(None, "x at the end of the training length", float, above=0.0, optional=True, samples=(3.0,)),
        "learned": Option(False, "whether the span is learned", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="own construction, after Li 2025, section 6.2; functions: Szego 1939, section 5.5",
    ulp=lambda spec, **options: 16.0 + 4.0 * spec.dim,
)
