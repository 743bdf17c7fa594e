"""The hidden states of a model in float64, layer by layer, computed with the NumPy reference."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.base import validation
from fastpe.model.encoding import ModelEncoding
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]

_AT_INPUT = ("table", "taps")
_AGREES = 1e-3  # largest error relative to the outputs, since the model computes in float32
_TEMPORARY = 12  # number of (heads, N, N) arrays that the reference has in memory


class HiddenStates:
    """The hidden states of one model at one length.

    The NumPy reference returns only the outputs of a model, not its hidden states. Therefore each layer is run as a
    separate model. In this model, every position of every sequence is a token of its own, the embedding table holds the
    states before the layer, and the head is the identity.

    Parameters
    ----------
    model : Transformer
    length : int
        Number of positions.

    Attributes
    ----------
    silent : bool
        Whether the encoding adds nothing to the input.

    Raises
    ------
    ValueError
        If this length needs more memory than the machine has.
    fastpe.BeyondTrainingLength
        If the encoding is undefined at this length.

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> model = Transformer(ModelConfig("alibi", width=8, hidden=8, layers=2, train_length=4))
    >>> [states.shape for states in HiddenStates(model, 6)(np.zeros((3, 6)))]
    [(3, 6, 8), (3, 6, 8), (3, 6, 8)]
    """

    def __init__(self, model: Transformer, length: int) -> None:
        config = model.config
        validation.room(f"attention of {length} positions", 8 * _TEMPORARY * config.heads * length**2)
        self._model, self._config = model, config
        self._parameters = {name: array.astype(np.float64) for name, array in model.copies().items()}
        self._slots = ModelEncoding(config).reference_slots(length, self._parameters)
        self._input = {name: self._slots[0][name] for name in _AT_INPUT if self._slots[0].get(name) is not None}
        if "table" in self._input:  # with positions="offset:L" the table has L rows
            self._input["table"] = self._input["table"][:length]
        self.silent = not self._input

    def __call__(self, x: Array) -> list[Array]:
        """Return the states before the first layer and after each layer.

        Parameters
        ----------
        x : (sequences, length)
            Numbers or tokens.

        Returns
        -------
        list of (sequences, length, width) float64

        Raises
        ------
        TypeError, ValueError
            If x is not a valid input of the model.
        ArithmeticError
            If the outputs computed from the states differ from the outputs of the model.
        """
        outputs, weight = self._model(x), self._parameters["embed.weight"]
        if self._config.vocabulary is None:
            seen = x.astype(self._config.dtype).astype(np.float64)
            embedded = seen[..., None] * weight[0] + self._parameters.get("embed.bias", 0.0)
        else:
            embedded = weight[x] * self._config.embedding_scale
        found = [self._through(embedded, 0, self._input, {}, np.eye(self._config.width))]
        for layer, slots in enumerate(self._slots):
            prefix = f"layers.{layer}."
            own = {
                f"layers.0.{name.removeprefix(prefix)}": array
                for name, array in self._parameters.items()
                if name.startswith(prefix)
            }
            acting = {name: slot for name, slot in slots.items() if name not in _AT_INPUT}
            found.append(self._through(found[-1], 1, acting, own, np.eye(self._config.width)))
        self._check(found[-1], outputs)
        return found

    def _check(self, last: Array, wanted: Array) -> None:
        own = self._parameters
        head = own["embed.weight"].T if self._config.tied else own["head.weight"]
        ends = {name: own[name] for name in own if name == "head.bias" or name.startswith("final_norm.")}
        outputs = self._through(last, 0, {}, ends, head, self._config.final_norm, self._config.logit_softcap)
        error = float(np.abs(outputs - wanted.reshape(outputs.shape)).max())
        if not error <= _AGREES * max(1.0, float(np.abs(outputs).max())):
            raise ArithmeticError(
                f"the model's outputs differ by {error:.2g} from the outputs that its layers give in float64"
            )

    def _through(
        self, z: Array, layers: int, slots: Mapping[str, Any], own: Mapping[str, Array], head: Array,
        final_norm: bool = False, logit_softcap: float | None = None,
    ) -> Array:  # fmt: skip
        """Return the outputs of a model with `layers` layers whose embeddings are z, (sequences, length, channels)."""
        c = self._config
        config = SimpleNamespace(
            heads=c.heads, layers=layers, causal=c.causal, activation=c.activation, norm=c.norm, residual=c.residual,
            vocabulary=z.shape[0] * z.shape[1], final_norm=final_norm, tied=False, logit_softcap=logit_softcap,
            **{name: getattr(c, name) for name in ("key_heads", "norm_eps", "norm_placement", "parallel", "qk_norm")},
        )  # fmt: skip
        parameters = {**own, "embed.weight": z.reshape(-1, z.shape[-1]), "head.weight": head}
        return reference.model_forward(config, parameters, slots, np.arange(config.vocabulary).reshape(z.shape[:2]))
