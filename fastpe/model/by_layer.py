"""Trained models whose layers are computed one after the other in NumPy, so that their attention can be changed."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.functional.attention import attention
from fastpe.kernels.threads.team import at_most, threads_for
from fastpe.model import sight
from fastpe.model.encoding import ModelEncoding
from fastpe.model.encoding_by_rule import EncodingByRule
from fastpe.model.transformer import Transformer
from fastpe.reference import model_forward

Array = np.ndarray[Any, Any]
Layers = list[dict[str, Any]]

MOST = 2**24
"""The largest number of activations of a layer that are held at a time."""


class ByLayer(Transformer):
    """A copy of a model. Its layers are computed in NumPy, and `_attend` computes attention.

    It can neither be trained, nor saved, nor generate text. `changed` names what its subclass changes, for errors.
    """

    changed = ""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model.config)
        self.parameters = model.parameters
        self.vocabulary = model.vocabulary

    def _layers(self, length: int) -> Layers:
        """Return the slots of every layer. The first layer also has those that act at the input."""
        return self._layers_of(self._encoding, length, self._layout.views)

    def _layers_of(
        self, encoding: ModelEncoding | EncodingByRule, length: int, parameters: Mapping[str, Array]
    ) -> Layers:
        """Return the slots of every layer with this encoding, the keys that each query sees, and the gates."""
        config, filled = self.config, encoding.slots(length, parameters)
        spans = sight.spans(config.sight, config.layers, length, causal=config.causal)
        layers = Layers()
        for layer in range(config.layers):
            own = {name: x[layer] if name in encoding.layered else x for name, x in filled.items()}
            if np.ndim(own.get("scale", 0.0)) > 1:
                own["scale"] = own["scale"][layer]
            if spans is not None:
                own["spans"] = spans[layer][None]
            if (gate := encoding.gates[layer]) is not None:
                own["gate"] = gate
            layers.append(own)
        return layers

    def _attend(self, layer: int, q: Array, k: Array, v: Array, options: dict[str, Any]) -> Array:
        """Return the output of attention in a layer, for `options` of `fastpe.attention`."""
        out: Array = attention(q, k, v, **options)
        return out

    def _attention(self, lengths: Array) -> Callable[..., Any]:
        """Attention as `fastpe.reference.model_forward` calls it, for sequences of these lengths."""
        layers = itertools.count()

        def attend(
            dtype: Any, q: Array, k: Array, v: Array, *, factors: None, follows: bool = False, **options: Any
        ) -> tuple[Array, None]:
            q, k, v = (np.ascontiguousarray(x, dtype) for x in (q, k, v))
            return self._attend(next(layers), q, k, v, options | {"lengths": lengths}), None

        return attend

    def _outputs(self, rows: Array, lengths: Array, threads: int | None, draw: int) -> Array:
        batch, length = rows.shape
        layers: Sequence[dict[str, Any]] = self._layers(length)
        values = self.config.vocabulary or 1
        y = np.zeros((batch, length, values), self.dtype)
        some = max(1, MOST // (length * max(values, 4 * self.config.hidden)))
        own = np.broadcast_to(lengths, batch)
        tokens = rows.astype(np.int64) if self.config.vocabulary else rows
        with at_most(threads_for(threads)):
            for start in range(0, batch, some):
                part = slice(start, start + some)
                attend = self._attention(own[part])
                found = model_forward(self.config, self._layout.views, layers, tokens[part], attend=attend)
                y[part] = found.reshape(-1, length, values)
        y[np.arange(length) >= own[:, None]] = 0
        return y.reshape(batch, length * values)

    def _by_rows(
        self, x: Array, lengths: Array, wanted: Array, use: Callable[[slice, Array], None], threads: int | None,
        draw: int,
    ) -> None:  # fmt: skip
        if wanted.any():  # `use` never gets an empty block
            logits = self._outputs(x, lengths, threads, draw).reshape(x.size, -1)[wanted.ravel()]
            use(slice(0, len(logits)), logits)

    def save(self, path: Any) -> None:
        """Raise ValueError, because model files do not store the change."""
        raise ValueError(f"a model with {self.changed} cannot be saved: save the model that it was made from")

    def _loss(self, *_: Any) -> Any:
        raise ValueError(
            f"a model with {self.changed} can neither be trained nor generate text: use the model that it was made from"
        )

    def _gradients(self, *_: Any) -> Any:
        return self._loss()

    def _writer(self, *_: Any) -> Any:
        return self._loss()
