"""The small transformer: its parameters in one flat array, its forward pass, its gradients, and Adam.

A model knows the *slots* that encodings fill (`fastpe.slots`), never an encoding: `table` is added at the input, `bias`
to the scores of every layer.
"""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe import arguments
from fastpe.config import ModelConfig
from fastpe.initial import initial_values
from fastpe.kernels import _jit, model, simd
from fastpe.layout import Parameters, Transposes, Workspace, sum_in_order
from fastpe.position import Position
from fastpe.random import Stream

Array = np.ndarray[Any, Any]

_KEPT_WORKSPACES = 4  # a user who tries many lengths should not fill the memory


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
    TypeError
        If `config` is no `ModelConfig`.
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
        arguments.instance("config", config, ModelConfig, "Transformer(ModelConfig('wavelet'))")
        if config.vocabulary is not None:
            raise ValueError(f"vocabulary must be None, not {config.vocabulary}: the model's inputs are scalars")
        self.config = config
        self.dtype = np.dtype(config.dtype)
        self._position = Position(config)
        self._layout = Parameters(config, self._position.initial)
        self._transposes = Transposes(config, self._layout.offsets)
        self._workspaces: dict[tuple[int, int, bool], Workspace] = {}
        self._lock = threading.RLock()  # slots, scratch memory and gradients are the model's own: one call at a time
        self.parameters = self._layout.views
        self._initialise()
        self.slots(config.train_length)  # whatever the encoding has against these sizes is said now

    def _initialise(self) -> None:
        fans = {name.rpartition(".")[0]: view.shape for name, view in self.parameters.items() if view.ndim == 2}
        for name, view in self.parameters.items():
            owner, _, kind = name.rpartition(".")
            if name in self._position.initial:
                view[...] = self._position.initial[name]
            elif owner.rpartition(".")[2].startswith("norm"):
                view[...] = 1.0 if kind == "weight" else 0.0
            else:
                stream = Stream(self.config.seed, "init", name)
                view[...] = initial_values(self.config.init, stream, kind, view.shape, fans[owner])

    def slots(self, length: int) -> dict[str, Array]:
        """The arrays that the encoding fills at this length, in positions; do not write to them."""
        return self._position.slots(length, self.parameters)

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
        given = _numbers("x", x, self.dtype)
        with self._lock:
            return self._outputs(np.atleast_2d(given), threads).reshape(given.shape)

    def _outputs(self, rows: Array, threads: int | None) -> Array:
        batch, length = rows.shape
        slots, lanes = self.slots(length), min(_jit.threads_for(threads), batch)
        work = self._workspace(length, lanes, slots, backward=False)
        y = np.empty_like(rows)
        _jit.fork(
            lanes, model.batch_forward, rows, y, self._layout.flat, work.arenas, *work.slot_arrays(slots), work.sizes,
            work.offsets, work.arena,
        )  # fmt: skip
        return y

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.config, self._layout.flat.copy())

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
        with self._lock:
            loss, gradients = self._gradients(x, y, threads)
            return loss, self._layout.views_of(sum_in_order(gradients))

    def _gradients(self, x: Any, y: Any, threads: int | None) -> tuple[float, Array]:
        """Loss and the groups' gradients (groups, stride), to be summed in order; valid until the next call."""
        x = np.atleast_2d(_numbers("x", x, self.dtype))
        y = np.atleast_2d(_numbers("y", y, self.dtype))
        if x.shape != y.shape:
            raise ValueError(f"y must have the shape of x, {x.shape}, not {y.shape}")
        batch, length = x.shape
        # fixed by the batch alone, or the bits would depend on the threads; more groups cost memory and additions
        groups = min(batch, 8 if batch < 64 else 16)
        slots, lanes = self.slots(length), min(_jit.threads_for(threads), groups)
        work = self._workspace(length, lanes, slots, backward=True)
        gradients, losses = work.gradients[:groups], work.losses[:groups]
        _jit.fork(
            lanes, model.batch_gradients, x, y, self._layout.flat, self._transposes.flat, self._transposes.panels,
            gradients, losses, work.arenas, *work.slot_arrays(slots), work.sizes, work.offsets,
            self._transposes.offsets, work.arena,
        )  # fmt: skip
        if self._position.initial:  # the slots' gradients become the parameters', in the first group's row
            target = self._layout.views_of(gradients[0], self._position.initial)
            self._position.pull(length, self.parameters, work.slot_gradients(slots, groups), target)
        return float(sum(losses)), gradients

    def _workspace(self, length: int, lanes: int, slots: Mapping[str, Array], *, backward: bool) -> Workspace:
        key = (length, lanes, backward)
        if key not in self._workspaces:
            if len(self._workspaces) >= _KEPT_WORKSPACES:
                self._workspaces.clear()
            self._workspaces[key] = Workspace.make(
                self.config, self._layout, length, lanes, 16 if backward else 0, slots, bool(self._position.initial)
            )
        return self._workspaces[key]


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
        arguments.instance("model", model, Transformer, "Adam(Transformer(ModelConfig('wavelet')))")
        self.model = model
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps
        self.steps = 0
        self._first = simd.aligned_zeros(model._layout.flat.size, model.dtype)
        self._second = simd.aligned_zeros(model._layout.flat.size, model.dtype)
        self.first, self.second = model._layout.views_of(self._first), model._layout.views_of(self._second)

    def step(self, x: Any, y: Any, *, threads: int | None = None) -> float:
        """Update the model on one batch x, y (B, N); returns the mean squared error before the update."""
        with self.model._lock:
            return self._step(x, y, threads)

    def _step(self, x: Any, y: Any, threads: int | None) -> float:
        loss, gradients = self.model._gradients(x, y, threads)
        self.steps += 1
        rate, correction2 = self.lr / (1.0 - self.beta1**self.steps), 1.0 / (1.0 - self.beta2**self.steps)
        numbers = (rate, self.beta1, self.beta2, 1.0 - self.beta1, 1.0 - self.beta2, correction2, self.eps)
        with np.errstate(over="ignore"):  # a rate past float32 diverges, which the loss will tell
            rounded = [self.model.dtype.type(number) for number in numbers]
        _jit.fork(
            _jit.threads_for(threads), model.update, self.model._layout.flat, gradients, self._first, self._second,
            *rounded,
        )  # fmt: skip
        return loss


# ---------------------------------------------------------------------------------------------------------------------
# Arguments and copies


def _restored(config: ModelConfig, flat: Array) -> Transformer:
    """A copy of a model, for `copy` and for worker processes."""
    model = Transformer(config)
    model._layout.flat[...] = flat
    return model


def _numbers(name: str, value: Any, dtype: np.dtype[Any]) -> Array:
    """`value` as a contiguous array of finite numbers (B, N) or (N,), neither empty."""
    array = arguments.array(name, value)
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise ValueError(
            f"{name} must have the shape (sequences, length) or (length,), none of them 0, not {array.shape}"
        )
    return arguments.finite(name, array, dtype)
