"""The panels of an encoding as a figure for a paper. Needs matplotlib (the extra `plots`)."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpe.pictures import canvas
from fastpe.pictures.look import Look, heading, joined
from fastpe.pictures.panels import Curves, Map, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = {1: 4.4, 2: 7.2, 3: 7.2}  # inches, by number of panels in a row: one or both columns of a paper
_HEIGHT = {1: 2.7, 2: 2.7, 3: 2.0}
_HEAD = 0.25  # inches for the heading of a slot
_FONTS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
}
_NONE = "0.85"  # grey for missing values, because white is 0 in maps with values of both signs
_END: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 3}


def draw(look: Look, kind: str) -> bytes:
    """Draw all panels in one figure, and return it as the content of a file of this format.

    Raises
    ------
    ModuleNotFoundError, ValueError
        For the same reasons as `drawn`.
    """
    figure = drawn(look)
    import matplotlib

    with matplotlib.rc_context({**canvas.STYLE, **_FONTS}):
        return canvas.content(figure, kind)


def drawn(look: Look) -> "Figure":
    """Draw all panels in one figure, and return the figure.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    ValueError
        If there is nothing to draw.
    """
    if not canvas.available():
        raise ModuleNotFoundError(canvas.MISSING)
    if not look.views:
        raise ValueError(f"there is nothing to draw for {look.name!r}, which fills no slot with an array")
    import matplotlib

    from fastpe.pictures.picture import Picture

    columns = {slot: _columns(len(views)) for slot, views in look.views.items()}
    above = _HEAD if len(columns) > 1 else 0.0
    heights = [-(-len(views) // columns[slot]) * _HEIGHT[columns[slot]] + above for slot, views in look.views.items()]
    width = _WIDTH[max(columns.values())]
    characters = int(width * 15)
    notes = [line for note in look.notes for line in textwrap.wrap(note, characters)]
    title = "\n".join([*_title(look, characters), *notes])
    head = 0.25 + 0.17 * title.count("\n")
    with matplotlib.rc_context({**canvas.STYLE, **_FONTS}):
        figure = Picture(figsize=(width, sum(heights) + head), layout="constrained")
        figure.suptitle(title, fontsize=9)
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (slot, views) in zip(parts, look.views.items(), strict=True):
            if above:
                part.suptitle(heading(slot), fontsize=8.5)
            _slot(part, views, columns[slot])
        figure.draw_without_rendering()  # creates the ticks now, with these font settings
    return figure


def _title(look: Look, width: int) -> list[str]:
    """Return the title as lines: the name, the sizes and options, and the meaning of the dashed lines."""
    ends = any(axis.ends for views in look.views.values() for view in views for axis in view.axes())
    facts = [fact + " (dashed)" if ends and fact.startswith("training") else fact for fact in look.facts()]
    return joined(f"{look.name}: ", facts, width)


def _columns(count: int) -> int:
    """Return the number of panels in a row."""
    return count if count < 4 else 2


def _slot(figure: Any, views: list[View], columns: int) -> None:
    lines = -(-len(views) // columns)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    squares = any(isinstance(view, Map) and view.square for view in views)
    for axes, view in zip(panels, views, strict=False):
        axes.set_title(view.title)
        if isinstance(view, Map):
            _map(figure, axes, view)
            axes.set_box_aspect(1.0 if squares else None)
        else:
            _curves(axes, view)
    for axes in panels[len(views) :]:
        axes.set_visible(False)


def _map(figure: Any, axes: Any, view: Map) -> None:
    import matplotlib

    low, high = view.limits()
    left, right = view.columns.edges
    top, bottom = view.rows.edges
    colours = matplotlib.colormaps["RdBu_r" if view.signed else "viridis"]
    image = axes.imshow(
        np.ma.masked_invalid(view.values), cmap=colours.with_extremes(bad=_NONE), vmin=low, vmax=high,
        extent=(left, right, bottom, top), aspect="auto", interpolation="nearest",
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(True)
    axes.set_xlabel(view.columns.label)
    axes.set_ylabel(view.rows.label)
    from matplotlib.patheffects import withStroke

    seen = [withStroke(linewidth=2.0, foreground="white", alpha=0.7)]  # visible on any colour
    for end in view.columns.ends:
        axes.axvline(end, **_END, path_effects=seen)
    for end in view.rows.ends:
        axes.axhline(end, **_END, path_effects=seen)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    bar = figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)))
    bar.outline.set_linewidth(0.6)
    if view.unit_label:
        bar.set_label(view.unit_label)


def _curves(axes: Any, view: Curves) -> None:
    import matplotlib

    drawn = view.bands or view.lines
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(drawn)))
    few = len(view.x.values) <= 40
    # different widths, so that equal lines are all visible
    widths = np.linspace(1.8, 1.0, len(drawn)) if len(drawn) > 1 else [1.2]
    known = view.shown()
    for name, colour, width in zip(drawn, colours, widths, strict=True):
        if view.bands:
            low, high = (known[end] for end in view.bands[name])
            axes.fill_between(view.x.values, low, high, color=colour, alpha=0.35, linewidth=0, label=name)
            axes.plot(view.x.values, np.stack([low, high], axis=1), color=colour, linewidth=width / 2)
        else:
            marker = "o" if few else ""
            axes.plot(view.x.values, known[name], color=colour, linewidth=width, marker=marker, ms=2.5, label=name)
    if view.log:
        axes.set_yscale("log")
    if view.log_x:
        axes.set_xscale("log")
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
    for end in view.x.ends:
        axes.axvline(end, **_END)
    if view.level is not None:
        axes.axhline(view.level, **_END)
    axes.set_xlabel(view.x.label)
    axes.set_ylabel(view.unit)
    axes.grid(axis="y", linewidth=0.4, alpha=0.4)
    if len(drawn) > 1:
        axes.legend(frameon=False, handlelength=1.2, labelspacing=0.3, loc="center left", bbox_to_anchor=(1.0, 0.5))
