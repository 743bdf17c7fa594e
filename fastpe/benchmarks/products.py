"""Matrix products of the training step on one thread: fastpe's micro-kernel, MKL (PyTorch) and OpenBLAS (NumPy).

Operands are contiguous and stay in cache. fastpe repeats a product in compiled code. A peer is called from Python, so
the time of the same call on 1 x 1 matrices is subtracted from the peer's time. This favours the peer slightly. If the
second matrix is stored as its transpose, fastpe's time includes transposing it, as in the training step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.benchmarks.disturbance import between_turns
from fastpe.benchmarks.figures import WrongResult, judged
from fastpe.benchmarks.models import CASES, Product, products
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.kernels import simd
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.products.float_gemm import FROM, PLUS, RELU, WHERE_POSITIVE, transpose
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import pointer

Array = np.ndarray[Any, Any]

GOAL = 0.9
"""Goal: share of the GFLOP/s of the faster peer."""
_FLOP_A_CALL = 20e6  # a call repeats a product until it does this many FLOPs, so that the clock is exact enough


@entry(label="the measurement of products")
def _repeat(a, b, c, d, e, scratch, mode, transposed, times):  # type: ignore[no-untyped-def]
    """Compute the product of a and b into c repeatedly, in the form `mode` with the addends d and e.

    If `transposed`, b is stored as its transpose, and is transposed into `scratch` each time.
    """
    ai, aj = a.strides[0] // a.itemsize, a.strides[1] // a.itemsize
    p, row, n, depth = pointer(b), b.shape[1], c.shape[1], a.shape[1]
    for _ in range(times):
        if transposed:
            transpose(pointer(b), b.shape[1], pointer(scratch), n, b.shape[0], b.shape[1])
            p, row = pointer(scratch), n
        gemm(
            pointer(a), ai, aj, p, row, pointer(c), n, c.shape[0], n, depth, mode,
            pointer(d), d.shape[1] if d.shape[0] > 1 else 0, pointer(e), e.shape[1] if e.shape[0] > 1 else 0,
        )  # fmt: skip


def _operands(product: Product) -> tuple[Array, Array]:
    """A and B as stored. They are so small that C stays finite if their product is added repeatedly."""
    random = np.random.default_rng(0)
    m, depth, n = product.m, product.depth, product.n
    a = random.standard_normal((depth, m) if product.a_transposed else (m, depth), np.float32)
    b = random.standard_normal((n, depth) if product.b_transposed else (depth, n), np.float32)
    return a * np.float32(1e-2), b


def _addends(product: Product) -> tuple[Array, Array]:
    """The addends d and e of the fused form. One is a row, the other a matrix."""
    random = np.random.default_rng(1)
    whole = random.standard_normal((product.m, product.n), np.float32)
    return (whole, whole[:1].copy()) if product.fused & PLUS else (whole[:1].copy(), whole)


def product_call(library: str, product: Product, fused: bool) -> tuple[Callable[[], Any], int, Callable[[], Array]]:
    """The call to be timed, its number of products, and a function that returns the result C (m, n)."""
    a, b = _operands(product)
    repeats = max(1, round(_FLOP_A_CALL / product.flop))
    if library == "fastpe":
        # as in attention: rows of a transposed matrix are padded with zeros to whole vectors
        width = simd.whole_vectors(product.n, np.float32) if product.b_transposed else product.n
        c = simd.aligned_zeros((product.m, width), np.float32)
        scratch = simd.aligned_zeros((product.depth, width), np.float32)
        d, e = _addends(product) if fused and not product.onto else (c, c)
        mode = np.int64(product.fused if fused else 0)
        left = a.T if product.a_transposed else a

        def ours(times: int = repeats) -> None:
            _repeat(left, b, c, d, e, scratch, mode, product.b_transposed, np.int64(times))

        def once() -> Array:
            c[...] = 0.0
            ours(1)
            return c[:, : product.n].copy()

        return ours, repeats, once
    return (*_peer_call(library, product, a, b), _last_of(library, product, a, b))


def _peer_call(library: str, product: Product, a: Array, b: Array) -> tuple[Callable[[], Any], int]:
    call, repeats = _one_call(library, product, a, b)[0], 100

    def calls() -> None:
        for _ in range(repeats):
            call()

    return calls, repeats


def _last_of(library: str, product: Product, a: Array, b: Array) -> Callable[[], Array]:
    call, result = _one_call(library, product, a, b)

    def once() -> Array:
        call()
        return result()

    return once


def _one_call(library: str, product: Product, a: Array, b: Array) -> tuple[Callable[[], Any], Callable[[], Array]]:
    """A call that computes one product with a peer, and a function that returns the result."""
    if library == "numpy":
        out = np.empty((product.m, product.n), np.float32)
        left, right = (a.T if product.a_transposed else a), (b.T if product.b_transposed else b)
        return lambda: np.dot(left, right, out=out), lambda: out
    import torch

    torch.set_num_threads(1)
    x, y, z = torch.from_numpy(a), torch.from_numpy(b), torch.empty(product.m, product.n)
    x, y = (x.T if product.a_transposed else x), (y.T if product.b_transposed else y)
    return lambda: torch.mm(x, y, out=z), z.numpy


def check_product(library: str, product: Product, fused: bool, found: Array) -> None:
    """Compare a result with the formula in float64.

    Raises
    ------
    WrongResult
        If the error of an element exceeds the bound for float32 rounding.
    """
    a, b = (operand.astype(np.float64) for operand in _operands(product))
    left, right = (a.T if product.a_transposed else a), (b.T if product.b_transposed else b)
    expected, size = left @ right, np.abs(left) @ np.abs(right)
    if fused and not product.onto:
        d, e = (addend.astype(np.float64) for addend in _addends(product))
        if product.fused & FROM:
            expected, size = expected + d, size + np.abs(d)
        if product.fused & PLUS:
            expected, size = expected + e, size + np.abs(e)
        if product.fused & RELU:
            expected = np.maximum(expected, 0.0)
        if product.fused & WHERE_POSITIVE:
            expected = np.where(e > 0, expected, 0.0)
    error = np.abs(found - expected) / (size + np.finfo(np.float32).tiny)
    bound = (product.depth + 2) * np.finfo(np.float32).eps
    if not (error <= bound).all():
        raise WrongResult(f"{library}, {product.name}: relative error {np.max(error):.2g}, bound {bound:.2g}")


# ---------------------------------------------------------------------------------------------------------------------
# The table


def measure(effort: Effort, tell: Tell, models: tuple[str, ...] = ("paper", "lm")) -> dict[str, Any]:
    """Time every product of these models' steps on one thread; see the module's docstring.

    Returns
    -------
    dict
        - ``rows``, each with ``model``, ``product``, its shape, ``gflops`` of fastpe, of fastpe's fused form and of the
          peers, and ``ratio``, fastpe's GFLOP/s relative to those of the faster peer, judged.
        - ``absent``: the reasons why peers are missing.
        - ``disturbed``: signs of a disturbed machine.
    """
    with Worker("fastpe", 1) as ours, Worker("torch", 1) as torch, Worker("numpy", 1) as numpy:
        workers = {"torch": torch, "numpy": numpy}
        tell("products, one thread")
        empty = Product("", 1, 1, 1)
        idle = [
            Candidate(f"call {name}", worker, "product", _arguments(name, empty)) for name, worker in workers.items()
        ]
        prepare(idle)
        take_turns(idle, effort)
        overhead = {name: each.best for name, each in zip(workers, idle, strict=True) if each.absent is None}
        alone = Candidate("sgemm", ours, "peak", {"threads": 1})
        prepare([alone])
        rows = []
        for model in models:
            for product in products(CASES[model].config):
                candidates = [
                    Candidate("fastpe", ours, "product", _arguments("fastpe", product)),
                    Candidate("fused", ours, "product", {**_arguments("fastpe", product), "fused": True}),
                    *(Candidate(name, workers[name], "product", _arguments(name, product)) for name in overhead),
                ]
                prepare(candidates)
                take_turns([alone, *candidates], effort)
                rows.append(_row(model, product, {each.label: each.best for each in candidates}, overhead))
    return {
        "rows": rows,
        "absent": {name: each.absent for name, each in zip(workers, idle, strict=True) if each.absent},
        "disturbed": between_turns("sgemm", alone.turns),
    }


def _arguments(library: str, product: Product) -> dict[str, Any]:
    return {"library": library, "form": list(product)}


def _row(model: str, product: Product, seconds: dict[str, float], overhead: dict[str, float]) -> dict[str, Any]:
    gflops = {name: product.flop / best / 1e9 for name, best in seconds.items() if name not in overhead}
    for name, idle in overhead.items():
        # keep the time positive: for the smallest products the difference is near the noise of the clock
        gflops[name] = product.flop / max(seconds[name] - idle, 0.2 * seconds[name]) / 1e9
    better = max(gflops[name] for name in overhead)
    return {
        "model": model, "product": product.name, "m": product.m, "depth": product.depth, "n": product.n,
        "a_transposed": product.a_transposed, "b_transposed": product.b_transposed, "fused": product.label,
        "flop": product.flop, "gflops": gflops, "ratio": judged(gflops["fastpe"] / better, GOAL),
    }  # fmt: skip
