"""Abacus: a learned vector for the position of a digit within its number, added to the embeddings.

    PE[p] = table[p],   p = 0 .. rows - 1

p is 1 for the first digit of a number, 2 for the second, and so on. Tokens that are not digits have p = 0. The setting
``positions="digits:K"`` of a model computes p and gives the table 1024 rows. Each training step draws one random number
from 0 .. K and adds it to the positions of all digits. In this way, the rows that longer numbers need are trained too.
`fastpe train` and `fastpe compare` use ``"digits:99"`` by default (the authors' K), and raise an error for other kinds
of positions and for tasks without digits. With `fastpe.build`, or in a model with another setting of `positions`, the
encoding works like `learned`, with different initial values.

Source: McLeish et al. 2024, "Transformers Can Do Arithmetic with the Right Embeddings" (arXiv:2405.17399), section 3.
The initial values, N(0, 1), are those of the released code (mcleish7/arithmetic, abacus.py).

**Slot**: `table` (N, C). **Learns**: `table` (rows, C). Positions are integers from 0 to rows - 1.

**Options**
- `rows`: the number of rows of the table. Default: the training length, or 1024 with ``positions="digits:K"``. `fastpe
  train` uses 1024, as the authors do.

**Past the training length**: undefined. However, the rows for numbers with up to K more digits than in training have
been trained.

**Accuracy.** Values are copied without rounding.

**Traps.** Numbers must begin with their least significant digit; otherwise the significance of a digit does not follow
from its position. Two numbers with no other token between them count as one number.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import BeyondTrainingLength, Encoding, Needs, Reported
from fastpe.encodings.input import learned
from fastpe.encodings.slots import Spec


def _with_rows(spec: Spec, rows: int | None) -> Spec:
    """The spec with a training length of `rows`, because the table of `learned` has one row per training position."""
    return spec if rows is None else replace(spec, train_length=rows)


def parameters(spec: Spec, *, rows: int | None) -> dict[str, tuple[int, ...]]:
    """A row for every position."""
    return {"table": (rows or spec.train_length, spec.dim)}


def init(spec: Spec, rng: Any, *, rows: int | None) -> dict[str, Any]:
    """N(0, 1)."""
    return {"table": rng.normal((rows or spec.train_length, spec.dim))}


def check(spec: Spec, *, rows: int | None) -> None:
    """Require integer positions below the number of rows."""
    points, most = spec.points(), rows or spec.train_length
    if (points != np.floor(points)).any() or points.min() < 0:
        wrong = points[(points != np.floor(points)) | (points < 0)][0]
        raise ValueError(f"'abacus' needs integer positions >= 0, but one is {wrong:g}")
    if points.max() >= most:
        raise BeyondTrainingLength(
            f"'abacus' has no row for position {points.max():.0f}: its table has {most} rows; "
            "set option rows to a larger number"
        )


def reference(spec: Spec, params: dict[str, Any], *, rows: int | None) -> dict[str, Any]:
    """The row of the table for each position."""
    return {"table": params["table"][spec.points().astype(int)]}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, rows: int | None) -> None:
    """Fill `table`."""
    learned.fill(_with_rows(spec, rows), params, out, beyond="error", scale=1.0)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, rows: int | None
) -> None:
    """Every row of the slot is a copy of a row of `table`: add the gradient of the copy to the gradient of that row."""
    learned.pull(_with_rows(spec, rows), params, dslots, dparams, beyond="error", scale=1.0)


ENCODING = Encoding(
    summary="learned vector for a digit's place in its number",
    formula=r"\mathrm{PE}[p] = \mathrm{table}[p], \quad p = 0, \dots, \mathrm{rows} - 1",
    use_when="digits need their place in numbers, as in long addition; small models here did not learn it",
    also_called=("Abacus embeddings",),
    not_to_be_confused={
        "position coupling": 'digits of equal significance share a position; set by positions="coupled"',
    },
    use="arithmetic",
    needs=Needs("digits", "digits:99"),
    slots=("table",),
    options={"rows": Option(None, "number of rows; none: the training length", int, optional=True, minimum=1)},
    beyond="undefined",
    direction="yes",
    source="McLeish et al. 2024, arXiv:2405.17399, section 3, and released code",
    reported=Reported(
        "holds",
        "Trained on numbers of 20 digits, models add numbers of 100 digits, with up to 99 % accuracy.",
        "McLeish et al. 2024, arXiv:2405.17399, abstract",
    ),
    tested={"rows": 1024},
)
