"""Tables and a figure of the runs that `python bench/studies.py nanogpt|lengths FOLDER` makes.

    python bench/length_study.py FOLDER

The script measures every run of FOLDER/lengths in sliding windows and by position, on 32,768 characters. It stores the
results in FOLDER/curves, prints the tables of bench/results/text.md, and draws bench/results/text.png. Intervals are
95 % t intervals over seeds.
"""

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import fastpe
from fastpe.pictures import plots
from fastpe.pictures.curves import Curves, length_plots
from fastpe.training.length_curve import LengthCurve, Point
from fastpe.training.run_folder import read_config
from fastpe.training.text_data import text_parts

RESULTS = Path(__file__).with_name("results")
SLIDING = (128, 512, 2048)  # windows cost four times as much as blocks, so they use a part of the text
PART = 2**15 + 1  # number of tokens of the validation part that are used

Curve = dict[str, Any]


def measured(run: Path, kept: Path) -> Curve:
    """The losses of a run by length, in blocks and in windows, and by position. They are measured once and stored."""
    path = kept / f"{run.name}.json"
    if not path.exists():
        test = json.loads((run / "result.json").read_text())["test"]
        model, tokens = fastpe.load(run), text_parts(read_config(run))[1][:PART]
        sliding = fastpe.length_curve(model, tokens, SLIDING, sliding=True, threads=1)
        places = fastpe.length_curve(model, tokens, (max(map(int, test)),), threads=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps(
                {
                    "blocks": {length: found["loss"] for length, found in test.items()},
                    "bits": {length: found["bits_per_byte"] for length, found in test.items()},
                    "sliding": {str(point.length): point.loss for point in sliding.points},
                    "places": {str(length): found.tolist() for length, found in places.by_position.items()},
                }
            )
        )
    return dict(json.loads(path.read_text()))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its t interval."""
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), half


def by_encoding(folder: Path) -> dict[str, list[Curve]]:
    """The curves of every encoding, one for each seed. The names of runs are ENCODING-128-SEED-DIGEST."""
    found: dict[str, list[Curve]] = defaultdict(list)
    for run in sorted((folder / "lengths").iterdir()):
        if (run / "result.json").exists():
            found[run.name.split("-128-")[0]].append(measured(run, folder / "curves"))
            print(run.name, file=sys.stderr)
    return dict(found)


def table(found: Mapping[str, Sequence[Curve]], way: str) -> str:
    """Means and half intervals over seeds; encodings are sorted by their loss at the largest length."""
    lengths = list(next(iter(found.values()))[0][way])
    cells = {name: [interval([curve[way][n] for curve in curves]) for n in lengths] for name, curves in found.items()}
    lines = [f"| encoding | {' | '.join(lengths)} |", "|---" * (len(lengths) + 1) + "|"]
    for name in sorted(cells, key=lambda name: cells[name][-1][0]):
        lines.append(f"| `{name}` | {' | '.join(f'{mean:.3f} ± {half:.3f}' for mean, half in cells[name])} |")
    return "\n".join(lines)


def means(curves: Sequence[Curve], way: str) -> LengthCurve:
    """The mean curve over seeds, with its intervals."""
    points = []
    for length in curves[0][way]:
        mean, half = interval([curve[way][length] for curve in curves])
        points.append(Point(int(length), mean, mean - half, mean + half))
    places = {int(n): np.mean([curve["places"][n] for curve in curves], axis=0) for n in curves[0]["places"]}
    return LengthCurve(way == "sliding", tuple(points), places if way == "blocks" else {})


def recipe(folder: Path) -> str:
    """The runs of nanoGPT's recipe: every seed, and the mean with its interval."""
    rows, losses = [], []
    for run in sorted((folder / "nanogpt").iterdir()):
        found = json.loads((run / "result.json").read_text())
        whole = found["validation"]
        losses.append(whole["loss"])
        losses_of = (found["train"]["loss"], whole["loss"], whole["bits_per_byte"])
        rows.append(f"| {found['seed']} | {' | '.join(f'{loss:.4f}' for loss in losses_of)} |")
    mean, half = interval(losses)
    head = "| seed | loss in the last epoch of training | whole validation part | bits per byte |\n|---|---|---|---|"
    return "\n".join([head, *rows, f"| mean of {len(losses)} | | {mean:.4f} ± {half:.4f} | |"])


def main() -> None:
    folder = Path(sys.argv[1])
    print(recipe(folder), "\n")
    found = by_encoding(folder)
    for way in ("blocks", "sliding"):
        print(way, table(found, way), "", sep="\n")
    order = sorted(found, key=lambda name: statistics.mean(curve["blocks"]["2048"] for curve in found[name]))
    curves = [Curves(name, name, means(found[name], "blocks"), means(found[name], "sliding")) for name in order]
    (RESULTS / "text.png").write_bytes(plots.draw(length_plots(curves, 128, "character"), "png"))


if __name__ == "__main__":
    main()
