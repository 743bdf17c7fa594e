"""The kinds of arguments for which the default selection of tests compiles the large kernels.

One of these kernels takes 10 to 60 seconds to compile for one kind of arguments: a dtype, and the parts that are
compiled in. Together that is most of the time of all tests. In the default selection (`selection`) a test that needs a
kind which is not listed here is skipped; ``--full`` runs it.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastpe.functional import passes
from fastpe.kernels.attention import calls
from fastpe.kernels.attention.dape import calls as dape_calls
from fastpe.kernels.attention.path import calls as path_calls
from fastpe.kernels.model import batch

KINDS = [
    (calls.forward, {"float32", "float32 terms", "float64 terms", "uint16", "float32 terms path"}),
    (calls.backward, {"float32", "float32 terms", "float64 terms"}),
    (calls.rounded_forward, {"float32 terms"}),
    (calls.rounded_backward, {"float32 terms"}),
    (path_calls.backward, {"float32 terms"}),
    (dape_calls.forward, {"float32 terms"}),
    (dape_calls.backward, {"float32 terms"}),
    (batch.forward, {"float32", "float32 terms", "float64"}),
    (batch.step, {"float32", "float32 terms", "float64"}),
]


def limit(patch: pytest.MonkeyPatch) -> None:
    """Skip tests that need other kinds.

    Attention in float64, with reflections or with a network runs the kernels with all terms even if a call has none.
    """
    for kernel, kinds in KINDS:
        patch.setattr(kernel, "_compile_for_args", _limited(kernel, kinds))
    slot_arrays = passes.slot_arrays

    def with_terms(given: Any, wanted: Any, positions: Any, dtype: Any, has_terms: bool) -> Any:
        has_terms |= np.dtype(dtype) != np.float32 or bool({"reflectors", "mlp_in"} & given.keys())
        return slot_arrays(given, wanted, positions, dtype, has_terms)

    patch.setattr(passes, "slot_arrays", with_terms)


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
    position, x = arguments.get("position"), arguments["x"]
    if position is not None:
        given = {"terms": position.slots, "path": position.reflections, "net": position.net}
        given["rounded"] = arguments["sizes"].products
        dtype = arguments["w"].dtype
    else:
        given = {"terms": arguments["dropout"], "path": x.path}
        dtype = x.v.dtype
    return " ".join([str(dtype), *(name for name, part in given.items() if part is not None)])
