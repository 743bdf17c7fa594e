"""Parameters of a model as the tensors of an architecture, and back."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fastpe.huggingface.families import EMBEDDING_NORM, TABLE, Family, Row, Tensor, effective
from fastpe.huggingface.positions import layers_of, longest
from fastpe.huggingface.values import Values
from fastpe.model.config import ModelConfig
from fastpe.model.parameters import parameter_shapes
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]

_NORMS = ("norm", "norm_minus_one")
_TURNED = ("query", "key", "query_norm", "key_norm")
_SMALL = 1e-8
"""Largest mean square of a row of small embeddings, as a share of the eps of the norm behind them."""


class Layout:
    """The sizes of a model's parameters, and the order of the channels that it rotates.

    Parameters
    ----------
    config : ModelConfig
        The model.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._own = effective(config)
        self._shapes = parameter_shapes(config)
        self._shapes |= {"head.weight": (config.width, self._own["vocabulary"])}  # of a tied model, if stored
        self._shapes |= {f"{TABLE}.weight": (longest(config), config.width)}
        self._turned = [0] * config.layers
        for layer, (part, *_) in enumerate(layers_of(config)):
            if "angles" in part.encoding.slots and part.options["pairs"] == "interleaved":
                self._turned[layer] = part.options["rotated"] or self._own["head_dim"]

    def rows(self, name: str) -> int:
        """Number of outputs of a map, also for its bias; the width of a norm; or the number of embeddings."""
        stem = name.rpartition(".")[0]
        return self._shapes[f"{stem}.weight"][0 if stem in ("embed", TABLE) else -1]

    def pack(self, tensor: Tensor, values: Mapping[str, Array]) -> Array:
        """The tensor of the architecture, from the parameters by name. Biases that are not there are 0."""
        parts = []
        for name in tensor.ours:
            value = values.get(name)
            if value is None:
                value = np.zeros(self.rows(name), np.float32)
            parts.append(self._ordered(name, _outputs_first(tensor.row, value), tensor.layer))
        if tensor.row.by_head:
            heads = [part.reshape(self._own["heads"], self._own["head_dim"], *part.shape[1:]) for part in parts]
            joined = np.stack(heads, axis=1).reshape(-1, *parts[0].shape[1:])
        else:
            joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if tensor.row.kind == "norm_minus_one":
            joined = joined - 1
        with np.errstate(over="ignore"):  # `pack` refuses numbers that are not finite
            return np.ascontiguousarray(_outputs_first(tensor.row, joined, back=True), np.float32)

    def unpack(self, tensor: Tensor, array: Array) -> dict[str, Array]:
        """The parameters by name, from the tensor of the architecture."""
        joined = _outputs_first(tensor.row, array, packed=True)
        if tensor.row.kind == "norm_minus_one":
            joined = joined + 1
        if tensor.row.by_head:
            by_head = joined.reshape(self._own["heads"], len(tensor.ours), self._own["head_dim"], *joined.shape[1:])
            parts = [by_head[:, i].reshape(-1, *joined.shape[1:]) for i in range(len(tensor.ours))]
        else:
            parts = np.split(joined, np.cumsum([self.rows(name) for name in tensor.ours])[:-1])
        found = {}
        for name, part in zip(tensor.ours, parts, strict=True):
            ordered = self._ordered(name, part, tensor.layer, back=True)
            found[name] = ordered.T if tensor.row.kind in ("linear", "conv1d") else ordered
        return found

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of the tensor of the architecture."""
        outputs = sum(map(self.rows, tensor.ours))
        if tensor.row.kind in _NORMS or tensor.name.endswith(".bias"):
            return (outputs,)
        inputs = self._shapes[tensor.ours[0]][1 if tensor.row.kind == "embedding" else 0]
        return (inputs, outputs) if tensor.row.kind == "conv1d" else (outputs, inputs)

    def _ordered(self, name: str, rows: Array, layer: int, *, back: bool = False) -> Array:
        """Rows of a query or key map, or of its norm, with the channels of a pair half a head apart.

        back: with the channels of a pair next to each other.
        """
        turned = self._turned[layer] if layer >= 0 and name.split(".")[-2] in _TURNED else 0
        if not turned:
            return rows
        order = np.arange(self._own["head_dim"])
        order[:turned] = np.concatenate([np.arange(0, turned, 2), np.arange(1, turned, 2)])
        by_head = rows.reshape(-1, len(order), *rows.shape[1:])
        return by_head[:, np.argsort(order) if back else order].reshape(rows.shape)


def _outputs_first(row: Row, array: Array, *, back: bool = False, packed: bool = False) -> Array:
    """A matrix of fastpe (in, out) or a packed tensor with its outputs first, or `back` to the architecture's layout.

    Embeddings and vectors have their outputs first in both.
    """
    if array.ndim < 2 or row.kind == "embedding":
        return array
    if back or packed:
        return array.T if row.kind == "conv1d" else array
    return array.T


def pack(model: Transformer, family: Family, values: Values) -> dict[str, Array]:
    """All tensors of a model in an architecture, float32.

    Parameters
    ----------
    model : Transformer
        A model that the architecture can express but for its parameters.
    family : Family
        The architecture.
    values : Values
        The content of config.json.

    Raises
    ------
    ValueError
        If the architecture has no place for a parameter that is not 0.
    """
    if name := homeless(model, family, values):
        raise ValueError(f"parameter {name!r} has no place in {family.architecture}, where it must be 0")
    config, own = model.config, model.copies()
    if any(row.ours == (TABLE,) for row in family.rows):
        rows = longest(config)
        table = model.slots(rows).get("table")
        own[f"{TABLE}.weight"] = np.zeros((rows, config.width), np.float32) if table is None else table
    if config.tied:
        own["head.weight"] = own["embed.weight"].T
    layout = Layout(config)
    found = {tensor.name: layout.pack(tensor, own) for tensor in family.tensors(effective(config), values)}
    if family.small_embeddings:
        _make_small(family, found, config.norm_eps)
    for name, array in found.items():
        if not np.isfinite(array).all():
            raise ValueError(f"parameters must be finite in float32, but tensor {name!r} is not")
    return found


def homeless(model: Transformer, family: Family, values: Values) -> str | None:
    """The first parameter that is not 0 and has no place in an architecture; None if there is none."""
    placed = {name for tensor in family.tensors(effective(model.config), values) for name in tensor.ours}
    own = model.parameters
    return next((name for name in parameter_shapes(model.config) if name not in placed and own[name].any()), None)


def _make_small(family: Family, found: dict[str, Array], eps: float) -> None:
    """Turn the norm behind the embeddings into a factor (BLOOM).

    Embeddings are multiplied by a factor that makes them so small that eps is all that counts under the norm's root,
    and the norm's weight is sqrt(eps) divided by the factor. The norm also takes away the mean of every row, which no
    LayerNorm behind it sees. The factor is a power of two, so products are exact.
    """
    name = f"{family.rows[0].theirs}.weight"
    largest = float(np.square(found[name], dtype=np.float64).mean(axis=1).max())
    factor = 2.0 ** math.floor(math.log2(math.sqrt(_SMALL * eps / largest))) if largest > 0 else 1.0
    found[name] = found[name] * np.float32(factor)
    found[f"{EMBEDDING_NORM}.weight"] = np.full(found[name].shape[1], np.sqrt(eps) / factor, np.float32)
    found[f"{EMBEDDING_NORM}.bias"] = np.zeros(found[name].shape[1], np.float32)


def unpack(
    family: Family, config: ModelConfig, tensors: list[Tensor], read: Callable[[str], Array]
) -> Iterator[tuple[str, Array]]:
    """The parameters of a model by name, one after another. read: the values of a tensor."""
    layout, factor = Layout(config), 1.0
    if family.small_embeddings:
        factor = math.sqrt(config.norm_eps) / float(read(f"{EMBEDDING_NORM}.weight")[0])
        exact = 2.0 ** round(math.log2(factor))  # that of `_make_small`; the norm's weight is rounded to float32
        factor = exact if math.isclose(factor, exact, rel_tol=1e-6) else factor
    for tensor in tensors:
        array = read(tensor.name)
        if tensor.row.ours == ("embed",) and factor != 1.0:
            array = array / np.float32(factor)
        yield from layout.unpack(tensor, array).items()
