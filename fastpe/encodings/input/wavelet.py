"""Orthogonal wavelets at dyadic scales, added to the embeddings.

    layout 'coarse':  psi_{j,k}(p) = 2^(-j/2) psi(p / 2^j - k)       larger j is coarser
    layout 'fine':    psi_{j,k}(p) = 2^(j/2)  psi(2^j p - k)         larger j is finer
    PE[p] = the chosen psi_{j,k}(p), j = 0 .. J, one column each; every row divided by its norm

Source: Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models", section 6.1, which proposes
this encoding; the settings are those of section 7. phi and psi are Daubechies' scaling function and wavelet, or those
of another orthogonal wavelet of PyWavelets. `fastpe.encodings.parts.daubechies` evaluates them exactly.

**Slot**: `table` (N, C). **Learns**: nothing. Positions may be real numbers.

**Interpretation of the paper.** As printed, psi_{j,k} has the factor 2^j in its argument, j = 0 is called the finest
scale, and the shifts are k = 0 .. 9. Taken literally, this definition gives the zero vector at position 0 and at all
positions of 16 or more. At integer positions it uses, at every scale, only the values of psi at integers. The paper's
description (finest scale first, coarsest scale J = floor(log2 N)) requires the layout `coarse`, which is the default. 6
scales with 10 shifts each give 60 columns, fewer than the 64 needed. By default, fastpe therefore considers all
functions whose support meets [0, N], and takes the C functions that have the longest part of their support inside [0,
N]. "Daubechies-4" is read as `db4`, with 4 vanishing moments and 8 taps; the wavelet with 4 taps is `db2`. Options
select other interpretations:
- the literal definition: layout='fine', select='listed', shifts=0,1,2,3,4,5,6,7,8,9; and functions='phi+psi' to include
  the paper's phi;
- all functions whose support meets [0, N], an orthogonal basis: layout='fine', functions='phi+psi' and C = 3249 for N =
  50.

**Options** (N is the training length, not the length of the sequence)
- `wavelet`: a name of PyWavelets, `db1` to `db38`, `sym...`, `coif...`, `haar`. Biorthogonal wavelets and `dmey`, whose
  filter is not orthogonal, raise an error.
- `layout`: `coarse` or `fine`, see above.
- `functions`: `psi`: only wavelets. `phi+psi`: first the scaling functions of the coarsest scale, then the wavelets.
- `scales`: J, the largest j. Default: floor(log2 N).
- `shifts`: the k of every scale. Default: all whose support meets [0, N].
- `select`: the order of the functions; the first C become columns. `coverage`: functions with the longest part
  of their support inside [0, N] come first; among functions with equally long parts, those of coarser scales come
  first, and within a scale those with smaller k. `even`: the coarsest scale comes first; each scale has at most
  `per_scale` functions, with evenly spaced shifts k. `listed`: as in the printed sum, by increasing j, then by
  increasing k.
- `pad`: how the other columns are filled if there are fewer than C functions. `phi`: with scaling functions of the
  coarsest scale in the order of `select`, then with zeros. `zeros`: with zeros. `fastpe train` prints a remark if
  columns are padded.
- `normalise`: `unit` divides every row by its norm, except rows of zeros; `none` does not.
- `scale`: multiplies the table after normalisation; sqrt(C/2) gives the norm of the sinusoidal encoding.

**Past the training length**: defined. Past N, the supports of the functions end one after another. The farther a row is
past N, the fewer functions are not zero there, so rows that are not normalised tend to zero. Normalised rows become
similar to their neighbours: for db4 and N = 50, the two nearest rows are 0.43 apart inside the training length, 0.05 in
[50, 100) and 2e-5 in [100, 200). Where all functions are zero, rows are zero. For db2 and N = 50 these are all rows at
positions of 128 or more; for db4, no row up to position 199 is zero. The paper claims that differences decay past N,
but the row of position 199 is nearly orthogonal to the row of position 50.

**Accuracy.** PyWavelets' Daubechies filters are correct to the last bit. For db1 to db20, the absolute error of a value
is at most 1e-14, and in float32 half a unit in the last place more. So the error of an entry below 1e-7 can exceed a
unit in the last place. Dividing a row by its norm can increase the error. If only the far ends of a few functions of a
long filter reach a row, its norm is 1e-7 or less, and the error of the normalised row is about 1e-13 (db20, width 12).

**Speed.** Arithmetic is the bottleneck for rows inside the training length: about 40 of 64 columns are not zero, and
each takes about ten operations for a vector of positions. The values of the coarsest scales (for example, six of 18)
are not cached; with a filter of length L, each of these scales takes L^2 more products. For rows in which all functions
are zero, memory bandwidth is the bottleneck.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.daubechies import orthogonal_filter, reference_values, scratch, shifted_taps
from fastpe.encodings.parts.row_blocks import points_of, row_blocks
from fastpe.encodings.parts.wavelet_rows import PHI, PSI, ZERO, fill_rows
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.table import LARGE
from fastpe.kernels.simd import aligned_zeros, whole_vectors

_MOST_SCALE = 30
_MOST_CANDIDATES = 2**22


class Columns(NamedTuple):
    """The kind of every column of the table (0: zeros, 1: phi, 2: psi), its level and its shift, (C,) each.

    Level 0 is the finest scale and level J the coarsest, in both layouts.
    """

    kind: np.ndarray
    level: np.ndarray
    shift: np.ndarray


def _largest(train_length: int, scales: int | None) -> int:
    return train_length.bit_length() - 1 if scales is None else scales


def columns(spec: Spec, **options: Any) -> Columns:
    """The table's columns for these sizes and options."""
    taps = len(orthogonal_filter(options["wavelet"]).low)
    chosen = {key: options[key] for key in ("layout", "functions", "shifts", "select", "per_scale", "pad")}
    return _columns(spec.dim, spec.train_length, _largest(spec.train_length, options["scales"]), taps, **chosen)


@lru_cache(maxsize=64)
def _columns(
    dim: int,
    length: int,
    largest: int,
    taps: int,
    *,
    layout: str,
    functions: str,
    shifts: tuple[int, ...] | None,
    select: str,
    per_scale: int,
    pad: str,
) -> Columns:
    unit = [2.0**level / (1 if layout == "coarse" else 2**largest) for level in range(largest + 1)]
    levels = range(largest + 1) if layout == "coarse" else range(largest, -1, -1)  # j = 0 .. J

    def meeting(level: int) -> np.ndarray:
        if shifts is not None:
            return np.array(shifts, dtype=np.int64)
        return np.arange(-(taps - 2), math.floor(length / unit[level]) + 1)

    def ordered(kind: int, within: Any) -> np.ndarray:
        rows = [(level, meeting(level)) for level in within]
        if select == "even":
            rows = [(level, _evenly(shift, per_scale)) for level, shift in sorted(rows, key=lambda row: -row[0])]
        level = np.concatenate([np.full(len(shift), level) for level, shift in rows])
        shift = np.concatenate([shift for _, shift in rows])
        if select == "coverage":
            width = np.array(unit)[level]
            covered = np.minimum(width * (shift + taps - 1), length) - np.maximum(width * shift, 0)
            order = np.lexsort((shift, -level, -np.maximum(covered, 0)))
            level, shift = level[order], shift[order]
        return np.stack([np.full(len(shift), kind), level, shift])

    phi = ordered(PHI, [largest])
    blocks = [phi, ordered(PSI, levels)] if functions == "phi+psi" else [ordered(PSI, levels)]
    if functions == "psi" and pad == "phi":
        blocks.append(phi)
    table = np.concatenate([*blocks, np.zeros((3, dim), dtype=np.int64)], axis=1)[:, :dim]
    table.flags.writeable = False
    return Columns(*table)


def _evenly(shifts: np.ndarray, count: int) -> np.ndarray:
    """`count` of the shifts, evenly spaced by index, including both ends, without repeats."""
    last = len(shifts) - 1
    places = [last // 2] if count == 1 else [(2 * i * last + count - 1) // (2 * (count - 1)) for i in range(count)]
    return shifts[np.unique(places)]


def check(spec: Spec, **options: Any) -> None:
    """Require an orthogonal wavelet, and a limited number of candidate columns."""
    taps = len(orthogonal_filter(options["wavelet"]).low)
    largest = _largest(spec.train_length, options["scales"])
    if options["shifts"] == ():
        raise ValueError("option 'shifts' must be none (all shifts) or at least one integer, not ()")
    if largest > _MOST_SCALE:
        raise ValueError(f"option 'scales' must be at most {_MOST_SCALE}, not {largest}")
    finest = 2**largest if options["layout"] == "fine" else 1
    candidates = 2 * spec.train_length * finest + (largest + 1) * taps
    if options["shifts"] is None and candidates > _MOST_CANDIDATES:
        raise ValueError(
            f"layout {options['layout']!r} at training length {spec.train_length} has about {candidates} functions to "
            f"choose from, more than {_MOST_CANDIDATES}: give fewer with option 'scales' or 'shifts'"
        )
    if options["shifts"] is not None and any(abs(shift) > 2**40 for shift in options["shifts"]):
        raise ValueError("option 'shifts' must lie within ±2**40")


def remarks(spec: Spec, **options: Any) -> tuple[str, ...]:
    """Remark on padding if there are fewer functions than columns."""
    kinds = columns(spec, **options).kind
    zeros = int((kinds == ZERO).sum())
    phis = int((kinds == PHI).sum()) if options["functions"] == "psi" else 0
    if zeros + phis == 0:
        return ()
    return (
        f"there are only {spec.dim - zeros - phis} functions for {spec.dim} columns: {phis} columns are filled up "
        f"with scaling functions of the coarsest scale, {zeros} with zeros",
    )


def _finest(spec: Spec, layout: str, scales: int | None) -> float:
    """The factor from a position to the argument of the finest level."""
    return 1.0 if layout == "coarse" else 2.0 ** _largest(spec.train_length, scales)


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Li 2025, section 6.1, one column at a time; phi and psi by dense matrices, arguments as fractions."""
    filters = orthogonal_filter(options["wavelet"])
    chosen = columns(spec, **options)
    finest = Fraction(_finest(spec, options["layout"], options["scales"]))
    points = spec.points()
    table = np.zeros((points.size, spec.dim))
    for row, point in zip(table, points.ravel().tolist(), strict=True):
        for level in np.unique(chosen.level):
            argument = Fraction(point) * finest / 2 ** int(level)
            values = reference_values(filters, argument - math.floor(argument))
            for kind in (PHI, PSI):
                places = np.flatnonzero((chosen.level == level) & (chosen.kind == kind))
                at = math.floor(argument) - chosen.shift[places]
                inside = (at >= 0) & (at < len(filters.integers))
                amplitude = math.sqrt(finest / 2 ** int(level))
                row[places[inside]] = amplitude * values[kind - 1][at[inside]]
    if options["normalise"] == "unit":
        peak = np.abs(table).max(axis=1, keepdims=True)
        table = np.divide(table, peak, out=table, where=peak > 0)
        norm = np.linalg.norm(table, axis=1, keepdims=True)
        table = np.divide(table, norm, out=table, where=norm > 0)
    return {"table": options["scale"] * table.reshape((*points.shape, spec.dim))}


class _Sorted(NamedTuple):
    """The columns sorted by function, level and shift. For each run of columns with the same function and level: its
    kind, level, start and stop, (4, runs). Then, for every column, its shift and its index in the table.
    """

    runs: np.ndarray
    shift: np.ndarray
    place: np.ndarray


def _by_level(chosen: Columns) -> _Sorted:
    order = np.lexsort((chosen.shift, chosen.level, chosen.kind))
    order = order[chosen.kind[order] != ZERO]
    kind, level, shift = (each[order] for each in chosen)
    starts = np.flatnonzero(np.diff(level, prepend=-1) | np.diff(kind, prepend=-1))
    runs = np.stack([kind[starts], level[starts], starts, np.append(starts[1:], len(order))])
    return _Sorted(runs, shift, order)


def _kept_levels(rows: int, levels: int, count: int) -> int:
    """The number of levels whose values are cached: they must fit in a core's cache and be fewer than the rows."""
    return min(levels, max(1, (min(rows, _KEPT // count)).bit_length()))


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `table`."""
    chosen, table = columns(spec, **options), out["table"]
    finest, filters = _finest(spec, options["layout"], options["scales"]), orthogonal_filter(options["wavelet"])
    by_level, taps, work = _by_level(chosen), shifted_taps(filters), scratch(filters)
    amplitudes = np.sqrt(finest / 2.0 ** np.arange(int(chosen.level.max()) + 1))
    width, wide = taps.shape[-1], whole_vectors(1, table.dtype)
    levels, count, dim = len(amplitudes), len(filters.integers), spec.dim
    kept = _kept_levels(table.size // dim, levels, count)
    entries = levels + sum(max(1, 2**level // width) for level in range(kept))
    values = aligned_zeros((entries, 2, count, width), np.float64)
    ready = np.zeros(entries, np.bool_)
    indices = np.zeros(width + levels + by_level.runs.shape[1] + dim, np.int64)
    found = aligned_zeros((dim + 1, width), np.float64)
    rounded, block = aligned_zeros((dim + wide, wide), table.dtype), aligned_zeros((wide, dim), table.dtype)
    tile = aligned_zeros((wide, wide), table.dtype)
    phase = None
    for rows, first, row_step, step in row_blocks(table):
        points = points_of(spec, rows) * finest
        phase = int(np.floor(points[0])) % width if phase is None else phase
        fill_rows(
            points, taps, filters.integers, *by_level, amplitudes, options["normalise"] == "unit", options["scale"],
            phase, kept, values, ready, indices, work, found, rounded, block, tile, first, row_step, step,
            table.nbytes >= LARGE,
        )  # fmt: skip


_KEPT = 2**16  # the largest number of values of phi on a level
_LONG = 24  # filters with more taps than this have tiny ends


def _ulp(spec: Spec, *, wavelet: str, normalise: str, **options: Any) -> float:
    """Each binary digit takes one matrix product; normalisation amplifies the error of rows of tiny entries."""
    return 1024.0 if normalise == "unit" and len(orthogonal_filter(wavelet).low) > _LONG else 128.0


ENCODING = Encoding(
    summary="wavelets of the position at dyadic scales, added",
    formula=r"""
        \psi_{j,k}(p) &= 2^{-j/2}\, \psi(p / 2^j - k)
            \quad \text{layout } \mathrm{coarse} \text{: larger } j \text{ is coarser} \\
        \psi_{j,k}(p) &= 2^{j/2}\, \psi(2^j p - k)
            \quad \text{layout } \mathrm{fine} \text{: larger } j \text{ is finer} \\
        \mathrm{PE}[p] &= \text{the chosen } \psi_{j,k}(p),\ j = 0, \dots, J, \text{ one column each} \\
        &\text{every row divided by its norm}
    """,
    use_when="you reproduce Li (2025); it learns order well within the training length and fails beyond it",
    not_to_be_confused={
        "wavelet_relative": "fixed wavelets of the distance, multiplied by the query",
        "mope": "learned Morlet waves, added to the embeddings",
    },
    use="study",
    slots=("table",),
    options={
        "wavelet": Option(
            "db4",
            "a wavelet of PyWavelets, by its name: db4 has 8 taps",
            str,
            samples=("db1", "db2", "db4", "db20", "sym5", "coif2"),
        ),
        "layout": Option("coarse", "whether larger j is coarser or finer", str, ("coarse", "fine")),
        "functions": Option("psi", "wavelets only, or scaling functions first", str, ("psi", "phi+psi")),
        "scales": Option(None, "the largest j; none: floor(log2 train_length)", int, minimum=0, optional=True),
        "shifts": Option(
            None,
            "the k of every scale; none: all that meet [0, train_length]",
            tuple,
            optional=True,
            samples=((0,), tuple(range(10)), (-3, 2, 70)),
        ),
        "select": Option("coverage", "which columns come first", str, ("coverage", "even", "listed")),
        "per_scale": Option(10, "shifts of every scale with select 'even'", int, minimum=1),
        "pad": Option("phi", "how missing columns are filled", str, ("phi", "zeros")),
        "normalise": Option("unit", "whether rows are divided by their norm", str, ("unit", "none")),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Li 2025, section 6.1",
    reported=Reported(
        "partly",
        "Running sums, trained at 50: error 0.0024, at 100 0.0049, at 200 0.0108; our reproduction does not "
        "confirm it.",
        "Li 2025, Theoretical Analysis of Positional Encodings in Transformer Models, table 5",
    ),
    ulp=_ulp,
)
