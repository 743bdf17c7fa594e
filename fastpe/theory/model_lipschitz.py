"""Certified Lipschitz constants of a model or run, from the norms of its weights, biases and slots."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base.validation import at_least_zero, whole
from fastpe.encodings.slots import neutral
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.transformer import Transformer
from fastpe.theory.layers import FeedForward, Head, Layer, Norm
from fastpe.theory.lipschitz import Bounds, stack_bounds
from fastpe.theory.value import Value, certified, exact
from fastpe.training.run_folder import load

Array = np.ndarray[Any, Any]
Slots = Mapping[str, Any]
Get = Callable[[str], Array]

_MIXING = {"rotors", "polar", "angles", "growth", "rel_gain"}  # slots that act between the maps of query and key
_UNEVEN = _MIXING | {"gain"}  # slots with which a constant term of a score differs between keys


@dataclass(frozen=True)
class ModelBounds:
    """Certified constants of a model, from the norms of its weights.

    Attributes
    ----------
    stack : Bounds
        The constants of the layers.
    enter : Value or None
        The constant from the input numbers to the vectors that enter the first layer. None if the model's inputs are
        token ids.
    leave : Value
        The constant from the vectors that leave the last layer to the outputs, through the final norm and the head.
    whole : Value
        The product of all constants: from the input numbers, or from the embedded token ids, to the outputs.
    """

    stack: Bounds
    enter: Value | None
    leave: Value
    whole: Value


def model_bounds(
    model_or_run: Transformer | str | Path, length: int, *, largest_input: float = 1.0, colmax: float | None = None
) -> ModelBounds:
    """Return Lipschitz constants of a model at a length, from its spectral norms, biases and slots (Q6).

    Parameters
    ----------
    model_or_run : Transformer, str or pathlib.Path
        A model, a run folder, or a file that `Transformer.save` wrote.
    length : int
        Number of tokens.
    largest_input : float
        B_x, the largest absolute value of the input numbers. It is not used if the model's inputs are token ids.
    colmax : float, optional
        The same as for `stack_bounds`. If it is given, the constants are those of the Frobenius norm.

    Returns
    -------
    ModelBounds

    Raises
    ------
    ValueError, TypeError, OSError
        If an argument is out of range, the model cannot be read, or the model draws its positions at random.

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> bounds = model_bounds(Transformer(ModelConfig("alibi", width=8, hidden=8, layers=1)), 50)
    >>> bounds.whole.high == bounds.enter.high * bounds.stack.product.high * bounds.leave.high
    True
    """
    model, length = opened(model_or_run), whole("length", length, 1)
    largest_input = at_least_zero("largest_input", largest_input)
    weights, slots = weights_of(model), slots_of(model, length)[0]
    taps = 1.0 + float(np.abs(slots["taps"]).max(axis=1).sum()) if "taps" in slots else 1.0
    rows, enter = weights["embed.weight"], None
    largest = float(np.linalg.norm(rows, axis=1).max())
    if model.config.vocabulary is None:
        enter = certified("|embed| (1 + sum of the largest absolute taps), P5", high=taps * largest)
        largest = largest * largest_input + float(np.linalg.norm(weights.get("embed.bias", 0.0)))
    table = float(np.linalg.norm(slots["table"], axis=-1).max()) if "table" in slots else 0.0
    stack = stack_bounds(
        layers_of(model, length), taps * largest + table, colmax=colmax, length=None if colmax is None else length
    )
    head = spectral_norm(weights["embed.weight" if model.config.tied else "head.weight"])
    final = norm_of(weights, "final_norm").slope() if model.config.final_norm else 1.0
    leave = certified("spectral norm of the head, times the slope of the final norm if there is one", high=head * final)
    known = [each.value for each in (enter, stack.product, leave) if each is not None]
    whole_model = certified(
        "product of the constants of input, layers and head, P5", high=math.prod(known), length=length, norm=stack.norm
    )
    return ModelBounds(stack, enter, leave, whole_model)


def opened(model_or_run: Transformer | str | Path) -> Transformer:
    """Return the model, read from a run folder or file if necessary. The model's positions must be 0, 1, ..."""
    model = model_or_run if isinstance(model_or_run, Transformer) else load(model_or_run)
    if model.config.positions != "usual":
        raise ValueError(
            f"model must have positions='usual', not {model.config.positions!r}: a bound would hold only for one draw"
        )
    return model


def weights_of(model: Transformer) -> dict[str, Array]:
    """Return copies of all parameters in float64, by name."""
    return {name: each.astype(np.float64) for name, each in model.copies().items()}


def slots_of(model: Transformer, length: int) -> list[dict[str, Any]]:
    """Return the slots of each layer at this length, in float64, and the ``gate`` of the layer.

    Slots that change nothing in a layer are left out.
    """
    twin = ModelEncoding(replace(model.config, dtype="float64"))
    filled = twin.slots(whole("length", length, 1), weights_of(model))
    own = [
        {slot: each[layer] if slot in twin.layered or (slot == "scale" and np.ndim(each) == 2) else each
         for slot, each in filled.items()}
        for layer in range(model.config.layers)
    ]  # fmt: skip
    gated = [{} if gate is None else {"gate": gate} for gate in twin.gates]
    return [
        {slot: each for slot, each in slots.items() if not _neutral(slot, each)} | gate
        for slots, gate in zip(own, gated, strict=True)
    ]


def _neutral(slot: str, array: Any) -> bool:
    """Return whether a slot has no effect. This is so if a pattern uses the slot only in other layers."""
    if not isinstance(array, np.ndarray) or slot in ("scale", "index", "values", "polar"):
        return False
    return bool((array == neutral(slot, array.shape, array.dtype)).all())


def spectral_norm(matrix: Array) -> float:
    """Return the largest singular value, from the Gram matrix of the smaller side.

    Parameters
    ----------
    matrix : (n, m) float64

    Examples
    --------
    >>> spectral_norm(np.array([[3.0, 0.0], [4.0, 0.0]]))
    5.0
    """
    from scipy.linalg import eigvalsh

    small = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    scale = float(np.abs(small).max(initial=0.0))
    if scale == 0.0:
        return 0.0
    small = small / scale
    last = len(small) - 1
    return scale * math.sqrt(float(eigvalsh(small @ small.T, subset_by_index=(last, last))[0]))


def spectral_norms(model_or_run: Transformer | str | Path) -> dict[str, Value]:
    """Return the spectral norms of all matrices of a model, by the names of its parameters.

    Parameters
    ----------
    model_or_run : Transformer, str or pathlib.Path
        A model, a run folder, or a file that `Transformer.save` wrote.

    Returns
    -------
    dict of str to Value

    Examples
    --------
    >>> norms = spectral_norms(Transformer(ModelConfig("sinusoidal")))
    >>> round(norms["layers.0.feedforward.in.weight"].value, 6)
    1.400357
    """
    weights = weights_of(opened(model_or_run))
    matrices = {name: each for name, each in weights.items() if each.ndim == 2 and ".encoding." not in f".{name}"}
    return {name: exact(spectral_norm(each), "largest singular value") for name, each in matrices.items()}


def layers_of(model_or_run: Transformer | str | Path, length: int) -> tuple[Layer, ...]:
    """Return the norms of the layers of a model with its slots at this length, as `stack_bounds` takes them (proof P5).

    Biases of scores, input tables and rotations do not increase the norms. Vectors of offsets, gains and growth do. So
    do biases of the query map, because scores contain their product with the keys.

    Parameters
    ----------
    model_or_run : Transformer, str or pathlib.Path
    length : int
        Number of tokens.

    Returns
    -------
    tuple of Layer

    Raises
    ------
    ValueError
        If the encoding cannot have this length, or the model draws its positions at random. The same error is raised if
        no bound is known, because the model has optional parts (`ModelConfig.optional_parts`), a gate computes scores
        from the input of a layer, queries count keys by gates, or a network corrects scores.

    Examples
    --------
    >>> layer, _ = layers_of(Transformer(ModelConfig("alibi", width=16, heads=2)), 50)
    >>> len(layer.heads), layer.heads[0].query
    (2, 0.0)
    """
    model = opened(model_or_run)
    if model.config.optional_parts:
        raise ValueError(f"model must not have {', '.join(model.config.optional_parts)}, for which no bound is known")
    weights, slots = weights_of(model), slots_of(model, length)
    if any({"gate", "counts", "mlp_in"} & own.keys() for own in slots):
        raise ValueError(
            f"model must have no gates and no networks over scores, for which no bound is known, but its encoding is "
            f"{model.config.encoding!r}"
        )
    return tuple(_layer(model.config, weights, slots[number], number) for number in range(model.config.layers))


def _layer(config: ModelConfig, weights: Mapping[str, Array], slots: Slots, number: int) -> Layer:
    def get(name: str) -> Array:
        return weights.get(f"layers.{number}.{name}", np.zeros(1))

    heads = tuple(_head(config, get, slots, head) for head in range(config.heads))
    out, widen, narrow, gate = "attention.out", "feedforward.in", "feedforward.out", "feedforward.gate"
    added = get("attention.value.bias") @ get(f"{out}.weight") if config.bias else 0.0
    feedforward = FeedForward(
        spectral_norm(get(f"{widen}.weight")), spectral_norm(get(f"{narrow}.weight")),
        _norm(get(f"{widen}.bias")), _norm(get(f"{narrow}.bias")), config.activation,
        spectral_norm(np.atleast_2d(get(f"{gate}.weight"))), _norm(get(f"{gate}.bias")),
    )  # fmt: skip
    norms = [None if config.norm == "none" else norm_of(weights, f"layers.{number}.norm{which}") for which in (1, 2)]
    return Layer(
        heads, spectral_norm(get(f"{out}.weight")), feedforward, _norm(added + get(f"{out}.bias")), config.residual,
        *norms,
    )  # fmt: skip


def norm_of(weights: Mapping[str, Array], name: str) -> Norm:
    """Return the norm layer of this name from the parameters of a model."""
    gain, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias", np.zeros(1))
    return Norm(float(np.abs(gain).max()), _norm(bias), len(gain))


def _head(config: ModelConfig, get: Get, slots: Slots, head: int) -> Head:
    width = config.head_width
    own = slice(head * width, (head + 1) * width)
    query, key, value = (get(f"attention.{name}.weight")[:, own] for name in ("query", "key", "value"))
    query_bias, key_bias = (
        get(f"attention.{name}.bias")[own] if config.bias else np.zeros(width) for name in ("query", "key")
    )
    mixing = not _MIXING.isdisjoint(slots)
    uneven = bool(slots.get("rectify")) or not _UNEVEN.isdisjoint(slots)
    of_query, of_key = spectral_norm(query), spectral_norm(key)
    of_rows = _rows(slots, "row_scale", head, np.abs, 1.0)
    factor = of_rows * _rows(slots, "rel_gain", head, np.abs, 1.0) * _largest_growth(slots) * largest_map(slots, head)
    content = factor * of_query * of_key if mixing else of_rows * _product_norm(query, key)
    met_key, met_query = _rows(slots, "rel_query", head), _rows(slots, "rel_key", head)
    every_key = slots["key_bias"][head] if "key_bias" in slots else np.zeros(width)
    # without a slot in _UNEVEN, the terms that a score shares with all keys of its query do not change the softmax
    least_query, least_key = (_norm(bias) + least_radius(slots, width) for bias in (query_bias, key_bias))
    by_key = factor * of_key * least_query if mixing else of_rows * _norm(key @ query_bias)
    by_query = factor * of_query * least_key if uneven else 0.0
    constant = _norm(query_bias) * met_query + _norm(key_bias) * met_key
    if uneven:
        constant += factor * least_query * least_key + _norm(key_bias) * _norm(every_key)
    scale = abs(float(np.broadcast_to(slots.get("scale", width**-0.5), config.heads)[head]))
    scale *= float(np.abs(slots["gain"][head]).max()) if "gain" in slots else 1.0
    return Head(
        scale * content,
        spectral_norm(value),
        scale * (by_query + of_query * met_query),
        scale * (by_key + of_key * met_key + _norm(key @ every_key)),
        scale * constant,
        float(np.linalg.norm(slots["qk_table"], axis=-1).max()) if "qk_table" in slots else 0.0,
        _rows(slots, "rel_value", head),
    )


def _product_norm(query: Array, key: Array) -> float:
    """Return |query key^T| for two tall matrices, from their small triangular QR factors."""
    triangles = [np.asarray(np.linalg.qr(each, mode="r")) for each in (query, key)]
    return spectral_norm(triangles[0] @ triangles[1].T)


def _rows(slots: Slots, slot: str, head: int, size: Any = None, absent: float = 0.0) -> float:
    """Return the largest norm of a slot's vectors of offsets, or the largest absolute value of their entries."""
    if slot not in slots:
        return absent
    rows = slots[slot][min(head, len(slots[slot]) - 1)]
    return float((np.linalg.norm(rows, axis=-1) if size is None else size(rows)).max())


def largest_map(slots: Slots, head: int) -> float:
    """Return the largest factor by which the slot `rotors` can change a score of a head; 1 without `rotors`.

    >>> largest_map({"rotors": np.array([[[[[3.0, 0.0], [0.0, 1.0]]]]])}, 0)
    9.0
    """
    if "rotors" not in slots:
        return 1.0
    rotors = slots["rotors"]
    return float(np.linalg.norm(rotors[min(head, len(rotors) - 1)], 2, axis=(-2, -1)).max()) ** 2


def least_radius(slots: Slots, width: int) -> float:
    """Bound the norm of the radii of a row minus the norm of the row, from softplus(x) <= |x| + log 2.

    The slot `polar` has radii. Without it the bound is 0.

    >>> least_radius({"polar": np.zeros((1, 4))}, 4) / math.log(2), least_radius({}, 4)
    (2.0, 0.0)
    """
    return math.log(2.0) * math.sqrt(width) if "polar" in slots else 0.0


def _largest_growth(slots: Slots) -> float:
    """Return the largest factor by which `growth` multiplies a channel of a score, over the keys up to the query.

    The factor is 1 without the slot `growth`.
    """
    if "growth" not in slots:
        return 1.0
    growth = slots["growth"]
    return math.exp(max(0.0, float((growth - np.minimum.accumulate(growth, axis=0)).max())))


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))
