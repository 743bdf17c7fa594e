"""Line plots as SVG, with a thin line for each run, the mean with its band, and names at the ends of the lines.

Colours are those of the reader's colour scheme, light or dark. Programs that do not know `light-dark` show the light
ones.
"""

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fastpe.pictures.axes import logarithmic, number
from fastpe.pictures.colours import Colour, css, styles

Points = Sequence[tuple[float, float]]
Styles = Mapping[str, tuple[Colour, str]]

WIDTH, HEIGHT = 640, 300
_LEFT, _BOTTOM, _TOP, _EDGE = 58, 40, 18, 12
_MARKED = 12  # up to this many points of a line are marked, if there are not more lines
_STROKE = 'fill="none" stroke="currentColor"'
_FEW = 8  # up to this many values of x are all marked
BEYOND = "beyond training"
_ROW = 13  # distance of two names
_LETTER = 6.3  # width of a letter of a name
INK, FAINT = Colour("#1b1b1b", "#e8e8e8"), Colour("#595959", "#a8a8a8")


@dataclass(frozen=True)
class Line:
    """A mean as a function of x, the values of the runs that it averages, and the ends of its interval.

    A value that is not finite interrupts the line. The line has the colour of an encoding: that of its name, unless
    `encoding` is given. A line without a mean is a band between two bounds.
    """

    name: str
    mean: Points
    seeds: Sequence[Points] = ()
    band: Sequence[tuple[float, float, float]] = ()
    encoding: str = ""

    @property
    def end(self) -> tuple[float, float] | None:
        """The last point whose value is finite, where the name stands."""
        middle = self.mean or [(x, (low + high) / 2) for x, low, high in self.band]
        return next(((x, y) for x, y in reversed(middle) if math.isfinite(y)), None)


@dataclass(frozen=True)
class Reference:
    """Points from another source, for comparison with the lines, in the colour of the line that `like` names."""

    name: str
    points: Points
    like: str | None = None


@dataclass(frozen=True)
class Scale:
    """A function from values to coordinates on the page."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high, own = (self._turned(x) for x in (self.low, self.high, value))
        share = (own - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, -0.02), 1.02) * (self.end - self.start)

    def _turned(self, value: float) -> float:
        return math.log(max(value, self.low * 1e-3, 1e-300)) if self.log else value

    def ticks(self) -> list[float]:
        """Return round values for tick marks."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            found = [m * 10.0**k for k in range(first, last + 1) for m in ((1, 2, 5) if last - first < 3 else (1,))]
            found = [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]
            if len(found) > 1:
                return found
        step = 10.0 ** math.floor(math.log10(max(self.high - self.low, 1e-12)))
        step = next(step * m for m in (0.1, 0.2, 0.5, 1, 2) if (self.high - self.low) / (step * m) <= 6)
        found = [step * k for k in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]


@dataclass(frozen=True)
class Plot:
    """Lines and their axes.

    Attributes
    ----------
    lines : sequence of Line
    x_name, y_name : str
        The words on the axes, without "log scale", which is added.
    title : str
        A few words above the plot.
    log_x, log_y : bool
        Whether a scale is logarithmic.
    marked : float or sequence of float, optional
        The ends of training. The regions beyond them are shaded: right of a positive one, and left of a negative one.
    level : float, optional
        A value of y to mark with a dashed line.
    top : float, optional
        The y axis reaches at least to this value.
    floor : float, optional
        The y axis begins here; by default at 0, or at the smallest value if `log_y`.
    percent : bool
        Whether values of y are shares, whose ticks are in percent.
    second : (str, float), optional
        The name of a second y axis at the right, and the factor from y to its values.
    marks : sequence of float
        Values of x to mark; by default those of the points if there are few, else round ones.
    references : sequence of Reference
    colours : dict, optional
        The colour and the dashes of each line, by name. By default those of its encoding.
    """

    lines: Sequence[Line]
    x_name: str
    y_name: str
    title: str = ""
    log_x: bool = True
    log_y: bool = False
    marked: float | Sequence[float] | None = None
    level: float | None = None
    top: float | None = None
    floor: float | None = 0.0
    percent: bool = False
    second: tuple[str, float] | None = None
    marks: Sequence[float] = ()
    references: Sequence[Reference] = ()
    colours: Styles | None = None

    @cached_property
    def points(self) -> list[tuple[float, float]]:
        """All finite points of lines, runs, bands without a mean, and references."""
        drawn = [part for line in self.lines for part in (line.mean, *line.seeds)]
        bands = [(x, y) for line in self.lines if not line.mean for x, low, high in line.band for y in (low, high)]
        every = [point for part in (*drawn, bands, *(each.points for each in self.references)) for point in part]
        return [point for point in every if math.isfinite(point[1])]

    @property
    def beyond(self) -> list[tuple[float, float]]:
        """The regions of x beyond training: the end of training, and the end of the axis."""
        ends = () if self.marked is None else (self.marked,) if isinstance(self.marked, int | float) else self.marked
        xs = [x for x, _ in self.points] or [0.0]
        found = [(end, max(xs) if end > 0 else min(xs)) for end in ends]
        return [(end, edge) for end, edge in found if abs(end) < abs(edge)]

    @cached_property
    def styles(self) -> dict[str, tuple[Colour, str]]:
        """The colour and the dashes of each line, by name."""
        return dict(self.colours or styles({line.name: line.encoding or line.name for line in self.lines}))

    def colour(self, reference: Reference) -> Colour:
        """Return the colour of the line that `like` names, or black."""
        return self.styles[reference.like][0] if reference.like in self.styles else INK

    def limits(self) -> tuple[float, float]:
        """Return the ends of the y axis."""
        values = [y for _, y in self.points if y > 0 or not self.log_y] or [1.0]
        low = min(values) if self.log_y or self.floor is None else min(self.floor, *values)
        return low, max(*values, self.top or values[0], low + 1e-9)

    def ticks(self) -> tuple[list[float], list[float]]:
        """Return the values of x and of y to mark. All values of x are marked if there are few."""
        xs = sorted({x for x, _ in self.points}) or [0.0]
        if self.marks or len(xs) <= _FEW:
            along = list(self.marks) or xs
        elif self.log_x and xs[-1] >= 8 * xs[0]:
            first, last = math.ceil(math.log2(xs[0])), math.floor(math.log2(xs[-1]))
            along = [2.0**k for k in range(first, last + 1, 1 + (last - first) // _FEW)]
        else:
            along = Scale(xs[0], xs[-1], False, 0.0, 1.0).ticks()
            if all(x == int(x) for x in xs):
                along = [tick for tick in along if tick == int(tick)]
        return along, Scale(*self.limits(), self.log_y, 0.0, 1.0).ticks()

    def names(self) -> tuple[str, str]:
        """Return the words on the axes, which say whether a scale is logarithmic."""
        return (logarithmic(self.x_name) if self.log_x else self.x_name,
                logarithmic(self.y_name) if self.log_y else self.y_name)  # fmt: skip

    def described(self) -> str:
        """Describe the plot in words, for readers who cannot see it."""
        names = ", ".join(line.name for line in self.lines if line.name)
        return f"{self.title + ': ' if self.title else ''}{self.y_name} over {self.x_name}" + (
            f" of {names}" if names else ""
        )


def inline(plot: Plot) -> str:
    """Return the plot as an element of a page, with a legend of buttons; "" if there are no points."""
    return f"{element(plot)}{_buttons(plot.styles)}\n" if plot.points else ""


def element(plot: Plot, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the plot as an SVG element of a page. Names stand at the ends of lines if there is room."""
    label = html.escape(plot.described(), quote=True)
    size = f'viewBox="0 0 {width} {height}" width="{width}" font-size="11"'
    return f'<svg {size} role="img" aria-label="{label}"{paint(FAINT)}>{drawn(plot, width, height)}</svg>'


def alone(plots: Sequence[Plot]) -> str:
    """Return plots side by side as an SVG file. Several plots have one legend below them."""
    one = len(plots) == 1
    names, rows = ("", 0) if one else legend(plots[0].styles, WIDTH * len(plots), _LEFT)
    below = HEIGHT + 20
    panels = "".join(
        f'<g transform="translate({WIDTH * place} 20)">{drawn(plot, WIDTH, HEIGHT, named=one)}</g>'
        + text(WIDTH * place + _LEFT, 16, plot.title, 'font-weight="600" font-size="12"')
        for place, plot in enumerate(plots)
    )
    return file(
        f'{panels}<g transform="translate(0 {below})">{names}</g>',
        WIDTH * len(plots),
        below + _ROW * rows + 6 * bool(rows),
    )


def file(content: str, width: float, height: float) -> str:
    """Return an SVG file with this content, which has a light and a dark colour scheme."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    scheme = "color-scheme:light dark;" + _style(FAINT)
    space = f'xmlns="http://www.w3.org/2000/svg" color="{FAINT.light}" style="{scheme}"'
    return f'<svg {space} {size} font-family="sans-serif" font-size="11">{content}</svg>\n'


def paint(colour: Colour) -> str:
    """Return the attributes that give an element and its content a colour, `currentColor`."""
    return f' color="{colour.light}" style="{_style(colour)}"'


def _style(colour: Colour) -> str:
    return f"color:{css(colour)}"


def drawn(plot: Plot, width: int, height: int, named: bool = True) -> str:
    """Return the inside of a plot: everything but the SVG element."""
    if not plot.points:
        return text(width / 2, height / 2, "no finite value")
    xs = [*(x for x, _ in plot.points), *plot.marks]
    low, high = plot.limits()
    room = _room(plot, height) if named else 0.0
    right, base = width - _EDGE - room - (34 if plot.second else 0), height - _BOTTOM
    x_axis = Scale(min(xs), max(xs), plot.log_x and min(xs) > 0, _LEFT + 10, right - 10)
    y_axis = Scale(low, high, plot.log_y, base, _TOP)
    parts = [_beyond(x_axis(max(end, min(xs))), right if end > 0 else _LEFT, base) for end, _ in plot.beyond]
    if parts:
        parts.append(text(right, _TOP - 5, BEYOND, 'text-anchor="end" font-size="10"'))
    parts.append(_frame(plot, x_axis, y_axis, right, base))
    if plot.level is not None and low < plot.level < high:
        parts.append(rule((_LEFT, right), (y_axis(plot.level),) * 2, 'stroke="currentColor" stroke-dasharray="2 3"'))
    parts += [_reference(each, plot.colour(each), x_axis, y_axis) for each in plot.references]
    ends = {line.name: y_axis(line.end[1]) for line in plot.lines if line.end is not None} if room else {}
    places = spread(ends, _TOP, base)
    few = len(plot.lines) <= _MARKED
    for place, line in reversed(list(enumerate(plot.lines))):  # the first on top, and thinner
        own = _name(line.name, right, ends[line.name], places[line.name]) if line.name in ends else ""
        parts.append(_line(line, *plot.styles[line.name], 1.6 + place / len(plot.lines), x_axis, y_axis, own, few))
    return "".join(parts)


def _room(plot: Plot, height: int) -> float:
    """Return the width of the names at the ends of the lines; 0 if there are too many names, or only one line."""
    names = [line.name for line in plot.lines if line.end is not None]
    if len(names) < 2 or _ROW * len(names) > height - _BOTTOM:
        return 0.0
    return 14 + _LETTER * max(map(len, names))


def spread(wanted: Mapping[str, float], low: float, high: float, step: float = _ROW) -> dict[str, float]:
    """Move heights apart until neighbours differ by at least `step`, within limits if there is room.

    >>> spread({"a": 10.0, "b": 11.0, "c": 40.0}, 0.0, 50.0, 5.0)
    {'a': 10.0, 'b': 15.0, 'c': 40.0}
    """
    found: dict[str, float] = {}
    below = low - step
    for name in sorted(wanted, key=lambda each: wanted[each]):
        found[name] = below = max(wanted[name], below + step)
    above = high + step
    for name in reversed(found):
        found[name] = above = min(found[name], above - step)
    return found


def _beyond(start: float, end: float, base: float) -> str:
    """Return a shaded region beyond the training length."""
    area = f'<rect x="{min(start, end):.1f}" y="{_TOP}" width="{abs(end - start):.1f}" height="{base - _TOP:g}"'
    edge = rule((start, start), (_TOP, base), 'stroke="currentColor" stroke-dasharray="5 4"')
    return f'{area} fill="currentColor" fill-opacity=".08"/>{edge}'


def _frame(plot: Plot, x_axis: Scale, y_axis: Scale, right: float, base: float) -> str:
    names, (along, up), parts = plot.names(), plot.ticks(), []
    for tick in up:
        y = y_axis(tick)
        parts.append(rule((_LEFT, right), (y, y), 'stroke="currentColor" stroke-opacity=".25"'))
        parts.append(text(_LEFT - 6, y + 4, number(100 * tick if plot.percent else tick), 'text-anchor="end"'))
    taken = -math.inf
    for mark in along:
        if x_axis(mark) - taken >= 7 * len(number(mark)):
            parts.append(text(x_axis(mark), base + 15, number(mark)))
            taken = x_axis(mark)
    parts.append(text((_LEFT + right) / 2, base + 34, names[0]))
    parts.append(upright(13, (_TOP + base) / 2, names[1]))
    if plot.second is not None:
        name, factor = plot.second
        other = Scale(factor * y_axis.low, factor * y_axis.high, plot.log_y, y_axis.start, y_axis.end)
        parts += [text(right + 5, other(tick) + 4, number(tick), "") for tick in other.ticks()]
        parts.append(upright(right + 42, (_TOP + base) / 2, name))
    return "".join(parts)


def rule(x: tuple[float, float], y: tuple[float, float], how: str) -> str:
    """Return a straight line with the attributes `how`."""
    return f'<line {how} x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}"/>'


def text(x: float, y: float, words: str, how: str = 'text-anchor="middle"') -> str:
    """Return text with the attributes `how`."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="currentColor" {how}>{html.escape(words)}</text>' if words else ""


def upright(x: float, y: float, words: str) -> str:
    """Return text that reads upwards."""
    return text(x, y, words, f'text-anchor="middle" transform="rotate(-90 {x:g} {y:g})"')


def _line(
    line: Line, colour: Colour, dashes: str, width: float, x_axis: Scale, y_axis: Scale, named: str, marked: bool
) -> str:  # fmt: skip
    """Return a line with its runs, its band, its name and, if `marked`, a mark for each of a few points."""
    parts = []
    known = [each for each in line.band if math.isfinite(each[1]) and math.isfinite(each[2])]
    if known:
        around = [*((x, high) for x, _, high in known), *((x, low) for x, low, _ in reversed(known))]
        shade = ".13" if line.mean else '.3" stroke="currentColor'
        points = " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in around)
        parts.append(f'<polygon class="band" fill="currentColor" fill-opacity="{shade}" points="{points}"/>')
    if runs := "".join(path(seed, x_axis, y_axis) for seed in line.seeds):
        parts.append(f'<g class="seed" {_STROKE} stroke-width=".7" stroke-opacity=".3">{runs}</g>')
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    parts.append(path(line.mean, x_axis, y_axis, f' class="mean" {_STROKE} stroke-width="{width:.1f}"{dashed}'))
    for x, y in line.mean if marked and len(line.mean) <= _MARKED else ():
        if math.isfinite(y):
            said = html.escape(f"{line.name} at {number(x)}: {number(y)}")
            spot = f'cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="3" fill="currentColor"'
            parts.append(f"<circle {spot}><title>{said}</title></circle>")
    name = html.escape(line.name, quote=True)
    content = f"<title>{name}</title>{''.join(parts)}{named}"
    return f'<g class="line" data-name="{name}"{paint(colour)}>{content}</g>'


def path(points: Points, x_axis: Scale, y_axis: Scale, how: str = "") -> str:
    """Return a line for each run of finite values, with the attributes `how`."""
    runs = (list(run) for finite, run in itertools.groupby(points, lambda each: math.isfinite(each[1])) if finite)
    joined = (" ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in run) for run in runs)
    return "".join(f'<polyline{how} points="{each}"/>' for each in joined)


def _name(name: str, right: float, height: float, place: float) -> str:
    """Return the name of a line at the right edge, and a stroke to the line if the name had to be moved."""
    moved = abs(height - place) > 3
    to = rule((right - 8, right + 6), (height, place), 'stroke="currentColor" stroke-opacity=".5"') if moved else ""
    return to + text(right + 8, place + 4, name, "")


def _reference(reference: Reference, colour: Colour, x_axis: Scale, y_axis: Scale) -> str:
    """Return hollow marks, joined by dotted lines."""
    places = [(x_axis(x), y_axis(y)) for x, y in reference.points]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline {_STROKE} stroke-dasharray="1 3" points="{joined}"/>']
    for (x, y), (_, value) in zip(places, reference.points, strict=True):
        said = html.escape(f"{reference.name}: {number(value)}")
        spot = f'cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="none" stroke="currentColor"'
        parts.append(f"<circle {spot}><title>{said}</title></circle>")
    return f"<g{paint(colour)}><title>{html.escape(reference.name)}</title>{''.join(parts)}</g>"


def stroke(colour: Colour, dashes: str, width: float, y: float = 4, start: float = 0) -> str:
    """Return a short line for a legend."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    how = f'stroke="currentColor" stroke-width="2.5"{dashed}{paint(colour)}'
    return rule((start, start + width), (y, y), how)


def _buttons(found: Styles) -> str:
    items = []
    for label, (colour, dashes) in found.items():
        mark = f'<svg width="26" height="8" aria-hidden="true">{stroke(colour, dashes, 26)}</svg>'
        name = html.escape(label, quote=True)
        items.append(f'<li><button type="button" data-name="{name}" aria-pressed="false">{mark}{name}</button></li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def legend(found: Styles, width: float, left: float = 0.0) -> tuple[str, int]:
    """Return the strokes and names of lines in rows, and the number of rows."""
    parts, x, row = [], left, 1
    for name, (colour, dashes) in found.items():
        wide = 38 + _LETTER * len(name) + 12
        if x > left and x + wide > width:
            x, row = left, row + 1
        y = _ROW * row
        parts += [stroke(colour, dashes, 24, y - 4, x), text(x + 30, y, name, "")]
        x += wide
    return "".join(parts), row
