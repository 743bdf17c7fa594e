"""The page of `fastpe inspect`: what heads attend to and what changes of a model do, as one HTML file."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from fastpe.experiments.sections import Section
from fastpe.experiments.study_page import classes
from fastpe.pictures import axes, svg, web
from fastpe.pictures.colours import DASHES, PALETTE, of_lines
from fastpe.training.inspection import Curve, Inspection
from fastpe.training.lengths import ends

_SHARES = {
    "previous": "weight of the previous token", "duplicate": "weight of earlier copies of the token",
    "induction": "weight of the tokens after earlier copies", "sink": "weight of the first token",
    "position": "share of the variance of scores that the distance explains",
}  # fmt: skip
_CELL, _LEFT, _ROOM = 15, 70, 66  # sizes of an attention map: a cell, and the margins of the tokens
_PANEL, _NARROW = (640, 300), (360, 300)
_POINTS = 48  # of a line
_LAYERS = 12  # whose panels are drawn
_UNIFORM = "equal weights"
_CLEAR = 0.3
"""How far above equal weights the score of a head is that is called a previous-token or an induction head."""
_DIGITS = 7  # letters of a token in a map


def page(found: Inspection, name: str) -> str:
    """Return the page as HTML that loads no other files.

    Parameters
    ----------
    found : Inspection
    name : str
        The name of the model.

    Examples
    --------
    >>> import fastpe
    >>> model = fastpe.Transformer(fastpe.ModelConfig("rope", width=16, heads=2, causal=True, vocabulary=9))
    >>> text = page(fastpe.inspect(model, np.arange(200) % 9, changes=["drop"], lengths=[8]), "small")
    >>> "<h1>What small attends to</h1>" in text, "http://" in text
    (True, False)
    """
    layers, heads = found.position.shape
    first, values = _strongest(found), found.scores | {"position": found.position}
    encoding = found.encoding.split("+")[0].split(",")[0]
    data = np.round(255 * np.clip(np.nan_to_num(found.maps), 0, 1)).astype(np.uint8)
    return web.render(
        "fastpe.experiments/inspection.html",
        title=f"What {name} attends to",
        answer=answer(found),
        facts=[
            found.encoding, _counted(layers, "layer"), _counted(heads, "head") + " each",
            f"training length {found.train_length}",
            f"first token above 0.3 in {100 * found.sink_rate:.0f} % of sequences and heads",
        ],
        notes=found.notes,
        matrices=[
            {"name": score, "about": _about(found, score, about), "rows": _matrix(values[score])}
            for score, about in _SHARES.items()
        ],
        heads=range(heads),
        places=[f"{layer}.{head}" for layer in range(layers) for head in range(heads)],
        chosen=f"{first[0]}.{first[1]}",
        map=Markup(_map(found, first)),  # SVG, whose texts are escaped
        words=[word or " " for word in found.words],
        weights=base64.b64encode(data.tobytes()).decode(),
        curves=_curves(found),
        distances=_by_layer(found, encoding, _distance_plot),
        frequencies=[] if found.frequency_share is None else _by_layer(found, encoding, _frequency_plot),
        layers=layers,
        drawn=_LAYERS,
        table=_table(found),
        changes=_changes(found),
        classes=classes,
    )  # fmt: skip


def answer(found: Inspection) -> str:
    """Return one or two sentences: the strongest heads, and what the model loses without its encoding."""
    said = []
    for score, what in (("induction", "induction"), ("previous", "previous-token")):
        values = found.scores[score]
        if not np.isnan(values).all():
            layer, head = np.unravel_index(int(np.nan_to_num(values).argmax()), values.shape)
            most, name = values[layer, head], f"{layer}.{head}"
            said.append(
                f"head {name} is the strongest {what} head ({most:.2f})"
                if most >= found.equal[score] + _CLEAR
                else f"there is no clear {what} head (at most {most:.2f}, head {name})"
            )
    text = f"{'; '.join(said)}." if said else ""
    dropped = next((each for each in found.curves if each.change == "drop"), None)
    if dropped is not None:
        length = next(iter(dropped.test))
        before, after = (each.values(found.metric)[length] for each in (found.curves[0], dropped))
        if before is not None and after is not None:
            what = {"exact": "exact answers", "loss": "the loss", "mse": "the squared error"}[found.metric]
            text += f" Without its encoding, {what} at length {length}: {_value(after, found.metric)} instead of "
            text += f"{_value(before, found.metric)}."
    return text[:1].upper() + text[1:]


def _value(value: float, metric: str) -> str:
    return f"{100 * value:.1f} %" if metric == "exact" else f"{value:.4g}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count > 1 else ''}"


def _strongest(found: Inspection) -> tuple[int, int]:
    """Return the head with the largest score for induction, or for the previous token."""
    values = found.scores["induction"]
    values = found.scores["previous"] if np.isnan(values).all() else values
    layer, head = np.unravel_index(int(np.nan_to_num(values).argmax()), values.shape)
    return int(layer), int(head)


def _about(found: Inspection, score: str, about: str) -> str:
    """Return what a score is, and what it is for equal weights."""
    equal = found.equal.get(score, float("nan"))
    return about if np.isnan(equal) else f"{about}; {equal:.2f} for equal weights"


def _matrix(values: np.ndarray[Any, Any]) -> list[list[dict[str, Any]]]:
    """Return cells by layer: the text, and the strength of the colour in percent."""
    return [
        [{"text": "-", "share": 0} if np.isnan(x) else {"text": f"{x:.2f}", "share": round(100 * min(max(x, 0), 1))}
         for x in row]
        for row in values
    ]  # fmt: skip


def _short(word: str) -> str:
    shown = "".join(c if c.isprintable() else "·" for c in word).replace(" ", "␣")
    return shown if len(shown) <= _DIGITS else shown[: _DIGITS - 1] + "…"


def _map(found: Inspection, place: tuple[int, int]) -> str:
    """Return the attention map of one head as SVG: queries down, keys along, hidden keys hatched."""
    weights, n = found.maps[place], len(found.words)
    width, height = _LEFT + n * _CELL + 8, _ROOM + n * _CELL + 8
    label = f"Attention map of head {place[0]}.{place[1]}: queries down, keys along, {n} tokens"
    parts = [
        f'<svg id="map" viewBox="0 0 {width} {height}" width="{width}" font-size="10" role="img" tabindex="0" '
        f'aria-label="{label}" data-cell="{_CELL}" data-left="{_LEFT}" data-top="{_ROOM}"{svg.paint(svg.FAINT)}>'
        '<defs><pattern id="hidden" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line x1="0" y1="0" x2="0" y2="5" stroke="currentColor" stroke-opacity=".35"/></pattern></defs>'
    ]
    for number, word in enumerate(found.words):
        at = _CELL * (number + 0.5)
        parts.append(svg.text(_LEFT - 4, _ROOM + at + 3.5, _short(word), 'text-anchor="end"'))
        x = _LEFT + at + 3.5
        turn = f'transform="rotate(-90 {x:g} {_ROOM - 4})"'
        parts.append(svg.text(x, _ROOM - 4, _short(word), f'text-anchor="start" {turn}'))
    steps = "".join(f"h{_CELL}v{_CELL}" for _ in range(n - 1))
    edge = f"M{_LEFT + _CELL} {_ROOM}{steps}V{_ROOM}Z"
    parts.append(f'<path d="{edge}" fill="url(#hidden)"/><g id="cells">')
    for query in range(n):
        for key in range(query + 1):
            x, y = _LEFT + key * _CELL, _ROOM + query * _CELL
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" fill-opacity="{weights[query, key]:.2f}"/>'
            )
    size = n * _CELL
    frame = f'<rect x="{_LEFT}" y="{_ROOM}" width="{size}" height="{size}" fill="none" stroke="currentColor"/>'
    row = f'<rect id="row" x="{_LEFT}" y="{_ROOM}" width="{size}" height="{_CELL}" visibility="hidden"/>'
    return "".join([*parts, f"</g>{frame}{row}</svg>"])


def _lines(found: Inspection, encoding: str, layer: int) -> tuple[list[str], dict[str, Any]]:
    names = [f"head {head}" for head in range(found.position.shape[1])]
    return names, of_lines(encoding, names)


def _by_layer(found: Inspection, encoding: str, plot: Any) -> list[dict[str, Any]]:
    """Return a panel for each of the first layers, for wide and for narrow windows."""
    panels = []
    for layer in range(min(found.position.shape[0], _LAYERS)):
        drawn = plot(found, encoding, layer)
        if drawn.points:
            panels.append({"title": f"Layer {layer}", **_sizes(drawn)})
    return panels


def _distance_plot(found: Inspection, encoding: str, layer: int) -> svg.Plot:
    """Return the mean weights by distance from 1 on, and those of a head whose weights are equal."""
    names, colours = _lines(found, encoding, layer)
    n = found.by_distance.shape[-1]
    places = sorted({int(each) for each in np.geomspace(1, max(n - 1, 1), _POINTS)} & set(range(1, n)))
    lines = [
        svg.Line(name, [(d, float(found.by_distance[layer, head, d])) for d in places])
        for head, name in enumerate(names)
    ]
    equal = [(d, float(np.mean(1 / np.arange(d + 1, n + 1)))) for d in places]
    lines.append(svg.Line(_UNIFORM, equal))
    return svg.Plot(
        lines, "distance", "mean weight", title=f"layer {layer}", log_x=True, top=0.01,
        colours=colours | {_UNIFORM: (PALETTE[0], DASHES[1])},
    )  # fmt: skip


def _frequency_plot(found: Inspection, encoding: str, layer: int) -> svg.Plot:
    """Return the share of each pair in the variance of scores, by its wavelength; L and 4 L are marked."""
    assert found.frequency_share is not None
    names, colours = _lines(found, encoding, layer)
    waves = np.arange(1, found.frequency_share.shape[-1] + 1) if found.wavelengths is None else found.wavelengths
    shares = found.frequency_share[layer]
    lines = [
        svg.Line(name, [(float(x), float(y)) for x, y in zip(waves, shares[head], strict=True) if np.isfinite(x + y)])
        for head, name in enumerate(names)
    ]
    length = found.train_length
    known = found.wavelengths is not None
    return svg.Plot(
        lines, "wavelength in positions" if known else "pair", "share of variance", title=f"layer {layer}", log_x=known,
        marked=(length, 4 * length) if known else None, colours=colours,
    )  # fmt: skip


def _curves(found: Inspection) -> list[dict[str, Any]]:
    """Return panels of the test results of all changes by length, for one or two metrics."""
    if not found.curves:
        return []
    metrics = dict.fromkeys((found.metric, "loss" if found.metric == "exact" else found.metric))
    return [_panel(found, metric) for metric in metrics]


def _panel(found: Inspection, metric: str) -> dict[str, Any]:
    lines, colours = [], dict[str, Any]()
    main = [each for each in found.curves if not each.control or each.control == "greedy"]
    palette = len(PALETTE) - 1
    for place, curve in enumerate(main):
        name = f"{'greedy ' if curve.control else ''}{curve.change or 'as it is'}"
        lines.append(svg.Line(name, _points(curve, metric)))
        colours[name] = PALETTE[0] if not curve.change else PALETTE[1 + (place - 1) % palette], ""
        for control in (each for each in found.curves if each.control == (curve.change or None) and not curve.control):
            own = f"control of {curve.change}"
            lines.append(svg.Line(own, _points(control, metric)))
            colours[own] = colours[name][0], DASHES[1]
    exact = metric == "exact"
    lengths = sorted({x for line in lines for x, _ in line.mean}) or [1]
    plot = svg.Plot(
        lines, axes.LENGTH, axes.OF_METRIC[metric], title=metric, log_x=lengths[-1] >= 8 * lengths[0],
        top=1.0 if exact else None, floor=0.0 if exact else None, percent=exact, colours=colours,
        log_y=metric == "mse",
    )  # fmt: skip
    legend = [
        (name, Markup(f'<svg width="26" height="8" aria-hidden="true">{svg.stroke(*style, 26)}</svg>'))
        for name, style in plot.styles.items()
    ]
    return {"title": axes.OF_METRIC[metric], **_sizes(plot), "legend": legend}


def _sizes(plot: svg.Plot) -> dict[str, Markup]:
    """Return a plot for wide and for narrow windows: SVG, whose texts are escaped."""
    return {"wide": Markup(svg.element(plot, *_PANEL)), "narrow": Markup(svg.element(plot, *_NARROW))}


def _points(curve: Curve, metric: str) -> list[tuple[float, float]]:
    values = curve.values(metric).items()
    return [(ends(int(n) if n.isdigit() else n)[1], value) for n, value in values if value is not None]


def _table(found: Inspection) -> Section:
    names = [*found.scores]
    turning = found.frequency_share is not None and found.wavelengths is not None
    head = ("head", *names, "output", "position", *(("wavelength",) if turning else ()))
    rows = list[Sequence[str]]()
    for place in np.ndindex(found.position.shape):
        values = [found.scores[name][place] for name in names] + [found.output[place], found.position[place]]
        row = [f"{place[0]}.{place[1]}", *("-" if np.isnan(each) else f"{each:.3f}" for each in values)]
        if turning:
            assert found.frequency_share is not None
            assert found.wavelengths is not None
            shares = found.frequency_share[place]
            row.append("-" if np.isnan(shares).all() else f"{found.wavelengths[np.nanargmax(shares)]:.1f}")
        rows.append(row)
    equal = [found.equal[name] for name in names]
    shown = ["-" if np.isnan(each) else f"{each:.3f}" for each in equal]
    rows.append(["equal weights", *shown, *["-"] * (len(head) - 1 - len(names))])
    said = [
        "distance: mean distance of the keys. entropy: of the weights, in nats. output: mean norm of what the head "
        "adds to the residual stream; a large weight with a small output has little effect."
    ]
    if turning:
        said.append("wavelength: of the pair of rotated channels with the largest share of the variance of scores.")
    return Section("All heads", said, head, rows)


def _changes(found: Inspection) -> Section | None:
    if not found.curves:
        return None
    lengths = [*found.curves[0].test]
    metrics = [*dict.fromkeys((found.metric, "loss" if found.metric == "exact" else found.metric))]
    head = ("change", "control of", *(f"{metric} at {length}" for metric in metrics for length in lengths))
    rows = []
    for curve in found.curves:
        cells = [curve.values(metric)[length] for metric in metrics for length in lengths]
        kinds = [metric for metric in metrics for _ in lengths]
        shown = ["-" if x is None else _value(x, metric) for x, metric in zip(cells, kinds, strict=True)]
        rows.append([curve.change or "as it is", curve.control, *shown])
    return Section("All test results", ["All models are tested on the same sequences."], head, rows)
