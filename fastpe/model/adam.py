"""Adam and AdamW. The kernel of a training step computes the gradients and the update in one call."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.kernels import simd
from fastpe.model.parameters import ALIGN, Parameters, Views
from fastpe.model.scratch import Update
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]

GROUPS = ("model", "adam.first", "adam.second")
"""Prefixes of the names of arrays in a checkpoint: parameters, first moments and second moments."""

_MOST_STEPS = 2**53  # the largest range in which float64 represents every integer
_RANGE = 4096  # largest number of parameters that one task updates


def _share(name: str, value: Any, dtype: Any) -> float:
    return validation.at_least_zero(name, value, 1.0)


def _at_least_zero(name: str, value: Any, dtype: Any) -> float:
    return validation.at_least_zero(name, value)


def _limit(name: str, value: Any, dtype: Any) -> float:
    return math.inf if value == math.inf else validation.positive(name, value, dtype)


class _Number:
    """A setting of an optimiser, checked whenever it is assigned."""

    def __init__(self, check: Callable[[str, Any, Any], float]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, optimiser: Any, owner: type | None = None) -> float:
        if optimiser is None:  # read from the class
            raise AttributeError(self._name)
        number: float = optimiser.__dict__[self._name]
        return number

    def __set__(self, optimiser: Any, value: Any) -> None:
        optimiser.__dict__[self._name] = self._check(self._name, value, optimiser.model.dtype)


@validation.named_arguments
class Adam:
    """Adam (Kingma and Ba 2015) with bias correction, for all parameters of a model; with weight decay, AdamW.

    The settings are also attributes. You can change them between steps, for example `lr` for a learning-rate schedule.

    Parameters
    ----------
    model : Transformer
    lr, beta1, beta2, eps : float
        Learning rate (above 0), decay rates of the two moments (in [0, 1)), and the constant in the denominator
        (above 0).
    weight_decay : float
        Decoupled weight decay, at least 0 (Loshchilov and Hutter 2019, arXiv:1711.05101). Before each update, matrices
        and tables are multiplied by 1 - lr * weight_decay. Biases and norms do not decay.
    clip : float
        Largest norm of all gradients together, above 0. If the norm is larger, all gradients are multiplied by
        clip / (norm + 1e-6) before the update (Pascanu et al. 2013). By default infinite, so gradients are not clipped.

    Attributes
    ----------
    steps : int
        Number of updates so far.
    first, second : dict of str to array
        The first and second moments of each parameter, by its name. As with the model's parameters, you can write into
        these arrays or assign new values to them.

    Raises
    ------
    TypeError, ValueError
        If `model` is not a `Transformer`, or if a number has the wrong type or is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpe import ModelConfig, Transformer
    >>> adam = Adam(Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4)))
    >>> x = np.ones((2, 4))
    >>> adam.step(x, x) > adam.step(x, x)
    True
    """

    lr, eps = _Number(validation.positive), _Number(validation.positive)
    beta1, beta2 = _Number(_share), _Number(_share)
    weight_decay, clip = _Number(_at_least_zero), _Number(_limit)

    def __init__(
        self, model: Transformer, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
        *, weight_decay: float = 0.0, clip: float = math.inf,
    ) -> None:  # fmt: skip
        validation.instance("model", model, Transformer, "Adam(Transformer(ModelConfig('wavelet')))")
        self._model = model
        self.lr, self.eps, self.beta1, self.beta2 = lr, eps, beta1, beta2
        self.weight_decay, self.clip = weight_decay, clip
        self._ranges = _ranges(model._layout)
        self._steps = np.zeros(1, np.int64)
        self._moments = simd.aligned_zeros((2, model._layout.flat.size), model.dtype)
        self._first, self._second = (
            Views(f"{name} moments", model._layout.views_of(moment))
            for name, moment in zip(("first", "second"), self._moments, strict=True)
        )

    @property
    def model(self) -> Transformer:
        """The model whose parameters are updated."""
        return self._model

    @property
    def first(self) -> dict[str, Array]:
        """The first moments, by parameter name."""
        return self._first

    @property
    def second(self) -> dict[str, Array]:
        """The second moments, by parameter name."""
        return self._second

    @property
    def steps(self) -> int:
        """Number of updates so far."""
        return int(self._steps[0])

    @steps.setter
    def steps(self, number: int) -> None:
        self._steps[0] = validation.whole("steps", number, 0, _MOST_STEPS)

    def step(self, x: Any, y: Any, *, weights: Any = None, lengths: Any = None, threads: int | None = None) -> float:
        """Update the model with one batch.

        Parameters
        ----------
        x, y, weights, lengths, threads
            As for `Transformer.loss_and_grads`.

        Returns
        -------
        float
            The loss before the update.
        """
        with self.model._lock:
            return self.model._gradients(x, y, weights, lengths, threads, self.steps, self._update(self.steps + 1))[0]

    def copies(self) -> tuple[int, dict[str, Array]]:
        """Return the number of updates so far, and copies of the parameters and both moments after these updates.

        Examples
        --------
        >>> from fastpe import ModelConfig
        >>> adam = Adam(Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4)))
        >>> steps, arrays = adam.copies()
        >>> steps, [name for name in arrays if "head.bias" in name]
        (0, ['model.head.bias', 'adam.first.head.bias', 'adam.second.head.bias'])
        """
        layout = self._model._layout
        with self._model._lock:
            steps, flats = self.steps, (layout.flat.copy(), *self._moments.copy())
        groups = zip(GROUPS, map(layout.views_of, flats), strict=True)
        return steps, {f"{group}.{name}": array for group, own in groups for name, array in own.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = (self.lr, self.beta1, self.beta2, self.eps, self.weight_decay, self.clip)
        # parameters and moments of the same step: another thread may train the model before the model itself is copied
        with self._model._lock:
            flat = self._model._layout.flat.copy()
            return _restored_adam, (self.model, numbers, self.steps, self._moments.copy(), flat)

    def _update(self, t: int) -> Update:
        rate, correction2 = self.lr / (1.0 - self.beta1**t), 1.0 / (1.0 - self.beta2**t)
        keep = 1.0 - self.lr * self.weight_decay
        moments = (self.beta1, self.beta2, 1.0 - self.beta1, 1.0 - self.beta2, correction2, self.eps)
        with np.errstate(over="ignore"):  # training diverges with a learning rate beyond float32, and the loss shows it
            rounded = np.array((rate, *moments, keep, self.clip)).astype(self.model.dtype)
        ranges = self._ranges[self.weight_decay > 0]
        squares = np.zeros(len(ranges) if math.isfinite(self.clip) else 0)
        return Update(self._moments, rounded, ranges, squares, self._steps)


def _ranges(layout: Parameters) -> tuple[Array, Array]:
    """Return the ranges of parameters of the tasks of an update: (R, 3) without weight decay, and (R, 3) with it.

    A row holds the start of a range, its end, and whether its parameters decay.
    """
    size = layout.flat.size
    decays = np.zeros(size, bool)
    for view in layout.views_of(decays).values():
        view[...] = view.ndim > 1
    lines = np.repeat(decays.reshape(-1, ALIGN).any(axis=1), ALIGN)  # no line has two tensors
    return _cut(np.zeros(size, bool)), _cut(lines)


def _cut(decays: Array) -> Array:
    """Cut the parameters into ranges in which the flag `decays` is constant, each short enough for one task."""
    ends = [*(np.flatnonzero(np.diff(decays)) + 1).tolist(), decays.size]
    found, start = [], 0
    for end in ends:
        for begin in range(start, end, _RANGE):
            found.append((begin, min(begin + _RANGE, end), int(decays[start])))
        start = end
    return np.array(found, np.int64)


def _restored_adam(model: Transformer, numbers: tuple[float, ...], steps: int, moments: Array, flat: Array) -> Adam:
    """Build a copied optimiser: copy these moments into its own memory, and these parameters into its model."""
    *own, weight_decay, clip = numbers
    adam = Adam(model, *own, weight_decay=weight_decay, clip=clip)
    adam._steps[0] = steps
    adam._moments[...], model._layout.flat[...] = moments, flat
    return adam
