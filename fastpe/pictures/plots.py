"""Line plots as files: SVG, or PNG and PDF, which need matplotlib (the extra `plots`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastpe.pictures import canvas, svg
from fastpe.pictures.axes import number
from fastpe.pictures.svg import Line, Plot, Reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = (4.2, 3.0)  # inches
_ACROSS = 3  # the most plots in a row
_MARKERS = "osD^vXP*<>hd"
_FAINT: dict[str, Any] = {"color": "black", "linewidth": 0.7, "linestyle": (0, (5, 4))}


def draw(plots: Sequence[Plot], kind: str) -> bytes:
    """Draw plots side by side, and return the content of a file.

    Parameters
    ----------
    plots : sequence of Plot
        All have the same lines.
    kind : str
        "svg", "png" or "pdf".

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing, and the kind is not "svg".
    """
    if kind == "svg":
        return svg.alone(plots).encode()
    figure = drawn(plots)
    import matplotlib

    with matplotlib.rc_context(canvas.STYLE):
        return canvas.content(figure, kind)


def drawn(plots: Sequence[Plot]) -> "Figure":
    """Draw plots in rows as a matplotlib figure; raises ModuleNotFoundError if matplotlib is missing."""
    canvas.need()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(canvas.STYLE):
        count = len(plots)
        across, down = min(count, _ACROSS), -(-count // _ACROSS)
        figure = Figure(figsize=(_PANEL[0] * across + 0.6 * (count == 1), _PANEL[1] * down + 0.5 * (count > 1)),
                        layout="constrained")  # fmt: skip
        panels = figure.subplots(down, across, squeeze=False)
        for panel in panels.flat[count:]:
            panel.remove()
        for panel, plot in zip(panels.flat[:count], plots, strict=True):
            panel.set_title(plot.title, fontsize=9, fontweight="bold", loc="left")
            fill(panel, plot, named=count == 1)
        if count > 1:
            found = dict(zip(*reversed(panels[0][0].get_legend_handles_labels()), strict=True))
            names = [line.name for line in plots[0].lines if line.name in found]
            names += [name for name in found if name not in names]
            figure.legend([found[name] for name in names], names, loc="outside lower center", ncols=min(len(names), 6),
                          frameon=False)  # fmt: skip
        figure.draw_without_rendering()  # creates the ticks now, with these settings
    return figure


def fill(panel: Any, plot: Plot, named: bool, height: float = _PANEL[1]) -> None:
    """Draw a plot into axes whose height with labels is `height` inches. `named` writes names at the lines' ends."""
    for place, line in reversed(list(enumerate(plot.lines))):  # the first on top
        _line(panel, plot, line, place)
    for place, each in enumerate(plot.references):
        _reference(panel, plot, each, place)
    _scales(panel, plot)
    low, high = panel.get_xlim()
    for end, edge in plot.beyond:
        panel.axvline(end, **_FAINT)
        panel.axvspan(end, high if edge > 0 else low, color="black", alpha=0.05, linewidth=0)
    panel.set_xlim(low, high)
    if plot.beyond:
        panel.annotate(svg.BEYOND, (1.0, 1.0), (0, 2), xycoords="axes fraction", textcoords="offset points",
                       ha="right", va="bottom", fontsize=7, color="0.35")  # fmt: skip
    if plot.level is not None:
        panel.axhline(plot.level, **_FAINT)
    panel.grid(axis="y", linewidth=0.4, alpha=0.4)
    if named and len(plot.lines) > 1:
        _names(panel, plot, 72 * height - 60)


def _scales(panel: Any, plot: Plot) -> None:
    low, high = plot.limits()
    if plot.log_y:
        panel.set_yscale("log")
    else:
        panel.set_ylim(low - 0.02 * (high - low), high + 0.03 * (high - low))
    if plot.log_x:
        panel.set_xscale("log")
    along, up = plot.ticks()
    panel.set_xticks(along, [number(tick) for tick in along])
    panel.set_yticks(up, [number(100 * tick if plot.percent else tick) for tick in up])
    panel.minorticks_off()
    x_name, y_name = plot.names()
    panel.set_xlabel(x_name)
    panel.set_ylabel(y_name)
    if plot.second is not None:
        name, factor = plot.second
        other = panel.secondary_yaxis("right", functions=(lambda y: factor * y, lambda y: y / factor))
        other.set_ylabel(name)
        other.spines["right"].set_visible(True)
        ticks = svg.Scale(factor * low, factor * high, plot.log_y, 0.0, 1.0).ticks()
        other.set_yticks(ticks, [number(tick) for tick in ticks])
        other.minorticks_off()


def _line(panel: Any, plot: Plot, line: Line, place: int) -> None:
    own = canvas.stroke(*plot.styles[line.name])
    for seed in line.seeds:
        if seed:
            panel.plot(*zip(*seed, strict=True), color=own["color"], linewidth=0.5, alpha=0.3)
    if line.band:
        xs, low, high = zip(*line.band, strict=True)
        bounds = {"label": line.name, "alpha": 0.3} if not line.mean else {"alpha": 0.13, "linewidth": 0}
        panel.fill_between(xs, low, high, color=own["color"], **bounds)
    if line.mean:
        xs, ys = zip(*line.mean, strict=True)
        shown = {"marker": _MARKERS[place % len(_MARKERS)], "markersize": 3.5} if len(xs) <= 12 else {}
        panel.plot(xs, ys, **own, **shown, linewidth=1.2 + place / len(plot.lines), label=line.name)


def _reference(panel: Any, plot: Plot, each: Reference, place: int) -> None:
    """Draw points of a paper as hollow dots, and its bounds as dashed lines."""
    xs, ys = zip(*each.points, strict=True)
    first = next(other for other in plot.references if bool(other.like) == bool(each.like)) is each
    hollow = {"marker": "o", "markersize": 4, "markerfacecolor": "white", "label": "the paper's" if first else None}
    dashes = (0, (1, 2)) if each.like else (0, (5 if place % 2 else 2, 2))
    named = hollow if each.like else {"label": each.name}
    panel.plot(xs, ys, color=plot.colour(each).light, linestyle=dashes, linewidth=0.9, **named)


def _names(panel: Any, plot: Plot, height: float) -> None:
    """Write the names of the lines at their ends, or in a legend if they need more than `height` points."""
    step = 10.0
    if plot.references or len(plot.lines) * step > height or plot.second is not None:
        panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
        return
    ends = {line.name: panel.transData.transform(line.end)[1] for line in plot.lines if line.end is not None}
    low, high = panel.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    scale = height / (high - low)  # points per unit of the display
    places = svg.spread({name: (end - low) * scale for name, end in ends.items()}, 0.0, height, step)
    for name, place in places.items():
        panel.annotate(name, (1.0, place / height), (4, 0), xycoords="axes fraction", textcoords="offset points",
                       va="center", color=plot.styles[name][0].light, fontsize=8)  # fmt: skip
