"""Plots of trained models on a text: the loss by length and by position, and the gradient by distance."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fastpe.pictures.axes import LENGTH
from fastpe.pictures.svg import Line, Plot
from fastpe.training.length_curve import LengthCurve, positions_binned
from fastpe.training.receptive_field import SHARE, ReceptiveField


class Curves(NamedTuple):
    """The two curves of one model, the name of its run, and its encoding, which gives the colour."""

    label: str
    encoding: str
    blocks: LengthCurve
    sliding: LengthCurve


def length_plots(found: Sequence[Curves], train_length: int | None, unit: str = "token") -> list[Plot]:
    """The loss by length, in blocks and with a sliding window, and by position in the longest block.

    Parameters
    ----------
    found : sequence of Curves
        The names in the plots are the encodings, or the runs if some have the same encoding.
    train_length : int or None
        The training length of all models.
    unit : str
        What a token is: "character" and "byte" add a second axis in bits.
    """
    several = max(Counter(each.encoding for each in found).values()) > 1
    names = [each.label if several else each.encoding for each in found]
    shown = [
        (title, x_name, [_line(name, each, curve) for name, each, curve in zip(names, found, curves, strict=True)])
        for title, x_name, curves in (
            ("Separate blocks", LENGTH, [each.blocks for each in found]),
            ("Sliding window", LENGTH, [each.sliding for each in found]),
        )
    ]
    losses = [y for _, _, lines in shown for line in lines for _, y in line.mean]
    places = [_by_position(name, each) for name, each in zip(names, found, strict=True)]
    y_name = f"loss (nats/{unit})"
    second = (f"loss (bits/{unit})", 1 / math.log(2)) if unit != "token" else None
    plots = [
        Plot(lines, x_name, y_name, title=title, marked=train_length, floor=min(losses, default=0.0),
             top=max(losses, default=1.0), second=second)
        for title, x_name, lines in shown
    ]  # fmt: skip
    last = Plot(places, "position in the longest block", y_name, title="By position", marked=train_length, floor=None,
                second=second)  # fmt: skip
    return [*plots, last]


def _line(name: str, own: Curves, curve: LengthCurve) -> Line:
    points = [point for point in curve.points if point.loss is not None]
    mean = [(point.length, point.loss) for point in points if point.loss is not None]
    band = [
        (point.length, point.low, point.high) for point in points if point.low is not None and point.high is not None
    ]
    return Line(name, mean, band=band, encoding=own.encoding)


def _by_position(name: str, own: Curves) -> Line:
    found = own.blocks.by_position
    bins = positions_binned(found[max(found)]) if found else []
    mean = [((each["first"] * each["last"]) ** 0.5, each["loss"]) for each in bins]
    return Line(name, mean, encoding=own.encoding)


def field_plot(found: Mapping[str, ReceptiveField], encodings: Mapping[str, str], train_length: int | None) -> Plot:
    """The share of the gradient of the last loss within each distance, by run; `encodings` are those of the runs."""
    lines = [
        Line(name, [*enumerate(np.cumsum(field.shares).tolist(), 1)], encoding=encodings[name])
        for name, field in found.items()
    ]
    return Plot(lines, "number of last tokens", "share of the gradient (%)", marked=train_length, level=SHARE, top=1.0,
                percent=True)  # fmt: skip
