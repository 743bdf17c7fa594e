"""Adam, whose kernel runs in the same call as the step's gradients."""

from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.kernels import model, simd
from fastpe.model.parameters import Views
from fastpe.model.scratch import Update
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]


class Adam:
    """Adam (Kingma and Ba 2015), bias-corrected, at a constant rate, on all parameters of a model.

    Parameters
    ----------
    model : Transformer
    lr, beta1, beta2, eps : float
        Learning rate (above 0), decay rates of the two moments (in [0, 1)), and what keeps the quotient finite (above
        0).

    Attributes
    ----------
    steps : int
        Updates made so far.
    first, second : dict of str to array
        The moments by parameter name; views, like the model's parameters, and assigned to as they are.

    Raises
    ------
    TypeError, ValueError
        If `model` is no `Transformer`, or a number is none or out of range; the message names it.

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
        validation.instance("model", model, Transformer, "Adam(Transformer(ModelConfig('wavelet')))")
        self._model = model
        self.lr, self.eps = validation.positive("lr", lr), validation.positive("eps", eps)
        self.beta1, self.beta2 = validation.below_one("beta1", beta1), validation.below_one("beta2", beta2)
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
        """The first moments by parameter name."""
        return self._first

    @property
    def second(self) -> dict[str, Array]:
        """The second moments by parameter name."""
        return self._second

    @property
    def steps(self) -> int:
        """Updates made so far."""
        return int(self._steps[0])

    @steps.setter
    def steps(self, number: int) -> None:
        self._steps[0] = validation.whole("steps", number, 0)

    def step(self, x: Any, y: Any, *, weights: Any = None, threads: int | None = None) -> float:
        """Update the model on one batch x, y, weights (B, N), as `Transformer.loss_and_grads` takes them.

        Returns the loss before the update.
        """
        with self.model._lock:
            return self.model._gradients(x, y, weights, threads, self.steps, self._update(self.steps + 1))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = (self.lr, self.beta1, self.beta2, self.eps)
        return _restored_adam, (self.model, numbers, self.steps, self._moments.copy())

    def _update(self, t: int) -> Update:
        rate, correction2 = self.lr / (1.0 - self.beta1**t), 1.0 / (1.0 - self.beta2**t)
        numbers = (rate, self.beta1, self.beta2, 1.0 - self.beta1, 1.0 - self.beta2, correction2, self.eps)
        with np.errstate(over="ignore"):  # a rate past float32 diverges, which the loss will tell
            rounded = np.array(numbers).astype(self.model.dtype)
        return Update(self._moments, rounded, -(-self._moments.shape[1] // model.CHUNK), self._steps)


def _restored_adam(model: Transformer, numbers: tuple[float, ...], steps: int, moments: Array) -> Adam:
    """A copy of an Adam: its moments are views again."""
    adam = Adam(model, *numbers)
    adam.steps = steps
    adam._moments[...] = moments
    return adam
