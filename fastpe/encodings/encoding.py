"""What one file of an encoding defines: `Encoding`, the record of it, which its module completes; one term of a sum.

Whatever its paper says, an encoding only fills a few small arrays, its *slots*, and each slot acts at one known place
of a transformer (`fastpe.encodings.slots.SLOTS`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from fastpe.base import own
from fastpe.base.option import Option
from fastpe.base.validation import named_arguments

BEYOND = ("defined", "clipped", "resized", "undefined")
DIRECTIONS = ("yes", "no", "causal", "unknown")
OUTCOMES = ("holds", "partly", "fails", "tuned")
NEEDED = ("digits", "coordinates", "graph")
USES: Mapping[str, str] = {
    "current": "Language models of today",
    "earlier": "Language models before",
    "proposed": "Proposed for language models",
    "arithmetic": "Arithmetic",
    "images": "Images and video",
    "other": "Graphs, space, sound and time",
    "study": "Formulas to study",
}
"""Whom an encoding is for, in a word -> as the title of a list. "current": models that people use have it; "earlier":
known models had it; "proposed": a paper has it, and no known model; "study": papers about formulas, this library."""

SUMMARY = 50  # characters that a list has room for
_OWN = "own construction"
_YEAR = re.compile(r"(?<![\d.:/])(?:19|20)\d\d(?![\d.]\d)")  # no number of arXiv


class BeyondTrainingLength(ValueError):
    """The encoding is undefined at this length or position; the message says why.

    Examples
    --------
    >>> from fastpe import build
    >>> try:
    ...     build("learned", 5, train_length=4)
    ... except BeyondTrainingLength as error:
    ...     print(str(error).partition(":")[0])
    'learned' has no row for position 4
    """


class Reported(NamedTuple):
    """What others measured on sequences longer than those of training.

    Parameters
    ----------
    outcome : {"holds", "partly", "fails", "tuned"}
        "holds": well past the training length, as trained; "partly": for a while, or in some reports; "tuned": after
        interpolation or further training.
    evidence : str
        What was measured, in a sentence.
    source : str
        Where.

    Examples
    --------
    >>> Reported("holds", "Perplexity is no higher at three times the length.", "Somebody 2024, table 1").outcome
    'holds'
    """

    outcome: str
    evidence: str
    source: str


class Needs(NamedTuple):
    """What an encoding needs and a plain sequence of tokens does not have.

    `fastpe.train` and `fastpe.compare` give an encoding what it needs by default, or refuse it where there is no
    default and the run's settings do not give it. `fastpe.build` always fills the slots.

    Parameters
    ----------
    what : {"digits", "coordinates", "graph"}
        "digits": each token's place within a number; a run gives it by the setting ``positions="digits:K"``.
        "coordinates": positions of several coordinates; a run gives them by the encoding's option ``grid``.
        "graph": a graph; a run gives it by the encoding's option ``edges``.
    default : str
        What a run takes if its settings give nothing. Of "digits" the value of `positions`, such as ``"digits:99"``; of
        the others a description of what the encoding makes of a sequence. "": a run is refused.

    Examples
    --------
    >>> Needs("graph", "the graph is the path from the first token to the last").what
    'graph'
    """

    what: str
    default: str = ""


class Gate(NamedTuple):
    """What a layer makes of its input: offsets of keys, see `fastpe.reference.gate`; slopes, of its queries and keys,
    see `fastpe.columns.gated_slopes`; or angles, see `fastpe.angles.selective`; or reflections, see
    `fastpe.reference.reflections`.

    The encoding's parameters are those of the gate: ``bias`` (H,), and ``weight`` (H, C) and ``rate`` (H,) where it has
    them; of slopes ``weight`` (H,), and ``key`` (H, D), ``query`` (H, D) or both, the directions; of angles ``down``
    (C, rank), ``up`` (rank, C/2) and ``taps`` (4, C/2); of reflections ``down`` (C, rank), ``up`` (rank, C), ``taps``
    (3, C), ``weight`` (H, C) and ``bias`` (H,).

    Parameters
    ----------
    sign : {-1, 1, 0}
        Of what is mapped by softplus: -1 of a gate that keeps, 1 of one that forgets; 0 of all others.
    slopes : callable, optional
        Number of heads -> what their slopes are multiples of.
    frequencies : callable, optional
        (D, **options) -> what a step of 1 turns each pair of channels by.
    reflects : bool
        Whether it makes reflections.

    Examples
    --------
    >>> Gate(-1).sign
    -1
    """

    sign: int
    slopes: Callable[[int], Any] | None = None
    frequencies: Callable[..., Any] | None = None
    reflects: bool = False

    @property
    def kind(self) -> str:
        """What it does: "adds" to scores, "turns" or "reflects"; a layer has one of a kind at most."""
        return "reflects" if self.reflects else "turns" if self.turns else "adds"

    @property
    def turns(self) -> bool:
        """Whether it makes angles."""
        return self.frequencies is not None


@named_arguments
@dataclass(frozen=True)
class Encoding:
    """A position encoding, as its own file defines it.

    The file's docstring is its page. The functions below are those that the file defines under these names: they need
    not be given here.

    Parameters
    ----------
    slots : tuple of str
        The slots that it may fill.
    summary : str
        What it is, for a list: at most 50 characters, no full stop.
    options : dict of str to Option
        Its options; the defaults are its authors'.
    beyond : {"defined", "clipped", "resized", "undefined"}
        What the formula does past the training length.
    direction : {"yes", "no", "causal", "unknown"}
        Whether a model without a causal mask can tell left from right by it; "no": equal for both sides, only with a
        causal mask; "causal": made for causal models alone.
    source : str
        Where it was published: authors and year first, so that `year_of` finds it.
    use : str
        Whom it is for, one of `USES`; "" where that is not said.
    reported : Reported, optional
        What was measured on longer sequences; None where nothing was found.
    needs : Needs, optional
        What it needs and a plain sequence of tokens does not have: places of digits, several coordinates, a graph.
    ulp : float or callable
        Error of a float64 fill in units of `eps * max|slot|`: a number, or a function (spec, **options) that returns
        one or an array that broadcasts against the slot; see `fastpe.doctor.allowed_error.fill_bound`.
    per_layer : tuple of str
        The parameters of which every layer has its own.
    paper : dict
        Options that Li (2025) names, which the preset `TrainConfig.paper` takes.
    tested : dict
        Options that a run takes where none are given, because it tests beyond the training length, where the defaults
        refuse.
    gate : Gate, optional
        What the model's layers make of their input by the encoding's parameters, in place of a slot.
    reference : callable
        (spec, params, **options) -> {slot: float64 array}: the printed formula in NumPy.
    fill : callable, optional
        (spec, params, out, **options) writes arrays of any strides; its loops are compiled. Without it the reference
        serves.
    pull : callable, optional
        (spec, params, dslots, dparams, **options) adds the parameters' gradients into dparams. What is learned cannot
        be trained without it.
    init : callable
        (spec, rng, **options) -> {parameter: float64 array}: the authors' initial values.
    parameters : callable
        (spec, **options) -> {parameter: shape}; empty where nothing is learned.
    shapes : callable
        (spec, **options) -> {slot: shape}, where they are not the usual ones or depend on the options.
    plain : callable
        (spec, **options) -> {slot: value} of the slots that are no arrays: "scale", "pairs", "rectify".
    axes : callable
        (**options) -> how many coordinates a position has, where they are given.
    moves : callable
        (**options) -> whether, past the training length, a longer sequence changes what earlier positions get (of a
        grid, its cells), so that keys cached before do not fit.
    column : callable
        (spec, **options) -> what each head's scores in a causal model gain with every position that a key is further
        on, a tuple; or None where there is more to it. By it an encoding acts on positions that tokens decide.
    check : callable
        (spec, **options) raises what is wrong with a request before any work.
    remarks : callable
        (spec, **options) -> sentences that a user should read about this request.
    resize : callable, optional
        (params, *, sizes by name) -> {parameter: array}: what was learned, for another length, grid or window.
    file : str
        Of an encoding of one's own, the name of the file that defines it: `fastpe.register` sets it.

    Examples
    --------
    >>> Encoding(slots=("bias",), summary="a constant for each head").beyond
    'defined'
    """

    slots: tuple[str, ...]
    summary: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)
    beyond: str = "defined"
    direction: str = "unknown"
    source: str = ""
    use: str = ""
    reported: Reported | None = None
    needs: Needs | None = None
    ulp: float | Callable[..., Any] = 1.0
    per_layer: tuple[str, ...] = ()
    paper: Mapping[str, Any] = field(default_factory=dict)
    tested: Mapping[str, Any] = field(default_factory=dict)
    gate: Gate | None = None
    reference: Callable[..., dict[str, Any]] = None  # type: ignore[assignment] # the module's, see `of_module`
    fill: Callable[..., None] | None = None
    pull: Callable[..., None] | None = None
    init: Callable[..., dict[str, Any]] = lambda spec, rng, **options: {}
    parameters: Callable[..., dict[str, tuple[int, ...]]] = lambda spec, **options: {}
    shapes: Callable[..., dict[str, tuple[int, ...]]] | None = None
    plain: Callable[..., dict[str, Any]] = lambda spec, **options: {}
    axes: Callable[..., int] = lambda **options: 1
    moves: Callable[..., bool] = lambda **options: False
    column: Callable[..., tuple[float, ...] | None] = lambda spec, **options: None
    check: Callable[..., None] = lambda spec, **options: None
    remarks: Callable[..., tuple[str, ...]] = lambda spec, **options: ()
    resize: Callable[..., dict[str, Any]] | None = None
    file: str = ""


FUNCTIONS = (
    "reference", "fill", "pull", "init", "parameters", "shapes", "plain", "axes", "moves", "check", "remarks",
    "resize",
)  # fmt: skip
"""The fields of `Encoding` for which a module's functions of the same names are taken."""


@cache
def of_module(module: ModuleType) -> Encoding:
    """A module's `ENCODING`, completed by the functions that the module defines; what `ENCODING` itself gives stays."""
    encoding: Encoding = own.of_module(module, "ENCODING", FUNCTIONS)
    return encoding


def year_of(source: str) -> int | None:
    """The year that a source names first; None where it names none, or is an own construction, after whomever.

    >>> year_of("Su 2023, kexue.fm/archives/9706"), year_of("arXiv:2009.13658, 2020"), year_of("own construction")
    (2023, 2020, None)
    """
    found = None if _OWN in source else _YEAR.search(source)
    return None if found is None else int(found[0])


class Part(NamedTuple):
    """One term of a sum of encodings: its key, the encoding, and all its options, validated."""

    scheme: str
    encoding: Encoding
    options: dict[str, Any]
