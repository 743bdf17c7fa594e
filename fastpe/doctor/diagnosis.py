"""The checks of `fastpe doctor`, which compare compiled code with its references on this machine.

    kernel x      every kernel on arrays, and every slot of attention (`fastpe.doctor.kernel_checks`)
    fill x        every encoding's compiled fill, compared with its NumPy reference; the encoding states the bound
    pull x        every encoding's gradients, compared with central differences of its reference
    step x        outputs, loss and all gradients of whole models, compared with `fastpe.reference`
    threads       three training steps on 1, 2, 3 and all threads, which must give equal bits

All random numbers have fixed seeds, so that a failure can be reproduced.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.base.random import Stream
from fastpe.doctor import allowed_error, bfloat16_checks, kernel_checks
from fastpe.doctor.allowed_error import Difference
from fastpe.encodings import build, combined, registry
from fastpe.encodings.encoding import Part
from fastpe.encodings.slots import SLOTS, Spec, make_spec
from fastpe.kernels.threads.team import default_threads
from fastpe.model.adam import Adam
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.transformer import Transformer
from fastpe.tasks import frame
from fastpe.tasks.registry import choose

Array = np.ndarray[Any, Any]
Request = dict[str, Any]

DTYPES = ("float32", "float64")

STEPS = {
    "wavelet": ModelConfig("wavelet"),
    "alibi": ModelConfig(
        "alibi", {"learned": True}, heads=4, layers=3, norm="layernorm", activation="gelu", causal=True, train_length=30
    ),
    "learned": ModelConfig("learned", width=30, heads=3, hidden=50, residual=False, train_length=21),
    "tokens": ModelConfig(
        "learned", width=40, heads=4, layers=2, norm="layernorm", activation="gelu", causal=True, vocabulary=65,
        train_length=33,
    ),
    "today": ModelConfig(
        "rope*2,nope", width=32, heads=2, layers=3, hidden=24, norm="rmsnorm", final_norm=True, activation="swiglu",
        bias=False, tied=True, init_by_depth=True, causal=True, vocabulary=65, train_length=97,
    ),
    "grouped": ModelConfig(
        "rope", width=24, heads=4, key_heads=2, head_dim=8, hidden=20, norm="rmsnorm", norm_eps=1e-6,
        norm_placement="both", final_norm=True, activation="geglu", bias=False, qkv_bias=True, qk_norm="head",
        sinks=True, embedding_scale=5.0, logit_softcap=9.0, causal=True, vocabulary=65, train_length=33,
    ),
    "parallel": ModelConfig(
        "alibi", width=24, heads=4, key_heads=1, hidden=20, norm="layernorm", parallel=True, activation="relu2",
        qk_norm="all", score_scale=0.2, causal=True, vocabulary=65, train_length=33,
    ),
    "relative": ModelConfig("transformer_xl+rope_mixed", width=24, heads=2, hidden=20, causal=True, train_length=20),
    "capped": ModelConfig(
        "shaw", width=24, heads=2, hidden=20, key_heads=1, norm="rmsnorm", norm_placement="after", score_softcap=2.0,
        causal=True, vocabulary=65, train_length=20,
    ),
}  # fmt: skip
"""Models whose whole training step is checked. Together they have all norms, all optional parts of a model
(`ModelConfig.optional_parts`), and all activations but gelu_tanh. The kernels of gelu_tanh and of dropout have separate
checks. Sizes are those of the paper, odd sizes, and one position more than a block of queries.

The last two models are compiled with all terms of the score; the others have only tables, a bias or rotations.
"""

_FEW = 8

# For these two sequences, all inputs of ReLUs are at least 1e-4 away from 0, where rounding could change their sign.
_SEQUENCES, _SEED = 2, 22


@dataclass(frozen=True)
class Check:
    """A check. `run` yields errors with their bounds."""

    name: str
    dtype: str
    run: Callable[[], Iterable[Difference]]

    @property
    def title(self) -> str:
        """Return the name and the dtype."""
        return f"{self.name} {self.dtype}"


@dataclass(frozen=True)
class Verdict:
    """The result of a check: its worst error and the bound. `note` says where or why the check failed."""

    name: str
    dtype: str
    passed: bool
    error: float | None
    bound: float | None
    note: str = ""


def checks(only: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return all checks, or those whose name and dtype contain a text of `only`, such as "fill alibi float32".

    Raises
    ------
    ValueError
        If no check contains one of the texts.

    Examples
    --------
    >>> [check.name for check in checks(["gelu_f", "gelu_b"])][::2]
    ['kernel gelu_forward', 'kernel gelu_backward']
    """
    everything = [
        Check(name, dtype, partial(run, dtype))
        for name, run in _runs().items()
        for dtype in (DTYPES if "bfloat16" not in name else DTYPES[:1])
    ]
    for text in only:
        if not any(text in check.title for check in everything):
            raise ValueError(f"no check has {text!r} in its name; the checks are: {', '.join(_runs())}")
    return tuple(check for check in everything if not only or any(text in check.title for text in only))


def _runs() -> dict[str, Callable[[str], Iterable[Difference]]]:
    """Return all checks by name, as functions of a dtype."""
    names = registry.list_encodings()
    # if an encoding of another package cannot be loaded, its fill check reports the reason
    learners = [name for name, own in registry.ENCODINGS.load_all()[0].items() if own.pull is not None]
    return {
        **{f"kernel {name}": partial(kernel_checks.differences, name) for name in kernel_checks.KERNELS},
        **{f"fill {name}": partial(fill_differences, name) for name in names},
        **{f"pull {name}": partial(pull_differences, name) for name in learners},
        **{f"step {name}": partial(step_differences, config) for name, config in STEPS.items()},
        "kernel bfloat16 product": bfloat16_checks.product_differences,
        "step bfloat16": partial(bfloat16_checks.step_differences, STEPS["tokens"]),
        "threads": thread_differences,
    }


def compiling(only: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return checks that together compile all kernels for training, evaluating and building encodings."""
    # single kernels are called only by checks and benchmarks
    return tuple(check for check in checks(only) if not check.name.startswith("kernel "))


def judge(check: Check) -> Verdict:
    """Run a check. It fails if an error exceeds its bound or is not finite, if it raises, or if it yields nothing."""
    verdict = Verdict(check.name, check.dtype, False, None, None)
    try:
        found = list(check.run())
    except Exception as error:  # after any error, the other checks must still run
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        return replace(verdict, note=f"{kind}{' '.join(str(error).split())}")
    if not found:
        return replace(verdict, note="nothing could be compared")
    if not all(np.isfinite(each.error) and np.isfinite(each.bound) for each in found):
        return replace(verdict, note="a result is not finite")
    worst = max(found, key=lambda difference: difference.share)
    passed = all(each.allowed for each in found)
    return replace(verdict, passed=passed, error=worst.error, bound=worst.bound, note="" if passed else worst.where)


# ---------------------------------------------------------------------------------------------------------------------
# Encodings


def variants(name: str) -> list[dict[str, Any]]:
    """Return sets of options: the defaults, `paper`, `tested`, and for each option with choices, every other choice."""
    own = registry.get(name)
    found: list[dict[str, Any]] = [{}, dict(own.paper), dict(own.tested)]
    for key, option in own.options.items():
        values = (False, True) if option.kind is bool else option.choices or ()
        found += [{key: value} for value in values if value != option.default]
    return found


def requests(name: str, dtype: str, *, length: int, small: bool = False, **sizes: int) -> Iterator[Request]:
    """Yield keywords of `fastpe.build` that together reach all code of an encoding.

    Options are changed from their defaults one at a time. Positions are the default ones, integers and reals. Keywords
    that the encoding rejects are left out. If `small`, integer options such as sizes of tables and networks are small.
    """
    own = registry.get(name)
    fewer = {
        key: max(_FEW, int(option.minimum))
        for key, option in own.options.items()
        if small and option.kind is int and option.default is not None and option.default > max(_FEW, option.minimum)
    }
    sizes = {**sizes, "causal": own.direction == "causal"}
    order = np.argsort(np.arange(length) * 7 % 11, kind="stable")
    for changed in variants(name):
        variant = fewer | changed
        (part,) = registry.parse(name, variant)
        axes = own.axes(**part.options)
        given = order if axes == 1 else np.stack([order % (2 + axis) for axis in range(axes)], axis=1)
        for positions in (None, given, given / 2.0):
            keywords: Request = {"length": length, **sizes, "positions": positions, "dtype": dtype}
            try:
                part.encoding.check(make_spec(**keywords, axes=axes), **part.options)
            except ValueError:
                continue
            yield {**keywords, **variant}


def validated(name: str, request: Request) -> tuple[tuple[Part, ...], Spec]:
    """Return an encoding with its options and sizes from the keywords of `fastpe.build`."""
    options = {key: value for key, value in request.items() if key in registry.get(name).options}
    parts = registry.parse(name, options)
    sizes = {key: value for key, value in request.items() if key not in options}
    return parts, make_spec(**sizes, axes=combined.axes(parts, given=False))


def fill_differences(name: str, dtype: str) -> Iterator[Difference]:
    """Yield error and bound of a fill at its worst entry, for each request, within and past the training length."""
    for length, dim, heads in ((50, 64, 1), (73, 27, 3)):
        for request in requests(name, dtype, length=length, dim=dim, heads=heads, train_length=50):
            (part,), spec = validated(name, request)
            exact = build.build(name, **request, reference=True)
            filled = build.build(name, **request)
            if set(filled) != set(exact):
                raise ValueError(f"the fill returns the slots {sorted(filled)}, the reference {sorted(exact)}")
            arrays = arrays_of(exact)
            bounds = allowed_error.fill_bound(part, spec, arrays)
            if not all(np.array_equal(filled[slot], exact[slot]) for slot in set(exact) - set(arrays)):
                raise ValueError(f"the fill returns the plain values {_plain(filled)}, the reference {_plain(exact)}")
            for slot, array in arrays.items():
                found = _worst(slot, filled[slot], array, bounds[slot])
                yield found._replace(where=f"{found.where}, of {in_words(request)}")
            if not arrays:  # neither the fill nor the reference fills an array
                yield Difference(0.0, 0.0)


def arrays_of(slots: Mapping[str, Any]) -> dict[str, Array]:
    """Return the filled arrays. Plain values are left out, even if they are arrays, such as a `scale` for each head."""
    return {slot: value for slot, value in slots.items() if SLOTS[slot].dtype}


def _plain(slots: Mapping[str, Any]) -> dict[str, Any]:
    return {slot: value for slot, value in slots.items() if not SLOTS[slot].dtype}


def _worst(name: str, got: Array, exact: Array, bound: Array) -> Difference:
    size = allowed_error.fill_error(name, got, exact)
    # argmax returns the first NaN, if there is one
    worst = int(np.argmax(size / np.maximum(bound, np.finfo(np.float64).tiny)))
    entry = tuple(map(int, np.unravel_index(worst, exact.shape)))
    where = f"{name}{list(entry)} is {got.flat[worst]:.9g}, the reference {exact.flat[worst]:.9g}"
    return Difference(float(size.flat[worst]), float(bound.flat[worst]), where)


def in_words(request: Request) -> str:
    """Describe a request in a few words, without arrays."""
    given = {key: "given" if isinstance(value, np.ndarray) else value for key, value in request.items()}
    return ", ".join(f"{key}={value}" for key, value in given.items() if value is not None)


_STEP = 2.0**-20  # of central differences; small, because functions such as Gaussians are strongly curved
_ENTRIES = 10  # largest number of entries of a parameter for which differences are computed


def pull_differences(name: str, dtype: str) -> Iterator[Difference]:
    """Yield the error and bound of each gradient of `pull`, compared with central differences of the reference."""
    rng = np.random.default_rng(0)
    sizes: Request = {"train_length": 6, "dim": 12, "heads": 2}
    asked = (requests(name, dtype, length=length, small=True, **sizes) for length in (8, 6))
    for request in chain.from_iterable(asked):
        (part,), _ = validated(name, request)
        params = build.init(name, **sizes, causal=request["causal"], dtype=dtype, **part.options)
        if not params:
            continue
        params = {key: (value + rng.uniform(0.1, 1, value.shape)).astype(dtype) for key, value in params.items()}
        built = arrays_of(build.build(name, **request, params=params, reference=True))
        slots = {slot: array for slot, array in built.items() if array.dtype.kind == "f"}  # an index has no gradient
        dslots = {slot: np.asarray(rng.standard_normal(array.shape), dtype) for slot, array in slots.items()}
        pulled = build.pull(name, **request, dslots=dslots, params=params)
        terms = sum(array.size for array in slots.values())
        noise = np.finfo(np.float64).eps / _STEP * sum(np.abs(slots[slot] * dslots[slot]).sum() for slot in slots)
        for key, value in params.items():
            entries = np.sort(rng.permutation(value.size)[:_ENTRIES])
            exact = np.array([_slope(name, request, params, dslots, key, entry) for entry in entries])
            rounding = allowed_error.difference(pulled[key].ravel()[entries], exact, exact.astype(dtype), terms)
            allowed = noise + 1e-8 * max(1.0, float(np.abs(exact).max()))
            worst = int(np.argmax(np.abs(pulled[key].ravel()[entries] - exact)))
            place = list(map(int, np.unravel_index(entries[worst], value.shape)))
            got, right = pulled[key].ravel()[entries][worst], exact[worst]
            where = f"d{key}{place} is {got:.9g}, differences of the reference give {right:.9g}, of {in_words(request)}"
            yield Difference(rounding.error, rounding.bound + allowed, where)


def _slope(
    name: str, request: Request, params: Mapping[str, Array], dslots: Mapping[str, Array], key: str, entry: int
) -> float:
    """Return the derivative of `sum(slots * dslots)` with respect to one entry of a parameter."""
    ends = []
    for step in (_STEP, -_STEP):
        moved = {name: value.astype(np.float64) for name, value in params.items()}
        moved[key].flat[entry] += step
        slots = build.build(name, **{**request, "dtype": "float64"}, params=moved, reference=True)
        ends.append(sum(float(np.sum(slots[slot] * dslots[slot])) for slot in dslots))
    return (ends[0] - ends[1]) / (2 * _STEP)


# ---------------------------------------------------------------------------------------------------------------------
# The whole step


def _batch(config: ModelConfig, sequences: int) -> tuple[Array, Array]:
    if config.vocabulary is not None:
        words = Stream(_SEED, "train").words(2 * sequences * config.train_length) % np.uint64(config.vocabulary)
        x, y = words.astype(np.int64).reshape(2, sequences, config.train_length)
        return x, y
    x, y, _ = frame.draw(choose("running_sum"), Stream(_SEED, "train"), sequences, config.train_length, config.dtype)
    return x.astype(config.dtype), y.astype(config.dtype)


def step_differences(config: ModelConfig, dtype: str) -> Iterator[Difference]:
    """Yield the errors of outputs, loss and gradients of a model, with their bounds."""
    config = replace(config, dtype=dtype)
    model = Transformer(config)
    x, y = _batch(config, _SEQUENCES)
    outputs = model(x)
    loss, gradients = model.loss_and_grads(x, y)
    parameters = {name: np.array(value, np.float64) for name, value in model.parameters.items()}
    encoding = ModelEncoding(replace(config, dtype="float64"))
    expected, exact = encoding.reference_loss_and_grads(parameters, x, y)
    sizes = encoding.reference_gradient_sizes(parameters, x, y)
    if set(exact) != set(gradients):
        raise ValueError(f"the model has the gradients {sorted(gradients)}, the reference {sorted(exact)}")
    tolerance = allowed_error.step_tolerance(dtype)
    slots = encoding.reference_slots(x.shape[1], parameters)
    exact_outputs = reference.model_forward(config, parameters, slots, x)
    size = max(1.0, float(np.abs(exact_outputs).max()))
    yield Difference(float(np.abs(outputs - exact_outputs).max()), tolerance * size, "the outputs")
    yield Difference(abs(loss - expected), tolerance * expected, "the loss")
    for name, difference in allowed_error.gradient_differences(gradients, exact, sizes, dtype).items():
        yield difference._replace(where=f"the gradient of {name}")


def thread_differences(dtype: str) -> Iterator[Difference]:
    """Yield the largest difference between training on one thread and on several threads. The bound is 0."""
    for config in STEPS.values():
        first = _trained(replace(config, dtype=dtype), 1)
        for threads in sorted({2, 3, default_threads()} - {1}):
            other = _trained(replace(config, dtype=dtype), threads)
            largest = float(np.abs(first - other).max())
            same = first.tobytes() == other.tobytes()
            yield Difference(0.0 if same else max(largest, float(np.finfo(np.float64).tiny)), 0.0)


def _trained(config: ModelConfig, threads: int) -> Array:
    """Return losses, parameters and outputs after three updates."""
    model = Transformer(config)
    adam, (x, y) = Adam(model), _batch(config, 16)
    losses = [adam.step(x, y, threads=threads) for _ in range(3)]
    return np.concatenate(
        [losses, *(value.ravel() for value in model.parameters.values()), model(x, threads=threads).ravel()]
    )
