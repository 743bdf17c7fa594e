"""The small transformer: its parameters in one flat array, its forward pass, its gradients, and Adam.

A model knows the *slots* that encodings fill (`fastpe.encoding`), never an encoding: `table` is added at the input,
`bias` to the scores of every layer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe import encoding
from fastpe.config import ModelConfig
from fastpe.initial import initial_values
from fastpe.kernels import _jit, model, simd
from fastpe.random import Stream

Array = np.ndarray[Any, Any]

SLOTS = ("table", "bias")
"""The slots that the model takes."""

_ALIGN = 16  # elements: every tensor starts on a cache line, in float32 as in float64
_PANEL_ROWS = 16  # rows of a matrix that one turn of the transposing loop takes


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter of the model by name, without those of its encoding; a matrix is (in, out).

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> parameter_shapes(ModelConfig("nope", layers=1))["layers.0.feedforward.in.weight"]
    (64, 128)
    """
    c, f = config.width, config.hidden
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (1, c), "embed.bias": (c,)}
    for layer in range(config.layers):
        prefix = f"layers.{layer}"
        for name in ("query", "key", "value", "out"):
            shapes[f"{prefix}.attention.{name}.weight"] = (c, c)
            shapes[f"{prefix}.attention.{name}.bias"] = (c,)
        for name, (rows, columns) in {"in": (c, f), "out": (f, c)}.items():
            shapes[f"{prefix}.feedforward.{name}.weight"] = (rows, columns)
            shapes[f"{prefix}.feedforward.{name}.bias"] = (columns,)
        if config.norm == "layernorm":
            for number in (1, 2):
                shapes[f"{prefix}.norm{number}.weight"] = (c,)
                shapes[f"{prefix}.norm{number}.bias"] = (c,)
    shapes["head.weight"] = (c, 1)
    shapes["head.bias"] = (1,)
    return shapes


class Transformer:
    """A small transformer from scalars to scalars (Li 2025, section 7.1), with any encoding of the slots it takes.

    A layer: ``z = z + Attention(z)``, ``z = z + FeedForward(z)``, with layer norms before both where asked for; see
    `ModelConfig` for the choices. Initial weights and biases are uniform in ±1/sqrt(fan in of the matrix) and depend on
    the seed and on the parameter's name alone, so that models with different encodings start alike.

    Parameters
    ----------
    config : ModelConfig
        Sizes, encoding and seed.

    Attributes
    ----------
    config : ModelConfig
    parameters : dict of str to array
        Views into one flat array: writing into them changes the model.

    Raises
    ------
    ValueError
        If the encoding cannot have these sizes, or fills a slot that this model does not take.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpe import ModelConfig, Transformer
    >>> model = Transformer(ModelConfig("alibi", width=16, heads=2, hidden=32, train_length=8))
    >>> model(np.zeros((3, 8))).shape
    (3, 8)
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.dtype = np.dtype(config.dtype)
        encoding.parse(config.encoding, config.options)
        learned = self._encoding_init()
        self._flat, self.parameters, self._offsets = _lay_out(config, self.dtype, learned)
        self._transposes, self._panels, self._transposed = _lay_out_transposes(config, self.dtype, self._offsets)
        self._learned = {key: self.parameters[self._learned_name(key)] for key in learned}
        self._initialise(learned)
        self._slots_cache: dict[int, dict[str, Array]] = {}
        self._workspaces: dict[tuple[int, int, bool], _Workspace] = {}
        self._slots(config.train_length)

    # ------------------------------------------------------------------------------------------------------ encoding

    def _encoding_keywords(self) -> dict[str, Any]:
        c = self.config
        sizes = {"dim": c.width, "heads": c.heads, "train_length": c.train_length, "causal": c.causal}
        return {**sizes, "dtype": self.dtype, **c.options}

    def _encoding_init(self) -> dict[str, Array]:
        return encoding.init(self.config.encoding, seed=self.config.seed, **self._encoding_keywords())

    def _learned_name(self, key: str) -> str:
        """Name of the encoding's parameter `key`, which in a sum starts with its scheme's name."""
        return f"encoding.{key}" if "+" in self.config.encoding else f"encoding.{self.config.encoding}.{key}"

    def _slots(self, length: int) -> dict[str, Array]:
        """The arrays that the encoding fills at this length; kept, unless the encoding learns."""
        slots = self._slots_cache.get(length)
        if slots is None:
            slots = encoding.build(self.config.encoding, length, params=self._learned, **self._encoding_keywords())
            if foreign := [name for name in slots if name not in SLOTS]:
                raise ValueError(
                    f"encoding {self.config.encoding!r} fills the slot {foreign[0]!r}, which the model does not take; "
                    f"it takes {' and '.join(SLOTS)}"
                )
            if not self._learned:
                self._slots_cache[length] = slots
        return slots

    # --------------------------------------------------------------------------------------------------- computations

    def __call__(self, x: Any, *, threads: int | None = None) -> Array:
        """Outputs y of the model.

        Parameters
        ----------
        x : array_like (B, N) or (N,)
            Scalars, finite.
        threads : int, optional
            Threads at most; all that Numba may use by default. The bits do not depend on it.

        Returns
        -------
        array of x's shape, in the model's dtype

        Raises
        ------
        TypeError, ValueError
            If x is no array of finite real numbers of such a shape.
        fastpe.encoding.BeyondTrainingLength
            If the encoding is undefined at this length.
        """
        batch = _numbers("x", x, self.dtype)
        rows = np.atleast_2d(batch)
        slots = self._slots(rows.shape[1])
        lanes = min(_threads(threads), rows.shape[0])
        work = self._workspace(rows.shape[1], lanes, slots, backward=False)
        y = np.empty_like(rows)
        _jit.fork(
            lanes, model.batch_forward, rows, y, self._flat, work.arenas, *work.slot_arrays(slots), work.sizes,
            self._offsets, work.arena,
        )  # fmt: skip
        return y.reshape(batch.shape)

    def loss_and_grads(self, x: Any, y: Any, *, threads: int | None = None) -> tuple[float, dict[str, Array]]:
        """Mean squared error over a batch and its gradient by every parameter.

        Parameters
        ----------
        x, y : array_like (B, N) or (N,)
            Inputs and targets, finite.
        threads : int, optional
            Threads at most. The bits do not depend on it.

        Returns
        -------
        loss : float
        gradients : dict of str to array
            By parameter name, in the model's dtype.

        Raises
        ------
        TypeError, ValueError
            If x or y is no array of finite real numbers, or their shapes differ.
        """
        loss, gradients = self._gradients(x, y, threads)
        summed = self._views(_sum_in_order(gradients))
        return loss, {name: view.copy() for name, view in summed.items()}

    def _gradients(self, x: Any, y: Any, threads: int | None) -> tuple[float, Array]:
        """Loss and the groups' gradients (groups, stride), to be summed in order; valid until the next call."""
        x = np.atleast_2d(_numbers("x", x, self.dtype))
        y = np.atleast_2d(_numbers("y", y, self.dtype))
        if x.shape != y.shape:
            raise ValueError(f"y must have the shape of x, {x.shape}, not {y.shape}")
        batch, length = x.shape
        slots = self._slots(length)
        groups = min(batch, 8 if batch < 64 else 16)
        lanes = min(_threads(threads), groups)
        work = self._workspace(length, lanes, slots, backward=True)
        gradients, losses = work.gradients[:groups], work.losses[:groups]
        _jit.fork(
            lanes, model.batch_gradients, x, y, self._flat, self._transposes, self._panels, gradients, losses,
            work.arenas, *work.slot_arrays(slots), work.sizes, work.offsets, self._transposed, work.arena,
        )  # fmt: skip
        if self._learned:
            self._pull(length, slots, gradients, work.offsets)
        return float(sum(losses)), gradients

    def _pull(self, length: int, slots: Mapping[str, Array], gradients: Array, offsets: model.Offsets) -> None:
        """Turn the summed gradients of the slots into those of the encoding's parameters, in the first group's row."""
        dslots = {}
        for name, start in (("table", offsets.table), ("bias", offsets.bias)):
            if name in slots:
                size = slots[name].size if name == "table" else self.config.heads * (2 * length - 1)
                summed = _sum_in_order(gradients[:, start : start + size])
                dslots[name] = summed.reshape(length, -1) if name == "table" else _fold(summed, slots[name])
        pulled = encoding.pull(self.config.encoding, length, dslots, params=self._learned, **self._encoding_keywords())
        views = self._views(gradients[0])
        for key, gradient in pulled.items():
            views[self._learned_name(key)][...] = gradient

    # ------------------------------------------------------------------------------------------------------- memory

    def _workspace(self, length: int, lanes: int, slots: Mapping[str, Array], *, backward: bool) -> "_Workspace":
        key = (length, lanes, backward)
        if key not in self._workspaces:
            if len(self._workspaces) >= 4:  # a user who tries many lengths should not fill the memory
                self._workspaces.clear()
            self._workspaces[key] = _Workspace.make(self, length, lanes, slots, backward)
        return self._workspaces[key]

    def _views(self, flat: Array) -> dict[str, Array]:
        """Views of another flat array with the parameters' layout, by parameter name."""
        views = {}
        for name, view in self.parameters.items():
            start = (view.ctypes.data - self._flat.ctypes.data) // self.dtype.itemsize
            views[name] = np.lib.stride_tricks.as_strided(flat[start:], view.shape, view.strides)
        return views

    def _initialise(self, learned: Mapping[str, Array]) -> None:
        fans = {name.rpartition(".")[0]: view.shape for name, view in self.parameters.items() if view.ndim == 2}
        for name, view in self.parameters.items():
            owner, _, kind = name.rpartition(".")
            if owner.rpartition(".")[2].startswith("norm"):
                view[...] = 1.0 if kind == "weight" else 0.0
            elif not name.startswith("encoding."):
                stream = Stream(self.config.seed, "init", name)
                view[...] = initial_values(self.config.init, stream, kind, view.shape, fans[owner])
        for key, value in learned.items():
            self._learned[key][...] = value


class Adam:
    """Adam (Kingma and Ba 2015), bias-corrected, at a constant rate, on all parameters of a model.

    Parameters
    ----------
    model : Transformer
    lr, beta1, beta2, eps : float
        Learning rate, decay rates of the two moments, and what keeps the quotient finite.

    Attributes
    ----------
    steps : int
        Updates made so far.
    first, second : dict of str to array
        The moments by parameter name; views, like the model's parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpe import ModelConfig, Transformer
    >>> adam = Adam(Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4)))
    >>> x = np.ones((2, 4))
    >>> adam.step(x, x) > adam.step(x, x)
    True
    """

    def __init__(
        self, model: Transformer, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        self.model = model
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps
        self.steps = 0
        self._first = simd.aligned_zeros(model._flat.size, model.dtype)
        self._second = simd.aligned_zeros(model._flat.size, model.dtype)
        self.first, self.second = model._views(self._first), model._views(self._second)

    def step(self, x: Any, y: Any, *, threads: int | None = None) -> float:
        """Update the model on one batch x, y (B, N); returns the mean squared error before the update."""
        loss, gradients = self.model._gradients(x, y, threads)
        self.steps += 1
        kind = self.model.dtype.type
        rate, correction2 = self.lr / (1.0 - self.beta1**self.steps), 1.0 / (1.0 - self.beta2**self.steps)
        numbers = (rate, self.beta1, self.beta2, 1.0 - self.beta1, 1.0 - self.beta2, correction2, self.eps)
        _jit.fork(
            _threads(threads), model.update, self.model._flat, gradients, self._first, self._second,
            *(kind(number) for number in numbers),
        )  # fmt: skip
        return loss


@dataclass(frozen=True)
class _Workspace:
    """What a call needs beside the parameters, made once per length, number of lanes and direction."""

    sizes: model.Sizes
    arena: model.Arena
    offsets: model.Offsets
    arenas: Array
    gradients: Array
    losses: Array
    nothing: Array

    @classmethod
    def make(
        cls, owner: Transformer, length: int, lanes: int, slots: Mapping[str, Array], backward: bool
    ) -> "_Workspace":
        c, dtype = owner.config, owner.dtype
        has_table, has_bias = "table" in slots, "bias" in slots
        wants = backward and bool(owner._learned)
        sizes = model.Sizes(
            length=length, width=c.width, heads=c.heads, hidden=c.hidden, layers=c.layers, causal=int(c.causal),
            gelu=int(c.activation == "gelu"), norms=int(c.norm == "layernorm"), residual=int(c.residual),
            has_table=int(has_table), has_bias=int(has_bias),
            wants_table=int(wants and has_table), wants_bias=int(wants and has_bias),
        )  # fmt: skip
        arena = model.arena_layout(sizes, simd.whole_vectors(length, dtype), backward=backward)
        stride = owner._flat.size
        offsets = owner._offsets._replace(table=stride)
        stride += _rounded(length * c.width) * sizes.wants_table
        offsets = offsets._replace(bias=stride)
        stride += _rounded(c.heads * (2 * length - 1)) * sizes.wants_bias
        groups = 16 if backward else 0
        # arenas a whole number of pages apart share cache sets; a few lines more spread them
        arenas = simd.aligned_zeros((lanes, _rounded(arena.size) + 5 * _ALIGN), dtype)
        gradients = simd.aligned_zeros((groups, stride), dtype)
        return cls(sizes, arena, offsets, arenas, gradients, np.zeros(groups), np.zeros(1, dtype))

    def slot_arrays(self, slots: Mapping[str, Array]) -> tuple[Array, Array]:
        """Table and bias as the kernels take them: an array that is not read stands for a slot that is not used."""
        table = slots.get("table", self.nothing)
        bias = _unfold(slots["bias"], self.sizes.length) if "bias" in slots else self.nothing
        return table.ravel(), bias.ravel()


# ---------------------------------------------------------------------------------------------------------------------
# Layout


def _rounded(count: int) -> int:
    return -(-count // _ALIGN) * _ALIGN


def _lay_out(
    config: ModelConfig, dtype: np.dtype[Any], learned: Mapping[str, Array]
) -> tuple[Array, dict[str, Array], model.Offsets]:
    """The flat array of all parameters, their views by name, and where the kernels find them.

    The query, key and value maps of a layer are one matrix (C, 3 C), so that one product serves them.
    """
    c, f = config.width, config.hidden
    cursor = 0

    def take(count: int) -> int:
        nonlocal cursor
        start = cursor
        cursor += _rounded(count)
        return start

    ends = {"embed_weight": take(c), "embed_bias": take(c), "head_weight": take(c), "head_bias": take(1)}
    first_layer = cursor
    layer = {
        "qkv_weight": take(3 * c * c), "qkv_bias": take(3 * c), "out_weight": take(c * c), "out_bias": take(c),
        "in_weight": take(c * f), "in_bias": take(f), "ff_weight": take(f * c), "ff_bias": take(c),
    }  # fmt: skip
    norm_width = c if config.norm == "layernorm" else 0
    layer |= {f"norm{k}_{kind}": take(norm_width) for k in (1, 2) for kind in ("weight", "bias")}
    stride = cursor - first_layer
    layer = {name: start - first_layer for name, start in layer.items()}
    cursor = first_layer + config.layers * stride
    encoding_starts = {key: take(value.size) for key, value in learned.items()}
    offsets = model.Offsets(**ends, layers=first_layer, layer_stride=stride, **layer, table=0, bias=0)
    flat = simd.aligned_zeros(cursor, dtype)

    views: dict[str, Array] = {}
    for name, shape in parameter_shapes(config).items():
        views[name] = _parameter_view(flat, offsets, name, shape, c)
    for key, start in encoding_starts.items():
        full = f"encoding.{key}" if "+" in config.encoding else f"encoding.{config.encoding}.{key}"
        views[full] = flat[start : start + learned[key].size].reshape(learned[key].shape)
    return flat, views, offsets


def _parameter_view(flat: Array, offsets: model.Offsets, name: str, shape: tuple[int, ...], c: int) -> Array:
    parts = name.split(".")
    if parts[0] != "layers":
        start = getattr(offsets, "_".join(parts))
        return flat[start : start + math.prod(shape)].reshape(shape)
    base, kind = offsets.layers + int(parts[1]) * offsets.layer_stride, parts[-1]
    third = {"query": 0, "key": 1, "value": 2}.get(parts[3])
    if third is not None:
        start = base + getattr(offsets, f"qkv_{kind}")
        rows = flat[start : start + shape[0] * 3 * c] if kind == "weight" else flat[start : start + 3 * c]
        return (
            rows.reshape(-1, 3 * c)[:, third * c : (third + 1) * c].reshape(shape)
            if kind == "weight"
            else (rows[third * c : (third + 1) * c])
        )
    owner = {("attention", "out"): "out", ("feedforward", "in"): "in", ("feedforward", "out"): "ff"}.get(
        (parts[2], parts[3]), parts[2]
    )
    start = base + getattr(offsets, f"{owner}_{kind}")
    return flat[start : start + math.prod(shape)].reshape(shape)


def _lay_out_transposes(
    config: ModelConfig, dtype: np.dtype[Any], offsets: model.Offsets
) -> tuple[Array, Array, model.Transposed]:
    """Room for the transposed matrices, the panels that are transposed, and where the transposes start."""
    c, f = config.width, config.hidden
    matrices = {"qkv_weight": (c, 3 * c), "out_weight": (c, c), "in_weight": (c, f), "ff_weight": (f, c)}
    starts, cursor = {}, 0
    for name, (rows, columns) in matrices.items():
        starts[name] = cursor
        cursor += _rounded(rows * columns)
    panels = [
        (
            offsets.layers + layer * offsets.layer_stride + getattr(offsets, name) + row * columns,
            min(_PANEL_ROWS, rows - row), columns, layer * cursor + starts[name] + row, rows,
        )
        for layer in range(config.layers)
        for name, (rows, columns) in matrices.items()
        for row in range(0, rows, _PANEL_ROWS)
    ]  # fmt: skip
    room = simd.aligned_zeros(config.layers * cursor, dtype)
    return room, np.array(panels, np.int64), model.Transposed(layer_stride=cursor, **starts)


def _unfold(bias: Array, length: int) -> Array:
    """(H, 2K+1) to (H, 2 length - 1): offset o reads the row clip(o, -K, K) + K."""
    reach = bias.shape[1] // 2
    if reach == length - 1:
        return np.ascontiguousarray(bias)
    return np.ascontiguousarray(bias[:, np.clip(np.arange(1 - length, length), -reach, reach) + reach])


def _fold(dbias: Array, bias: Array) -> Array:
    """The gradient of `bias` (H, 2K+1) from that of its `_unfold`, given flat."""
    dbias = dbias.reshape(bias.shape[0], -1)
    length, reach = dbias.shape[1] // 2 + 1, bias.shape[1] // 2
    folded = np.zeros_like(bias)
    np.add.at(folded.T, np.clip(np.arange(1 - length, length), -reach, reach) + reach, dbias.T)
    return folded


def _sum_in_order(groups: Array) -> Array:
    summed: Array = groups[0].copy()
    for group in groups[1:]:
        summed += group
    return summed


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def _threads(threads: int | None) -> int:
    if threads is None:
        return _jit.default_threads()
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"threads must be an integer, not {threads!r}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    return threads


def _numbers(name: str, value: Any, dtype: np.dtype[Any]) -> Array:
    """`value` as a contiguous array of finite numbers (B, N) or (N,), neither empty."""
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, not {array.dtype}")
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise ValueError(
            f"{name} must have the shape (sequences, length) or (length,), none of them 0, not {array.shape}"
        )
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=dtype)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, but {np.count_nonzero(~np.isfinite(array))} of its values are not")
    return array
