"""Line plots as SVG, with a thin line for each seed, the mean with its band, and a legend of buttons."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastpe.pictures.colours import style

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _EDGE = 640, 300, 56, 38, 10
_FEW = 8  # up to this many values of x are all marked


@dataclass(frozen=True)
class Line:
    """A mean as a function of x, the values of the runs that it averages, and the ends of its interval."""

    name: str
    mean: Points
    seeds: Sequence[Points]
    band: Sequence[tuple[float, float, float]]


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
        else:
            step = 10.0 ** math.floor(math.log10(max(self.high - self.low, 1e-12)))
            step = next(step * m for m in (0.1, 0.2, 0.5, 1, 2) if (self.high - self.low) / (step * m) <= 6)
            found = [step * k for k in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]


@dataclass(frozen=True)
class Plot:
    """Lines and their axes. A dashed line is drawn at x = `marked`, and the y axis reaches at least to `top`."""

    lines: Sequence[Line]
    x_name: str
    y_name: str
    log_x: bool = True
    log_y: bool = False
    marked: float | None = None
    top: float | None = None
    references: Sequence[Reference] = ()

    @property
    def points(self) -> list[tuple[float, float]]:
        """Return the points of all lines, runs and references."""
        drawn = [part for line in self.lines for part in (line.mean, *line.seeds)]
        return [point for part in (*drawn, *(each.points for each in self.references)) for point in part]

    def colour(self, reference: Reference) -> str:
        """Return the colour of the line that `like` names, or black."""
        names = [line.name for line in self.lines]
        return style(names.index(reference.like))[0] if reference.like in names else "#000000"


def inline(plot: Plot) -> str:
    """Return the plot as an element of a page, with a legend of buttons; "" if there are no points."""
    if not plot.points:
        return ""
    label, size = html.escape(f"{plot.y_name} over {plot.x_name}"), f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
    return f'<svg {size} font-size="11" role="img" aria-label="{label}">{_drawn(plot)}</svg>{_legend(plot.lines)}\n'


def alone(plot: Plot) -> str:
    """Return the plot as an SVG file, with the legend at the right."""
    names = []
    for place, line in enumerate(plot.lines):
        colour, dashes = style(place)
        y = _EDGE + 10 + 16 * place
        how = f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dashes}"'
        names += [rule((_WIDTH, _WIDTH + 26), (y, y), how), text(_WIDTH + 32, y + 4, line.name, "")]
    size = f'viewBox="0 0 {_WIDTH + 200} {max(_HEIGHT, _EDGE + 20 + 16 * len(plot.lines))}"'
    look = ".seed{opacity:.3;stroke-width:.7;fill:none}.mean{stroke-width:2;fill:none}.band{opacity:.13}"
    content = f"{_drawn(plot) if plot.points else ''}{''.join(names)}"
    space = 'xmlns="http://www.w3.org/2000/svg"'
    return f'<svg {space} {size} font-family="sans-serif" font-size="11"><style>{look}</style>{content}</svg>\n'


def _drawn(plot: Plot) -> str:
    xs, ys = [x for x, _ in plot.points], [y for _, y in plot.points]
    if plot.log_y:
        ys = [y for y in ys if y > 0] or [1.0]
    low, high = (min(ys) if plot.log_y else min(0.0, *ys, 0.0)), max(*ys, ys[0])
    high = max(high, plot.top or high, 1e-9)
    x_axis = Scale(min(xs), max(xs), plot.log_x and min(xs) > 0, _LEFT + 14, _WIDTH - _EDGE - 14)
    y_axis = Scale(low, high, plot.log_y, _HEIGHT - _BOTTOM, _EDGE)
    marks = sorted(set(xs)) if len(set(xs)) <= _FEW else x_axis.ticks()
    parts = [_frame(x_axis, y_axis, marks, plot.x_name, plot.y_name)]
    if plot.marked is not None and min(xs) <= plot.marked <= max(xs):
        place = x_axis(plot.marked)
        parts.append(rule((place, place), (_EDGE, _HEIGHT - _BOTTOM), 'stroke="#000" stroke-dasharray="5 4"'))
    parts += [_reference(each, plot.colour(each), x_axis, y_axis) for each in plot.references]
    return "".join(parts + [_line(line, place, x_axis, y_axis) for place, line in enumerate(plot.lines)])


def _frame(x_axis: Scale, y_axis: Scale, marks: Sequence[float], x_name: str, y_name: str) -> str:
    base, parts = _HEIGHT - _BOTTOM, []
    for tick in y_axis.ticks():
        y = y_axis(tick)
        parts.append(rule((_LEFT, _WIDTH - _EDGE), (y, y), 'stroke="#ddd"'))
        parts.append(text(_LEFT - 6, y + 4, f"{tick:.3g}", 'text-anchor="end"'))
    parts += [text(x_axis(mark), base + 15, f"{mark:.4g}") for mark in marks]
    parts.append(text((_LEFT + _WIDTH) / 2, _HEIGHT - 5, x_name))
    parts.append(upright(12, base / 2, y_name))
    return "".join(parts)


def rule(x: tuple[float, float], y: tuple[float, float], how: str) -> str:
    """Return a straight line with the attributes `how`."""
    return f'<line {how} x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}"/>'


def text(x: float, y: float, words: str, how: str = 'text-anchor="middle"') -> str:
    """Return text with the attributes `how`."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{html.escape(words)}</text>'


def upright(x: float, y: float, words: str) -> str:
    """Return text that reads upwards."""
    return text(x, y, words, f'text-anchor="middle" transform="rotate(-90 {x} {y})"')


def _line(line: Line, place: int, x_axis: Scale, y_axis: Scale) -> str:
    colour, dashes = style(place)

    def path(points: Points) -> str:
        return " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in points)

    parts = []
    if line.band:
        around = [*((x, high) for x, _, high in line.band), *((x, low) for x, low, _ in reversed(line.band))]
        parts.append(f'<polygon class="band" fill="{colour}" points="{path(around)}"/>')
    parts += [f'<polyline class="seed" stroke="{colour}" points="{path(seed)}"/>' for seed in line.seeds]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    parts.append(f'<polyline class="mean" stroke="{colour}"{dashed} points="{path(line.mean)}"/>')
    for x, y in line.mean if len(line.mean) <= 12 else ():
        said = html.escape(f"{line.name} at {x:g}: {y:.4g}")
        spot = f'cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="3" fill="{colour}"'
        parts.append(f"<circle {spot}><title>{said}</title></circle>")
    name = html.escape(line.name, quote=True)
    return f'<g class="line" data-name="{name}"><title>{name}</title>{"".join(parts)}</g>'


def _reference(reference: Reference, colour: str, x_axis: Scale, y_axis: Scale) -> str:
    """Return hollow marks, joined by dotted lines."""
    places = [(x_axis(x), y_axis(y)) for x, y in reference.points]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline fill="none" stroke="{colour}" stroke-dasharray="1 3" points="{joined}"/>']
    for (x, y), (_, value) in zip(places, reference.points, strict=True):
        said = html.escape(f"{reference.name}: {value:.4g}")
        spot = f'cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#fff" stroke="{colour}"'
        parts.append(f"<circle {spot}><title>{said}</title></circle>")
    return f"<g><title>{html.escape(reference.name)}</title>{''.join(parts)}</g>"


def _legend(lines: Sequence[Line]) -> str:
    items = []
    for place, line in enumerate(lines):
        colour, dashes = style(place)
        how = f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dashes}"'
        stroke = f'<svg width="26" height="8">{rule((0, 26), (4, 4), how)}</svg>'
        name = html.escape(line.name, quote=True)
        items.append(f'<li><button type="button" data-name="{name}" aria-pressed="false">{stroke}{name}</button></li>')
    return f'<ul class="legend">{"".join(items)}</ul>'
