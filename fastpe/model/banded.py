"""Trained models that read longer inputs with bands (`fastpe.bands`), which replace the models' rotary positions."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe import bands
from fastpe.base import validation
from fastpe.encodings import combined, registry
from fastpe.encodings.encoding import Part
from fastpe.model.by_layer import ByLayer, Layers
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]
_SCHEMES: Mapping[str, Callable[..., tuple[bands.Band, ...]]] = {
    each.__name__: each
    for each in (
        bands.self_extend, bands.rerope, bands.leaky_rerope, bands.dual_chunk, bands.shifted, bands.lampe,
        bands.lm_infinite, bands.streaming,
    )
}  # fmt: skip
_ROTATED = "angles"


class Banded(ByLayer):
    """A copy of a trained rotary model that reads longer inputs, because a scheme changes its rotary positions.

    All layers with rotary encodings use the rotary positions of the scheme; see `fastpe.bands`. The copy cannot be
    trained, saved or used to generate text. Except for attention, its layers are computed in NumPy, so for short inputs
    it is slower than the model itself.

    Parameters
    ----------
    model : Transformer
        A model in which some or all layers have a rotary encoding. The angles must be products of positions and
        frequencies. `fastpe.attention` must accept the slots of the model's other encodings together with `bands`.
    scheme : str
        The name of a function of `fastpe.bands`, with its options, such as ``"self_extend:group=4,window=32"``. The
        default options are for models that were trained on thousands of positions. For other models, choose a window
        below the training length.

    Raises
    ------
    TypeError, ValueError
        If the scheme does not exist, or if no layer of the model rotates queries and keys.

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> model = Transformer(ModelConfig("rope", width=16, hidden=16, causal=True, train_length=8))
    >>> x, near = np.ones((1, 6)), Banded(model, "self_extend:group=2,window=6")
    >>> bool(np.allclose(near(x), model(x), atol=1e-6))
    True
    """

    changed = "bands"

    def __init__(self, model: Transformer, scheme: str) -> None:
        validation.instance("model", model, Transformer, "Banded(fastpe.load('runs/rope-0'), 'rerope:window=50')")
        self._scheme, self.bands = parsed(scheme), scheme
        config = model.config
        if config.positions != "usual":
            raise ValueError(f"bands need the usual positions, not positions={config.positions!r}")
        if not config.causal and not _goes_both_ways(self._scheme[0]):
            raise ValueError(f"bands {scheme!r} need a causal model")
        pattern = registry.parse_layers(config.encoding, config.options)
        self._turned = [_turned(pattern[layer % len(pattern)]) for layer in range(config.layers)]
        if not any(self._turned):
            raise ValueError(f"bands need an encoding that rotates queries and keys, not {config.encoding!r}")
        super().__init__(model)
        for part, gate in zip(self._turned, self._encoding.gates, strict=True):
            if part is not None and gate is not None and gate.frequencies:
                raise ValueError(f"bands need layers that rotate by position only, not {config.encoding!r}")
        self(np.zeros((1, 2), int))  # raises the errors of attention now

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, bands {self.bands}>"

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments = super().__reduce__()
        return Banded, (make(*arguments), self.bands)

    def _layers(self, length: int) -> Layers:
        options = {} if self.config.causal else {"causal": False}
        made, layers = _SCHEMES[self._scheme[0]](length, **self._scheme[1], **options), super()._layers(length)
        for own, part in zip(layers, self._turned, strict=True):
            own.pop(_ROTATED, None)
            if part is not None:
                own |= {"bands": made, "theta": self._frequencies(part, length)}
        return layers

    def _frequencies(self, part: Part, length: int) -> Array:
        if combined.axes((part,), given=True) > 1:
            raise ValueError(f"bands need angles that are positions times frequencies, not those of {part.scheme!r}")
        sizes = {
            "dim": self.config.heads * self.config.head_width,
            "heads": self.config.heads,
            "causal": self.config.causal,
        }
        return bands.frequencies(
            part.scheme.partition("@")[0], length, train_length=self.config.made_for, **sizes, **part.options
        )


def parsed(scheme: str) -> tuple[str, dict[str, int]]:
    """Return the name and the options of a scheme of `fastpe.bands`.

    >>> parsed("self_extend:group=4,window=32")
    ('self_extend', {'group': 4, 'window': 32})
    """
    if not isinstance(scheme, str):
        raise TypeError(
            f"bands must be a scheme such as 'self_extend:group=4,window=32', not {validation.shown(scheme)}"
        )
    name, colon, text = scheme.partition(":")
    if name not in _SCHEMES:
        raise ValueError(f"bands must be one of {', '.join(_SCHEMES)}, not {name!r}")
    known = [key for key in inspect.signature(_SCHEMES[name]).parameters if key not in _GIVEN]
    options = {}
    for each in text.split(",") if colon else []:
        key, equals, value = each.partition("=")
        if key not in known or not equals:
            raise ValueError(f"options of {name!r} are {', '.join(f'{own}=NUMBER' for own in known)}, not {each!r}")
        if not (value.isascii() and value.isdigit() and len(value) < 12):
            raise ValueError(f"{key} of {name!r} must be an integer in digits, not {value!r}")
        if key in options:
            raise ValueError(f"{key} of {name!r} is given twice")
        options[key] = int(value)
    _SCHEMES[name](1, **options)  # raises an error if an option is too small
    return name, options


_GIVEN = {"queries", "keys", "causal", "offset"}


def _goes_both_ways(name: str) -> bool:
    return "causal" in inspect.signature(_SCHEMES[name]).parameters


def _turned(parts: tuple[Part, ...]) -> Part | None:
    """Return the encoding of a layer that rotates rows by position, or None. A layer has at most one."""
    return next((part for part in parts if _ROTATED in part.encoding.slots), None)
