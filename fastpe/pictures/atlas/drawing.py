"""Panels as small SVG figures of a page. The cells of a map are an embedded image."""

import base64
import html
import itertools
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from fastpe.pictures.colours import rgb
from fastpe.pictures.panels import Array, Curves, Map, View
from fastpe.pictures.svg import Scale, rule, text, upright

WIDTH = 320
_HEIGHT, _LEFT, _BOTTOM, _EDGE = {Map: 250, Curves: 200}, 58, 36, 8
_LEVELS = 63  # number of colours of a map; missing values have one more
_SPACING = 26  # least distance between labels of the x axis
COLOURS = 8  # classes c0 to c7 of atlas.css


def drawn(view: View) -> str:
    """A figure with its caption and a description for screen readers."""
    parts = _map(view) if isinstance(view, Map) else _curves(view)
    height = _HEIGHT[type(view)]
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    label = html.escape(view.described(), quote=True)
    below, kind = (_bar(view), "map") if isinstance(view, Map) else (_legend(view), "curves")
    return (
        f'<figure class="{kind}"><svg {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'
        f"<figcaption>{html.escape(view.title)}{below}</figcaption></figure>\n"
    )


def _line(x: tuple[float, float], y: tuple[float, float], kind: str) -> str:
    return rule(x, y, f'class="{kind}"')


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value + 0.0:.3g}"  # + 0.0 turns -0 into 0


def _axes(x: Scale, y: Scale, names: tuple[str, str], height: int) -> Iterator[str]:
    """Yield tick labels and names of both axes, x below and y at the left."""
    base = height - _BOTTOM
    taken = -np.inf
    for tick in x.ticks():
        if x(tick) - taken >= _SPACING:
            yield text(x(tick), base + 13, _number(tick))
            taken = x(tick)
    for tick in y.ticks():
        yield _line((_LEFT, WIDTH - _EDGE), (y(tick), y(tick)), "rule")
        yield text(_LEFT - 4, y(tick) + 4, _number(tick), 'text-anchor="end"')
    yield text((_LEFT + WIDTH) / 2, height - 6, names[0])
    yield upright(11, base / 2, names[1])


# ---------------------------------------------------------------------------------------------------------------------
# Maps


def _map(view: Map) -> Iterator[str]:
    height = _HEIGHT[Map]
    base = height - _BOTTOM
    x = Scale(*view.columns.edges, False, _LEFT, WIDTH - _EDGE)
    y = Scale(*view.rows.edges, False, _EDGE, base)
    yield from _axes(x, y, (view.columns.label, view.rows.label), height)
    place = f'x="{_LEFT}" y="{_EDGE}" width="{WIDTH - _EDGE - _LEFT}" height="{base - _EDGE}"'
    data = base64.b64encode(image(view)).decode()
    yield f'<image {place} preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
    for kind in ("halo", "end"):  # the halo makes the end visible on any colour
        for end in view.columns.ends:
            yield _line((x(end), x(end)), (_EDGE, base), kind)
        for end in view.rows.ends:
            yield _line((_LEFT, WIDTH - _EDGE), (y(end), y(end)), kind)


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


def _bar(view: Map) -> str:
    low, high = view.limits()
    kind = "signed" if view.signed else "plain"
    return f' <span class="scale">{_number(low)} <span class="bar {kind}"></span> {_number(high)}</span>'


# ---------------------------------------------------------------------------------------------------------------------
# Curves


def _curves(view: Curves) -> Iterator[str]:
    height = _HEIGHT[Curves]
    base = height - _BOTTOM
    shown = view.shown()
    known = np.concatenate([line[np.isfinite(line)] for line in shown.values()])
    places = np.asarray(view.x.values, np.float64)
    if not known.size or len(places) < 1:
        yield text((_LEFT + WIDTH) / 2, base / 2, "no finite value")
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


def _runs(line: Array) -> Iterator[list[int]]:
    """Yield the indices of each run of consecutive finite values."""
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
