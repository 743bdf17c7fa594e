"""Draw the first figure of the README from bench/results/lengths.csv: loss by length beyond training.

python bench/opening.py
"""

import csv
import statistics
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fastpe.pictures.colours import of_encoding

RESULTS = Path(__file__).with_name("results")
NAMES = {"alibi": "ALiBi", "fire": "FIRE", "rope": "RoPE", "nope": "no positions", "sinusoidal": "sinusoidal"}
RAISED = {"nope": 5, "rope": -5}  # labels, in points, so that they do not overlap
TRAINED = 128  # characters


def losses() -> dict[str, dict[int, float]]:
    """The mean loss over seeds of each encoding at each length."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (RESULTS / "lengths.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["of"]][int(row["length"])].append(float(row["loss"]))
    return {name: {length: statistics.mean(each) for length, each in found[name].items()} for name in NAMES}


def main() -> None:
    figure = Figure(figsize=(8.4, 4.0), dpi=200, layout="constrained")
    axes = figure.add_subplot()
    for name, found in losses().items():
        colour = of_encoding(name).light
        axes.plot(list(found), list(found.values()), color=colour, linewidth=2.2, marker="o", markersize=4,
                  clip_on=False)  # fmt: skip
        last = max(found)
        axes.annotate(
            NAMES[name], (last, found[last]), xytext=(8, RAISED.get(name, 0)), textcoords="offset points",
            color=colour, va="center", fontsize=11, annotation_clip=False,
        )  # fmt: skip
    axes.axvspan(TRAINED, 2048, color="#f1f1ee", zorder=0)
    axes.text(TRAINED * 1.04, 0.97, "beyond the training length", transform=axes.get_xaxis_transform(), va="top",
              fontsize=10, color="#555555")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xlim(116, 2048)
    axes.set_xticks([128, 256, 512, 1024, 2048], ["128", "256", "512", "1,024", "2,048"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("sequence length (characters, logarithmic)")
    axes.set_ylabel("loss (nats/character)")
    axes.set_title("Trained on 128 characters, read on 2,048: which models still predict?", loc="left", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS / "opening.png")


if __name__ == "__main__":
    main()
