"""Time2Vec: a linear channel and sines of the position or time, with learned frequencies and phases.

    PE[p] = [ w_0 p + b_0,  sin(w_1 p + b_1), .., sin(w_{C-1} p + b_{C-1}) ]

Source: Kazemi et al. 2019, "Time2Vec: Learning a Vector Representation of Time" (arXiv:1907.05321); the order of
channels and the initial values are those of mTAN (Shukla and Marlin 2021, arXiv:2101.10318), reml-lab/mTAN,
src/models.py, learn_time_embedding.

**Slot**: `table` (N, C). **Learns**: `frequency` w and `phase` b, (C,) each, initially uniform in (-1, 1), as in
PyTorch's linear layer with one input.

**Options**: none. Pass times other than 0, 1, 2, .. as `positions`. They may be real numbers, and may differ between
samples. The unit of time matters: initial frequencies are below 1 radian per unit. mTAN divides times by the length of
the record, so that they lie in [0, 1]. (`rope` also accepts times as positions: subtract each sample's first time in
float64, and choose the unit so that a typical gap is about 1.)

**Past the training length**: defined; the linear channel grows without bound.

**Accuracy.** Whole turns are removed from w p exactly, so the error of a sine is at most (|b| + 8) 2^-52 at any
position.

**Traps.** The first channel is not bounded: at position 1000 it is typically hundreds of times larger than the others.
mTAN uses these vectors as query and key of a separate attention, with a softmax for each channel of the input; here
they are added to the embeddings. The variant of mTAN without learned parameters is `sinusoidal` with base=10 at
positions 48 t.
"""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.initial_values import initial_values
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import fill_angles, precise, turns_of
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI

Array = np.ndarray[Any, Any]

_BLOCK = 2**13  # entries computed together
_MOST_TURNS = 2.0**50


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A frequency and a phase for every channel."""
    return {"frequency": (spec.dim,), "phase": (spec.dim,)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Uniform in (-1, 1)."""
    shape = (spec.dim,)
    return {
        name: initial_values("uniform", stream_of(rng, name), "weight", shape, (1, spec.dim))
        for name in ("frequency", "phase")
    }


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The formula above; whole turns are removed in decimal arithmetic."""
    points = spec.points()
    table = np.empty((*points.shape, spec.dim))
    with precise():
        for *place, c in np.ndindex(table.shape):
            w, b = (Decimal(float(params[name][c])) for name in ("frequency", "phase"))
            value = w * Decimal(float(points[tuple(place)])) + b
            if c:
                value -= (value / (2 * PI)).to_integral_value() * 2 * PI
            table[*place, c] = math.sin(float(value)) if c else float(value)
    return {"table": table}


def _blocks(spec: Spec, params: dict[str, Any], table: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Yield some positions (n,), the arguments of their sines (n, C - 1), and their rows (n, C) of the table."""
    w, b = (params[name].astype(np.float64) for name in ("frequency", "phase"))
    most = float(np.abs(w).max()) * (spec.farthest + 1)
    if not most <= _MOST_TURNS:
        raise ValueError(f"params['frequency'] must make at most 2**50 radians, not {most:g}")
    turns, every = turns_of(w[None, None, 1:]), spec.points()
    for sample in np.ndindex(*spec.batch):
        for first in range(0, spec.length, max(1, _BLOCK // spec.dim)):
            some = slice(first, first + max(1, _BLOCK // spec.dim))
            points = every[sample][some]
            arguments = np.empty((1, len(points), spec.dim - 1))
            if spec.dim > 1:
                fill_angles(points[:, None], turns, arguments)
            yield points, arguments[0] + b[1:], table[sample][some]


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `table`."""
    w, b = (float(params[name][0]) for name in ("frequency", "phase"))
    for points, arguments, rows in _blocks(spec, params, out["table"]):
        rows[:, 0] = w * points + b
        rows[:, 1:] = np.sin(arguments)


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dw = sum over p of p dPE cos(w p + b), db = sum of dPE cos(w p + b); the first channel has no cosine."""
    dw, db = np.zeros(spec.dim), np.zeros(spec.dim)
    for points, arguments, rows in _blocks(spec, params, dslots["table"]):
        along = rows.astype(np.float64)
        along[:, 1:] *= np.cos(arguments)
        db += along.sum(axis=0)
        dw += (points[:, None] * along).sum(axis=0)
    dparams["frequency"] += dw
    dparams["phase"] += db


ENCODING = Encoding(
    summary="a linear channel and learned sines of the time",
    formula=r"\mathrm{PE}[p] = [\, w_0 p + b_0,\ \sin(w_1 p + b_1),\ \dots,\ \sin(w_{C-1} p + b_{C-1}) \,]",
    use_when="positions are real times, such as irregular events, with trends and unknown periods",
    use="other",
    slots=("table",),
    options={},
    beyond="defined",
    direction="yes",
    source="Kazemi et al. 2019, arXiv:1907.05321; Shukla and Marlin 2021, arXiv:2101.10318, released code",
    ulp=16.0,
)
