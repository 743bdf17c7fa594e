"""The layout of a model's parameters: one flat array for all of them, and another for the transposed matrices."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from fastpe.base import validation
from fastpe.base.initial_values import initial_values
from fastpe.base.random import Stream
from fastpe.kernels import simd
from fastpe.kernels.model import memory as model_memory
from fastpe.kernels.products.bfloat16.pack import STEP, packed_words
from fastpe.model.config import GATED, ModelConfig
from fastpe.model.gates import LayerGate, made_by

Array = np.ndarray[Any, Any]

ALIGN = 16  # elements: every tensor starts on a cache line, in float32 and in float64
_PANEL_ROWS = 16  # rows of a matrix that one iteration of the transposing loop takes
_OF_GRADIENTS = (  # offsets that `fastpe.model.scratch` sets
    "table", "slots", "qk_table", "taps", "angles", "row_scale", "rotors", "polar", "mlp_in", "mlp_bias", "mlp_out",
    "projection", "readout",
)  # fmt: skip
_PROJECTED = ("query", "key", "value")  # the columns of these three weight matrices form one matrix
_HEAD_NORMS = ("query_norm", "key_norm")
_NORMS = ("norm1", "norm2", "post_norm1", "post_norm2")
_WIDENED = ("in", "gate")  # two matrices of a gated activation, whose columns form one matrix, the gate first


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of the model by name, except those of its encoding. A matrix is (in, out).

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> parameter_shapes(ModelConfig("nope", layers=1))["layers.0.feedforward.in.weight"]
    (64, 128)
    """
    c, f, tokens, widths = config.width, config.hidden, config.vocabulary, projected_widths(config)
    shapes: dict[str, tuple[int, ...]] = {}

    def map_of(name: str, rows: int, columns: int, *, bias: bool = config.bias) -> None:
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (columns,)

    def norm_of(name: str) -> None:
        shapes[f"{name}.weight"] = (c,)
        if config.norm == "layernorm" and config.bias:
            shapes[f"{name}.bias"] = (c,)

    if tokens:
        shapes["embed.weight"] = (tokens, c)
    else:
        map_of("embed", 1, c)
    for layer in range(config.layers):
        prefix = f"layers.{layer}"
        for name, width in zip(_PROJECTED, widths, strict=True):
            map_of(f"{prefix}.attention.{name}", c, width, bias=config.has_qkv_bias)
        map_of(f"{prefix}.attention.out", widths[0], c)
        for name, width in zip(_HEAD_NORMS, qk_norm_widths(config), strict=True):
            if width:
                shapes[f"{prefix}.attention.{name}.weight"] = (width,)
        if config.sinks:
            shapes[f"{prefix}.attention.sinks"] = (config.heads,)
        for name in _WIDENED[: 1 + (config.activation in GATED)][::-1]:
            map_of(f"{prefix}.feedforward.{name}", c, f)
        map_of(f"{prefix}.feedforward.out", f, c)
        for name in norms_of(config):
            norm_of(f"{prefix}.{name}")
    if config.final_norm:
        norm_of("final_norm")
    if not config.tied:
        map_of("head", c, tokens or 1)
    return shapes


class Parameters:
    """All parameters of a model in one flat array.

    The weight matrices of a layer's query, key and value projections are columns of one matrix, so that one product
    computes all three. The same holds for the two input matrices of a gated activation.

    Attributes
    ----------
    flat : array (P,)
    views : dict of str to array
        Views into `flat` by name of the parameter. They are private, because kernels rely on their shapes.
    offsets : kernels.model_memory.Offsets
        Start offsets of the parameters, for kernels.
    made : gates.Made
        The gates of the layers, for kernels.
    """

    def __init__(
        self, config: ModelConfig, learned: Mapping[str, Array], gates: Sequence[LayerGate | None] = ()
    ) -> None:
        self._cursor = 0
        c, f, outputs, wide = config.width, config.hidden, config.vocabulary or 1, inner_width(config)
        norm, bias, norms = c * (config.norm != "none"), int(config.bias), norms_of(config)
        widths, (query_norm, key_norm) = projected_widths(config), qk_norm_widths(config)
        norm_bias, final = norm * bias * (config.norm == "layernorm"), int(config.final_norm)
        ends = self._take(
            {
                "embed_weight": outputs * c, "embed_bias": 0 if config.vocabulary else c * bias,
                "head_weight": 0 if config.tied else c * outputs, "head_bias": 0 if config.tied else outputs * bias,
                "final_norm_weight": final * norm, "final_norm_bias": final * norm_bias,
            }
        )  # fmt: skip
        first_layer = self._cursor
        layer = self._take(
            {
                "qkv_weight": c * sum(widths), "out_weight": widths[0] * c, "in_weight": c * wide, "ff_weight": f * c,
                # vectors after matrices: only vectors are cleared before gradients are added to them
                "qkv_bias": sum(widths) * config.has_qkv_bias, "out_bias": c * bias, "in_bias": wide * bias,
                "ff_bias": c * bias,
                **{f"{name}_weight": norm * (name in norms) for name in _NORMS},
                **{f"{name}_bias": norm_bias * (name in norms) for name in _NORMS},
                "query_norm": query_norm, "key_norm": key_norm, "sinks": config.heads * config.sinks,
            },
            first_layer,
        )  # fmt: skip
        stride = self._cursor - first_layer
        self._cursor = first_layer + config.layers * stride
        own = self._take({name: value.size for name, value in learned.items()})
        self.offsets = model_memory.Offsets(
            **ends,
            layers=first_layer,
            layer_stride=stride,
            **layer,
            **dict.fromkeys(_OF_GRADIENTS, 0),
        )
        sizes = f"width={c}, hidden={f}, layers={config.layers}"
        validation.room(f"the model's parameters with {sizes}", self._cursor * np.dtype(config.dtype).itemsize, "need")
        self.flat = simd.aligned_zeros(self._cursor, config.dtype)
        shapes = {name: value.shape for name, value in learned.items()}
        self._places = {name: (own[name], shape, _row_major(shape)) for name, shape in shapes.items()}
        for name, shape in parameter_shapes(config).items():
            self._places[name] = self._place(name, shape, config)
        order = [*parameter_shapes(config), *learned]
        self._places = {name: self._places[name] for name in order}
        self.views = self.views_of(self.flat)
        self.made = made_by(gates, self._places, config.heads)

    def _take(self, sizes: Mapping[str, int], base: int = 0) -> dict[str, int]:
        starts = {}
        for name, size in sizes.items():
            starts[name] = simd.region(self._cursor - base, size)
            self._cursor += rounded(size)
        return starts

    def _place(
        self, name: str, shape: tuple[int, ...], config: ModelConfig
    ) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return start, shape and strides (in elements) of a parameter."""
        match name.split("."):
            case ["layers", layer, "attention", "query" | "key" | "value" as which, kind]:
                widths = projected_widths(config)
                shift = sum(widths[: _PROJECTED.index(which)])
                strides = (sum(widths), 1) if kind == "weight" else (1,)
                return self._in_layer(layer, f"qkv_{kind}") + shift, shape, strides
            case ["layers", layer, "attention", "query_norm" | "key_norm" as which, _]:
                return self._in_layer(layer, which), shape, _row_major(shape)
            case ["layers", layer, "attention", "sinks"]:
                return self._in_layer(layer, "sinks"), shape, _row_major(shape)
            case ["layers", layer, "feedforward", "in" | "gate" as which, kind]:
                wide = inner_width(config)
                shift = wide - config.hidden if which == "in" else 0
                return self._in_layer(layer, f"in_{kind}") + shift, shape, (wide, 1) if kind == "weight" else (1,)
            case ["layers", layer, "attention", "out", kind]:
                return self._in_layer(layer, f"out_{kind}"), shape, _row_major(shape)
            case ["layers", layer, "feedforward", "out", kind]:
                return self._in_layer(layer, f"ff_{kind}"), shape, _row_major(shape)
            case ["layers", layer, norm, kind]:
                return self._in_layer(layer, f"{norm}_{kind}"), shape, _row_major(shape)
            case [end, kind]:
                return getattr(self.offsets, f"{end}_{kind}"), shape, _row_major(shape)
        raise AssertionError(name)

    def _in_layer(self, layer: str, name: str) -> int:
        start: int = getattr(self.offsets, name)
        return self.offsets.layers + int(layer) * self.offsets.layer_stride + start

    def views_of(self, flat: Array, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return views by name (all, or those given) into a flat array of this layout, such as gradients or moments."""
        size, views = flat.itemsize, {}
        for name in self._places if names is None else names:
            start, shape, strides = self._places[name]
            views[name] = np.ndarray(shape, flat.dtype, flat, start * size, tuple(size * stride for stride in strides))
        return views


def initialise(config: ModelConfig, views: Mapping[str, Array], learned: Mapping[str, Array]) -> None:
    """Fill a model's parameters with their initial values. learned: initial values of its encoding's parameters."""
    fans = {name.rpartition(".")[0]: view.shape for name, view in views.items() if view.ndim == 2}
    for name, view in views.items():
        owner, _, kind = name.rpartition(".")
        if name in learned:
            view[...] = learned[name]
        elif "norm" in owner:
            view[...] = 1.0 if kind == "weight" else 0.0
        elif kind == "sinks":
            view[...] = 0.0
        else:
            looked_up = config.vocabulary is not None and owner == "embed"
            rule, stream = "small_normal" if looked_up else config.init, Stream(config.seed, "init", name)
            values = initial_values(rule, stream, kind, view.shape, fans[owner])
            if config.init_by_depth and owner.startswith("layers.") and owner.endswith(".out") and kind == "weight":
                values = values / math.sqrt(2 * config.layers)
            view[...] = values


class Views(dict[str, Array]):
    """Arrays by name, each a view of memory that another object owns. Assigned values are checked and copied into it.

    Parameters
    ----------
    what : str
        What the arrays are, for errors.
    views : dict of str to array
        The owner's views. The views in this dict are different objects: changing their shape does not affect the owner.

    Examples
    --------
    >>> memory = np.zeros(3)
    >>> views = Views("parameters", {"bias": memory[:2]})
    >>> views["bias"] = [1, 2]
    >>> views["bias"] += 1
    >>> memory.tolist()
    [2.0, 3.0, 0.0]
    """

    def __init__(self, what: str, views: Mapping[str, Array]) -> None:
        super().__init__({name: view.view() for name, view in views.items()})
        self._what, self._targets = what, dict(views)

    def update(self, *mapping: Any, **named: Any) -> None:
        """Copy values into the arrays with these names: all of them, or none if one is invalid."""
        given = dict(*mapping, **named)
        for name in given:
            if name not in self._targets:
                raise ValueError(f"{self._what} has no {name!r}: {validation.nearest(str(name), self._targets)}")
        shapes = {name: target.shape for name, target in self._targets.items()}
        (dtype,) = {target.dtype for target in self._targets.values()}
        values = validation.arrays(self._what, given, shapes, dtype, some=True)
        if len(values) > 1:  # a value may be a view of another array that is assigned
            values = {name: value.copy() for name, value in values.items()}
        for name, value in values.items():
            self._targets[name][...] = value

    def assign(self, values: Mapping[str, Any]) -> None:
        """Copy values into all arrays."""
        if not isinstance(values, Mapping):
            raise TypeError(f"{self._what} must be a dict of arrays, not {type(values).__name__}")
        if missing := self._targets.keys() - values.keys():
            raise ValueError(f"{self._what} must be assigned all at once, or each by name: {min(missing)!r} is missing")
        self.update(values)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc] # takes pairs as well, as the method of dict
        self.update(other)
        return self

    def setdefault(self, name: str, default: Any = None) -> Array:
        """Return the array with this name. An unknown name raises an error, because no array can be added."""
        if name not in self:
            self.update({name: default})
        return self[name]

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(f"an array of {self._what} cannot be removed: write into it, or assign another of its shape")

    __delitem__ = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy is a plain dict: its arrays are not views of the owner's memory


class Transposes:
    """Memory for transposed matrices, and the panels (groups of rows) that are transposed one by one.

    The matrices are those of all layers, and that of the head or, if the head is tied, of the token embedding.

    In bfloat16, the matrices of the layers are packed, both as they are and transposed (see `kernels.model.batch`).
    """

    def __init__(self, config: ModelConfig, offsets: model_memory.Offsets) -> None:
        c, f, wide, widths = config.width, config.hidden, inner_width(config), projected_widths(config)
        packed = config.precision == "bfloat16"
        matrices = {
            "qkv_weight": (c, sum(widths)), "out_weight": (widths[0], c), "in_weight": (c, wide), "ff_weight": (f, c),
        }  # fmt: skip
        starts, cursor = {}, 0
        for name, shape in matrices.items():
            size = packed_words(*shape) if packed else math.prod(shape)
            starts[name] = simd.region(cursor, size)
            cursor += rounded(size)
        words, stride = cursor, cursor * (1 + packed)
        outputs = config.vocabulary or 0
        head = simd.region(config.layers * stride, c * outputs)
        self.offsets = model_memory.Transposed(layer_stride=stride, words=words, **starts, head_weight=head)
        self.flat = simd.aligned_zeros(head + rounded(c * outputs), config.dtype)

        def of_matrix(source: int, target: int, rows: int, columns: int) -> Iterator[tuple[int, ...]]:
            for row in range(0, rows, _PANEL_ROWS):
                yield source + row * columns, min(_PANEL_ROWS, rows - row), columns, target + row, rows, -1

        def panels() -> Iterator[tuple[int, ...]]:
            for layer in range(config.layers):
                for name, (rows, columns) in matrices.items():
                    source = offsets.layers + layer * offsets.layer_stride + getattr(offsets, name)
                    target = layer * stride + starts[name]
                    if packed:
                        yield from (
                            (source, row, columns, target, rows, target + words) for row in range(0, rows, STEP)
                        )
                    else:
                        yield from of_matrix(source, target, rows, columns)
            if outputs and config.tied:
                yield from of_matrix(offsets.embed_weight, head, outputs, c)
            elif outputs:
                yield from of_matrix(offsets.head_weight, head, c, outputs)

        self.panels = np.array(list(panels()), np.int64)


def inner_width(config: ModelConfig) -> int:
    """Return the number of columns of the first feed-forward matrix: those of two matrices if the
    activation is gated.
    """
    return config.hidden * (1 + (config.activation in GATED))


def projected_widths(config: ModelConfig) -> tuple[int, int, int]:
    """Return the numbers of columns of the query, key and value projections."""
    of_keys = config.key_value_heads * config.head_width
    return config.heads * config.head_width, of_keys, of_keys


def qk_norm_widths(config: ModelConfig) -> tuple[int, int]:
    """Return the sizes of the weights that multiply normalised queries and keys; 0 if they are not normalised."""
    widths = {None: (0, 0), "head": (config.head_width,) * 2, "all": projected_widths(config)[:2]}
    return widths[config.qk_norm]


def norms_of(config: ModelConfig) -> tuple[str, ...]:
    """Return the names of the norms of a layer, without those of queries and keys."""
    if config.norm == "none":
        return ()
    return {"before": _NORMS[:2], "after": _NORMS[2:], "both": _NORMS}[config.norm_placement]


def rounded(count: int) -> int:
    """Return `count` elements, rounded up to whole cache lines."""
    return -(-count // ALIGN) * ALIGN


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def sum_in_order(groups: Array) -> Array:
    """Return the sum of the rows, added from first to last, in the order of Adam's kernel."""
    summed: Array = groups[0].copy()
    for group in groups[1:]:
        summed += group
    return summed
