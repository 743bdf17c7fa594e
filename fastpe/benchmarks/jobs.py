"""The jobs of a worker process. Every job checks its result before anything is timed."""

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numba
import numpy as np

from fastpe import reference
from fastpe.benchmarks import (
    attention_cases,
    attention_peers,
    decoding,
    features,
    framework_cases,
    memory,
    models,
    peers,
)
from fastpe.benchmarks.attention_cases import Calls, Exact, Problem
from fastpe.benchmarks.figures import WrongResult
from fastpe.benchmarks.products import check_product, product_call
from fastpe.doctor import probe
from fastpe.kernels.threads.openmp import start_threads
from fastpe.model.adam import Adam
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.transformer import Transformer

STEPS = 4
"""Number of steps that are compared with the reference. Losses after the first depend on all gradients."""
_ON_END = 4  # number of calls of one query that are timed together, one after the other
_TOLERANCE = 1e-5  # relative bound of float32 losses after these steps; observed: 5e-7


class Absent(Exception):
    """Raised if a library cannot be measured here. The message gives the reason."""


@dataclass
class Job:
    """A checked call, its number of repetitions, and facts from the check, as plain JSON values."""

    call: Callable[[], Any]
    repeats: int = 1
    facts: dict[str, Any] = field(default_factory=dict)


def _take(threads: int) -> None:
    """Start Numba's threads with fastpe's settings for idle threads, and set their number."""
    start_threads()
    numba.set_num_threads(threads)


# ---------------------------------------------------------------------------------------------------------------------
# The training step


def expected_losses(case: models.Case, steps: int = STEPS) -> list[float]:
    """The losses of the first steps, computed by `fastpe.reference` in float64."""
    x, y = models.batch_of(case)
    parameters = {name: np.array(value, np.float64) for name, value in Transformer(case.config).parameters.items()}
    position = ModelEncoding(replace(case.config, dtype="float64"))
    first, second = ({name: np.zeros_like(value) for name, value in parameters.items()} for _ in range(2))
    losses = []
    for step in range(1, steps + 1):
        loss, gradients = position.reference_loss_and_grads(parameters, x, y)
        reference.adam_step(parameters, gradients, first, second, step, 1e-3)
        losses.append(loss)
    return losses


def step(library: str, model: str, threads: int, expected: Sequence[float]) -> Job:
    """Return the job of the training step of a model in `models.CASES`.

    `library` is ``fastpe`` or ``jax``, or one of these forms of PyTorch: ``compile``, ``eager`` (attention as separate
    products), or ``eager, own attention`` (PyTorch's attention function).
    """
    case = models.CASES[model]
    x, y = models.batch_of(case)
    if library == "fastpe":
        adam = Adam(Transformer(case.config))
        return _checked(lambda: adam.step(x, y, threads=threads), "fastpe", model, expected)
    network = Transformer(case.config)
    with _peer("jax" if library == "jax" else "torch"):
        if library == "jax":
            _keep_to(threads)
            return _checked(peers.jax_step(network, x, y), "JAX", model, expected)
        compiled, own = library == "compile", library == "eager, own attention"
        if compiled:
            _need_a_compiler()
        call = peers.torch_step(network, x, y, threads, compiled=compiled, own=own)
        return _checked(call, "torch.compile" if compiled else "PyTorch", model, expected)


def _checked(call: Callable[[], float], library: str, model: str, expected: Sequence[float]) -> Job:
    """Check the first losses of a step, and return its job."""
    for number, right in enumerate(expected, 1):
        loss = call()
        if not math.isclose(loss, right, rel_tol=_TOLERANCE):
            raise WrongResult(f"{library}, {model}: the loss of step {number} is {loss:.8g}, but should be {right:.8g}")
    return Job(call)


@contextmanager
def _peer(package: str) -> Iterator[None]:
    """A context for calls of a peer. It turns failures into `Absent`, but wrong results remain errors."""
    try:
        if find_spec(package) is None:
            raise Absent(peers.INSTALL)
        yield
    except (Absent, WrongResult):
        raise
    except Exception as error:  # a peer fails in many ways if libraries, compilers or headers are missing
        words = str(error).strip()
        reason = f": {words.splitlines()[0][:100]}" if words else ""
        raise Absent(f"failed: {type(error).__name__}{reason}") from None


def _need_a_compiler() -> None:
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++", "cl"))):
        raise Absent("needs a C++ compiler")


def _keep_to(threads: int) -> None:
    """Restrict this process to as many cores as threads, because JAX uses all cores; call before importing JAX."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    elif threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class _GroupPerThread(Transformer):
    """A model that sums gradients in as many groups as threads, so its bits depend on the number of threads."""

    threads = 1

    def _groups(self, batch: int, lengths: np.ndarray) -> np.ndarray:
        groups = min(batch, self.threads)
        return batch * np.arange(groups + 1) // groups


def step_by_threads(model: str, threads: int, expected: Sequence[float]) -> Job:
    """Return the job of fastpe's step without the guarantee of bitwise equal results for any number of threads."""
    case = models.CASES[model]
    x, y = models.batch_of(case)
    network = _GroupPerThread(case.config)
    network.threads = min(threads, 16)
    adam = Adam(network)
    return _checked(lambda: adam.step(x, y, threads=threads), "fastpe, groups by threads", model, expected)


# ---------------------------------------------------------------------------------------------------------------------
# The step with every encoding


def encoding_case(encoding: str, causal: bool, batch: int = 32) -> models.Case:
    """The paper's model with this encoding."""
    return models.Case(ModelConfig(encoding, causal=causal), batch)


def encoding_step(encoding: str, causal: bool) -> Job:
    """Return the job of the paper's step with an encoding on one thread.

    Two losses are checked. The second depends on all gradients.
    """
    case = encoding_case(encoding, causal)
    x, y = models.batch_of(case)
    adam = Adam(Transformer(case.config))
    job = _checked(lambda: adam.step(x, y, threads=1), "fastpe", encoding, expected_losses(case, steps=2))
    slots = adam.model.slots(case.config.train_length)
    return replace(job, facts={"slots": [slot for slot, x in slots.items() if isinstance(x, np.ndarray)]})


def encoding_fill(encoding: str, causal: bool) -> Job:
    """Return the job of the fills of all layers of the paper's model with an encoding."""
    config = encoding_case(encoding, causal).config
    position, length = ModelEncoding(config), config.train_length
    slots = position.slots(length, position.initial)
    return Job(lambda: position.fill(length, position.initial, slots, finite=False))


def encoding_pull(encoding: str, causal: bool) -> Job:
    """Return the job of the encoding's pull in this model, from gradients of slots to gradients of parameters."""
    config = encoding_case(encoding, causal).config
    position, length = ModelEncoding(config), config.train_length
    if not position.initial:
        raise Absent("learns nothing")
    slots, rng = position.slots(length, position.initial), np.random.default_rng(0)
    floats = [slot for slot in position.learned if isinstance(slots[slot], np.ndarray) and slot != "index"]
    dslots = {slot: rng.standard_normal(slots[slot].shape).astype(slots[slot].dtype) for slot in sorted(floats)}
    gradients = {name: np.zeros_like(value) for name, value in position.initial.items()}
    return Job(lambda: position.pull(length, position.initial, dslots, gradients))


# ---------------------------------------------------------------------------------------------------------------------
# The machine


def peak(threads: int) -> Job:
    """Return the job of fastpe's sgemm in cache, with `probe.PEAK_FLOP` per thread."""
    return Job(probe.peak_call(threads))


def blas() -> Job:
    """Return the job of NumPy's sgemm of order `probe.BLAS_ORDER`, with the number of threads of this process."""
    return Job(probe.blas_call())


def write() -> Job:
    """Return the job of writing to `probe.BYTES` of memory on one thread."""
    return Job(probe.write_call())


# ---------------------------------------------------------------------------------------------------------------------
# Products and tables


def product(library: str, form: Sequence[Any], fused: bool = False) -> Job:
    """Return the job of a product on one thread, by fastpe (`fused`: as in the step), ``torch`` or ``numpy``."""
    wanted = models.Product(*form)
    with _peer("torch") if library == "torch" else nullcontext():
        call, repeats, result = product_call(library, wanted, fused)
        call()
        check_product(library, wanted, fused, result())
        return Job(call, repeats)


def fill(library: str, encoding: str, length: int, dim: int) -> Job:
    """Return the job of filling a table or bias of an encoding, by fastpe in place or by usual NumPy code."""
    from fastpe.benchmarks import fills

    call, result = fills.fill_call(library, encoding, length, dim)
    fills.check_fill(library, encoding, length, dim, result())
    return Job(call)


# ---------------------------------------------------------------------------------------------------------------------
# Attention


def attention(library: str, problem: Mapping[str, Any], part: str, threads: int, tolerance: float | None = None) -> Job:
    """Return the job for one part of an attention problem, which is given as the dictionary of `dataclasses.asdict`.

    `library` is ``fastpe``, or a `way` of `attention_peers.torch_calls`. Facts of the job: ``errors`` are relative to
    the largest entry of each result; ``seconds`` is the time of the call whose results were checked.
    """
    asked = Problem(**{**problem, "slopes": tuple(problem["slopes"])})
    with nullcontext() if library == "fastpe" else _peer("torch"):
        calls, errors, seconds = _checked_calls(library, asked, threads, tolerance)
        facts = {"errors": errors, "seconds": seconds}
        return Job(calls.part(part, asked.inputs()[-1]), facts=facts)


@lru_cache(maxsize=1)  # the parts of a problem follow one another
def _checked_calls(
    library: str, problem: Problem, threads: int, tolerance: float | None
) -> tuple[Calls, dict[str, float], float]:
    if library == "fastpe":
        _take(threads)
        calls = attention_cases.own_calls(problem, tolerance)
    else:
        if library == "flex":
            _need_a_compiler()
        calls = attention_peers.torch_calls(problem, threads, library)
    right = _exact(problem)
    start = time.perf_counter()
    out, gradients = (calls.forward(), {}) if calls.both is None else calls.both(right.dout)
    seconds = time.perf_counter() - start
    errors = right.errors({"out": out, **gradients})
    if wrong := attention_cases.too_large(errors, library):
        raise WrongResult(f"{library}, {problem}: {wrong}")
    return calls, errors, seconds


_exact: Callable[[Problem], Exact] = lru_cache(maxsize=1)(attention_cases.exact)


def attention_memory(problem: Mapping[str, Any], threads: int) -> Job:
    """Return the job forward and backward. Facts: ``extra_bytes`` beyond inputs and outputs, or None and ``why``."""
    asked = Problem(**{**problem, "slopes": tuple(problem["slopes"])})
    _take(threads)
    short = replace(asked, length=2)
    attention_cases.own_calls(short).part(attention_cases.BOTH, short.inputs()[-1])()  # compile first
    call = attention_cases.own_calls(asked).part(attention_cases.BOTH, asked.inputs()[-1])
    try:
        (out, gradients), grown = memory.peak_growth(call)
    except memory.Unknown as why:
        return Job(call, facts={"extra_bytes": None, "why": str(why)})
    return Job(call, facts={"extra_bytes": grown - out.nbytes - sum(each.nbytes for each in gradients.values())})


def feature(name: str, length: int, part: str, threads: int) -> Job:
    """Return the job of causal attention with one of `features.FEATURES`."""
    _take(threads)
    problem = Problem(length)
    if wrong := attention_cases.too_large(features.errors(name, problem), "fastpe"):
        raise WrongResult(f"fastpe, {name}, {problem}: {wrong}")
    return Job(features.calls(name, problem).part(part, features.inputs(name, problem)[3]))


def framework(way: str, kind: str, length: int, part: str, threads: int) -> Job:
    """Return the job of a call of `framework_cases`.

    Facts: ``results``, some entries of each result for a comparison, and ``seconds``, the time of the call that
    returned them.
    """
    with _peer("transformers" if kind.split()[0] in framework_cases.MODELS else "torch"):
        if way == "flex":
            _need_a_compiler()
        call = framework_cases.call(kind, length, way, part, threads)
        start = time.perf_counter()
        results = call()
        seconds = time.perf_counter() - start
        return Job(call, facts={"results": framework_cases.sampled(results), "seconds": seconds})


def one_query(way: str, case: str, length: int, threads: int) -> Job:
    """Return the job of a case of `decoding`, which makes several calls. The result is compared with the reference."""
    with _peer("torch"):
        import torch

        torch.set_num_threads(threads)
        given = decoding.arguments(case, length)
        call = decoding.call(way, case, given)

        def calls() -> None:
            with torch.no_grad():
                for _ in range(_ON_END):
                    call()

        with torch.no_grad():
            error = decoding.error(call(), given) if way == "fastpe" else 0.0
        if not error <= decoding.TOLERANCE:
            raise WrongResult(f"one query and a cache, {case}, {length} keys: off by {error:.2g} of the largest entry")
        return Job(calls, _ON_END)


JOBS: dict[str, Callable[..., Job]] = {
    "step": step, "step by threads": step_by_threads, "peak": peak, "blas": blas, "write": write, "product": product,
    "fill": fill, "encoding step": encoding_step, "encoding fill": encoding_fill, "encoding pull": encoding_pull,
    "attention": attention, "attention memory": attention_memory,
    "feature": feature, "framework": framework, "decoding": one_query,
}  # fmt: skip
