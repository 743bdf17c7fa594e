"""Theoretical properties of all encodings, compared with trained models: the tables of bench/results/theory.md.

python bench/theory.py registry           # three numbers of every encoding
python bench/theory.py drift FOLDER       # results of `fastpe compare --study bench/results/drift.toml --out FOLDER`
python bench/theory.py orbits FOLDER      # results of `fastpe compare --study bench/results/orbits.toml --out FOLDER`
"""

import csv
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

import fastpe
from fastpe.encodings.registry import option_values
from fastpe.experiments.study import Study
from fastpe.theory.drift import covering
from fastpe.theory.essentials import essentials
from fastpe.theory.orbits import least_error
from fastpe.theory.symmetry import symmetry

DRAWS = 10_000  # number of random orders
Errors = dict[tuple[str, str, str], list[float]]


def main(which: str, folder: str | None = None) -> None:
    """Print one of the tables."""
    tables = {"registry": lambda _: registry(), "drift": drift, "orbits": orbits}
    print("\n".join(tables[which](Path(folder or "."))))


def registry() -> Iterator[str]:
    """A row for every encoding: the name and value of each of its numbers."""
    yield from ("| encoding | | | |", "|---|---|---|---|")
    for name in fastpe.list_encodings():
        found = essentials(name)
        cells = [f"{what}: {'-' if value is None else f'{value.value:.4g}'}" for what, value in found.items()]
        yield f"| `{name}` | {' | '.join([*cells, *['-'] * (3 - len(cells))])} |"


def drift(folder: Path) -> Iterator[str]:
    """Errors at twice the training length, and the largest distance of a row from all trained rows."""
    study, errors = Study.read(folder / "study.toml"), _errors(folder)
    for task in study.tasks:
        rows = []
        for encoding in study.encodings:
            config = study.config_of(task, encoding)
            whole = fastpe.build(
                config.encoding, 2 * config.train_length, dim=config.width, train_length=config.train_length,
                dtype="float64", **option_values(config.encoding, config.options),
            )["table"]  # fmt: skip
            trained = whole[: config.train_length]
            rms = math.sqrt((trained**2).sum(axis=1).mean())
            scale = math.sqrt(config.width / 2) / rms if config.table_scale == "rms" else 1.0
            found = covering(scale * whole, config.train_length, (config.train_length, len(whole)))["radius"]
            assert found is not None
            far = found.value
            rows.append((encoding, far, *(_mean(errors[task, encoding, at]) for at in ("50", "100", "200"))))
        yield from (f"**{task}**", "", "| encoding | farthest row | 50 | 100 | 200 |", "|---|---|---|---|---|")
        for encoding, far, *means in sorted(rows, key=lambda row: row[1]):
            yield f"| {encoding} | {far:.3f} | {' | '.join(f'{mean:.3g}' for mean in means)} |"
        for place, length in ((3, 100), (4, 200)):
            correlation, p = _ranks([row[1] for row in rows], [row[place] for row in rows])
            yield f"\nRank correlation with the error at {length}: {correlation:.2f}, p {p:.3g} (one-sided)."
        yield ""


def orbits(folder: Path) -> Iterator[str]:
    """Errors of models without a mask, and the least error that their symmetry allows."""
    study, errors = Study.read(folder / "study.toml"), _errors(folder)
    yield from ("| task | encoding | symmetry | least error | errors | mean / least |", "|---|---|---|---|---|---|")
    for task, encoding in itertools.product(study.tasks, study.encodings):
        config = study.config_of(task, encoding)
        held = symmetry(config.encoding, heads=config.heads, causal=config.causal, **config.options).held
        largest = [group for group in ("perm", "rev") if group in held]
        if not largest:
            continue
        least = least_error(config.task, largest[0], config.train_length)
        each = errors[task, encoding, str(config.train_length)]
        yield (
            f"| {task} | {encoding} | {largest[0]} | {least.value:.4g} | {', '.join(f'{error:.4g}' for error in each)} "
            f"| {np.mean(each) / least.value:.3f} |"
        )


def _errors(folder: Path) -> Errors:
    found: Errors = defaultdict(list)
    with (folder / "results.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["metric"] == "mse" and row["value"]:
                found[row["task"], row["encoding"], row["length"]].append(float(row["value"]))
    return found


def _mean(errors: list[float]) -> float:
    return float(np.exp(np.log(errors).mean()))


def _ranks(x: list[float], y: list[float]) -> tuple[float, float]:
    """Spearman's correlation, and the share of random orders with at least this correlation."""
    first, second = rankdata(x), rankdata(y)
    rng, seen = np.random.default_rng(0), np.corrcoef(first, second)[0, 1]
    chance = [np.corrcoef(first, rng.permutation(second))[0, 1] for _ in range(DRAWS)]
    return float(seen), float((1 + np.sum(np.array(chance) >= seen - 1e-12)) / (1 + len(chance)))


if __name__ == "__main__":
    main(*sys.argv[1:])
