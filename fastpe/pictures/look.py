"""Fill the slots of an encoding beyond the training length, and choose the panels that show them."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base.validation import whole
from fastpe.encodings import build, combined, registry
from fastpe.encodings.encoding import BeyondTrainingLength, Part
from fastpe.encodings.slots import SLOTS, Spec, make_spec
from fastpe.model.encoding import ModelEncoding
from fastpe.model.transformer import Transformer
from fastpe.pictures.panels import Array, View, numbers
from fastpe.pictures.views import MASKED, STEPS, VIEWS
from fastpe.training.config import TrainConfig
from fastpe.training.run_folder import load

_GLUE = "\N{NO-BREAK SPACE}"
_LONGEST = 2**18  # for longer training lengths, the user must give a length to show


@dataclass(frozen=True)
class Look:
    """The slots of an encoding and the panels that show them.

    Attributes
    ----------
    name : str
        The name of the encoding, which may be a sum.
    spec : Spec
        The sizes for which the slots were filled.
    options : dict
        The options that differ from the defaults.
    slots : dict
        The slots that `fastpe.build` returns, in float64.
    views : dict of str to list of Map or Curves
        The panels of each slot.
    remarks : tuple of str
        Sentences about the request, such as a shorter length than wanted.
    notes : tuple of str
        Sentences to print next to a picture.
    beyond : dict of str to str
        What happens past the training length, for each part of a sum.
    parameters : str or None
        The origin of the parameter values, in words; None if the encoding has no parameters.
    seed : int or None
        The seed of the initial values; None if there are no parameters, or if their values are not the initial ones.
    """

    name: str
    spec: Spec
    options: Mapping[str, Any]
    slots: Mapping[str, Any]
    views: Mapping[str, list[View]]
    remarks: tuple[str, ...]
    notes: tuple[str, ...]
    beyond: Mapping[str, str]
    parameters: str | None
    seed: int | None

    def facts(self) -> list[str]:
        """Return the sizes, the options and the plain slots, in words."""
        spec = self.spec
        heads = f"{spec.heads} heads" if spec.heads > 1 else "1 head"
        words = [f"length {spec.length}", f"training length {spec.train_length}", f"width {spec.dim}", heads]
        words += ["causal"] * spec.causal
        words += [f"{key}={_short(value)}" for key, value in self.options.items()]
        words += [f"{slot}: {_short(value)}" for slot, value in self.slots.items() if _is_plain(slot, value)]
        return words + ([] if self.parameters is None else [self.parameters])

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, with the numbers of slots and views, as JSON values; null if a number is not finite."""
        spec = self.spec
        return {
            "schema": 1, "encoding": self.name, "options": dict(self.options), "length": spec.length,
            "train_length": spec.train_length, "dim": spec.dim, "heads": spec.heads, "causal": spec.causal,
            "parameters": self.parameters, "seed": self.seed, "beyond": dict(self.beyond),
            "remarks": [*self.remarks, *self.notes],
            "slots": {slot: numbers(value) for slot, value in self.slots.items()},
            "views": {slot: [view.as_dict() for view in views] for slot, views in self.views.items()},
        }  # fmt: skip


@dataclass(frozen=True)
class _Request:
    """The encoding to fill: its name, its options, the sizes except the length, and its parameters."""

    name: str
    options: Mapping[str, Any]
    sizes: Mapping[str, Any]
    seed: int = 0
    params: Mapping[str, Array] | None = None  # as `fastpe.build` takes them; None: initial values of the seed
    table_factor: float = 1.0

    def filled(self, length: int) -> dict[str, Any]:
        slots = build.build(self.name, length, **self.sizes, seed=self.seed, params=self.params, **self.options)
        if self.table_factor != 1.0:
            slots["table"] *= self.table_factor
        return slots


def look(
    name: str,
    length: int | None = None,
    *,
    dim: int = TrainConfig.width,
    heads: int = TrainConfig.heads,
    train_length: int = TrainConfig.train_length,
    causal: bool | None = None,
    seed: int = TrainConfig.seed,
    theory: bool = False,
    **options: Any,
) -> Look:
    """Fill the slots of an encoding, as in a model before training, and choose the panels that show them.

    Parameters
    ----------
    name : str
        The name of an encoding, or of a sum such as "wavelet+alibi".
    length : int, optional
        Number of positions to show. The default is twice the training length (four times with `theory`), or the
        training length if the encoding is undefined beyond it.
    causal : bool, optional
        Whether the model is causal. By default, it is causal if an encoding of the sum needs a causal model, as for
        `TrainConfig.causal_where_needed`.
    theory : bool
        Whether to show the curves of `fastpe.theory` instead of the slots.
    dim, heads, train_length, seed, **options
        The same as for `fastpe.build`.

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `fastpe.build`, or if `fastpe.theory` has no curve for the encoding.
    """
    name = registry.resolve(name)
    parts = registry.parse(name, options, ("length", "dim", "heads", "train_length", "causal", "seed", "theory"))
    if causal is None:
        made_for_it = any(part.encoding.direction == "causal" for part in parts)
        config = TrainConfig(name, options, width=dim, heads=heads, train_length=train_length) if made_for_it else None
        causal = config is not None and config.causal_where_needed().causal
    sizes: dict[str, Any] = {
        "dim": dim,
        "heads": heads,
        "train_length": train_length,
        "causal": causal,
        "dtype": "float64",
    }
    return _look(_Request(name, options, sizes, seed), length, theory, f"initial values of seed {seed}", seed)


def look_at(
    model: Transformer, length: int | None = None, *, layer: int = 0, theory: bool = False, where: str = "the model"
) -> Look:
    """Fill the slots of a model's encoding with its current parameters, and choose the panels that show them.

    Parameters
    ----------
    model : Transformer
    length, theory
        The same as for `look`.
    layer : int
        The layer whose parameters are used, if layers have separate parameters.
    where : str
        The origin of the model, in words.

    Raises
    ------
    ValueError, TypeError
        If there is no such layer, or the encoding is undefined at this length.

    Examples
    --------
    >>> import fastpe
    >>> found = look_at(fastpe.Transformer(fastpe.ModelConfig("kerple_log", train_length=8)))
    >>> found.spec.length, found.parameters
    (16, 'parameters of the model')
    """
    config = model.config
    layer = whole("layer", layer, 0)
    if layer >= config.layers:
        raise ValueError(f"layer must be below {config.layers}, the number of layers, not {layer}")
    every_layer = registry.parse_layers(config.encoding, config.options)
    parts = every_layer[layer % len(every_layer)]
    params = dict[str, Array]()
    for part in parts:
        for prefix in (f"encoding.{part.scheme}.", f"layers.{layer}.encoding.{part.scheme}."):
            own = {name: value for name, value in model.parameters.items() if name.startswith(prefix)}
            params |= {combined.key(parts, part, name.removeprefix(prefix)): value for name, value in own.items()}
    several = any(name.startswith(f"layers.{layer}.encoding.") for name in model.parameters)
    which = f", layer {layer} of 0 .. {config.layers - 1}" if several else ""
    sizes: dict[str, Any] = {
        "dim": config.heads * config.head_width, "heads": config.heads, "train_length": config.made_for,
        "causal": config.causal, "start": config.start, "dtype": "float64",
    }  # fmt: skip
    request = _Request(config.encoding, config.options, sizes, 0, params, ModelEncoding(config).table_factor)
    return _look(request, length, theory, f"parameters of {where}{which}")


def look_at_path(path: str | Path, length: int | None = None, *, layer: int = 0, theory: bool = False) -> Look:
    """The same as `look_at`, for the model in a run folder or a file; raises the errors of `fastpe.load` as well."""
    where = f"the run {path}" if Path(path).is_dir() else f"the file {path}"
    return look_at(load(path), length, layer=layer, theory=theory, where=where)


def _look(request: _Request, length: int | None, theory: bool, parameters: str, seed: int | None = None) -> Look:
    parts = registry.parse(request.name, request.options)
    train_length: int = request.sizes["train_length"]
    if length is None and train_length > _LONGEST:
        raise ValueError(f"length is missing: train_length={train_length} needs a length to show, such as length=1000")
    remarks: tuple[str, ...] = ()
    try:
        wanted = (4 if theory else 2) * train_length if length is None else length
        slots = request.filled(wanted)
    except BeyondTrainingLength as error:
        if length is not None:
            raise
        wanted = train_length
        slots = request.filled(wanted)
        remarks = (f"shown up to the training length: {error}",)
    spec = make_spec(wanted, **request.sizes, axes=combined.axes(parts, given=False))
    if theory:
        from fastpe.pictures.theory_views import theory_views  # imported here because it is slow to load

        views = theory_views(parts, spec, slots, request.filled)
    else:
        views = _views(parts, spec, request, slots)
    learns = bool(combined.parameter_shapes(parts, spec))
    return Look(
        name=request.name,
        spec=spec,
        options={key: value for key, value in request.options.items() if not _is_default(parts, key, value)},
        slots=slots,
        views=views,
        remarks=remarks + combined.remarks(parts, spec),
        notes=_notes(parts, spec, slots, views),
        beyond={part.scheme: part.encoding.beyond for part in parts},
        parameters=parameters if learns else None,
        seed=seed if learns else None,
    )


def _views(parts: tuple[Part, ...], spec: Spec, request: _Request, slots: Mapping[str, Any]) -> dict[str, list[View]]:
    """Return the panels of every slot."""
    with np.errstate(over="ignore", invalid="ignore"):  # products of large tables may overflow: shown as missing values
        seen = {**slots, STEPS: _steps(parts, spec, request, slots.get("angles"))}
        return {slot: views for slot in SLOTS if slot in slots and (views := VIEWS[slot](slot, spec, seen))}


def joined(name: str, facts: Sequence[str], width: int) -> list[str]:
    """Return the name and the facts, separated by commas, in as few lines as the width allows.

    The lines are about equally long. A line breaks inside a fact only if the fact is wider than a line.
    """
    glued = [fact if len(fact) + len(name) >= width else fact.replace(" ", _GLUE) for fact in facts]
    text = name.replace(" ", _GLUE) + ", ".join(glued)
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    while len(lines) > 1 and max(map(len, glued)) < (width := width - 1):
        narrower = textwrap.wrap(text, width, break_on_hyphens=False)
        if len(narrower) > len(lines):
            break
        lines = narrower
    return [line.replace(_GLUE, " ") for line in lines]


def heading(slot: str) -> str:
    """Return the name of a slot and what the slot does, as a heading."""
    if slot == "index":
        return "index and values: added to the score"
    return f"{slot}: {SLOTS[slot].acts.split(';')[0].split(': ')[-1]}"


def _notes(
    parts: tuple[Part, ...], spec: Spec, slots: Mapping[str, Any], views: Mapping[str, list[View]]
) -> tuple[str, ...]:
    """Return notes on slots that are left out, and on parameters that still have their initial values."""
    notes = []
    if any(view.masked for shown in views.values() for view in shown):
        notes.append(f"left out: pairs that are never attended (scores {MASKED:,.0f} below others)")
    learners = [part for part in parts if part.encoding.parameters(spec, **part.options)]
    learned = {slot for part in learners for slot in combined.shapes_of(part, spec)} - {"index"}
    equal = [slot for slot in SLOTS if slot in learned & set(slots) and not np.ptp(slots[slot])]
    return (*notes, *(f"{slot}: all values are equal, because nothing has been learned yet" for slot in equal))


def _steps(parts: tuple[Part, ...], spec: Spec, request: _Request, angles: Array | None) -> Array | None:
    """Return the angles that `views.STEPS` describes, or None if positions have only one coordinate."""
    rotating = tuple(part for part in parts if "angles" in combined.shapes_of(part, spec))
    counts = {part.encoding.axes(**part.options) for part in rotating}
    if angles is None or counts == {1}:
        return None
    if len(counts) > 1:
        return np.empty((0, 1, angles.shape[-1]))
    name = "+".join(part.scheme for part in rotating)
    options = {f"{part.scheme}.{key}": value for part in rotating for key, value in part.options.items()}
    params = None if request.params is None else _of(rotating, parts, spec, request.params)
    known: dict[str, Any] = {**request.sizes, "seed": request.seed, "params": params}

    def angles_at(points: Array) -> Array:
        built = build.build(name, len(points), **known, positions=points, **options)["angles"]
        return np.broadcast_to(built, (len(angles), *built.shape[1:]))

    axes = counts.pop()
    line = angles_at(np.repeat(np.arange(spec.length)[:, None], axes, axis=1))
    if np.allclose(np.exp(1j * line), np.exp(1j * angles), rtol=0, atol=1e-9):
        return None
    return angles_at(np.concatenate([np.zeros((1, axes)), np.eye(axes)]))


def _of(some: tuple[Part, ...], parts: tuple[Part, ...], spec: Spec, params: Mapping[str, Array]) -> dict[str, Array]:
    """Return the parameters of some parts of a sum, with the names that they have in a sum of these parts only."""
    return {
        combined.key(some, part, name): params[combined.key(parts, part, name)]
        for part in some
        for name in part.encoding.parameters(spec, **part.options)
    }


def _is_default(parts: tuple[Part, ...], key: str, value: Any) -> bool:
    scheme, _, option = key.rpartition(".")
    part = next(part for part in parts if part.scheme == scheme or not scheme)
    default = part.encoding.options[option].default
    return type(value) is type(default) and value == default


def _is_plain(slot: str, value: Any) -> bool:
    return not SLOTS[slot].dtype or not isinstance(value, np.ndarray)


def _short(value: Any) -> str:
    """Return a value as short text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, np.ndarray | tuple | list):
        return ",".join(_short(each) for each in np.asarray(value).tolist())
    return str(value).lower() if isinstance(value, bool) else str(value)
