"""One encoding in the atlas: pictures, formula, facts, options, theory and studies."""

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.columns import gated_slopes
from fastpe.encodings import catalogue
from fastpe.encodings.build import init
from fastpe.encodings.catalogue import Entry
from fastpe.encodings.encoding import USES, Encoding, Gate
from fastpe.encodings.registry import get, page
from fastpe.encodings.slots import SLOTS
from fastpe.pictures.atlas import findings, prose
from fastpe.pictures.atlas.drawing import drawn
from fastpe.pictures.look import Look, look
from fastpe.pictures.panels import Axis, Curves, View
from fastpe.theory.essentials import SIZES, essentials
from fastpe.theory.pages import of_model, words
from fastpe.theory.pages.collect import subject_of
from fastpe.theory.pages.record import Record
from fastpe.theory.value import Value

HEADS = 4  # heads in pictures, because biases differ from head to head
_MOST = 3  # largest number of pictures
_LEFT_OUT = "dot products"  # the cosines, which are shown, are similar
_DIRECTIONS = {
    "yes": "distinguished, even without a causal mask", "no": "distinguished only with a causal mask",
    "causal": "for causal models only", "unknown": "not stated",
}  # fmt: skip
_REPORTED = {
    "holds": "models keep their quality without further training",
    "partly": "up to some length, or only in some reports", "fails": "models fail",
    "tuned": "after interpolation or more training", "none": "no published result was found",
}  # fmt: skip
_BEYOND = {
    "defined": "the formula has a value", "clipped": "far offsets share one value",
    "resized": "learned values are resampled", "undefined": "the formula has no value",
}  # fmt: skip


@dataclass(frozen=True)
class Card:
    """One encoding on the page: its catalogue entry, the values that filters compare, and its article in HTML."""

    entry: Entry
    slots: tuple[str, ...]
    plain: bool
    content: str


def card(entry: Entry) -> Card:
    """The card of an encoding. If a user's encoding cannot be filled, the card shows the error."""
    encoding = get(entry.key)
    plain = _tried(lambda: catalogue.suits_sequences(encoding))
    told = prose.parts(page(entry.key), entry.formula)
    parts = [
        _head(entry, encoding, plain is True),
        f'<div class="pictures">{_pictures(entry.key, encoding)}</div>\n<div class="said">\n',
        f"<p>{told.title}</p>\n{told.formula}" if told.title else "",
        _facts(entry, encoding),
        _theory(entry.key),
        _options(encoding),
        _studies(entry.key),
        f"<details><summary>Full page</summary>\n{told.rest}</details>\n" if told.rest else "",
        "</div>\n</article>\n",
    ]
    return Card(entry, encoding.slots, plain is True, "".join(parts))


def _tried(work: Callable[[], Any]) -> Any:
    """The result of a function, or its error (for example from a user's file), which the card then shows."""
    try:
        return work()
    except (ValueError, TypeError) as error:
        return error


def _head(entry: Entry, encoding: Encoding, plain: bool) -> str:
    data = {
        "use": entry.use, "place": entry.group, "slots": " ".join(encoding.slots), "learned": entry.learned,
        "beyond": entry.beyond, "reported": entry.outcome, "year": entry.year or "", "plain": "yes" if plain else "no",
    }  # fmt: skip
    facts = "".join(f' data-{name}="{html.escape(str(value), quote=True)}"' for name, value in data.items())
    key = html.escape(entry.key, quote=True)
    year = f' <span class="year">{entry.year}</span>' if entry.year else ""
    use = prose.inline(entry.use_when)
    when = f'<p class="when"><strong>Use it when</strong> {use}.</p>\n' if use else ""
    return (
        f'<article class="card" id="{key}"{facts} aria-labelledby="name-{key}">\n'
        f'<h3 id="name-{key}"><a href="#{key}">{key}</a>{year}</h3>\n'
        f'<p class="summary">{html.escape(entry.summary)}</p>\n{when}'
    )


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def _pictures(key: str, encoding: Encoding) -> str:
    found = _tried(lambda: look(key, heads=HEADS))
    if not isinstance(found, Look):
        return f'<p class="none">This encoding cannot be drawn: {html.escape(str(found))}</p>'
    views = _chosen([*found.views.values()])
    if not views and encoding.gate is not None:
        views = [_gate(key, encoding, encoding.gate)]
    if not views:
        return '<p class="none">Nothing to draw: this encoding fills no array.</p>'
    remarks = "".join(f'<p class="note">{prose.inline(remark)}.</p>' for remark in (*found.remarks, *found.notes))
    return "".join(map(drawn, views)) + remarks


def _chosen(slots: Sequence[Sequence[View]]) -> list[View]:
    """The views to draw: the first of each slot, or the first two of a single slot."""
    shown = [[view for view in views if view.title != _LEFT_OUT] for views in slots]
    if len(shown) == 1:
        return shown[0][:2]
    return [views[0] for views in shown if views][:_MOST]


def _gate(key: str, encoding: Encoding, gate: Gate) -> View:
    """What a gate with initial values adds to the score for an input of 0, or the angles by which it rotates."""
    length, options = 2 * SIZES["train_length"], {key: each.default for key, each in encoding.options.items()}
    if gate.frequencies is not None:
        speeds = np.array(gate.frequencies(SIZES["dim"] // HEADS, **options))
        pairs = Axis("pair of channels", np.arange(len(speeds)))
        return Curves("rotation where the content gives 1", pairs, {"every head": speeds}, "radians")
    sizes = {"dim": SIZES["dim"], "heads": HEADS, "train_length": SIZES["train_length"]}
    params: Mapping[str, Any] = init(key, causal=True, **sizes, **options)
    if gate.reflects:
        return _left(params, length)
    if gate.slopes is None:
        lost = reference.gate(np.zeros((length, SIZES["dim"])), gate.sign, **params)
    else:
        (direction,) = {"key", "query"} & params.keys()
        heads = np.zeros((HEADS, 1, SIZES["dim"] // HEADS))
        slopes = gated_slopes(heads, params[direction], slopes=gate.slopes(HEADS), weight=params["weight"])
        lost = slopes * np.arange(length)
    shown = lost[:1] if (lost == lost[0]).all() else lost
    lines = {f"head {head}": own - own[-1] for head, own in enumerate(shown)}
    where = Axis("key - query (positions)", np.arange(1 - length, 1), (0.5 - SIZES["train_length"],))
    return Curves("added to the score for an input of zeros", where, lines, "added to the score")


def _left(params: Mapping[str, Any], length: int) -> View:
    """Length of a query after the reflections of random inputs: the root mean square over all directions."""
    w, beta = reference.reflections(np.random.default_rng(0).normal(size=(length, SIZES["dim"])), **params)
    rows, sizes = np.broadcast_to(np.eye(w.shape[-1]), (len(w), *w.shape[-1:] * 2)), []
    for j in reversed(range(length)):
        sizes.append(np.sqrt(np.square(rows).sum(axis=(1, 2)) / w.shape[-1]))
        along = rows @ w[:, j, :, None]
        rows = rows - beta[:, j, None, None] * along * w[:, j, None, :]
    lines = {f"head {head}": own for head, own in enumerate(np.array(sizes[::-1]).T)}
    where = Axis("key - query (positions)", np.arange(1 - length, 1), (0.5 - SIZES["train_length"],))
    return Curves("length of a query after reflections (random input)", where, lines, "length")


# ---------------------------------------------------------------------------------------------------------------------
# Facts


def _facts(entry: Entry, encoding: Encoding) -> str:
    lines = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in _rows(entry, encoding))
    return f"<h4>At a glance</h4>\n<dl>\n{lines}</dl>\n"


def _made(gate: Gate) -> str:
    """What the gate computes from a layer's input, in words."""
    if gate.turns:
        return "angles that rotate query and key"
    return "reflections of the query" if gate.reflects else "a gate that lowers the score"


def _rows(entry: Entry, encoding: Encoding) -> Iterator[tuple[str, str]]:
    """Yield the name of each fact, and its value as HTML."""
    slots = [f"<code>{slot}</code>, {html.escape(SLOTS[slot].acts)}" for slot in encoding.slots]
    if encoding.gate is not None:
        slots.append(f"each layer computes {_made(encoding.gate)} from its input")
    yield "Acts on", "<br>".join(slots) or "nothing"
    learns = {"yes": "yes", "optional": "with an option", "no": "no"}[entry.learned]
    yield "Learns parameters", learns
    wanted = [catalogue.NEEDS[word] for word in catalogue.needs(entry.key) or ("",)]
    yield "Needs", "; ".join(each[:1].lower() + each[1:] for each in wanted)
    yield "Left and right", _DIRECTIONS[encoding.direction]
    yield "Beyond training length", f"{entry.beyond}: {_BEYOND[entry.beyond]}"
    found = f"{_REPORTED[entry.outcome]}"
    if entry.reported is not None:
        _, evidence, source = entry.reported
        found = f"{entry.outcome}: {found}. {prose.inline(evidence)} ({prose.inline(source)})"
    yield "Extrapolation evidence", found
    if entry.use:
        yield "Use", USES[entry.use]
    if entry.also_called:
        yield "Also called", ", ".join(map(html.escape, entry.also_called))
    if entry.not_to_be_confused:
        others = entry.not_to_be_confused.items()
        lines = (f"<strong>{html.escape(name)}</strong>: {prose.inline(difference)}" for name, difference in others)
        yield "Not to be confused with", "<br>".join(lines)
    if entry.source:
        yield "Source", prose.inline(entry.source)


def _theory(key: str) -> str:
    """Three key quantities, and the limits of all models with this encoding, as HTML."""
    known = _tried(lambda: _known(key))
    if not isinstance(known, tuple):
        return f"<h4>In theory</h4>\n<p>Not available: the encoding cannot be filled: {html.escape(str(known))}</p>\n"
    numbers, found, causal = known
    lines = [
        f"{html.escape(what)}: {'-' if each is None else html.escape(words.short(each.value))}"
        for what, each in numbers.items()
    ]
    lines += [html.escape(line) for line in words.of_symmetry(found)]
    if "parameters" in found:
        lines.append(f"added parameters: {words.number(found['parameters'].value)}")
    mask = "with a causal mask" if causal else "without a mask"
    told = (
        f'Symmetry: constraints on every model with this encoding, {mask}. "none" means that symmetry makes no task '
        f"impossible. Least errors are mean squared errors at {SIZES['train_length']} positions; no training can lower "
        "them."
    )
    listed = "".join(f"<li>{line}</li>" for line in lines)
    return f'<h4>In theory</h4>\n<ul>{listed}</ul>\n<p class="note">{told}</p>\n'


def _known(key: str) -> tuple[dict[str, Value | None], dict[str, Record], bool]:
    """Three key quantities, the properties of models with the encoding, and whether these models are causal."""
    sizes: dict[str, Any] = dict(SIZES)
    subject = subject_of(key, length=SIZES["train_length"], **sizes)
    return essentials(key), {record.name: record for record in of_model.records(subject)}, subject.causal


def _options(encoding: Encoding) -> str:
    if not encoding.options:
        return ""
    rows = [(key, _short(each.default), each.expected(), each.doc) for key, each in encoding.options.items()]
    content = findings.table(("option", "default", "values", "meaning"), rows, "options")
    if encoding.paper:
        settings = ", ".join(f"{key}={value}" for key, value in encoding.paper.items())
        content += f"<p>Settings of Li (2025): <code>{html.escape(settings)}</code></p>\n"
    return f"<details><summary>Options ({len(rows)})</summary>\n{content}</details>\n"


def _short(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _studies(key: str) -> str:
    count = findings.count_of(key)
    if not count:
        return ""
    what = "1 study" if count == 1 else f"{count} studies"
    return f"<details><summary>Results of {what} in this repository</summary>\n{findings.found_of(key)}</details>\n"
