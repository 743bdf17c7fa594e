"""`Encoding`, the record that the file of an encoding defines, and `Part`, one term of a sum of encodings.

An encoding fills a few small arrays, its *slots*. Each slot is used at one fixed point of a transformer
(`fastpe.encodings.slots.SLOTS`).
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
    "current": "Current language models",
    "earlier": "Earlier language models",
    "proposed": "Proposed for language models",
    "arithmetic": "Arithmetic",
    "images": "Images and video",
    "other": "Graphs, space, sound and time",
    "study": "Formulas to study",
}
"""The field of use of an encoding -> its title in lists. "current": used in current models; "earlier": used in earlier
well-known models; "proposed": proposed in a paper, not used in a well-known model; "study": from papers about formulas,
or from this library."""

SUMMARY = 50  # largest number of characters of a summary, so that it fits in a list
USE_WHEN = 110  # largest number of characters of `use_when`
_OWN = "own construction"
_YEAR = re.compile(r"(?<![\d.:/])(?:19|20)\d\d(?![\d.]\d)")  # a year that is not part of an arXiv number


class BeyondTrainingLength(ValueError):
    """Raised if an encoding is undefined at the requested length or position; the message says why.

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
    """A published result on sequences that are longer than in training.

    Parameters
    ----------
    outcome : {"holds", "partly", "fails", "tuned"}
        Whether models with this encoding keep their quality past the training length. "holds": they do, without
        further training; "partly": they do up to some length, or in some reports; "fails": they do not; "tuned": they
        do after interpolation or further training.
    evidence : str
        A sentence that states the result.
    source : str
        The publication.

    Examples
    --------
    >>> Reported("holds", "Perplexity is no higher at three times the length.", "Somebody 2024, table 1").outcome
    'holds'
    """

    outcome: str
    evidence: str
    source: str


class Needs(NamedTuple):
    """What an encoding needs in addition to a plain sequence of tokens.

    If the settings of a run do not provide this, `fastpe.train` and `fastpe.compare` use the default. If there is no
    default, they raise an error. `fastpe.build` does not check what an encoding needs.

    Parameters
    ----------
    what : {"digits", "coordinates", "graph"}
        "digits": the position of each token within a number, set by ``positions="digits:K"``. "coordinates": positions
        with several coordinates, set by the encoding's option ``grid``. "graph": a graph, set by the encoding's option
        ``edges``.
    default : str
        What a run uses by default. For "digits", this is the value of `positions`, such as ``"digits:99"``. Otherwise
        it is a description of how the encoding treats a plain sequence. "" means that there is no default.

    Examples
    --------
    >>> Needs("graph", "the graph is the path from the first token to the last").what
    'graph'
    """

    what: str
    default: str = ""


class Gate(NamedTuple):
    """What a layer computes from its input in place of a slot: offsets of keys, slopes, angles or reflections.

    The parameters of the encoding are those of the gate:

    - offsets of keys (`fastpe.reference.gate`): ``bias`` (H,), and optionally ``weight`` (H, C) and ``rate`` (H,);
    - slopes, from queries and keys (`fastpe.columns.gated_slopes`): ``weight`` (H,), and the directions ``key`` (H, D),
      ``query`` (H, D) or both;
    - angles (`fastpe.angles.selective`): ``down`` (C, rank), ``up`` (rank, C/2) and ``taps`` (4, C/2);
    - reflections (`fastpe.reference.reflections`): ``down`` (C, rank), ``up`` (rank, C), ``taps`` (3, C), ``weight``
      (H, C) and ``bias`` (H,).

    Parameters
    ----------
    sign : {-1, 1, 0}
        For offsets of keys, the sign in softplus(sign * z), where z is ``weight`` times the input plus ``bias``. With
        -1, a large z keeps earlier keys; with 1, a large z forgets them. For slopes, angles and reflections, 0.
    slopes : callable, optional
        Number of heads -> (H,), the fixed factor of each head's slopes.
    frequencies : callable, optional
        ``(D, **options)`` -> (D/2,), the angle of each pair of channels for a step of 1.
    reflects : bool
        Whether the gate computes reflections.

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
        """What the gate does: it "adds" to scores, "turns" queries and keys, or "reflects" queries.

        A layer has at most one gate of each kind.
        """
        return "reflects" if self.reflects else "turns" if self.turns else "adds"

    @property
    def turns(self) -> bool:
        """Whether the gate computes angles."""
        return self.frequencies is not None


@named_arguments
@dataclass(frozen=True)
class Encoding:
    """A position encoding, as defined by its file.

    The docstring of the file is the page of the encoding. If the file has functions with the names of the callables
    below, such as `reference` and `fill`, they are used, and you need not pass them. Only `column` must be passed.

    Parameters
    ----------
    slots : tuple of str
        The slots that the encoding may fill.
    summary : str
        A description for lists: at most 50 characters, no full stop.
    options : dict of str to Option
        The encoding's options, with the authors' defaults.
    beyond : {"defined", "clipped", "resized", "undefined"}
        What the formula does past the training length. "clipped": far offsets share one value; "resized": learned
        values are resampled.
    direction : {"yes", "no", "causal", "unknown"}
        Whether a model without a causal mask can distinguish left from right with this encoding. "no": it treats both
        sides alike; "causal": it is for causal models only.
    source : str
        The publication. Authors and year come first, because lists show the first year.
    use : str
        The use case of the encoding, one of the keys of `USES`, or "" for none.
    reported : Reported, optional
        Published results on longer sequences; None if none were found.
    needs : Needs, optional
        What the encoding needs in addition to a plain sequence of tokens: positions of digits, several coordinates, or
        a graph.
    ulp : float or callable
        Bound on the error of the slots in float64, in units of `eps * max|slot|`. It is a number, or a function
        ``(spec, **options)`` whose result is a number or broadcasts against the slot. See
        `fastpe.doctor.allowed_error.fill_bound`.
    per_layer : tuple of str
        Names of the parameters that every layer has separately.
    paper : dict
        Values of options in the paper Li (2025). `TrainConfig.paper` uses them.
    tested : dict
        Values of options that replace the defaults in a training run. They are needed if the defaults raise an error
        for sequences longer than in training, because a run also tests such sequences.
    gate : Gate, optional
        Describes slopes, angles or other values that each layer computes from its input, with the encoding's
        parameters. These values take the place of a slot.
    reference : callable
        ``(spec, params, **options)`` -> {slot: float64 array}. This is the formula of the page in NumPy.
    fill : callable, optional
        ``(spec, params, out, **options)`` computes the slots and writes them to the arrays of the dict `out`. These
        arrays may have any strides. Functions for this are usually compiled loops. By default, the results of
        `reference` are copied.
    pull : callable, optional
        ``(spec, params, dslots, dparams, **options)`` computes the gradients of the parameters from the gradients
        `dslots` of the slots, and adds them to the arrays of the dict `dparams`. Required if parameters are trained.
    init : callable
        ``(spec, rng, **options)`` -> {parameter: float64 array}. These are the authors' initial values.
    parameters : callable
        ``(spec, **options)`` -> {parameter: shape}. The dict is empty if nothing is learned.
    shapes : callable
        ``(spec, **options)`` -> {slot: shape}. Needed if shapes are not the usual ones or depend on the options.
    plain : callable
        ``(spec, **options)`` -> {slot: value} for the slots that are not arrays: "scale", "pairs", "rectify".
    axes : callable
        ``(**options)`` -> the number of coordinates of a position.
    moves : callable
        ``(**options)`` -> bool. True means: if a sequence is longer than in training and grows further, the slots of
        its earlier positions (or of the cells of its grid) change. Cached keys then become invalid.
    column : callable
        ``(spec, **options)`` -> a tuple with one slope for each head, or None. Return slopes only if a causal model
        with this encoding depends on positions in a single way: the scores of a head grow by its slope with each
        position of the key, as for ALiBi. A causal model with such an encoding can have ``positions="segments:SEP"``.
    check : callable
        ``(spec, **options)`` raises an error if these sizes or options are invalid. It is called before any
        computation.
    remarks : callable
        ``(spec, **options)`` -> a tuple of sentences about these sizes and options, which are shown to the user.
    resize : callable, optional
        ``(params, **sizes)`` -> {parameter: array}. It converts learned parameters to another length, grid or window.
    formula : str
        The formula of the page in LaTeX: one line, or lines separated by ``\\\\`` and aligned at ``&``.
    use_when : str
        Completes the sentence "Use it when ...": at most 110 characters, no full stop.
    also_called : tuple of str
        Other names in papers and code. Error messages for an unknown name use them.
    not_to_be_confused : dict of str to str
        Similar names and similar encodings -> what distinguishes them. Keys of fastpe are in lower case; other names
        begin with a capital letter or contain spaces.
    file : str
        For an encoding of your own, the name of the file that defines it; set by `fastpe.register`.

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
    reference: Callable[..., dict[str, Any]] = None  # type: ignore[assignment] # taken from the module, see `of_module`
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
    formula: str = ""
    use_when: str = ""
    also_called: tuple[str, ...] = ()
    not_to_be_confused: Mapping[str, str] = field(default_factory=dict)
    file: str = ""


FUNCTIONS = (
    "reference", "fill", "pull", "init", "parameters", "shapes", "plain", "axes", "moves", "check", "remarks",
    "resize",
)  # fmt: skip
"""The fields of `Encoding` that are taken from functions of the same names in the module."""


@cache
def of_module(module: ModuleType) -> Encoding:
    """A module's `ENCODING`, completed by functions of the module for fields that `ENCODING` does not set."""
    encoding: Encoding = own.of_module(module, "ENCODING", FUNCTIONS)
    return encoding


def year_of(source: str) -> int | None:
    """Return the first year in a source; None if it has no year or contains the words "own construction".

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
