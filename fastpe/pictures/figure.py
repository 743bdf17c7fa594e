"""The panels of an encoding as a figure for a paper. PNG and PDF need matplotlib."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fastpe.pictures import canvas, drawing, plots
from fastpe.pictures.colours import rgb
from fastpe.pictures.look import Look, heading
from fastpe.pictures.panels import Map, View

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
        For the same reasons as `drawn`; an SVG file does not need matplotlib.
    """
    if kind == "svg":
        _check(look)
        return drawing.alone(look).encode()
    figure = drawn(look)
    import matplotlib

    with matplotlib.rc_context({**canvas.STYLE, **_FONTS}):
        return canvas.content(figure, kind)


def _check(look: Look) -> None:
    if not look.views:
        raise ValueError(f"there is nothing to draw for {look.name!r}, which fills no slot with an array")


def drawn(look: Look) -> "Figure":
    """Draw all panels in one figure, and return the figure.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    ValueError
        If there is nothing to draw.
    """
    canvas.need()
    _check(look)
    import matplotlib

    from fastpe.pictures.picture import Picture

    columns = {slot: _columns(len(views)) for slot, views in look.views.items()}
    above = _HEAD if len(columns) > 1 else 0.0
    heights = [-(-len(views) // columns[slot]) * _HEIGHT[columns[slot]] + above for slot, views in look.views.items()]
    width = _WIDTH[max(columns.values())]
    notes = drawing.notes(look, int(width * 17))
    with matplotlib.rc_context({**canvas.STYLE, **_FONTS}):
        figure = Picture(figsize=(width, sum(heights) + 0.3 + 0.14 * len(notes)), layout="constrained")
        figure.suptitle(look.name, fontsize=9, fontweight="bold", x=0.01, ha="left")
        figure.supxlabel("\n".join(notes), fontsize=7, color="0.35", x=0.01, ha="left")
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (slot, views) in zip(parts, look.views.items(), strict=True):
            if above:
                part.suptitle(heading(slot), fontsize=8.5)
            _slot(part, views, columns[slot], look.name)
        figure.draw_without_rendering()  # creates the ticks now, with these font settings
    return figure


def _columns(count: int) -> int:
    """Return the number of panels in a row."""
    return count if count < 4 else 2


def _slot(figure: Any, views: list[View], columns: int, encoding: str) -> None:
    lines = -(-len(views) // columns)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    squares = any(isinstance(view, Map) and view.square for view in views)
    for axes, view in zip(panels, views, strict=False):
        axes.set_title(view.title, loc="left")
        if isinstance(view, Map):
            _map(figure, axes, view)
            axes.set_box_aspect(1.0 if squares else None)
        else:
            plots.fill(axes, drawing.plot(view, encoding), named=True, height=_HEIGHT[columns])
    for axes in panels[len(views) :]:
        axes.set_visible(False)


def _map(figure: Any, axes: Any, view: Map) -> None:
    import matplotlib.colors

    low, high = view.limits()
    left, right = view.columns.edges
    top, bottom = view.rows.edges
    shades = [tuple(part / 255 for part in rgb(k / 255, view.signed)) for k in range(256)]
    colours = matplotlib.colors.ListedColormap(shades)
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
