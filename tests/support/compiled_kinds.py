"""The kinds of arguments for which the default selection of tests compiles the large kernels.

One of these kernels takes 7 to 50 seconds to compile for one kind of arguments: a dtype, and the parts that are
compiled in. In the default selection (`selection`) a test that needs a kind which is not listed here is skipped;
``--full`` runs it. The listed kinds are compiled before the first test, each by one of the worker processes.
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpe
from fastpe.functional.slots import samples
from fastpe.kernels.attention import calls, decode
from fastpe.kernels.attention.dape import calls as dape_calls
from fastpe.kernels.attention.path import calls as path_calls
from fastpe.kernels.model import batch
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer

KINDS = [
    (calls.forward, {"float32", "float32 terms"}),
    (calls.backward, {"float32", "float32 terms"}),
    (calls.rounded_forward, set()),
    (calls.rounded_backward, set()),
    (path_calls.make_products, set()),
    (path_calls.backward, set()),
    (dape_calls.forward, set()),
    (dape_calls.backward, set()),
    (decode.decode, {"float32"}),
    (batch.forward, {"float32"}),
    (batch.step, {"float32"}),
]


def _attention(*slots: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 2, 9, 8), np.float32)
    given = samples(slots, rng, b=1, h=2, n=9, m=9, d=8, dtype=np.float32)
    out, pullback = fastpe.attention_vjp(q, k, v, causal=True, **given)
    pullback(out)


def _model() -> None:
    model = Transformer(ModelConfig("sinusoidal", width=16, heads=2, hidden=24, train_length=9, dtype="float32"))
    x = np.ones((2, 9), np.float32)
    model.loss_and_grads(x, x)
    model(x)


CALLS = [_model, _attention, lambda: _attention("gain")]
"""Calls that compile the kernels of `KINDS`."""


def compile_first(worker: int, workers: int, folder: Path) -> None:
    """Compile this worker's share of the kinds, and wait for the other workers, so that none compiles them again.

    Parameters
    ----------
    worker, workers
        Number of this worker, from 0, and how many there are.
    folder
        A folder that the workers share.
    """
    if workers == 1:
        return
    for number, call in enumerate(CALLS):
        if min(number, workers - 1) == worker:  # the first call takes as long as the others together
            call()
    (folder / f"compiled-{worker}").touch()
    deadline = time.monotonic() + 600
    while len(list(folder.glob("compiled-*"))) < workers and time.monotonic() < deadline:
        time.sleep(0.2)


def limit(patch: pytest.MonkeyPatch) -> None:
    """Skip tests that need other kinds."""
    for kernel, kinds in KINDS:
        patch.setattr(kernel, "_compile_for_args", _limited(kernel, kinds))


def _limited(kernel: Any, kinds: set[str]) -> Callable[..., Any]:
    compile_for = kernel._compile_for_args
    names = kernel.py_func.__code__.co_varnames

    @functools.wraps(compile_for)
    def limited(*arguments: Any, **options: Any) -> Any:
        kind = _kind(dict(zip(names, arguments, strict=False)))
        if kind not in kinds:
            pytest.skip(f"only --full compiles {kernel.py_func.__name__} for {kind}")
        return compile_for(*arguments, **options)

    return limited


def _kind(arguments: dict[str, Any]) -> str:
    """The dtype of values, and what is compiled in: terms (besides bias and mask), reflections, a network, rounding."""
    position, x = arguments.get("position"), arguments.get("x")
    if x is None:  # few queries
        given, dtype = {}, arguments["q"].dtype
    elif position is not None:
        given = {"terms": position.slots, "dropout": arguments.get("dropout")}
        given |= {"path": position.reflections, "net": position.net}
        given["rounded"] = arguments["sizes"].products
        dtype = arguments["w"].dtype
    else:
        given = {"terms": arguments.get("dropout"), "path": x.path}
        dtype = x.v.dtype
    return " ".join([str(dtype), *(name for name, part in given.items() if part is not None)])
