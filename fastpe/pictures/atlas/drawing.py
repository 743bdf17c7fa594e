"""Maps and curves as small SVG figures. The cells of a map are an embedded image."""

import base64
import html
import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from fastpe.pictures.colours import rgb
from fastpe.pictures.panels import Array, Axis, Curves, Map, View
from fastpe.pictures.svg import Axis as Scale

WIDTH = 320
_HEIGHT, _LEFT, _BOTTOM, _EDGE = {Map: 250, Curves: 200}, 58, 36, 8
_LEVELS = 63  # colours of a map, besides one for missing values
_SPACING = 26  # least distance of the labels of the x axis
COLOURS = 8  # classes c0 to c7 of atlas.css


def drawn(view: View) -> str:
    """A figure with its caption and a description for screen readers."""
    told = _map_said(view) if isinstance(view, Map) else _curves_said(view)
    parts = _map(view) if isinstance(view, Map) else _curves(view)
    height = _HEIGHT[type(view)]
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    label = html.escape(told, quote=True)
    below, kind = (_bar(view), "map") if isinstance(view, Map) else (_legend(view), "curves")
    return (
        f'<figure class="{kind}"><svg {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'
        f"<figcaption>{html.escape(view.title)}{below}</figcaption></figure>\n"
    )


def _map_said(view: Map) -> str:
    low, high = view.limits()
    return f"{view.title}: {view.rows.label} down, {view.columns.label} across, from {low:.3g} to {high:.3g}"


def _curves_said(view: Curves) -> str:
    names = ", ".join(name for name in view.lines if name)
    of = f" of {names}" if len(view.lines) > 1 else ""
    return f"{view.title}: {view.unit}{of} over {view.x.label}"


def _text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def _line(x: Sequence[float], y: Sequence[float], kind: str) -> str:
    return f'<line class="{kind}" x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}"/>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value + 0.0:.3g}"  # + 0.0: -0 is 0


def _axes(x: Scale, y: Scale, names: tuple[str, str], height: int) -> Iterator[str]:
    """Tick labels and names of both axes: x below, y at the left."""
    base = height - _BOTTOM
    taken = -np.inf
    for tick in x.ticks():
        if x(tick) - taken >= _SPACING:
            yield _text(x(tick), base + 13, _number(tick))
            taken = x(tick)
    for tick in y.ticks():
        yield _line((_LEFT, WIDTH - _EDGE), (y(tick), y(tick)), "rule")
        yield _text(_LEFT - 4, y(tick) + 4, _number(tick), "end")
    yield _text((_LEFT + WIDTH) / 2, height - 6, names[0])
    yield _text(11, base / 2, names[1], more=f' transform="rotate(-90 11 {base / 2:.0f})"')


# ---------------------------------------------------------------------------------------------------------------------
# Maps


def _map(view: Map) -> Iterator[str]:
    height = _HEIGHT[Map]
    base = height - _BOTTOM
    x, y = _cells(view.columns, _LEFT, WIDTH - _EDGE), _cells(view.rows, _EDGE, base)
    yield from _axes(x, y, (view.columns.label, view.rows.label), height)
    place = f'x="{_LEFT}" y="{_EDGE}" width="{WIDTH - _EDGE - _LEFT}" height="{base - _EDGE}"'
    data = base64.b64encode(image(view)).decode()
    yield f'<image {place} preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
    for kind in ("halo", "end"):  # seen on any colour
        for end in view.columns.ends:
            yield _line((x(end), x(end)), (_EDGE, base), kind)
        for end in view.rows.ends:
            yield _line((_LEFT, WIDTH - _EDGE), (y(end), y(end)), kind)


def _cells(axis: Axis, start: float, end: float) -> Scale:
    """A scale on which every coordinate is the middle of a cell."""
    return Scale(float(axis.values[0]) - 0.5, float(axis.values[-1]) + 0.5, False, start, end)


def image(view: Map) -> bytes:
    """The cells as a PNG, one pixel each, with a small palette; missing values are transparent.

    >>> axis = Axis("position", np.arange(2))
    >>> image(Map("table", axis, axis, np.eye(2), "value"))[1:4]
    b'PNG'
    """
    low, high = view.limits()
    shares = (view.values - low) / ((high - low) or 1.0)
    known = np.isfinite(shares)
    levels = np.where(known, np.round(np.where(known, shares, 0.0) * (_LEVELS - 1)), _LEVELS).astype(np.uint8)
    palette = b"".join(rgb(level / (_LEVELS - 1), view.signed) for level in range(_LEVELS)) + bytes(3)
    rows, columns = levels.shape
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), levels], axis=1)  # each begins with the number of its filter
    head = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)  # 8 bits a pixel, an index into the palette
    opaque = bytes([255] * _LEVELS + [0])
    chunks = (
        (b"IHDR", head), (b"PLTE", palette), (b"tRNS", opaque), (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _bar(view: Map) -> str:
    low, high = view.limits()
    kind = "signed" if view.signed else "plain"
    return f' <span class="scale">{_number(low)} <span class="bar {kind}"></span> {_number(high)}</span>'


# ---------------------------------------------------------------------------------------------------------------------
# Curves


def _curves(view: Curves) -> Iterator[str]:
    height = _HEIGHT[Curves]
    base = height - _BOTTOM
    shown = {name: _shown(line, view.log) for name, line in view.lines.items()}
    known = np.concatenate([line[np.isfinite(line)] for line in shown.values()])
    places = np.asarray(view.x.values, np.float64)
    if not known.size or len(places) < 1:
        yield _text((_LEFT + WIDTH) / 2, base / 2, "no finite value")
        return
    log_x = view.log_x and places[0] > 0
    x = Scale(float(places[0]), float(places[-1]), log_x, _LEFT + 4, WIDTH - _EDGE - 4)
    y = Scale(float(known.min()), float(known.max()), view.log, base - 4, _EDGE + 4)
    yield from _axes(x, y, (view.x.label, view.unit), height)
    for end in view.x.ends:
        yield _line((x(end), x(end)), (_EDGE, base), "end")
    if view.level is not None and known.min() < view.level < known.max():
        yield _line((_LEFT, WIDTH - _EDGE), (y(view.level), y(view.level)), "end")
    for number, line in reversed(list(enumerate(shown.values()))):  # the first on top
        for run in _runs(line):
            points = " ".join(f"{x(float(places[at])):.1f},{y(float(line[at])):.1f}" for at in run)
            yield f'<polyline class="c{number % COLOURS}" points="{points}"/>'


def _shown(line: Array, log: bool) -> Array:
    """The values that the scale can show, and NaN for all others."""
    there = np.isfinite(line) & (line > 0) if log else np.isfinite(line)
    return np.where(there, line, np.nan)


def _runs(line: Array) -> Iterator[list[int]]:
    """Indices of consecutive finite values."""
    for known, run in itertools.groupby(range(len(line)), lambda at: bool(np.isfinite(line[at]))):
        if known:
            yield list(run)


def _legend(view: Curves) -> str:
    if len(view.lines) < 2:
        return ""
    names = (
        f'<span><span class="key k{number % COLOURS}"></span>{html.escape(name)}</span>'
        for number, name in enumerate(view.lines)
    )
    return f' <span class="legend">{" ".join(names)}</span>'
