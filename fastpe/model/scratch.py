"""Memory for a call of the model, in addition to its parameters: scratch memory, and the slots as kernels take them."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation
from fastpe.functional.slot_arrays import Arrays, slot_arrays, sum_by_offset
from fastpe.functional.slots import NETWORK
from fastpe.functional.visibility import Positions
from fastpe.kernels import simd
from fastpe.kernels.attention.dape.network import DapeLayout, layout_for_dape
from fastpe.kernels.attention.slots import BIAS, GIVEN, ROWS, SIZES, WANTED
from fastpe.kernels.model import memory as model_memory
from fastpe.kernels.model import reflections as model_reflections
from fastpe.kernels.model.dape import Network, network_gradient
from fastpe.kernels.model.gates import gated_columns
from fastpe.kernels.model.selective_angles import RANK
from fastpe.kernels.rows.block_maps import lie_in, lie_out
from fastpe.kernels.rows.rotate import make_factors
from fastpe.model import sight
from fastpe.model.config import ACTIVATIONS, QK_NORMS, ModelConfig
from fastpe.model.gates import Made
from fastpe.model.parameters import (
    ALIGN,
    Parameters,
    inner_width,
    norms_of,
    projected_widths,
    rounded,
    sum_in_order,
)
from fastpe.model.precision import isa_of
from fastpe.model.score_terms import (
    INPUTS,
    OF_CONTENT,
    READ_BY_TILES,
    has_terms,
    needs_raw,
    options_of,
    scored,
    with_layers,
)

Array = np.ndarray[Any, Any]

_MOST_COMPOSED = 2**18  # largest number of elements of a fused matrix: it should fit into a core's cache

# slots that kernels read in place
_IN_PLACE = frozenset({*READ_BY_TILES, *INPUTS, *NETWORK}) - {"gain", "bias", "growth"}
_ONCE = ("table", "taps")  # slots with gradients that act at the input, not in layers


class Update(NamedTuple):
    """What the kernel of a training step needs to update the parameters, built by `fastpe.model.adam`."""

    moments: Array
    numbers: Array
    ranges: Array  # (R, 3): the range of parameters of each task
    squares: Array  # (R,), or (0,) without gradient clipping
    steps: Array  # (1,), incremented by the kernel, so that an interrupt cannot separate an update and its count

    @classmethod
    def none(cls, dtype: np.dtype[Any]) -> "Update":
        """Return an `Update` with which the kernel updates no parameters."""
        nothing = np.empty(0, dtype)
        return cls(np.empty((2, 0), dtype), nothing, np.empty((0, 3), np.int64), np.empty(0), np.empty(0, np.int64))


@dataclass(frozen=True)
class Scratch:
    """Scratch memory, allocated once for each length, number of workers, and kind of call (with gradients or without).

    A row of `gradients` holds the gradients of one group: those of the parameters, then those of the slots.
    """

    sizes: model_memory.Sizes
    workspace: model_memory.Arena
    offsets: model_memory.Offsets
    net_layout: DapeLayout | None
    reflections: model_reflections.Reflections | None
    workspaces: Array
    gradients: Array
    losses: Array
    numbers: Array
    places: Array
    spans: Array
    made: Made
    case: model_memory.Case
    layout: model_memory.Layout
    layered: frozenset[str]
    shapes: dict[str, tuple[int, ...]]  # shapes of the slots' gradients, by slot
    last: list[tuple[Mapping[str, Any], model_memory.Position]]  # slots of the last call, also as kernels take them
    arrays: list[Mapping[str, Array]]  # keeps alive the arrays that kernels read by address

    @classmethod
    def make(
        cls, config: ModelConfig, parameters: Parameters, length: int, workers: int, groups: int,
        slots: Mapping[str, Any], layered: frozenset[str], wanted: Collection[str], rows: int = 0,
    ) -> "Scratch":  # fmt: skip
        """Allocate memory for `workers` threads at this length and, if `groups` is above 0, for a backward pass.

        Parameters
        ----------
        slots : dict
            As from `ModelEncoding.slots`.
        layered : frozenset of str
            The slots that differ between layers. Their first axis is the layer.
        wanted : collection of str
            The slots to compute gradients for.
        rows : int
            Number of positions that pass through the model at a time, with keys and values cached; 0: all.

        Raises
        ------
        ValueError
            If this machine has too little memory.
        """
        backward = groups > 0
        wanted = [slot for slot in wanted if backward and isinstance(slots[slot], np.ndarray) and slot != "index"]
        slots = with_layers(slots, layered)
        sizes = _sizes(config, length, slots, wanted, parameters.made)
        if backward:
            packed, made = int(sizes.products is not None), sizes.gated + sizes.rank + sizes.reflects > 0
            sizes = sizes._replace(packed=packed, **fused_ends(config, length, slots, gated=made))
        keep_raw, options = needs_raw(slots), options_of(slots)
        given = slot_arrays(scored(slots), wanted, Positions(length, length), config.dtype, has_terms(slots))
        others, numbers = given.slots, given.table
        _fill_in(numbers, parameters.made, sizes, backward=backward)
        spans = sight.spans(config.sight, config.layers, length, causal=config.causal)
        apart = config.rule is not None and config.rule.keeps_apart
        case, layout = model_memory.attention_case(
            sizes, numbers, options, keep_raw=keep_raw, more=others is not None,
            spanned=spans is not None or apart, backward=backward, dropped=backward and config.dropout > 0,
        )  # fmt: skip
        shapes = {slot: _gradient_shape(slot, slots[slot].shape, length) for slot in wanted}
        starts, first = _one_after_the_other({slot: shapes[slot] for slot in _ONCE if slot in shapes})
        starts = {slot: start + parameters.flat.size for slot, start in starts.items()}
        of_layers, all_of_them = _one_after_the_other({slot: shapes[slot] for slot in shapes if slot not in _ONCE})
        starts, sizes = starts | of_layers, sizes._replace(slots=all_of_them)
        net_layout = layout_for_dape(case, numbers, sizes.units, backward=backward) if sizes.units else None
        reflecting = parameters.made.reflections
        reflections = None if reflecting is None else model_reflections.Reflections(reflecting, int(apart))
        more = 0 if net_layout is None else net_layout.size
        workspace = model_memory.arena_layout(sizes, case, layout, more, backward=backward, rows=rows)
        starting = {
            slot: simd.region(starts.get(slot, 0), np.prod(shapes.get(slot, 0)))
            for slot in (*INPUTS, *OF_CONTENT, *NETWORK)
        }
        first += parameters.flat.size
        starting["slots"], stride = simd.region(first, all_of_them), first + all_of_them
        for end, size in zip(("projection", "readout"), model_memory.fused_sizes(sizes), strict=True):
            starting[end] = simd.region(stride, size)
            stride += rounded(size)
        # workspaces that are whole pages apart would share cache sets; a few extra cache lines spread them
        own = rounded(workspace.size) + 5 * ALIGN
        step = "training step" if backward else "call"
        which = f"a {step} with length={length}, heads={config.heads}, threads={workers}"
        validation.room(which, (workers * own + groups * stride) * np.dtype(config.dtype).itemsize)
        return cls(
            sizes, workspace, parameters.offsets._replace(**starting), net_layout, reflections,
            simd.aligned_zeros((workers, own), config.dtype), simd.aligned_zeros((groups, stride), config.dtype),
            np.zeros(groups), numbers, _places(starts, shapes),
            np.zeros((1, 1, 1, 2), np.int64) if spans is None else spans[:, None], parameters.made, case, layout,
            layered, shapes, [], [],
        )  # fmt: skip

    def position(self, slots: Mapping[str, Any], spans: Array | None = None) -> model_memory.Position:
        """Return the slots as kernels take them. Unused slots are placeholder arrays that are not read.

        spans : (layers or 1, B, N, 2) integers, for a call in which the keys that a query sees depend on the sequence.
        """
        if not (self.last and (self.last[0][0] is slots or self._filled_in_place(slots))):
            self.last[:] = [(slots, self._position(slots))]
        position = self.last[0][1]
        return position if spans is None else position._replace(spans=spans)

    def _filled_in_place(self, slots: Mapping[str, Any]) -> bool:
        """Whether these slots are the arrays of the last call, filled again, so that kernels can read them there."""
        before, n = self.last[0][0], self.sizes.length
        return all(
            x is before[slot] and (slot in _IN_PLACE or (slot in ("gain", "bias") and x.shape[-1] == 2 * n - 1))
            for slot, x in slots.items()
            if isinstance(x, np.ndarray)
        )

    def _position(self, slots: Mapping[str, Any]) -> model_memory.Position:
        slots, dtype = with_layers(slots, self.layered), self.workspaces.dtype
        nothing, n = np.zeros(1, dtype), self.sizes.length
        given = slot_arrays(scored(slots), (), Positions(n, n), dtype, has_terms(slots))
        self.arrays[:] = [given.arrays]
        turns = _factors(slots["angles"], self.sizes.half, dtype) if "angles" in slots else nothing[None]
        scale = np.asarray(slots.get("scale", self.sizes.head**-0.5), dtype)
        table, qk_table, taps = (slots[slot].ravel() if slot in slots else nothing for slot in INPUTS)
        rotors = lie_in(slots["rotors"].astype(dtype, copy=False)) if "rotors" in slots else None
        polar = _circles(slots["polar"], dtype) if "polar" in slots else None
        gates, slopes, selective, frequencies, _ = self.made
        rare, others, net = (rotors, polar, gates, selective), given.slots, None
        if NETWORK[0] in slots:
            into, hidden, out = (slots[slot].ravel() for slot in NETWORK)
            net = Network(into, hidden, out, biased=int(given.table[BIAS, GIVEN]))
        if any(x is not None for x in (others, *rare)):  # kernels take all of them, or none
            none = np.zeros((self.sizes.layers, 8), np.int64)  # at least as many columns as any of them
            unread = nothing, nothing, none, none
            rotors, polar, gates, selective = (y if x is None else x for x, y in zip(rare, unread, strict=True))
            others = 1
        return model_memory.Position(
            table, qk_table, taps, turns, np.array(slots.get("row_scale", nothing), dtype).ravel(), given.bias,
            np.array(np.broadcast_to(scale, (self.sizes.layers, self.sizes.heads)), order="C"), self.spans, rotors,
            polar, gates, slopes, selective, frequencies, self.reflections, net, None if net is None else
            self.net_layout, np.zeros(1), others, self._numbers_of(given), self.places, self.case, self.layout,
        )  # fmt: skip

    def _numbers_of(self, given: Arrays) -> Array:
        """Return the table of slots with the addresses of these arrays."""
        numbers = self.numbers.copy()
        numbers[:, SIZES:] = given.table[:, SIZES:]
        return numbers

    def slot_gradients(self, slots: Mapping[str, Any], groups: int) -> dict[str, Array]:
        """Return the gradients of the wanted slots, summed in order over the first `groups` groups."""
        found, n, start = {}, self.sizes.length, self.offsets_of_slots
        for slot, shape in self.shapes.items():
            size = math.prod(shape)
            summed = sum_in_order(self.gradients[:groups, start[slot] : start[slot] + size]).reshape(shape)
            if slot in NETWORK:
                summed = network_gradient(slot, summed)
            if slot == "rotors":
                summed = lie_out(summed.reshape(-1), shape)
            if slot in ("gain", "bias"):
                summed = sum_by_offset(summed, Positions(n, n), slots[slot].shape[-1])
            found[slot] = summed.reshape(slots[slot].shape).astype(slots[slot].dtype, copy=False)
        return found

    @cached_property
    def offsets_of_slots(self) -> dict[str, int]:
        """Start of the gradient of each slot in a group's row."""
        places = {slot: int(self.places[number, 0]) for number, slot in enumerate(ROWS)}
        own = {slot: int(getattr(self.offsets, slot, places.get(slot, 0))) for slot in self.shapes}
        return {slot: start + (slot not in _ONCE) * int(self.offsets.slots) for slot, start in own.items()}


def _fill_in(numbers: Array, made: Made, sizes: model_memory.Sizes, *, backward: bool) -> None:
    """Set entries of the table of slots for columns that layers compute, and for a bias that a network reads."""
    if made.gates is not None:
        for slot, filled in gated_columns(made.gates).items():
            numbers[slot, GIVEN], numbers[slot, WANTED] = filled, filled and backward
    if sizes.units:  # the bias is not added again after the network
        numbers[BIAS, [GIVEN, WANTED]] = 0


def _sizes(
    config: ModelConfig, length: int, slots: Mapping[str, Any], wanted: Collection[str], made: Made
) -> model_memory.Sizes:  # fmt: skip
    angles = slots.get("angles", np.zeros((1, 1, length, 0)))
    layers, heads, _, pairs = angles.shape
    factors = slots.get("row_scale", np.ones((1, 1, length)))
    of_layers, of_heads, positions, *_, block = slots.get("rotors", np.zeros((1, 1, 1, 0, 0, 0))).shape
    phases = slots.get("polar", np.zeros((1, 1, 0)))
    net_layers, units, _, taps = slots.get(NETWORK[0], np.zeros((1, 0, 0, 0))).shape
    rule, widths = config.rule, projected_widths(config)
    return model_memory.Sizes(
        length=length, width=config.width, heads=config.heads, key_heads=config.key_value_heads,
        head=config.head_width, query_width=widths[0], key_width=widths[1], projected=sum(widths), hidden=config.hidden,
        inner=inner_width(config), layers=config.layers, causal=int(config.causal),
        activation=ACTIVATIONS.index(config.activation), norms=int("norm1" in norms_of(config)),
        post_norms=int("post_norm1" in norms_of(config)), norm_eps=config.norm_eps,
        centred=int(config.norm == "layernorm"), norm_biased=int(config.norm == "layernorm" and config.bias),
        final_norm=int(config.final_norm), biased=int(config.bias), qkv_biased=int(config.has_qkv_bias),
        qk_norm=(None, *QK_NORMS).index(config.qk_norm), residual=int(config.residual), parallel=int(config.parallel),
        sinks=int(config.sinks), vocabulary=config.vocabulary or 0, tied=int(config.tied),
        embedding_scale=config.embedding_scale, logit_softcap=config.logit_softcap or 0.0,
        has_table=int("table" in slots),
        has_qk_table=int("qk_table" in slots), gated=int(made.gates is not None),
        rank=0 if made.selective is None else int(made.selective[:, RANK].max()), counted=int("counts" in slots),
        reflects=0 if made.reflections is None else int(made.reflections[:, model_reflections.RANK].max()),
        taps=slots["taps"].shape[0] if "taps" in slots else 0, pairs=pairs,
        half=int(slots.get("pairs") == "half" or "polar" in slots),
        angles_layer=heads * length if layers > 1 else 0, angles_head=length if heads > 1 else 0,
        scales_rows=int("row_scale" in slots), row_scale_layer=factors[0].size if len(factors) > 1 else 0,
        row_scale_head=length if factors.shape[1] > 1 else 0, block=block,
        rotors_layer=of_heads * positions if of_layers > 1 else 0,
        rotors_head=positions if of_heads > 1 else 0, rotors_row=int(positions > 1),
        lifted=int("polar" in slots), polar_layer=phases.shape[1] if len(phases) > 1 else 0,
        polar_head=int(phases.shape[1] > 1), units=units, unit_taps=taps, net_layers=net_layers,
        wants_table=int("table" in wanted), wants_qk_table=int("qk_table" in wanted), wants_taps=int("taps" in wanted),
        wants_angles=int("angles" in wanted), wants_row_scale=int("row_scale" in wanted),
        wants_rotors=int("rotors" in wanted), wants_polar=int("polar" in wanted),
        wants_net=int(NETWORK[0] in wanted), gathers_table=int(rule is not None and "table" in slots),
        gathers_angles=int(rule is not None and rule.turns), restarts=int(rule is not None and rule.keeps_apart),
        slots=0, fused_input=0, fused_output=0, packed=0, products=isa_of(config),
    )  # fmt: skip


def fused_ends(
    config: ModelConfig, length: int, slots: Collection[str], *, gated: bool = False
) -> dict[str, Any]:  # fmt: skip
    """Return whether the embedding (input) and the head (output) are fused with a layer in a training step.

    To fuse them means to replace two consecutive matrices by their product (`kernels.model.fused_embedding_and_head`).
    If the model has residual connections and no optional parts (`ModelConfig.optional_parts`), and products are not
    rounded (`precision`), these can be fused:

    - The input. The fused matrix has a row for each token and for each position, and so do its gradients in every
      group. This requires that no norm, dropout or convolution (`taps`) follows the embedding, that queries and keys
      have no separate table (`qk_table`), that no layer has a gate, and that all sequences begin at the first row of
      the table. The matrix must also be small: it has at most `_MOST_COMPOSED` elements, and at most twice as many
      rows for tokens as for positions.
    - The output of a model of numbers, if neither dropout nor a norm precedes the head.

    Examples
    --------
    >>> fused_ends(ModelConfig("wavelet"), 50, ["table"])
    {'fused_input': 1, 'fused_output': 1}
    >>> fused_ends(ModelConfig("wavelet", norm="layernorm"), 50, ["table"])
    {'fused_input': 0, 'fused_output': 1}
    """
    bare = config.residual and not config.dropout and config.precision != "bfloat16" and not config.optional_parts
    tokens = config.vocabulary or 0
    placed = config.shifted or config.rule is not None
    own = config.norm != "none" or placed or gated or not {"taps", "qk_table"}.isdisjoint(slots)
    few = 3 * config.width * (max(tokens, 1) + length) <= _MOST_COMPOSED and tokens <= 2 * length
    return {
        "fused_input": int(bare and few and not own),
        "fused_output": int(bare and not tokens and not config.final_norm),
    }


def _factors(angles: Array, half: int, dtype: Any) -> Array:
    """Return the factors with which `kernels.rows.rotate` rotates rows, forward and back."""
    found = np.empty((3, angles.size * (1 if half else 2)), dtype)
    make_factors(np.ascontiguousarray(angles, np.float64).reshape(-1), half > 0, found)
    return found


def _circles(phases: Array, dtype: Any) -> Array:
    """Return cosines and sines for the queries, whose phases are 0, then those for the keys, whose
    phases are `phases`.
    """
    own = np.stack([np.cos(phases.astype(np.float64)), np.sin(phases.astype(np.float64))], axis=-2)
    return np.concatenate([[1.0] * phases.shape[-1], [0.0] * phases.shape[-1], own.ravel()]).astype(dtype)


def _gradient_shape(slot: str, shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (*shape[:-1], 2 * length - 1) if slot in ("gain", "bias") else shape


def _one_after_the_other(shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, int], int]:
    """Lay out arrays of these shapes one after the other, each from the start of a cache line.

    Return the start of each array, and the end of the last one.
    """
    starts, end = {}, 0
    for slot, shape in shapes.items():
        starts[slot] = end
        end += rounded(int(np.prod(shape)))
    return starts, end


def _places(starts: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> Array:
    """Return, for the gradients of attention's slots: start, strides of layers and of heads, and the
    size for one head.
    """
    places = np.zeros((len(ROWS), 4), np.int64)
    for number, slot in enumerate(ROWS):
        if slot in starts:
            layers, heads, *rest = shapes[slot] if slot != "growth" else (shapes[slot][0], 1, *shapes[slot][1:])
            size = int(np.prod(rest))
            places[number] = starts[slot], heads * size if layers > 1 else 0, size if heads > 1 else 0, size
    return places
