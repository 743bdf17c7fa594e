"""What the atlas says about one encoding: pictures, formula, facts, code, options, theory and studies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fastpe import reference
from fastpe.columns import gated_slopes
from fastpe.encodings import catalogue
from fastpe.encodings.build import init
from fastpe.encodings.catalogue import Entry
from fastpe.encodings.encoding import USES, Encoding, Gate
from fastpe.encodings.registry import get, page
from fastpe.encodings.slots import SLOTS
from fastpe.pictures import drawing
from fastpe.pictures.atlas import findings, prose
from fastpe.pictures.axes import ADDED, OFFSET, PAIR
from fastpe.pictures.look import Look, look
from fastpe.pictures.panels import Axis, Curves, Map, View
from fastpe.theory.essentials import SIZES
from fastpe.theory.pages import words
from fastpe.theory.pages.collect import records, subject_of
from fastpe.theory.pages.key_quantities import KeyRow, key_rows

HEADS = 4  # heads in pictures, because biases differ from head to head
_MOST = 3  # largest number of pictures
_LEFT_OUT = "dot products"  # the cosines, which are shown, are similar
_AS_MAP = ("angles",)  # slots whose thumbnail is a map
_DIRECTIONS = {
    "yes": "distinguished, even without a causal mask", "no": "distinguished only with a causal mask",
    "causal": "for causal models only", "unknown": "not stated",
}  # fmt: skip
EVIDENCE = {
    "holds": "models keep their quality without further training",
    "partly": "up to some length, or only in some reports", "fails": "models fail",
    "tuned": "after interpolation or more training", "untested": "no published result was found",
}  # fmt: skip
"""Word of a tile for the published results beyond the training length -> its meaning."""
_BEYOND = {
    "defined": "the formula has a value", "clipped": "far offsets share one value",
    "resized": "learned values are resampled", "undefined": "the formula has no value",
}  # fmt: skip


class Figure(NamedTuple):
    """A picture with its caption, and the same picture as a thumbnail."""

    title: str
    svg: Markup
    thumbnail: Markup


class Theory(NamedTuple):
    """The quantities that decide a choice, sentences on symmetry, and the error of an encoding without values."""

    rows: Sequence[KeyRow]
    lines: Sequence[str]
    error: str = ""


@dataclass(frozen=True)
class Card:
    """One encoding on the page.

    Attributes
    ----------
    entry : Entry
        Its entry in the catalogue.
    encoding : Encoding
    plain : bool
        Whether it is for plain sequences.
    drawn : Look or Exception
        Its filled slots and panels, or the error of a user's encoding that cannot be filled.
    """

    entry: Entry
    encoding: Encoding
    plain: bool
    drawn: Look | Exception = field(repr=False)

    @property
    def key(self) -> str:
        """The key of the encoding, which is the identifier of its article."""
        return self.entry.key

    @property
    def evidence(self) -> str:
        """The published results beyond the training length: one of `EVIDENCE`."""
        return "untested" if self.entry.outcome == "none" else self.entry.outcome

    @property
    def cost(self) -> float | None:
        """The time of a training step, relative to a model without an encoding; None if not measured."""
        return findings.costs().get(self.key)

    @property
    def data(self) -> dict[str, str]:
        """The values that filters compare, and the text that a search reads."""
        entry = self.entry
        names = (self.key, entry.summary, entry.use_when, *entry.also_called, entry.source, *self.encoding.options)
        return {
            "use": entry.use or "none", "place": entry.group, "slots": " ".join(self.encoding.slots),
            "learned": entry.learned, "beyond": entry.beyond, "reported": self.evidence,
            "year": str(entry.year or ""), "plain": "yes" if self.plain else "no",
            "text": " ".join((*names, *self.encoding.slots)).lower(),
        }  # fmt: skip

    @cached_property
    def told(self) -> prose.Parts:
        """The encoding's page: the first sentence, the formula with its explanation, and the rest."""
        return prose.parts(page(self.key), self.entry.formula)

    @cached_property
    def figures(self) -> list[Figure]:
        """The pictures; none if the encoding fills no array."""
        if not isinstance(self.drawn, Look):
            return []
        views = _chosen([*self.drawn.views.values()])
        if not views and self.encoding.gate is not None:
            views = [_gate(self.key, self.encoding, self.encoding.gate)]
        return [
            Figure(view.title, Markup(drawing.element(view, self.key)), Markup(drawing.thumbnail(view, self.key)))
            for view in views
        ]

    @property
    def causal(self) -> bool:
        """Whether pictures, code and theory have a causal mask."""
        return isinstance(self.drawn, Look) and self.drawn.spec.causal

    @property
    def thumbnail(self) -> Markup:
        """The picture of the tile: the first figure, or the first map of rotations."""
        views = self.drawn.views if isinstance(self.drawn, Look) else {}
        maps = [each for slot in _AS_MAP for each in views.get(slot, ()) if isinstance(each, Map)]
        if maps and next(iter(views)) in _AS_MAP:
            return Markup(drawing.thumbnail(maps[0], self.key))
        return self.figures[0].thumbnail if self.figures else Markup("")

    @property
    def remarks(self) -> list[Markup]:
        """Sentences about the pictures."""
        if not isinstance(self.drawn, Look) or not self.figures:
            return []
        return [prose.inline(each) for each in (*self.drawn.remarks, *self.drawn.notes)]

    @property
    def missing(self) -> str:
        """Why there is no picture; "" if there is one."""
        if not isinstance(self.drawn, Look):
            return f"This encoding cannot be drawn: {self.drawn}"
        return "" if self.figures else "Nothing to draw: this encoding fills no array."

    @property
    def facts(self) -> list[tuple[str, list[Markup]]]:
        """The name of each fact, and its lines."""
        return [(name, lines) for name, lines in _facts(self.entry, self.encoding, self.evidence) if lines]

    @cached_property
    def theory(self) -> Theory:
        """The theoretical properties, with a causal mask as in the pictures."""
        found = _tried(lambda: _theory(self.key, causal=self.causal))
        return found if isinstance(found, Theory) else Theory((), (), str(found))

    @property
    def options(self) -> list[tuple[str, str, str, str]]:
        """Name, default, values and meaning of each option."""
        return [(key, _short(each.default), each.expected(), each.doc) for key, each in self.encoding.options.items()]

    @property
    def paper(self) -> str:
        """The settings of Li (2025)."""
        return ", ".join(f"{key}={value}" for key, value in self.encoding.paper.items())

    @property
    def studies(self) -> list[findings.Study]:
        """The results of this repository."""
        return findings.of(self.key)

    @property
    def code(self) -> dict[str, str]:
        """Lines to copy, by where they are used."""
        name = f"./{self.encoding.file}" if self.encoding.file else self.key
        mask = " --causal" if self.causal else ""
        found = {"Command line": f"fastpe show {name}{mask}" + f"\nfastpe train --encoding {name}{mask}" * self.plain}
        if isinstance(self.drawn, Look):
            spec = self.drawn.spec
            causal = ", causal=True" if self.causal else ""
            sizes = f"dim={spec.dim}, heads={spec.heads}, train_length={spec.train_length}{causal}"
            if self.encoding.gate is not None and not self.encoding.slots:  # computed from the input, by a model
                sizes = sizes.replace("dim=", "width=")
                config = f'fastpe.ModelConfig(\n    "{self.key}", vocabulary=256, {sizes}\n)'
                return found | {"NumPy": f"import fastpe\n\nmodel = fastpe.Transformer({config})"}
            found["NumPy"] = f'import fastpe\n\nslots = fastpe.build(\n    "{self.key}", {spec.length}, {sizes}\n)'
            if self.encoding.gate is None and self.encoding.slots:
                made = f'encoding = fastpe.torch.Encoding(\n    "{self.key}", {sizes}\n)\n'
                found["PyTorch"] = f"import fastpe.torch\n\n{made}{_use(self.drawn)}"
        return found


def card(entry: Entry) -> Card:
    """The card of an encoding. If a user's encoding cannot be filled, the card shows the error."""
    encoding = get(entry.key)
    plain = _tried(lambda: catalogue.suits_sequences(encoding)) is True
    causal = (plain and encoding.direction != "yes") or None  # language models: left and right need no second half
    drawn = _tried(lambda: look(entry.key, heads=HEADS, causal=causal))
    return Card(entry, encoding, plain, drawn)


def _tried(work: Callable[[], Any]) -> Any:
    """The result of a function, or its error (for example from a user's file), which the card then shows."""
    try:
        return work()
    except (ValueError, TypeError) as error:
        return error


def _use(drawn: Look) -> str:
    """A line of PyTorch that uses the slots of an encoding."""
    first = [slot for slot in ("table", "qk_table", "taps") if slot in drawn.slots]
    if first == ["table"] and len(drawn.slots) == 1:
        return f'x = x + encoding({drawn.spec.length})["table"]'
    if first:
        return f"slots = encoding({drawn.spec.length})"
    mask = ", causal=True" if drawn.spec.causal else ""
    return f"out = fastpe.torch.attention(q, k, v{mask}, **encoding({drawn.spec.length}))"


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


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
        pairs = Axis(PAIR, np.arange(len(speeds)))
        return Curves("rotation where the content gives 1", pairs, {"every head": speeds}, "angle (radians)")
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
    where = Axis(OFFSET, np.arange(1 - length, 1), (0.5 - SIZES["train_length"],))
    return Curves("added to the score for an input of zeros", where, lines, ADDED)


def _left(params: Mapping[str, Any], length: int) -> View:
    """Length of a query after the reflections of random inputs: the root mean square over all directions."""
    w, beta = reference.reflections(np.random.default_rng(0).normal(size=(length, SIZES["dim"])), **params)
    rows, sizes = np.broadcast_to(np.eye(w.shape[-1]), (len(w), *w.shape[-1:] * 2)), []
    for j in reversed(range(length)):
        sizes.append(np.sqrt(np.square(rows).sum(axis=(1, 2)) / w.shape[-1]))
        along = rows @ w[:, j, :, None]
        rows = rows - beta[:, j, None, None] * along * w[:, j, None, :]
    lines = {f"head {head}": own for head, own in enumerate(np.array(sizes[::-1]).T)}
    where = Axis(OFFSET, np.arange(1 - length, 1), (0.5 - SIZES["train_length"],))
    return Curves("length of a query after reflections (random input)", where, lines, "length")


# ---------------------------------------------------------------------------------------------------------------------
# Facts


def _made(gate: Gate) -> str:
    """What the gate computes from a layer's input, in words."""
    if gate.turns:
        return "angles that rotate query and key"
    return "reflections of the query" if gate.reflects else "a gate that lowers the score"


def _facts(entry: Entry, encoding: Encoding, evidence: str) -> Iterator[tuple[str, list[Markup]]]:
    """Yield the name of each fact, and its lines."""
    acts = [Markup("<code>{}</code>, {}").format(slot, SLOTS[slot].acts) for slot in encoding.slots]
    if encoding.gate is not None:
        acts.append(Markup(f"each layer computes {_made(encoding.gate)} from its input"))
    yield "Acts on", acts or [Markup("nothing")]
    yield "Learns parameters", [Markup({"yes": "yes", "optional": "with an option", "no": "no"}[entry.learned])]
    wanted = [catalogue.NEEDS[word] for word in catalogue.needs(entry.key) or ("",)]
    yield "Needs", [Markup("; ".join(each[:1].lower() + each[1:] for each in wanted))]
    yield "Left and right", [Markup(_DIRECTIONS[encoding.direction])]
    yield "Beyond training length", [Markup(f"{entry.beyond}: {_BEYOND[entry.beyond]}")]
    found = Markup(f"{evidence}: {EVIDENCE[evidence]}")
    if entry.reported is not None:
        _, told, source = entry.reported
        found += Markup(". {} ({})").format(prose.inline(told), prose.inline(source))
    yield "Extrapolation evidence", [found]
    if cost := findings.costs().get(entry.key):
        yield "Training step", [Markup(f"{cost:.2f} times the time without an encoding (width 64, 50 positions)")]
    yield "Use", [Markup(USES[entry.use])] if entry.use else []
    yield "Also called", [Markup.escape(", ".join(entry.also_called))] if entry.also_called else []
    yield (
        "Not to be confused with",
        [
            Markup("<strong>{}</strong>: {}").format(name, prose.inline(difference))
            for name, difference in entry.not_to_be_confused.items()
        ],
    )
    yield "Source", [prose.inline(entry.source)] if entry.source else []


def _theory(key: str, causal: bool) -> Theory:
    sizes: dict[str, Any] = dict(SIZES)
    subject = subject_of(key, length=2 * SIZES["train_length"], causal=causal, **sizes)
    found = records(subject)
    return Theory([*key_rows([subject], [found])], [*words.of_symmetry(found)])


def _short(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
