"""A learned vector for every position, added to the embeddings.

    PE[p] = table[p],   p = 0 .. N_train - 1

Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning" (arXiv:1705.03122), section 3.1; initial
values N(0, 0.02^2) as in BERT and GPT-2.

**Slot**: `table` (N, C). **Learns**: `table` (N_train, C). Positions are integers >= 0.

**Options**
- `beyond`: how positions past the training length are handled. `error`, the default, raises `BeyondTrainingLength`,
  because no author defines vectors for such positions. `clip` uses the last row. `interp` resamples the table linearly
  to the new length: row p becomes the table's value at p (N_train - 1) / (N - 1), where N is the largest position plus
  one. Li (2025) mentions `clip` and `interp`.
- `scale`: multiplies the table.

**Past the training length**: undefined, unless `beyond` is `clip` or `interp`; `fastpe.resize` returns the table for
further training at a larger length. `fastpe train` sets `beyond` to `clip` and prints a remark.

**Accuracy.** Without `interp` and `scale`, entries of the table are copied without rounding. With `interp`, each value
is a weighted sum of two entries, computed in float64; both weights are rounded quotients of integers. The error of a
value is at most 4 * 2^-53 times the larger of the two entries, plus half a unit in the last place if the slot is
float32.

**Traps.** Only the rows of positions that occur in training receive a gradient. With `interp` *every* row changes when
the sequence is longer than the table, including those within the training length.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.base.validation import whole
from fastpe.encodings.build import build
from fastpe.encodings.encoding import BeyondTrainingLength, Encoding, Reported
from fastpe.encodings.parts.resizing import only_table
from fastpe.encodings.parts.row_blocks import farthest_of, points_of, row_blocks
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.simd import at, fma, lanes, load_wide, pointer, splat, store_rounded

STANDARD_DEVIATION = 0.02


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for every position of the training length."""
    return {"table": (spec.train_length, spec.dim)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """N(0, 0.02^2)."""
    return {"table": STANDARD_DEVIATION * rng.normal((spec.train_length, spec.dim))}


def check(spec: Spec, *, beyond: str, scale: float) -> None:
    """Require integer positions >= 0, and with `beyond` = `error` also a row of the table for each."""
    points = spec.points() if spec.positions is not None else np.array([spec.start, farthest_of(spec)])
    if (points != np.floor(points)).any() or points.min() < 0:
        raise ValueError(f"'learned' needs integer positions >= 0, but one is {_offender(points):g}")
    if beyond == "error" and points.max() >= spec.train_length:
        raise BeyondTrainingLength(
            f"'learned' has no row for position {points.max():.0f}: its table ends with the training length "
            f"{spec.train_length}; set option beyond to 'clip' or 'interp' for longer sequences"
        )


def _offender(points: np.ndarray) -> float:
    return float(points[(points != np.floor(points)) | (points < 0)][0])


def remarks(spec: Spec, *, beyond: str, scale: float) -> tuple[str, ...]:
    """Remark on the positions past the training length."""
    points = spec.points()
    past = int((points >= spec.train_length).sum())
    if past == 0 or beyond == "error":
        return ()
    does = "use its last row" if beyond == "clip" else "use the table resampled linearly to the new length"
    return (f"{past} of {points.size} positions lie past the training length {spec.train_length} and {does}",)


def resize(params: Any, *, length: int) -> dict[str, np.ndarray]:
    """Resize the table (N_train, C) to `length` rows by linear interpolation; the first and last rows do not change.

    >>> resize({"table": np.array([[0.0], [1.0], [4.0]])}, length=5)["table"].ravel().tolist()
    [0.0, 0.5, 1.0, 2.5, 4.0]
    """
    rows = only_table(params)
    length = whole("length", length, len(rows))
    return build(
        "learned", length, dim=rows.shape[1], train_length=len(rows), dtype=rows.dtype, params={"table": rows},
        beyond="interp",
    )  # fmt: skip


_NONE = np.zeros(0)


def _places(spec: Spec, points: np.ndarray, farthest: float, beyond: str) -> tuple[np.ndarray, np.ndarray]:
    """The row of the table at or before each position, and the weight of the next row, both exact up to the rounding of
    the quotient. There are no weights if every position is a row of the table.
    """
    last = spec.train_length - 1
    if beyond == "interp" and farthest > last:
        product = points.astype(np.int64) * last
        row = product // int(farthest)
        return row, (product - row * int(farthest)) / farthest
    return np.minimum(points, last).astype(np.int64), _NONE


def reference(spec: Spec, params: dict[str, Any], *, beyond: str, scale: float) -> dict[str, Any]:
    """The rows of the table, resampled by NumPy's linear interpolation with `interp`."""
    table, points = params["table"], spec.points()
    rows = np.arange(spec.train_length, dtype=np.float64)
    if beyond == "interp" and points.max() >= spec.train_length:
        rows = np.linspace(0.0, points.max(), spec.train_length)
    columns = [np.interp(points, rows, table[:, c]) for c in range(spec.dim)]
    return {"table": scale * np.stack(columns, axis=-1)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, beyond: str, scale: float) -> None:
    """Fill `table`."""
    table, farthest = out["table"], farthest_of(spec)
    for rows, first, row_step, step in row_blocks(table):
        low, weight = _places(spec, points_of(spec, rows), farthest, beyond)
        _fill(low, weight, params["table"], scale, first, row_step, step, table.nbytes >= LARGE)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, beyond: str, scale: float
) -> None:
    """Add the gradient of every row of the slot to the gradients of the one or two rows of `table` that form it."""
    points = spec.points().ravel()
    low, weight = _places(spec, points, points.max(), beyond)
    _pull(low, weight, dslots["table"].reshape(-1, spec.dim), scale, dparams["table"])


_RUN = 16  # rows of a block


@entry(label="learned table")
def _fill(
    low: np.ndarray, weight: np.ndarray, rows: np.ndarray, scale: float, first: np.ndarray, row_step: int, step: int,
    large: bool,
) -> None:  # fmt: skip
    dim, last = rows.shape[1], rows.shape[0] - 1
    block, factor = np.empty((_RUN, dim), first.dtype), splat(scale)
    table, parameters = pointer(first), pointer(rows)
    for i in range(0, low.shape[0], _RUN):
        count = min(_RUN, low.shape[0] - i)
        copied = scale == 1.0 and weight.size == 0
        for k in range(1, count):
            copied &= low[i + k] - low[i] == k
        source = at(parameters, low[i] * dim) if copied else pointer(block)
        for k in range(0 if copied else count):
            out, weigh = at(pointer(block), k * dim), weight[i + k] if weight.size else 0.0
            one, other = at(parameters, low[i + k] * dim), at(parameters, min(low[i + k] + 1, last) * dim)
            share, rest = splat(weigh), splat(1.0 - weigh)
            for c in range(0, dim, lanes(factor)):
                value = load_wide(one, c, dim - c)
                if weigh > 0.0:
                    value = fma(rest, value, share * load_wide(other, c, dim - c))
                store_rounded(out, c, factor * value, dim - c)
        move_rows(source, count, dim, at(table, i * row_step), row_step, step, large)
    finish(large)


@entry(label="gradient of the learned table")
def _pull(low: np.ndarray, weight: np.ndarray, dtable: np.ndarray, scale: float, drows: np.ndarray) -> None:
    for i in range(low.shape[0]):
        weigh = weight[i] if weight.size else 0.0
        for c in range(dtable.shape[1]):
            drows[low[i], c] += scale * (1.0 - weigh) * dtable[i, c]
            if weigh > 0.0:
                drows[low[i] + 1, c] += scale * weigh * dtable[i, c]


ENCODING = Encoding(
    summary="learned vector for every position, added",
    formula=r"\mathrm{PE}[p] = \mathrm{table}[p], \quad p = 0, \dots, N_{\mathrm{train}} - 1",
    use_when="no sequence is longer than in training, as in BERT and GPT-2",
    also_called=("APE", "wpe", "learned absolute position embeddings"),
    use="earlier",
    slots=("table",),
    options={
        "beyond": Option("error", "handling of positions past the training length", str, ("error", "clip", "interp")),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="undefined",
    moves=lambda *, beyond, **options: beyond == "interp",
    direction="yes",
    source="Gehring et al. 2017, arXiv:1705.03122, section 3.1",
    reported=Reported(
        "fails",
        "There is no vector past the trained length; the authors of ALiBi call such models unable to extrapolate.",
        "Press, Smith and Lewis 2021, arXiv:2108.12409, section 2.1, footnote 4",
    ),
    # the weight of a resampled row has one rounding error, and rows may differ by twice the largest entry
    ulp=lambda spec, beyond, scale: 4.0 + 4.0 * spec.train_length if beyond == "interp" else 1.0,
    tested={"beyond": "clip"},
)
