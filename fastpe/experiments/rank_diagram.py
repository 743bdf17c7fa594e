"""The diagram of critical differences (Demsar 2006): mean ranks on a line; bars join ranks that do not differ."""

import html
from collections.abc import Mapping

_WIDTH, _LEFT, _TOP, _ROW = 640, 150, 44, 16


def rank_diagram(ranks: Mapping[str, float], apart: float) -> str:
    """The diagram as SVG for a page.

    Parameters
    ----------
    ranks : dict of str to float
        The mean rank of each encoding; 1 is the best.
    apart : float
        The critical difference, see `fastpe.experiments.aggregate.critical_difference`.

    Examples
    --------
    >>> rank_diagram({"a": 1.2, "b": 1.8, "c": 3.0}, 1.0).count("<path class='alike'")
    1
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    bars = groups([ranks[name] for name in names], apart)
    base = _TOP + 10 * len(bars) + 8
    half = (len(names) + 1) // 2
    parts = [_axis(len(names)), _bar(1.0, 1.0 + apart, len(names), 12, "critical difference")]
    for level, (first, last) in enumerate(bars):
        ends = ranks[names[first]] - 0.03, ranks[names[last]] + 0.03
        parts.append(f"<path class='alike' d='{_path(*ends, len(names), _TOP + 8 + 10 * level)}' stroke-width='4'/>")
    for place, name in enumerate(names):
        left = place < half
        row = place if left else len(names) - 1 - place
        parts.append(_name(name, ranks[name], len(names), base + _ROW * row + 12, left))
    height = base + _ROW * half + 16
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" aria-label="mean ranks" stroke="#000" '
        f'fill="none">{"".join(parts)}</svg>\n'
    )


def groups(ordered: list[float], apart: float) -> list[tuple[int, int]]:
    """The first and last index of every maximal group of at least two ranks that differ by less than `apart`.

    Examples
    --------
    >>> groups([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ordered):
        last = max(place for place, other in enumerate(ordered) if other - rank < apart)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def _x(rank: float, count: int) -> float:
    return _LEFT + (rank - 1.0) / max(1, count - 1) * (_WIDTH - 2 * _LEFT)


def _path(low: float, high: float, count: int, y: float) -> str:
    return f"M{_x(low, count):.1f} {y}H{_x(high, count):.1f}"


def _bar(low: float, high: float, count: int, y: float, words: str) -> str:
    middle = (_x(low, count) + _x(high, count)) / 2
    return f"<path d='{_path(low, high, count, y)}'/>{_text(middle, y - 3, f'{words} {high - low:.2f}', 'middle')}"


def _axis(count: int) -> str:
    ticks = "".join(
        f"<path d='M{_x(rank, count):.1f} {_TOP}v-6'/>{_text(_x(rank, count), _TOP - 9, str(rank), 'middle')}"
        for rank in range(1, count + 1)
    )
    return f"<path d='{_path(1, count, count, _TOP)}'/>{ticks}"


def _name(name: str, rank: float, count: int, y: float, left: bool) -> str:
    x, end = _x(rank, count), _LEFT - 20 if left else _WIDTH - _LEFT + 20
    words = _text(end - 4 if left else end + 4, y + 4, f"{name} ({rank:.2f})", "end" if left else "start")
    return f"<path d='M{x:.1f} {_TOP}V{y}H{end}' stroke='#888'/>{words}"


def _text(x: float, y: float, words: str, anchor: str) -> str:
    how = f'font-size="11" text-anchor="{anchor}" fill="#000" stroke="none"'
    return f'<text x="{x:.1f}" y="{y}" {how}>{html.escape(words)}</text>'
