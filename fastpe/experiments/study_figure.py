"""The plots of a study's page as PDF or PNG. Needs matplotlib (the extra `plots`)."""

from collections.abc import Sequence
from typing import Any

from fastpe.pictures.canvas import MISSING, STYLE, available, content, stroke
from fastpe.pictures.svg import Line, Plot

_MARKERS = "osD^vXP*<>hd"
_PANEL = (4.2, 3.0)  # inches


def draw(plots: Sequence[tuple[str, Plot]], kind: str) -> bytes:
    """Draw plots with their titles side by side, and return the content of a file.

    Parameters
    ----------
    plots : sequence of (str, Plot)
        The title and the content of each plot.
    kind : str
        "pdf", "png" or "svg".

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    """
    if not available():
        raise ModuleNotFoundError(MISSING)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(_PANEL[0] * len(plots), _PANEL[1] + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(plots), squeeze=False, sharey=len(plots) > 1)[0]
        for panel, (title, plot) in zip(panels, plots, strict=True):
            panel.set_title(title, fontsize=9)
            _fill(panel, plot)
        panels[0].set_ylabel(plots[0][1].y_name)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4 if len(plots) > 1 else 3, frameon=False)
        return content(figure, kind)


def _fill(panel: Any, plot: Plot) -> None:
    for place, line in enumerate(plot.lines):
        _line(panel, line, place)
    limits = [each.name for each in plot.references if not each.like]
    for each in plot.references:
        xs, ys = zip(*each.points, strict=True)
        marked = {"marker": "o", "markersize": 4, "markerfacecolor": "white"} if each.like else {"label": each.name}
        dashes = (0, (1, 2)) if each.like else (0, (5 if limits.index(each.name) % 2 else 2, 2))
        panel.plot(xs, ys, color=plot.colour(each), linestyle=dashes, linewidth=0.9, **marked)
    if any(each.like for each in plot.references):
        panel.plot([], [], color="grey", marker="o", markersize=4, markerfacecolor="white", linestyle=(0, (1, 2)),
                   label="the paper's")  # fmt: skip
    if plot.marked is not None:
        panel.axvline(plot.marked, color="black", linewidth=0.6, linestyle=(0, (5, 4)))
    if plot.log_x:
        panel.set_xscale("log", base=2)
        marks = sorted({x for line in plot.lines for x, _ in line.mean})
        panel.set_xticks(marks, [f"{mark:g}" for mark in marks])
        panel.tick_params(axis="x", which="minor", length=0)
    if plot.log_y and any(y > 0 for _, y in plot.points):
        panel.set_yscale("log")
    elif plot.top is not None:
        panel.set_ylim(-0.02, plot.top * 1.03)
    panel.set_xlabel(plot.x_name)
    panel.grid(axis="y", linewidth=0.4, alpha=0.4)


def _line(panel: Any, line: Line, place: int) -> None:
    own = stroke(place)
    for seed in line.seeds:
        if seed:
            panel.plot(*zip(*seed, strict=True), color=own["color"], linewidth=0.5, alpha=0.3)
    if line.band:
        xs, low, high = zip(*line.band, strict=True)
        panel.fill_between(xs, low, high, color=own["color"], alpha=0.13, linewidth=0)
    xs, ys = zip(*line.mean, strict=True) if line.mean else ((), ())
    marker = _MARKERS[place % len(_MARKERS)]
    panel.plot(xs, ys, **own, linewidth=1.4, marker=marker, markersize=3.5, label=line.name)
