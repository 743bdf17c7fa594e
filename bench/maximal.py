"""A fixed table that maximises a lower bound of the information about the position, for rows of equal norm in noise 1.

    PE[p] = table[min(p, N_train - 1)]

The table is computed by `fastpe.theory.maximal.maximal_table`. Its rows have the norm of sinusoidal rows, sqrt(C/2).
With N_train - 1 channels or more, the rows form a simplex: every two rows have the same distance.

**Past the training length**: clipped to the last row.

This is a user's encoding, for `fastpe train --encoding bench/maximal.py`. ``python bench/maximal.py`` compares it with
other tables; bench/results/maximal_table.md has results of training.

Source: Li (2025), future directions: encodings with high mutual information between positions.
"""

from typing import Any

import numpy as np

import fastpe
from fastpe.theory.information import position_information
from fastpe.theory.maximal import maximal_table


def reference(spec: fastpe.Spec, params: dict[str, Any]) -> dict[str, Any]:
    """The rows of positions that are rounded and clipped to the training length."""
    table = maximal_table(spec.train_length, spec.dim, equal_rows=True).table
    return {"table": table[np.clip(np.rint(spec.points()), 0, spec.train_length - 1).astype(int)]}


ENCODING = fastpe.Encoding(
    slots=("table",),
    summary="climbs a bound on information about position",
    beyond="clipped",
    direction="yes",
    source="this library, theory I7",
)


def compared(length: int = 50, dim: int = 64) -> list[str]:
    """The lines of a table: bounds of the information in nats, in noise 1, for tables of mean square norm dim / 2."""
    fastpe.register(__file__)
    lines = ["| table | at least | at most |", "|---|---|---|"]
    for name in ("sinusoidal", "legendre", "wavelet", "learned", "maximal"):
        table = fastpe.build(name, length, dim=dim, dtype="float64")["table"]
        table = table * np.sqrt(dim / 2 / np.mean(np.square(table).sum(axis=1)))
        found = position_information(table, sigma=1.0)
        lines.append(f"| {name} | {found.lower.value:.4f} | {found.upper.value:.4f} |")
    return lines


if __name__ == "__main__":
    print("\n".join(compared()))
