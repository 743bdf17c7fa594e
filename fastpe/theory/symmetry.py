"""Symmetries of models with an encoding, that is, inputs that the models cannot distinguish.

- const: positions with equal tokens, if all tokens are equal;
- rev: a sequence and its reverse;
- perm: a sequence and any other order of its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.base.random import Stream
from fastpe.base.validation import whole
from fastpe.encodings import registry
from fastpe.encodings.slots import OF_OFFSETS
from fastpe.functional.slots import NETWORK
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.parameters import parameter_shapes
from fastpe.theory.value import Value, certified, exact

Array = np.ndarray[Any, Any]

PROPERTIES = ("const", "rev", "perm")
TOLERANCE = 1e-10  # relative to the largest output; rounding errors are about 1e-15
MOST_LENGTH = 512  # more positions are not needed, and the reference stores all pairs
_SEQUENCES = 4
_AFTER_SOFTMAX = ("table", "taps", "rel_value")  # with these slots, attention averages unequal values of equal tokens


@dataclass(frozen=True)
class Property:
    """Whether models with an encoding have one symmetry.

    Attributes
    ----------
    holds : bool
        Whether the symmetry held in every draw.
    proved : bool
        Whether `holds` is certain. It is certain if `holds` is False, because a draw has refuted the symmetry. If
        `holds` is True, it is certain only if the form of the slots implies the symmetry (P2, P3).
    spread : Value
        The largest difference of outputs that should be equal under the symmetry, in units of the largest output. It is
        "exact" 0 if the symmetry is proved, and "certified" from below if a draw refutes it. Its input `measured` is
        the largest difference in all draws.
    why : str
        The reason.
    """

    holds: bool
    proved: bool
    spread: Value
    why: str


@dataclass(frozen=True)
class Symmetry:
    """The symmetry class of an encoding in a model with or without a causal mask, see `symmetry`.

    Attributes
    ----------
    encoding : str
    causal : bool
    const : Property
        Identical tokens have identical outputs.
    rev : Property
        Reversing a sequence reverses its outputs.
    perm : Property
        Reordering a sequence reorders its outputs in the same way, for every order.
    inputs : dict
        The sizes, options and draws.
    """

    encoding: str
    causal: bool
    const: Property
    rev: Property
    perm: Property
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> tuple[str, ...]:
        """Return the names of the symmetries that hold."""
        return tuple(name for name in PROPERTIES if getattr(self, name).holds)


def symmetry(
    name: str, *, length: int = 16, dim: int = 24, heads: int = 2, causal: bool = False, draws: int = 3, seed: int = 0,
    **options: Any,
) -> Symmetry:  # fmt: skip
    """Find which symmetries every model with this encoding has (theory Q13, P2, P3).

    Small transformers with two layers and without norms run in `fastpe.reference` in float64. Their weights and the
    learned parameters of the encoding are random. A difference of outputs is a counterexample and proves that the
    symmetry is absent. The absence of differences is a proof only together with the form of the slots, which is checked
    too. Equal tokens stay equal if all slots act inside the softmax (P2). A change of the order has no effect if it
    leaves every slot the same (P3).

    Parameters
    ----------
    name : str
        Key of an encoding, a sum of keys, or a pattern over layers.
    length : int
        Number of positions, at most 512.
    dim, heads : int
        Width and number of heads of the models.
    causal : bool
        Whether the models have a causal mask.
    draws : int
        Number of random models.
    seed : int
        Seed of the draws.
    **options
        Options of the encoding. For a sum of encodings they are written as ``{"wavelet.scale": 2.0}``.

    Returns
    -------
    Symmetry

    Raises
    ------
    ValueError, TypeError
        If the encoding is unknown or cannot have these sizes, or a number is out of range. The message names the
        argument.

    Examples
    --------
    >>> symmetry("alibi").held, symmetry("alibi", causal=True).held, symmetry("sinusoidal").held
    (('const', 'rev'), ('const',), ())
    """
    if (length := whole("length", length, 1)) > MOST_LENGTH:
        raise ValueError(f"length must be at most {MOST_LENGTH}, which is enough for a symmetry class, not {length}")
    networks = [
        _Network(name, options, length, dim, heads, causal, whole("seed", seed, 0) + draw)
        for draw in range(whole("draws", draws, 1))
    ]
    spreads = [network.spreads() for network in networks]
    measured = {key: max(each[key] for each in spreads) for key in PROPERTIES}
    found = {key: _property(key, measured[key], networks[0]) for key in PROPERTIES}
    inputs = {"length": length, "dim": dim, "heads": heads, "options": dict(options), "draws": draws, "seed": seed}
    return Symmetry(networks[0].config.encoding, causal, **found, inputs=inputs)


def change_of_order(
    name: str = "nope", *, length: int = 16, dim: int = 24, heads: int = 2, causal: bool = False, seed: int = 0,
    **options: Any,
) -> dict[str, Value]:  # fmt: skip
    """Compare the outputs of a model before and after reordering its input, in units of the largest output.

    Li (2025, section 2.1; claim C1) calls transformers without positions permutation-invariant. In fact they are
    equivariant: if the tokens are reordered, the outputs are reordered in the same way, and so the outputs change.

    Parameters
    ----------
    name, length, dim, heads, causal, seed, **options
        The same as for `symmetry`. The length is at least 2.

    Returns
    -------
    dict of str to Value
        - "equivariance": max|f(Px) - P f(x)|, which is 0 if P commutes with every model;
        - "invariance": max|f(Px) - f(x)|.

    Examples
    --------
    >>> found = change_of_order("nope")
    >>> found["equivariance"].value, found["invariance"].value > 0.1
    (0.0, True)
    """
    length, seed = whole("length", length, 2), whole("seed", seed, 0)
    network = _Network(name, options, length, dim, heads, causal, seed)
    order = network.order()
    before, after = network(network.x), network(network.x[:, order])
    changed = float(np.abs(after - before).max() / np.abs(before).max())
    kept = _property("perm", network.spreads()["perm"], network)
    why = "the outputs of one draw of weights and inputs differ by this much, a counterexample to invariance"
    return {"equivariance": kept.spread, "invariance": certified(why, low=changed, length=length, seed=seed)}


class _Network:
    """A transformer with random weights and an encoding, together with its inputs."""

    def __init__(
        self, name: str, options: Mapping[str, Any], length: int, dim: int, heads: int, causal: bool, seed: int
    ) -> None:
        layers = max(2, len(registry.layers(registry.resolve(name))))
        self.config = ModelConfig(
            name, dict(options), width=dim, heads=heads, hidden=dim, layers=layers, causal=causal, train_length=length,
            dtype="float64", seed=seed,
        )  # fmt: skip
        own = ModelEncoding(self.config)
        self.parameters = {
            each: Stream(seed, "symmetry", each).normal(shape) / np.sqrt(shape[0] if len(shape) > 1 else 4)
            for each, shape in parameter_shapes(self.config).items()
        }
        # an encoding whose parameters start at zero would have no effect
        for each, start in own.initial.items():
            self.parameters[each] = start + 0.5 * Stream(seed, "symmetry", each).normal(start.shape)
        self.slots = own.reference_slots(length, self.parameters)
        self.x = Stream(seed, "symmetry", "x").normal((_SEQUENCES, length))

    def __call__(self, x: Array) -> Array:
        return reference.model_forward(self.config, self.parameters, self.slots, x)

    def order(self) -> Array:
        """Return a random order of the positions. It differs from the identity if there are at least two positions."""
        length, seed = self.x.shape[1], self.config.seed
        order = Stream(seed, "symmetry", "order").permutation(length)
        return np.roll(order, 1) if (order == np.arange(length)).all() else order

    def spreads(self) -> dict[str, float]:
        """Return, for each symmetry, the largest difference of outputs that should be equal.

        The differences are divided by the largest output.
        """
        outputs, order = self(self.x), self.order()
        equal = self(np.repeat(self.x[:, :1], self.x.shape[1], axis=1))
        size = np.abs(outputs).max()
        return {
            "const": float(np.ptp(equal, axis=1).max() / np.abs(equal).max()),
            "rev": float(np.abs(self(self.x[:, ::-1]) - outputs[:, ::-1]).max() / size),
            "perm": float(np.abs(self(self.x[:, order]) - outputs[:, order]).max() / size),
        }


def _property(name: str, measured: float, network: _Network) -> Property:
    length, causal = network.x.shape[1], network.config.causal
    inputs = {"measured": measured, "length": length, "causal": causal}
    if measured > TOLERANCE:
        breaks = _breaking(name, network.slots, length)
        by = f"slot {' and '.join(map(repr, breaks))}" if breaks else "the causal mask"
        why = f"{_SAYS[name]}: no, in a random network they differ by {measured:.3g} of the largest output ({by})"
        return Property(False, True, certified(why, low=measured - TOLERANCE, **inputs), why)
    # a causal mask depends on the order, so with a mask and several positions only `const` can be proved
    proved = not _breaking(name, network.slots, length) and (name == "const" or not causal or length == 1)
    if proved:
        why = f"{_SAYS[name]}: {_PROVES[name]}"
        return Property(True, True, exact(0.0, why, **inputs), why)
    why = f"{_SAYS[name]}: in all draws they differ by at most {measured:.3g} of the largest output, which is no proof"
    return Property(True, False, certified(why, low=0.0, **inputs), why)


_SAYS = {
    "const": "identical tokens have identical outputs",
    "rev": "a reversed sequence has reversed outputs",
    "perm": "reordered tokens have reordered outputs",
}
_PROVES = {
    "const": "all slots act inside the softmax, whose weights sum to 1 (P2)",
    "rev": "every slot is the same for the reversed order, and there is no mask (P3)",
    "perm": "every slot is the same for all orders, and there is no mask (P3)",
}


def _breaking(name: str, slots: Sequence[Mapping[str, Any]], length: int) -> list[str]:
    """Return the names of the slots, of all layers, that are not known to keep the symmetry."""
    return sorted(
        {slot for own in slots for slot in own if slot != "values" and not _keeps(slot, own, name, length)}
    )  # fmt: skip


def _keeps(slot: str, own: Mapping[str, Any], name: str, length: int) -> bool:
    """Return whether models with this slot are known to keep a symmetry. The result is False in undecided cases."""
    if slot in ("key_bias", "polar", "rectify", "scale", "pairs") or (name == "const" and slot not in _AFTER_SOFTMAX):
        return True
    if slot in ("gate", "counts"):  # gates and counts are summed over earlier keys, so they depend on the order
        return False
    array = np.asarray(own[slot], np.float64)
    if slot in NETWORK:  # the maps of the network read neighbouring cells or a single cell
        alike = name == "rev" and _same(array, array[..., ::-1])
        return slot == "mlp_bias" or array.shape[-1] == 1 or alike
    if slot == "taps":
        return len(array) == 1 or (name == "rev" and len(array) % 2 == 1 and _same(array, array[::-1]))
    if slot in ("table", "qk_table"):
        return _same(array, array[::-1]) if name == "rev" else _same(array, array[:1])
    if slot == "row_scale":
        return _same(array, array[..., ::-1]) if name == "rev" else _same(array, array[..., :1])
    if slot in ("angles", "growth"):  # only equal values at all positions keep a symmetry
        return _same(array, array[..., :1, :])
    if slot == "rotors":  # the same holds for rotors
        return _same(array, array[..., :1, :, :, :])
    if slot in OF_OFFSETS:
        return _offsets_keep(array if slot in ("gain", "bias") else np.moveaxis(array, -2, -1), name, length)
    pairs = own["values"][..., array.astype(np.intp)] if slot == "index" else array
    return _pairs_keep(pairs, name)


def _offsets_keep(array: Array, name: str, length: int) -> bool:
    """Return whether an array by offset, (..., 2K+1) with the offset on the last axis, keeps the symmetry."""
    reach = array.shape[-1] // 2
    seen = array[..., max(0, reach - length + 1) : reach + length]
    if name == "rev":
        return _same(seen, seen[..., ::-1])
    others = seen if name == "const" else np.delete(seen, seen.shape[-1] // 2, axis=-1)
    return _same(others, others[..., :1])


def _pairs_keep(array: Array, name: str) -> bool:
    """Return whether an array by pairs of positions, (..., N, N), keeps the symmetry."""
    if name == "rev":
        return _same(array, array[..., ::-1, ::-1])
    own = np.eye(array.shape[-1], dtype=bool)
    return all(_same(each, each[..., :1]) for each in (array[..., own], array[..., ~own]))


def _same(a: Array, b: Array) -> bool:
    """Return whether two arrays differ at most by rounding errors."""
    return not a.size or bool(np.abs(a - b).max() <= 1e-13 * np.abs(a).max())
