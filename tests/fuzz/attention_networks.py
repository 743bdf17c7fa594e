"""Random calls of attention whose scores a network of all heads corrects: any sizes, layouts and what goes with it."""

from typing import Any

import numpy as np
import pytest
from attention_calls import KINDS
from guards import guarded_allocations, guarded_results
from hypothesis import strategies as st
from network_problems import agrees, arguments_of, cases

import fastpe
from fastpe.functional import mlp, slot_arrays

_ANY = st.tuples(cases(), st.lists(st.sampled_from([None, *KINDS]), min_size=8, max_size=8))


def judge(case: tuple[dict[str, Any], list[str | None]]) -> None:
    """Results and gradients agree with the reference, whatever lies around the arrays, and again the same."""
    sizes, kinds = case
    arguments, options = arguments_of(sizes)
    for (name, array), kind in zip(arguments.items(), kinds * 2, strict=False):
        if kind is not None and array.ndim > 1:
            arguments[name] = KINDS[kind](array)
    before = {name: np.copy(array) for name, array in arguments.items()}
    with pytest.MonkeyPatch.context() as patch:
        checks = guarded_allocations(patch, some=False), guarded_results(patch, mlp, slot_arrays)
        out, _ = agrees(arguments, **options)
        np.testing.assert_array_equal(fastpe.attention(**arguments, **options), out, err_msg="once more")
        for check in checks:
            check()
    for name, array in arguments.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


NETWORKS = (_ANY, judge)
