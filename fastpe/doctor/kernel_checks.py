"""Comparisons of every kernel with its formula in NumPy, for `fastpe doctor`.

A check draws inputs, calls the kernel through `fastpe.kernels.arrays`, and yields the result with its formula. The
formula is then evaluated in the dtype of the kernel and in a wider one. Sizes are (rows, columns): those of the paper's
model, and odd sizes that end in the middle of a vector register.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.doctor import attention_checks
from fastpe.doctor.allowed_error import Difference, difference, wider
from fastpe.doctor.case import Array, Case, Draw
from fastpe.encodings.build import build, pull
from fastpe.kernels import arrays
from fastpe.kernels.products.float_gemm import FROM, PLUS, RELU, WHERE_POSITIVE
from fastpe.kernels.rows.dropout import Dropout

SIZES = ((50, 64), (37, 19))
Check = Callable[[Draw, int, int], Iterator[Case]]


def differences(kernel: str, dtype: Any) -> Iterator[Difference]:
    """Yield the errors of all outputs of a kernel with their bounds, at all sizes.

    Parameters
    ----------
    kernel : str
        A key of `KERNELS`.
    dtype : float32 or float64
    """
    draw = Draw(np.random.default_rng(0), dtype)
    for rows, columns in SIZES:
        for case in KERNELS[kernel](draw, rows, columns):
            exact = case.formula(*(array.astype(wider(dtype)) for array in case.inputs))
            same = case.formula(*case.inputs)
            outputs = (
                (case.result, exact, same) if isinstance(case.result, tuple) else ((case.result,), (exact,), (same,))
            )
            for ours, expected, numpy in zip(*outputs, strict=True):
                yield difference(ours, expected, numpy, case.terms)


def _gemm(draw: Draw, m: int, n: int) -> Iterator[Case]:
    depth = n + 5
    a, b, row, e = draw(m, depth), draw(depth, n), draw(1, n), draw(m, n)
    yield Case(arrays.gemm(a, b), lambda a, b: a @ b, (a, b), depth)
    start = arrays.gemm(a, b, int(FROM | PLUS), row, e)
    yield Case(start, lambda a, b, row, e: a @ b + row + e, (a, b, row, e), depth)
    clipped = arrays.gemm(np.asfortranarray(a), b, int(FROM | RELU), row)
    yield Case(clipped, lambda a, b, row: reference.relu(a @ b + row), (a, b, row), depth)
    masked = arrays.gemm(a, b, int(WHERE_POSITIVE), e=e)
    yield Case(masked, lambda a, b, e: np.where(e > 0, a @ b, 0), (a, b, e), depth)


def _transpose(draw: Draw, m: int, n: int) -> Iterator[Case]:
    x = draw(m, n)
    yield Case(arrays.transpose(x), np.transpose, (x,), 1)


def _column_sums(draw: Draw, m: int, n: int) -> Iterator[Case]:
    x = draw(m, n)
    yield Case(arrays.column_sums(x), lambda x: x.sum(axis=0), (x,), m)


def _exp(draw: Draw, m: int, n: int) -> Iterator[Case]:
    x = -np.abs(draw(m, n)) * np.linspace(0, 20, n, dtype=draw(1).dtype)
    exact = np.exp(x.astype(wider(x.dtype)))
    yield Case(arrays.exp(x) / exact, np.ones_like, (x,), 1)  # relative errors, because the results differ in size


def _layer_norm_forward(draw: Draw, m: int, n: int) -> Iterator[Case]:
    x, weight, bias = draw(m, n) + draw(1), draw(n), draw(n)

    def formula(x: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
        stats = np.stack([x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-5)], axis=1)
        return reference.layer_norm(x, weight, bias), stats

    yield Case(arrays.layer_norm_forward(x, weight, bias), formula, (x, weight, bias), n)


def _layer_norm_backward(draw: Draw, m: int, n: int) -> Iterator[Case]:
    dy, x, weight = draw(m, n), draw(m, n) + draw(1), draw(n)
    stats = arrays.layer_norm_forward(x, weight, np.zeros_like(weight))[1]

    def formula(dy: Array, x: Array, weight: Array) -> tuple[Array, ...]:
        return reference.layer_norm_vjp(x, weight, np.zeros_like(weight))[1](dy)

    yield Case(arrays.layer_norm_backward(dy, x, weight, stats), formula, (dy, x, weight), max(m, n))


def _at_most_double(x: Array) -> Array:
    """Return x in float32 or float64, because SciPy has no erfc in wider dtypes."""
    return x if x.dtype == np.float32 else x.astype(np.float64)


def _gelu_forward(draw: Draw, m: int, n: int) -> Iterator[Case]:
    x = 3 * draw(m, n)
    yield Case(arrays.gelu_forward(x), lambda x: reference.gelu(_at_most_double(x)), (x,), 1)


def _gelu_backward(draw: Draw, m: int, n: int) -> Iterator[Case]:
    ours = arrays.gelu_backward(x := 3 * draw(m, n), dy := draw(m, n))
    yield Case(ours, lambda x, dy: reference.gelu_vjp(_at_most_double(x))[1](_at_most_double(dy)), (x, dy), 1)


def _rms_norm_forward(draw: Draw, m: int, n: int) -> Iterator[Case]:
    x, weight = draw(m, n) + draw(1), draw(n)

    def formula(x: Array, weight: Array) -> tuple[Array, Array]:
        stats = np.stack([np.zeros(m), 1 / np.sqrt(np.mean(x * x, axis=1) + 1e-5)], axis=1)
        return reference.rms_norm(x, weight), stats

    yield Case(arrays.rms_norm_forward(x, weight), formula, (x, weight), n)


def _rms_norm_backward(draw: Draw, m: int, n: int) -> Iterator[Case]:
    dy, x, weight = draw(m, n), draw(m, n) + draw(1), draw(n)
    ours = arrays.rms_norm_backward(dy, x, weight, arrays.rms_norm_forward(x, weight)[1])
    yield Case(ours, lambda dy, x, weight: reference.rms_norm_vjp(x, weight)[1](dy), (dy, x, weight), max(m, n))


def _of_one_map(name: str) -> dict[str, Check]:
    """Return the checks of an activation that takes the result of one map, forward and backward."""
    of_x, vjp = getattr(reference, name), getattr(reference, f"{name}_vjp")

    def forward(draw: Draw, m: int, n: int) -> Iterator[Case]:
        x = 3 * draw(m, n)
        yield Case(getattr(arrays, f"{name}_forward")(x), of_x, (x,), 1)

    def backward(draw: Draw, m: int, n: int) -> Iterator[Case]:
        x, dy = 3 * draw(m, n), draw(m, n)
        yield Case(getattr(arrays, f"{name}_backward")(x, dy), lambda x, dy: vjp(x)[1](dy), (x, dy), 1)

    return {f"{name}_forward": forward, f"{name}_backward": backward}


def _of_two_maps(name: str) -> dict[str, Check]:
    """As `_of_one_map`, for an activation that takes the results of two maps."""
    of_both, vjp = getattr(reference, name), getattr(reference, f"{name}_vjp")

    def forward(draw: Draw, m: int, n: int) -> Iterator[Case]:
        both = 3 * draw(m, 2 * n)
        ours = getattr(arrays, f"{name}_forward")(both)
        yield Case(ours, lambda both: of_both(both[:, :n], both[:, n:]), (both,), 1)

    def backward(draw: Draw, m: int, n: int) -> Iterator[Case]:
        both, dy = 3 * draw(m, 2 * n), draw(m, n)
        ours = getattr(arrays, f"{name}_backward")(both, dy)
        yield Case(ours, lambda both, dy: np.hstack(vjp(both[:, :n], both[:, n:])[1](dy)), (both, dy), 1)

    return {f"{name}_forward": forward, f"{name}_backward": backward}


def _drop(draw: Draw, m: int, n: int) -> Iterator[Case]:
    x, dropped = draw(m, n), Dropout(5, 6, 7, 8, 2**30, 4 / 3, 1)
    factors = reference.dropout_factors((m, n), 0.25, key=(5, 6), counter=(9, 7, 8))
    yield Case(arrays.drop(x, dropped, 9), lambda x: x * factors.astype(x.dtype), (x,), 1)


def _mean_squared_error(draw: Draw, m: int, n: int) -> Iterator[Case]:
    y, target = draw(m * n), draw(m * n)
    for weights in (None, _some_weights(m * n)):

        def formula(y: Array, target: Array, weights: Array | None = weights) -> tuple[Any, Array]:
            loss, pullback = reference.mean_squared_error_vjp(y, target, weights)
            return loss, pullback(1.0)

        yield Case(arrays.mean_squared_error(y, target, weights), formula, (y, target), m * n)


def _some_weights(n: int) -> Array:
    """Return weights of n targets; the weight of every third target is 0."""
    return np.arange(1.0, n + 1.0) % 3


def _cross_entropy(draw: Draw, n: int, vocabulary: int) -> Iterator[Case]:
    logits, tokens = 4 * draw(n, vocabulary), np.arange(n) * 7 % vocabulary
    for weights in (None, _some_weights(n)):

        def formula(logits: Array, weights: Array | None = weights) -> tuple[Any, Array]:
            loss, pullback = reference.cross_entropy_vjp(logits, tokens, weights)
            return loss, pullback(1.0)

        yield Case(arrays.cross_entropy(logits, tokens, weights), formula, (logits,), n * vocabulary)


def _adam_step(draw: Draw, m: int, n: int) -> Iterator[Case]:
    p, first, second, gradients = draw(m * n), draw(m * n), np.abs(draw(m * n)), draw(5, m * n)
    choices: tuple[dict[str, Any], ...] = ({}, {"weight_decay": 0.5, "clip": 1.0})
    for settings in choices:
        ours = p.copy(), first.copy(), second.copy()
        arrays.adam_step(*ours, gradients, step=3, lr=0.1, **settings)

        def formula(
            p: Array, first: Array, second: Array, gradients: Array, settings: dict[str, Any] = settings
        ) -> tuple[Array, ...]:
            state = tuple({"p": array[None].copy()} for array in (p, first, second))
            summed = {"p": gradients.sum(axis=0)[None]}
            reference.adam_step(state[0], summed, state[1], state[2], step=3, lr=0.1, **settings)
            return tuple(each["p"][0] for each in state)

        yield Case(ours, formula, (p, first, second, gradients), len(gradients))


def _embed_forward(draw: Draw, n: int, c: int) -> Iterator[Case]:
    x, weight, bias, table = draw(n), draw(c), draw(c), draw(n, c)
    inputs = (x, weight, bias, table)
    yield Case(
        arrays.embed_forward(*inputs),
        lambda x, w, b, table: reference.linear(x[:, None], w[None], b) + table,
        inputs,
        3,
    )


def _embed_backward(draw: Draw, n: int, c: int) -> Iterator[Case]:
    dz, x = draw(n, c), draw(n)
    yield Case(arrays.embed_backward(dz, x), lambda dz, x: (x @ dz, dz.sum(axis=0), dz), (dz, x), n)


def _embed_tokens_forward(draw: Draw, n: int, c: int) -> Iterator[Case]:
    tokens, weight, table = np.arange(n) * 7 % c, draw(c, c), draw(n, c)
    yield Case(
        arrays.embed_tokens_forward(tokens, weight, table),
        lambda weight, table: reference.embedding(tokens, weight) + table,
        (weight, table),
        2,
    )


def _embed_tokens_backward(draw: Draw, n: int, c: int) -> Iterator[Case]:
    dz, tokens, vocabulary = draw(n, c), np.arange(n) ** 2 % 11, 12  # some tokens occur often, some never

    def formula(dz: Array) -> tuple[Array, Array]:
        return reference.embedding_vjp(tokens, np.zeros((vocabulary, c), dz.dtype))[1](dz), dz

    yield Case(arrays.embed_tokens_backward(dz, tokens, vocabulary), formula, (dz,), n)


def _head_forward(draw: Draw, n: int, c: int) -> Iterator[Case]:
    z, weight, bias = draw(n, c), draw(c), draw(1)
    yield Case(arrays.head_forward(z, weight, bias), reference.linear, (z, weight, bias), c)


def _head_backward(draw: Draw, n: int, c: int) -> Iterator[Case]:
    dy, z, weight = draw(n), draw(n, c), draw(c)
    yield Case(
        arrays.head_backward(dy, z, weight),
        lambda dy, z, weight: (np.outer(dy, weight), dy @ z, dy.sum(keepdims=True)),
        (dy, z, weight),
        n,
    )


def _build_by_distance(draw: Draw, m: int, n: int) -> Iterator[Case]:
    length, one, r2 = 50 * m, np.abs(draw(1)) * 0 + 1, np.abs(draw(1)) + 1
    request: dict[str, Any] = {"params": {"r1": one, "r2": r2}, "dtype": one.dtype}
    distance = np.abs(np.arange(1 - length, length)).astype(one.dtype)
    bias = build("kerple_log", length, **request)["bias"][0]
    yield Case(bias, lambda r, r2: -np.log1p(r2 * r), (distance, r2), 1)
    dbias = draw(2 * length - 1)
    pulled = pull("kerple_log", length, {"bias": dbias[None]}, **request)["r1"]
    yield Case(
        pulled, lambda r, r2, dbias: -(np.log1p(r2 * r) * dbias).sum(keepdims=True), (distance, r2, dbias), 2 * length
    )


KERNELS: dict[str, Check] = {
    "gemm": _gemm,
    "transpose": _transpose,
    "column_sums": _column_sums,
    "exp": _exp,
    **attention_checks.CHECKS,
    "layer_norm_forward": _layer_norm_forward,
    "layer_norm_backward": _layer_norm_backward,
    "rms_norm_forward": _rms_norm_forward,
    "rms_norm_backward": _rms_norm_backward,
    "gelu_forward": _gelu_forward,
    "gelu_backward": _gelu_backward,
    **_of_one_map("gelu_tanh"),
    **_of_two_maps("swiglu"),
    **_of_one_map("relu2"),
    **_of_two_maps("geglu"),
    "drop": _drop,
    "mean_squared_error": _mean_squared_error,
    "cross_entropy": _cross_entropy,
    "adam_step": _adam_step,
    "embed_forward": _embed_forward,
    "embed_backward": _embed_backward,
    "embed_tokens_forward": _embed_tokens_forward,
    "embed_tokens_backward": _embed_tokens_backward,
    "head_forward": _head_forward,
    "head_backward": _head_backward,
    "build": _build_by_distance,
}
"""The checks by the name of the function that they call, in `fastpe.kernels.arrays` or in `fastpe`.

`build` fills a bias by runs of distances, and pulls its gradient back."""
