"""Random calls of attention whose scores go through a network, or whose queries are reflected."""

from collections.abc import Callable
from typing import Any

import network_problems
import numpy as np
import pytest
import reflected_problems
from attention_calls import KINDS, lays_out
from guards import guarded_allocations, guarded_results
from hypothesis import strategies as st

import fastpe
from fastpe.functional import dape as mlp
from fastpe.functional import passes, slot_arrays
from fastpe.functional import path as reflections

_Case = tuple[dict[str, Any], list[str | None]]
_LAYOUTS = st.lists(st.sampled_from([None, *KINDS]), min_size=8, max_size=8)


def _judge(problems: Any, *modules: Any) -> Callable[[_Case], None]:
    def judge(case: _Case) -> None:
        """Results and gradients agree with the reference, whatever lies around the arrays, and again the same."""
        sizes, kinds = case
        arguments, options = problems.arguments_of(sizes)
        for (name, array), kind in zip(arguments.items(), kinds * 2, strict=False):
            if kind is not None and array.ndim > 1 and lays_out(KINDS[kind], array):
                arguments[name] = KINDS[kind](array)
        before = {name: np.copy(array) for name, array in arguments.items()}
        with pytest.MonkeyPatch.context() as patch:
            checks = guarded_allocations(patch, some=False), guarded_results(patch, *modules, passes, slot_arrays)
            out, _ = problems.agrees(arguments, **options)
            np.testing.assert_array_equal(fastpe.attention(**arguments, **options), out, err_msg="once more")
            for check in checks:
                check()
        for name, array in arguments.items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)

    return judge


NETWORKS = st.tuples(network_problems.cases(), _LAYOUTS), _judge(network_problems, mlp)
REFLECTIONS = st.tuples(reflected_problems.cases(), _LAYOUTS), _judge(reflected_problems, reflections)
