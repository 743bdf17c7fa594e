"""Panels as lines of text: with colours and half blocks, with shades, or in plain ASCII."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from fastpe.pictures.axes import number
from fastpe.pictures.colours import of_lines, rgb
from fastpe.pictures.look import Look, heading, joined
from fastpe.pictures.panels import Array, Axis, Curves, Map, View

_MOST_LINES = 24  # lines of a map
_CHART_LINES = 11
_MARKS = "0123456789abcdef"


@dataclass(frozen=True)
class Glyphs:
    """The characters to draw with, and whether to use colours.

    `ramp` and `signed` go from the smallest value to the largest. The middle character of `signed` stands for 0, the
    strokes before it for negative values, and the other characters for positive values. `light` states whether the
    background is light.
    """

    ramp: str
    signed: str
    across: str
    down: str
    colour: bool = False
    light: bool = False


ASCII = Glyphs(".:-=+*#%@", "m=- .+#", "-", "|")
SHADES = Glyphs("·░▒▓█", "≡=- ░▒█", "─", "│")
COLOURS = Glyphs("", "", "─", "│", colour=True)


def render(look: Look, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the facts and panels of an encoding as lines of at most `width` characters."""
    lines = [Text(look.name, "bold"), *map(Text, joined("", look.facts(), width))]
    for scheme, beyond in look.beyond.items():
        whose = f"{scheme}: " if len(look.beyond) > 1 else ""
        lines.append(Text(f"{whose}past the training length: {beyond}"))
    for remark in (*look.remarks, *look.notes):
        lines += _wrapped(remark, width)
    if not look.views:
        lines += [Text(), Text("nothing to draw: the encoding fills no arrays")]
    for slot, views in look.views.items():
        lines += [Text(), *_wrapped(f"{heading(slot)}", width, "bold")]
        for row in _paired(views, width):
            blocks = [_lines(view, look.name, (width - 2 * (len(row) - 1)) // len(row), glyphs) for view in row]
            lines += [Text(), *_beside(blocks, width)]
    return lines


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [Text(line, style) for line in lines]


def _paired(views: Sequence[View], width: int) -> list[list[View]]:
    """Group views into rows. Two square maps share a row if the width allows it."""
    rows: list[list[View]] = []
    for view in views:
        square = isinstance(view, Map) and view.square
        last = rows[-1] if rows else []
        if square and len(last) == 1 and isinstance(last[0], Map) and last[0].square and width >= 72:
            last.append(view)
        else:
            rows.append([view])
    return rows


def _beside(blocks: Sequence[list[Text]], width: int) -> list[Text]:
    if len(blocks) == 1:
        return blocks[0]
    column = width // len(blocks)
    lines = []
    for parts in itertools.zip_longest(*blocks, fillvalue=Text()):
        line = Text()
        for part in parts:
            line.pad_right(max(0, -(-len(line) // column) * column - len(line)))
            line.append_text(part)
        line.rstrip()
        lines.append(line)
    return lines


def _lines(view: View, encoding: str, width: int, glyphs: Glyphs) -> list[Text]:
    return _map(view, width, glyphs) if isinstance(view, Map) else _curves(view, encoding, width, glyphs)


# ---------------------------------------------------------------------------------------------------------------------
# Maps


def _bins(axis: Axis, most: int, even: bool = False) -> list[list[Array]]:
    """Divide an axis into at most `most` cells of neighbouring coordinates.

    The cells within the training length and the cells outside of it form separate groups. With `even`, each group with
    enough coordinates has an even number of cells.
    """
    places = np.searchsorted(axis.values, axis.ends)
    groups = [group for group in np.split(np.arange(len(axis.values)), places) if len(group)]
    found = []
    for group in groups:
        count = min(len(group), max(1, most * len(group) // len(axis.values)))
        count -= even and count > 1 and count % 2
        found.append(np.array_split(group, count))
    return found


def _means(values: Array, rows: Sequence[Array], columns: Sequence[Array]) -> Array:
    """Return the mean of the values in each cell, without missing values; NaN for a cell without values."""
    known = np.isfinite(values)
    row, column = [cell[0] for cell in rows], [cell[0] for cell in columns]
    sums, counts = (
        np.add.reduceat(np.add.reduceat(each, row, axis=0), column, axis=1)
        for each in (np.where(known, values, 0.0), known.astype(np.int64))
    )
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _map(view: Map, width: int, glyphs: Glyphs) -> list[Text]:
    gutter = max(len(_coordinate(value)) for value in view.rows.values[[0, -1]]) + 1
    room = min(width, 2 * _MOST_LINES + gutter if view.square else width) - gutter - len(view.columns.ends)
    columns = _bins(view.columns, room)
    across = sum(map(len, columns))
    wide = max(1, min(4, room // across))  # characters of a cell
    most = min(across * wide // 2 if view.square else _MOST_LINES, _MOST_LINES)
    per_line = 2 if glyphs.colour else 1
    rows = _bins(view.rows, max(1, most) * per_line, even=glyphs.colour)
    flat_rows, flat_columns = list(itertools.chain(*rows)), list(itertools.chain(*columns))
    cells = view.shares(_means(view.values, flat_rows, flat_columns))
    breaks = set(np.cumsum([len(group) for group in columns])[:-1].tolist())
    axes = "" if view.rows.label == view.columns.label else f": {view.rows.label} down, {view.columns.label} across"
    lines = [_clipped(view.title + axes if len(view.title + axes) <= width else view.title, width)]
    done = 0
    for place, group in enumerate(rows):
        if place:
            lines.append(Text(glyphs.across * (gutter + across * wide + len(breaks))))
        for at in range(0, len(group), per_line):
            label = _coordinate(view.rows.values[group[at][0]])
            shown = at == 0 or (place + 1 == len(rows) and at + per_line >= len(group))
            line = Text((label if shown else "").rjust(gutter - 1) + " ")
            pair = cells[done + at : done + min(at + per_line, len(group))]
            for c in range(across):
                if c in breaks:
                    line.append(glyphs.down)
                _cell(line, pair[:, c], view, wide, glyphs)
            lines.append(line)
        done += len(group)
    lines.append(Text(" " * gutter + _under(view.columns, columns, wide)))
    return [*lines, *_legend(view, flat_rows, flat_columns, width, glyphs)]


def _cell(line: Text, shares: Array, view: Map, wide: int, glyphs: Glyphs) -> None:
    """Draw one cell or its two halves. Values are shares from 0 (the smallest value) to 1 (the largest)."""
    if not glyphs.colour:
        ramp = glyphs.signed if view.signed else glyphs.ramp
        line.append((" " if math.isnan(shares[0]) else ramp[min(int(shares[0] * len(ramp)), len(ramp) - 1)]) * wide)
        return
    colours = [None if math.isnan(share) else _rgb(share, view.signed) for share in shares]
    above, below = colours[0], colours[1] if len(colours) > 1 else None
    if above is None:
        line.append(("▄" if below else " ") * wide, below or "")
    else:
        line.append("▀" * wide, f"{above} on {below}" if below else above)


def _rgb(share: float, signed: bool) -> str:
    return f"#{rgb(share, signed).hex()}"


def _under(axis: Axis, groups: Sequence[Sequence[Array]], wide: int) -> str:
    """Return a line with the first coordinate of every group and the last coordinate, below their cells."""
    text, place = "", 0
    for group in groups:
        label = _coordinate(axis.values[group[0][0]])
        if place >= len(text) + bool(text):
            text = text.ljust(place) + label
        place += len(group) * wide + 1
    label = _coordinate(axis.values[-1])
    end = place - 1 - len(label)
    return text.ljust(end) + label if end > len(text) else text


def _legend(view: Map, rows: Sequence[Array], columns: Sequence[Array], width: int, glyphs: Glyphs) -> list[Text]:
    low, high = view.limits()
    text = Text(f"{number(low)} ")
    if glyphs.colour:
        for k in range(24):
            text.append("█", _rgb(k / 23, view.signed))
    else:
        text.append(glyphs.signed if view.signed else glyphs.ramp)
    text.append(f" {number(high)}")
    tall, wide = max(map(len, rows)), max(map(len, columns))
    unit = Text(f"{view.unit} ")
    fits = len(unit) + len(text) <= width  # a truncated number would be wrong
    lines = [unit.append_text(text)] if fits else [unit, text]
    if tall > 1 or wide > 1:
        lines.append(Text(f"cells: means of up to {tall} x {wide}"))
    return [_clipped(line, width) for line in lines]


def _coordinate(value: float) -> str:
    return f"{value:g}"


def _clipped(text: str | Text, width: int) -> Text:
    line = Text(text) if isinstance(text, str) else text
    line.truncate(max(1, width))
    return line


# ---------------------------------------------------------------------------------------------------------------------
# Curves


def _curves(view: Curves, encoding: str, width: int, glyphs: Glyphs) -> list[Text]:
    title = f"{view.title} ({view.unit})" if view.unit not in view.title else view.title
    lines = [_clipped(f"{title}, over {view.x.label}", width)]
    if len(view.x.values) > 1 and any(np.isfinite(_scaled(view, line)).any() for line in view.lines.values()):
        lines += _chart(view, encoding, width, glyphs)
    return [*lines, *_numbers(view, width)]


def _scaled(view: Curves, values: Array) -> Array:
    """Return heights on the chart, with NaN for values that it cannot show."""
    values = view.on_scale(values)
    return np.log10(values) if view.log else values


def _along(view: Curves, coordinates: Array) -> Array:
    """Return the coordinates as positions on the chart."""
    return np.log10(coordinates) if view.log_x else coordinates


def _chart(view: Curves, encoding: str, width: int, glyphs: Glyphs) -> list[Text]:
    heights = [_scaled(view, line) for line in view.lines.values()]
    every = np.concatenate([line[np.isfinite(line)] for line in heights])
    low, high = float(every.min()), float(every.max())
    names = [number(10**edge if view.log else edge) for edge in (high, low)]
    gutter = max(map(len, names)) + 1
    across = min(width - gutter, 120)
    x, styles = view.x.values, of_lines(encoding, [*view.lines])
    colours = [colour.light if glyphs.light else colour.dark for colour, _ in styles.values()]
    lines = []
    for at, row in enumerate(_canvas(view, heights, colours, across, (low, high), glyphs)):
        line = Text((names[0] if at == 0 else names[1] if at == _CHART_LINES - 1 else "").rjust(gutter - 1) + " ")
        for mark, style in row:
            line.append(mark, style)
        line.rstrip()
        lines.append(line)
    ends = _coordinate(x[0]), _coordinate(x[-1])
    lines.append(Text(" " * gutter + ends[0] + ends[1].rjust(across - len(ends[0]))))
    if len(view.lines) > 1:
        keys = [f"{_MARKS[k]}: {name}" for k, name in enumerate(view.lines)]
        lines += _wrapped(", ".join(keys), width)
    return lines


def _canvas(
    view: Curves, heights: Sequence[Array], colours: Sequence[str], across: int, limits: tuple[float, float],
    glyphs: Glyphs,
) -> list[list[tuple[str, str]]]:  # fmt: skip
    """Return rows of styled characters. Curves cover the rules at the ends of training; the first curve is on top."""
    x, (low, high) = _along(view, view.x.values), limits

    def row_of(height: float) -> int:
        return round((high - height) / (high - low) * (_CHART_LINES - 1)) if high > low else _CHART_LINES // 2

    rows = [[(" ", "")] * across for _ in range(_CHART_LINES)]
    for end in _along(view, np.array(view.x.ends)):
        for row in rows:
            row[round((end - x[0]) / (x[-1] - x[0]) * (across - 1))] = (glyphs.down, "dim")
    if view.level is not None and low < (level := float(_scaled(view, np.array(view.level)))) < high:
        rows[row_of(level)] = [(glyphs.across, "dim")] * across
    places = np.linspace(x[0], x[-1], across)
    for place, line in reversed(list(enumerate(heights))):
        for column, height in enumerate(np.interp(places, x, line)):
            if math.isfinite(height):
                rows[row_of(height)][column] = (_MARKS[place], colours[place])
    return rows


def _numbers(view: Curves, width: int) -> list[Text]:
    """List the values at some coordinates: 0, positive and negative powers of two, and the first and last coordinate.

    On a logarithmic x scale, the values at every fourth coordinate and at the last one are listed.
    """
    x = view.x.values
    if view.log_x:
        places = np.unique([*range(0, len(x), 4), len(x) - 1])
    else:
        powers = 2 ** np.arange(0, max(1, int(np.abs(x).max())).bit_length())
        places = np.flatnonzero(np.isin(x, np.concatenate([[0, x[0], x[-1]], powers, -powers])))
    head = ["", *(name or view.unit for name in view.lines)]
    rows = [head] + [
        [_coordinate(x[place]), *(number(line[place]) for line in view.lines.values())] for place in places
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width and len(widths) > 2:
        widths.pop()
    return [Text("  ".join(cell.rjust(size) for cell, size in zip(row, widths, strict=False)).rstrip()) for row in rows]
