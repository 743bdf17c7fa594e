"""The position encoding of one model: its slots at any length, and the gradients of its parameters.

This is where a model and an encoding meet. The model sees arrays by slot; the encoding sees its own parameters.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe import encoding, sums
from fastpe.config import ModelConfig

Array = np.ndarray[Any, Any]

SLOTS = ("table", "bias")
"""The slots that the model takes."""

_KEPT_LENGTHS = 8  # a user who tries many lengths should not fill the memory


class Position:
    """The encoding that a `ModelConfig` names, made for its sizes.

    Raises
    ------
    ValueError
        If the encoding cannot have these sizes, or fills a slot that the model does not take.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._parts = encoding.parse(config.encoding, config.options)
        self._specs: dict[int, encoding.Spec] = {}
        self._arrays: dict[int, dict[str, Array]] = {}
        self.initial = self._initial_values()
        """Initial values of the encoding's parameters by name in the model, ``encoding.{scheme}.{parameter}``."""
        for slot in sums.slot_shapes(self._parts, self._spec(config.train_length)):
            if slot not in SLOTS:
                raise ValueError(
                    f"encoding {config.encoding!r} fills the slot {slot!r}, which the model does not take; "
                    f"it takes {' and '.join(SLOTS)}"
                )
        self._table_factor = self._find_table_factor()

    def _sizes(self) -> dict[str, Any]:
        c = self.config
        return {
            "dim": c.width, "heads": c.heads, "train_length": c.train_length, "causal": c.causal, "dtype": c.dtype,
        }  # fmt: skip

    def _spec(self, length: int) -> encoding.Spec:
        if length not in self._specs:
            if len(self._specs) >= _KEPT_LENGTHS:
                self._specs.clear()
                self._arrays.clear()
            self._specs[length] = encoding.make_spec(length, start=self.config.start, **self._sizes())
        return self._specs[length]

    def _initial_values(self) -> dict[str, Array]:
        c = self.config
        values = encoding.init(c.encoding, **self._sizes(), seed=c.seed, **c.options)
        return {self._name(key): value for key, value in values.items()}

    def _find_table_factor(self) -> float:
        """What the table is multiplied by: one constant, so that the encoding keeps its shape."""
        c = self.config
        wanted = {"defined": None, "rms": math.sqrt(c.width / 2), "unit": 1.0}[c.table_scale]
        spec = self._spec(c.train_length)
        if wanted is None or "table" not in sums.slot_shapes(self._parts, spec):
            return 1.0
        arrays = sums.allocate(self._parts, spec)
        sums.fill(self._parts, spec, self._own(self.initial), arrays)
        norm = math.sqrt(np.square(arrays["table"], dtype=np.float64).sum() / c.train_length)
        return wanted / norm if norm else 1.0

    def _name(self, key: str) -> str:
        """A parameter's name in the model, from its key, which starts with its scheme only in a sum."""
        return f"encoding.{key}" if len(self._parts) > 1 else f"encoding.{self._parts[0].scheme}.{key}"

    def _own(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The encoding's arrays by its own keys, out of arrays by the model's names."""
        skip = len("encoding.") if len(self._parts) > 1 else len(self._name(""))
        return {name[skip:]: arrays[name] for name in self.initial}

    def slots(self, length: int, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """The filled slots at this length; the arrays are reused by the next call for it.

        Raises
        ------
        fastpe.encoding.BeyondTrainingLength
            If the encoding is undefined at this length.
        """
        arrays = self._arrays.get(length)
        if arrays is not None and not self.initial:
            return arrays
        spec = self._spec(length)
        first = arrays is None
        if arrays is None:
            arrays = sums.allocate(self._parts, spec)
        # later fills are those of a training, which finds by itself that a parameter has diverged
        sums.fill(self._parts, spec, self._own(parameters), arrays, finite=first)
        if self._table_factor != 1.0:
            arrays["table"] *= self._table_factor
        self._arrays[length] = arrays
        return arrays

    def pull(
        self, length: int, parameters: Mapping[str, Array], dslots: Mapping[str, Array], gradients: Mapping[str, Array]
    ) -> None:
        """Add the gradients of the encoding's parameters into `gradients`, given those of the slots."""
        if self._table_factor != 1.0:
            dslots = {**dslots, "table": dslots["table"] * np.asarray(self._table_factor, dslots["table"].dtype)}
        sums.add_gradients(self._parts, self._spec(length), self._own(parameters), dslots, self._own(gradients))
