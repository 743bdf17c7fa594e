"""Figures of trained models on a text: the loss by length and by position, and the gradient by distance."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpe.pictures.canvas import MISSING, STYLE, available, content, stroke
from fastpe.training.length_curve import LengthCurve, positions_binned
from fastpe.training.receptive_field import SHARE, ReceptiveField


class Curves(NamedTuple):
    """The two curves of one model, and its label. Models of one `group` have the same colour."""

    label: str
    group: str
    blocks: LengthCurve
    sliding: LengthCurve


def draw_curves(found: Sequence[Curves], train_length: int | None, kind: str) -> bytes:
    """Draw the loss by length (in blocks and with a sliding window) and by position; return the content of a file.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    """

    def panels(axes: Any, style: Callable[[str], dict[str, Any]]) -> None:
        for each in found:
            own = style(each.group)
            for panel, curve in zip(axes[:2], (each.blocks, each.sliding), strict=True):
                points = [point for point in curve.points if point.loss is not None]
                x, y = [point.length for point in points], [point.loss for point in points]
                panel.plot(x, y, marker="o", markersize=3, label=each.label, **own)
                if all(point.low is not None for point in points):
                    band = [[getattr(point, end) for point in points] for end in ("low", "high")]
                    panel.fill_between(x, *band, color=own["color"], alpha=0.12, linewidth=0)
            if each.blocks.by_position:
                bins = positions_binned(each.blocks.by_position[max(each.blocks.by_position)])
                places = [(one["first"] * one["last"]) ** 0.5 for one in bins]
                axes[2].plot(places, [one["loss"] for one in bins], label=each.label, **own)
        titles = ("blocks, read separately", "sliding window", "by position in the longest block")
        names = ("length of a block", "length of the window", "position of the token")
        for panel, title, name in zip(axes, titles, names, strict=True):
            panel.set(title=title, xlabel=name, xscale="log")
            _mark(panel, train_length)
        axes[0].set_ylabel("loss, nats per token")
        lengths = sorted({point.length for each in found for point in each.blocks.points})
        for panel in axes[:2]:
            panel.set_xticks(lengths, [str(length) for length in lengths], fontsize=7)
            panel.tick_params(axis="x", which="minor", length=0, labelbottom=False)

    return _drawn([each.group for each in found], 3, panels, kind, sharey=True)


def draw_fields(found: Mapping[str, ReceptiveField], train_length: int | None, kind: str) -> bytes:
    """Draw the share of the gradient of the last loss within each distance, and return the content of a file."""

    def panels(axes: Any, style: Callable[[str], dict[str, Any]]) -> None:
        (panel,) = axes
        for label, field in found.items():
            panel.plot(np.arange(1, field.length + 1), np.cumsum(field.shares), label=label, **style(label))
        panel.axhline(SHARE, color="black", linewidth=0.6, linestyle=(0, (1, 2)))
        panel.set(xscale="log", ylim=(0, 1.01), xlabel="number of last tokens")
        panel.set_ylabel("share of the gradient of the last loss")
        _mark(panel, train_length)

    return _drawn(list(found), 1, panels, kind)


def _mark(panel: Any, train_length: int | None) -> None:
    panel.grid(linewidth=0.4, alpha=0.4)
    if train_length is not None:
        panel.axvline(train_length, color="black", linewidth=0.8, linestyle=(0, (6, 3)))


def _drawn(
    groups: Sequence[str], count: int, panels: Callable[[Any, Callable[[str], dict[str, Any]]], None], kind: str,
    **shared: Any,
) -> bytes:  # fmt: skip
    if not available():
        raise ModuleNotFoundError(MISSING)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    order = list(dict.fromkeys(groups))

    def style(group: str) -> dict[str, Any]:
        return {**stroke(order.index(group)), "linewidth": 1.3}

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * count + 1.2, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, count, squeeze=False, **shared)[0]
        panels(axes, style)
        handles, labels = axes[0].get_legend_handles_labels()
        first = dict(reversed(list(zip(labels, handles, strict=True))))
        names = list(dict.fromkeys(labels))
        figure.legend([first[name] for name in names], names, loc="outside lower center", ncols=5, frameon=False)
        return content(figure, kind)
