"""A learned vector for every position, added to the embeddings.

    PE[p] = table[p],   p = 0 .. N_train - 1

Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning" (arXiv:1705.03122), section 3.1; initial
values N(0, 0.02^2) as in BERT and GPT-2.

**Slot**: `table` (N, C). **Learns**: `table` (N_train, C). Positions are integers >= 0.

**Options**
- `beyond`: what positions past the training length get. `error` (the default: no author defines one), `clip`: the
  last row, or `interp`: the table is resampled linearly to the new length, so that row p becomes the table's value at
  p (N_train - 1) / (N - 1), where N is the largest position plus one. Li (2025) names the last two.
- `scale`: multiplies the table.

**Past the training length**: undefined, unless `beyond` says otherwise. `fastpe train` clips there, and says so.

**Traps.** Only rows that occur in training receive a gradient. With `interp` *every* row moves when the sequence is
longer than the table, also those inside the training length.
"""

from typing import Any

import numpy as np

from fastpe.encoding import BeyondTrainingLength, Encoding, Option, Spec
from fastpe.kernels._jit import entry

STANDARD_DEVIATION = 0.02


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """One row for every position of the training length."""
    return {"table": (spec.train_length, spec.dim)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """N(0, 0.02^2)."""
    return {"table": STANDARD_DEVIATION * rng.normal((spec.train_length, spec.dim))}


def check(spec: Spec, *, beyond: str, scale: float) -> None:
    """Positions must be integers >= 0, and inside the table unless `beyond` says what else to do."""
    points = spec.points()
    if (points != np.floor(points)).any() or points.min() < 0:
        raise ValueError(f"'learned' needs integer positions >= 0, but one is {_offender(points):g}")
    if beyond == "error" and points.max() >= spec.train_length:
        raise BeyondTrainingLength(
            f"'learned' has no row for position {points.max():.0f}: its table ends with the training length "
            f"{spec.train_length}; option beyond='clip' or 'interp' chooses what to use there"
        )


def _offender(points: np.ndarray) -> float:
    return float(points[(points != np.floor(points)) | (points < 0)][0])


def remarks(spec: Spec, *, beyond: str, scale: float) -> tuple[str, ...]:
    """Say what happens past the training length."""
    points = spec.points()
    past = int((points >= spec.train_length).sum())
    if past == 0 or beyond == "error":
        return ()
    does = "use its last row" if beyond == "clip" else "stretch the table, which is resampled linearly"
    return (f"{past} of {points.size} positions lie past the training length {spec.train_length} and {does}",)


def _places(spec: Spec, beyond: str) -> np.ndarray:
    """Where in the table each position lies: rows, fractional when the table is resampled."""
    points = spec.points().ravel()
    last = spec.train_length - 1
    farthest = points.max()
    if beyond == "interp" and farthest > last:
        return points * last / farthest
    return np.minimum(points, last)


def reference(spec: Spec, params: dict[str, Any], *, beyond: str, scale: float) -> dict[str, Any]:
    """The rows of the table, resampled by NumPy's own linear interpolation where that is asked for."""
    table, points = params["table"], spec.points()
    rows = np.arange(spec.train_length, dtype=np.float64)
    if beyond == "interp" and points.max() >= spec.train_length:
        rows = np.linspace(0.0, points.max(), spec.train_length)
    columns = [np.interp(points, rows, table[:, c]) for c in range(spec.dim)]
    return {"table": scale * np.stack(columns, axis=-1)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, beyond: str, scale: float) -> None:
    """Fill `table`."""
    _fill(_places(spec, beyond), params["table"], scale, out["table"].reshape(-1, spec.dim))


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, beyond: str, scale: float
) -> None:
    """Add every row's gradient to the row, or the two rows, of the table that it came from."""
    _pull(_places(spec, beyond), dslots["table"].reshape(-1, spec.dim), scale, dparams["table"])


@entry(label="learned table")
def _fill(places: np.ndarray, rows: np.ndarray, scale: float, table: np.ndarray) -> None:
    last = rows.shape[0] - 1
    for i in range(places.shape[0]):
        low = int(places[i])
        high = min(low + 1, last)
        weight = places[i] - low
        for c in range(table.shape[1]):
            table[i, c] = scale * ((1.0 - weight) * rows[low, c] + weight * rows[high, c])


@entry(label="gradient of the learned table")
def _pull(places: np.ndarray, dtable: np.ndarray, scale: float, drows: np.ndarray) -> None:
    last = drows.shape[0] - 1
    for i in range(places.shape[0]):
        low = int(places[i])
        high = min(low + 1, last)
        weight = places[i] - low
        for c in range(dtable.shape[1]):
            drows[low, c] += scale * (1.0 - weight) * dtable[i, c]
            if weight > 0.0:
                drows[high, c] += scale * weight * dtable[i, c]


ENCODING = Encoding(
    slots=("table",),
    options={
        "beyond": Option("error", "what positions past the training length get", str, ("error", "clip", "interp")),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="undefined",
    source="Gehring et al. 2017, arXiv:1705.03122, section 3.1",
    # a resampled row's place is known to one rounding, and rows may differ by twice the largest entry
    ulp=lambda spec, beyond, scale: 4.0 + 4.0 * spec.train_length if beyond == "interp" else 1.0,
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    check=check,
    remarks=remarks,
    paper={"beyond": "clip"},
)
