"""Panels as SVG: for pages, as thumbnails, and as a file with all panels of an encoding."""

import base64
import html
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fastpe.pictures import svg
from fastpe.pictures.axes import number
from fastpe.pictures.colours import Colour, of_lines, rgb
from fastpe.pictures.look import Look, heading, joined
from fastpe.pictures.panels import Axis, Curves, Map, View
from fastpe.pictures.svg import Line, Plot, Scale, rule, text, upright

WIDTH, HEIGHT = 340, 240
"""The usual size of a panel."""
_SMALL = (150, 84)  # of a thumbnail
_LEFT, _BOTTOM, _TOP, _BAR = 52, 40, 8, 56
_LEVELS = 63  # number of colours of a map; missing values have one more
_SPACING = 28  # least distance between labels of the x axis
_CELLS = 40  # most rows and columns of a thumbnail
_TITLE, _GAP = 20, 14  # of a file: height of a line of text, and the space between panels
_END, _HALO = Colour("#000000", "#000000"), Colour("#ffffff", "#ffffff")


def plot(view: Curves, encoding: str) -> Plot:
    """Return curves of an encoding as a line plot."""
    xs, known = view.x.values.tolist(), view.shown()
    if view.bands:
        pairs = {name: [known[end].tolist() for end in ends] for name, ends in view.bands.items()}
        lines = [Line(name, (), band=[*zip(xs, *ends, strict=True)]) for name, ends in pairs.items()]
    else:
        lines = [Line(name, [*zip(xs, line.tolist(), strict=True)]) for name, line in known.items()]
    return Plot(
        lines, view.x.label, view.unit, title=view.title, log_x=view.log_x, log_y=view.log, marked=view.x.ends,
        level=view.level, floor=None, colours=of_lines(encoding, [line.name for line in lines]),
    )  # fmt: skip


def element(view: View, encoding: str) -> str:
    """Return a panel as an SVG element of a page, with a description for screen readers."""
    if isinstance(view, Curves):
        return svg.element(plot(view, encoding), WIDTH, HEIGHT)
    label = html.escape(view.described(), quote=True)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" font-size="11"'
    return f'<svg {size} role="img" aria-label="{label}"{svg.paint(svg.FAINT)}>{_map(view, WIDTH, HEIGHT)}</svg>'


def thumbnail(view: View, encoding: str) -> str:
    """Return a panel as a small SVG element without axes. Screen readers skip it."""
    width, height = _SMALL
    head = f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" aria-hidden="true">'
    if isinstance(view, Map):
        rows, columns = (
            np.unique(np.linspace(0, n - 1, min(n, _CELLS)).round().astype(int)) for n in view.values.shape
        )
        small = replace(view, values=view.values[rows][:, columns], extent=view.span)
        return f"{head}{_image(small, 0, 0, width, height)}</svg>"
    shown = plot(view, encoding)
    if not shown.points:
        return f"{head}</svg>"
    xs = [x for x, _ in shown.points]
    x_axis = Scale(min(xs), max(xs), shown.log_x and min(xs) > 0, 2, width - 2)
    y_axis = Scale(*shown.limits(), shown.log_y, height - 4, 4)
    parts = []
    for line in reversed(shown.lines):
        colour, dashes = shown.styles[line.name]
        points = line.mean or [(x, (low + high) / 2) for x, low, high in line.band]
        some = np.unique(np.linspace(0, len(points) - 1, min(len(points), 61)).round().astype(int))
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        drawn = svg.path([points[at] for at in some], x_axis, y_axis)
        parts.append(f'<g fill="none" stroke="currentColor" stroke-width="1.8"{dashed}{svg.paint(colour)}>{drawn}</g>')
    return f"{head}{''.join(parts)}</svg>"


def alone(look: Look) -> str:
    """Return an SVG file with all panels of an encoding. Below the panels stand the sizes and the notes."""
    parts, top, widest = [text(8, 20, look.name, 'font-weight="600" font-size="15"')], 34, WIDTH
    for slot, views in look.views.items():
        if len(look.views) > 1:
            parts.append(text(8, top + 12, heading(slot), 'font-size="12"'))
            top += _TITLE
        columns = len(views) if len(views) < 4 else 2
        for first in range(0, len(views), columns):
            for place, view in enumerate(views[first : first + columns]):
                left = place * (WIDTH + _GAP)
                widest = max(widest, left + WIDTH)
                inside = (
                    svg.drawn(plot(view, look.name), WIDTH, HEIGHT)
                    if isinstance(view, Curves)
                    else _map(view, WIDTH, HEIGHT)
                )
                parts.append(text(left + 8, top + 13, view.title, 'font-weight="600"'))
                parts.append(f'<g transform="translate({left} {top + _TITLE})">{inside}</g>')
            top += _TITLE + HEIGHT + _GAP
    for line in notes(look, widest // 6):
        parts.append(text(8, top + 8, line, ""))
        top += 15
    return svg.file("".join(parts), widest, top + 8)


def notes(look: Look, width: int) -> list[str]:
    """Return the sizes and options of an encoding, and the notes on its panels, as lines."""
    return [
        each
        for fact in (", ".join(look.facts()), *look.remarks, *look.notes)
        for each in joined("", fact.split(", "), width)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Maps


def _map(view: Map, width: int, height: int) -> str:
    right, base = width - _BAR, height - _BOTTOM
    if view.square:
        right = min(right, _LEFT + base - _TOP)
    x = Scale(*view.columns.edges, False, _LEFT, right)
    y = Scale(*view.rows.edges, False, _TOP, base)
    parts = [*_ticks(view.columns, x, lambda at, tick: text(at, base + 14, tick), _SPACING)]
    parts += _ticks(view.rows, y, lambda at, tick: text(_LEFT - 5, at + 4, tick, 'text-anchor="end"'), 14)
    parts += [text((_LEFT + right) / 2, base + 32, view.columns.label), upright(12, (_TOP + base) / 2, view.rows.label)]
    parts.append(_image(view, _LEFT, _TOP, right - _LEFT, base - _TOP))
    for colour, how in ((_HALO, 'stroke-width="2.5" stroke-opacity=".6"'), (_END, 'stroke-dasharray="4 3"')):
        lines = [rule((x(end), x(end)), (_TOP, base), f'stroke="{colour.light}" {how}') for end in view.columns.ends]
        lines += [rule((_LEFT, right), (y(end), y(end)), f'stroke="{colour.light}" {how}') for end in view.rows.ends]
        parts += lines  # the halo makes the end visible on any colour
    return "".join([*parts, *_bar(view, right + 10, base)])


def _ticks(axis: Axis, scale: Scale, write: Callable[[float, str], str], spacing: float) -> Iterator[str]:
    taken = -np.inf
    for tick in scale.ticks():
        if tick == int(tick) and scale(tick) - taken >= spacing:
            yield write(scale(tick), number(tick))
            taken = scale(tick)


def _bar(view: Map, left: float, base: float) -> Iterator[str]:
    """Yield the colour scale at the right of a map, with its unit."""
    low, high = view.limits()
    shades = replace(view, values=np.linspace(high, low, _LEVELS)[:, None], extent=view.span)
    yield _image(shades, left, _TOP, 9, base - _TOP)
    middle = [(0.0, (_TOP + base) / 2)] if view.signed else []
    for value, at in ((high, _TOP + 4), *middle, (low, base)):
        yield text(left + 13, at + (4 if value == 0.0 and middle else 3), number(value), 'font-size="10"')
    if view.unit_label:
        yield text(left + 4, base + 14, view.unit_label, 'font-size="10"')


def _image(view: Map, left: float, top: float, width: float, height: float) -> str:
    place = f'x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
    data = base64.b64encode(image(view)).decode()
    sharp = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    return f'<image {place} {sharp} href="data:image/png;base64,{data}"/>'


def image(view: Map) -> bytes:
    """The cells as a PNG, one pixel each, with a small palette; missing values are transparent.

    >>> from fastpe.pictures.panels import Axis
    >>> axis = Axis("position", np.arange(2))
    >>> image(Map("table", axis, axis, np.eye(2), "value"))[1:4]
    b'PNG'
    """
    shares = view.shares(view.values)
    known = np.isfinite(shares)
    levels = np.where(known, np.round(np.where(known, shares, 0.0) * (_LEVELS - 1)), _LEVELS).astype(np.uint8)
    palette = b"".join(rgb(level / (_LEVELS - 1), view.signed) for level in range(_LEVELS)) + bytes(3)
    rows, columns = levels.shape
    # every line of a PNG begins with the number of its filter
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), levels], axis=1)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)  # 8 bits a pixel, an index into the palette
    opaque = bytes([255] * _LEVELS + [0])
    chunks = (
        (b"IHDR", head), (b"PLTE", palette), (b"tRNS", opaque), (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
