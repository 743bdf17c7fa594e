"""Checks of `fastpe doctor` for products with operands rounded to bfloat16, and for a training step with them.

Every implementation that this CPU supports is compared with NumPy's products of operands that are rounded in the same
way. The bound for the error of a product is that of float32. In a training step, an operand near the middle between two
bfloat16 numbers may be rounded either way, so gradients may differ by a small share of the total effect of rounding.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fastpe import reference
from fastpe.doctor.allowed_error import Difference, step_tolerance
from fastpe.doctor.case import Array
from fastpe.kernels.products.bfloat16 import isa as isa
from fastpe.kernels.products.bfloat16 import on_arrays
from fastpe.kernels.products.float_gemm import FROM, ONTO, PLUS, RELU, WHERE_POSITIVE
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.transformer import Transformer

SHARE = 0.25
"""Allowed error of a gradient, as a share of the effect of rounding on the gradient. Observed: 0.06, for sums near
zero."""

_SIZES = ((50, 64, 69), (37, 19, 24), (96, 33, 1))  # m, n, depth


def product_differences(dtype: str) -> Iterator[Difference]:
    """Yield the errors of products with their bounds, for every implementation. `dtype` is float32."""
    rng = np.random.default_rng(0)
    for m, n, depth in _SIZES:
        a, b, row, e = (rng.standard_normal(shape).astype(dtype) for shape in ((m, depth), (depth, n), (1, n), (m, n)))
        left, right = (reference.bfloat16(x).astype(np.float64) for x in (a, b))
        sums, sizes = left @ right, np.abs(left) @ np.abs(right)
        for each in isa.ways():
            for mode, expected in (
                (0, sums), (FROM | PLUS, sums + row + e), (FROM | RELU, np.maximum(sums + row, 0)),
                (WHERE_POSITIVE, np.where(e > 0, sums, 0)), (ONTO, sums + row),
            ):  # fmt: skip
                for own in (a, np.asfortranarray(a)):
                    found = on_arrays.product(own, b, int(mode), row, e, each)
                    bound = (depth + 4) * np.finfo(np.float32).eps * (sizes + np.abs(row) + np.abs(e))
                    worst = int(np.argmax(np.abs(found - expected) / bound))
                    error = float(np.abs(found - expected).flat[worst])
                    yield Difference(error, float(bound.flat[worst]), f"{m} x {depth} x {n}, {each.name}, mode {mode}")


def batch(config: ModelConfig, sequences: int) -> tuple[Array, Array]:
    """Return random tokens and targets, each (sequences, N)."""
    text = np.random.default_rng(0).integers(0, config.vocabulary or 2, (sequences, config.train_length + 1))
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])


def step_differences(config: ModelConfig, dtype: str) -> Iterator[Difference]:
    """Yield the errors of loss and gradients of a model of tokens with their bounds, for the default implementation."""
    model = Transformer(replace(config, dtype=dtype, precision="bfloat16"))
    x, y = batch(config, 2)
    loss, gradients = model.loss_and_grads(x, y)
    parameters = {name: np.array(value, np.float64) for name, value in model.parameters.items()}
    encoding = ModelEncoding(replace(config, dtype="float64"))
    exact, unrounded = encoding.reference_loss_and_grads(parameters, x, y)
    rounding = {name: value.view(reference.Rounding) for name, value in parameters.items()}
    expected, rounded = encoding.reference_loss_and_grads(rounding, x, y)
    yield Difference(abs(loss - expected), SHARE * abs(expected - exact) + step_tolerance(dtype) * exact, "the loss")
    for name, gradient in gradients.items():
        right, effect = np.asarray(rounded[name]), np.linalg.norm(np.asarray(rounded[name]) - unrounded[name])
        bound = SHARE * effect + step_tolerance(dtype) * np.linalg.norm(right)
        error = np.linalg.norm(gradient - right)
        yield Difference(float(error), float(bound), f"the gradient of {name}, as a whole")
