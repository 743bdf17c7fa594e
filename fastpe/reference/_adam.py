"""Adam and AdamW in plain NumPy."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray[Any, Any]]


def adam_step(
    parameters: Arrays, gradients: Arrays, first: Arrays, second: Arrays, step: int, lr: float,
    beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0, clip: float | None = None,
) -> None:  # fmt: skip
    """Update parameters and moments in place, by one step of Adam.

    This is algorithm 1 of Kingma and Ba 2015, with bias correction, and with eps as in PyTorch. Decoupled weight decay
    (Loshchilov and Hutter 2019) applies to parameters with at least two axes. If the norm of all gradients together
    exceeds `clip`, the gradients are first scaled to the norm `clip`.

    Parameters
    ----------
    parameters, gradients, first, second : mapping of str to array
        Parameters, their gradients, and their first and second moments. Parameters without a gradient do not change.
    step : int
        Number of this update, counted from 1.
    lr, beta1, beta2, eps, weight_decay : float
        Learning rate, decay rates of the moments, term added to the denominator, and weight decay.
    clip : float, optional
        The largest norm of all gradients together.

    Examples
    --------
    >>> parameters = {"w": np.array([1.0])}
    >>> first, second = {"w": np.zeros(1)}, {"w": np.zeros(1)}
    >>> adam_step(parameters, {"w": np.array([3.0])}, first, second, step=1, lr=0.1)
    >>> parameters["w"].round(6).tolist()
    [0.9]
    """
    if step < 1:
        raise ValueError(f"step must be at least 1, not {step}")
    share = 1.0
    if clip is not None:
        norm = math.sqrt(sum(float(np.sum(np.square(gradient, dtype=np.float64))) for gradient in gradients.values()))
        share = min(1.0, clip / (norm + 1e-6))
    for name, whole in gradients.items():
        m, v, gradient = first[name], second[name], share * whole
        m *= beta1
        m += (1 - beta1) * gradient
        v *= beta2
        v += (1 - beta2) * gradient**2
        denominator = np.sqrt(v) / math.sqrt(1 - beta2**step) + eps
        if weight_decay and gradient.ndim > 1:
            parameters[name][...] *= 1 - lr * weight_decay
        parameters[name][...] -= (lr / (1 - beta1**step)) * m / denominator
