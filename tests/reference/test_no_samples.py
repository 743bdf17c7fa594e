"""Batches without a sample: results and gradients have their shapes, with every slot."""

import numpy as np
import pytest
from attention_problems import SLOTS, problem

import fastpe
from fastpe import reference


@pytest.mark.parametrize("start", [None, 1])
@pytest.mark.parametrize("name", [*SLOTS, "counts", "polar", "reflectors"])
def test_empty_batches_have_empty_results_with_every_slot(name, start):
    names = (name, "reflect") if name == "reflectors" else (name,)
    given = problem(np.random.default_rng(0), names, b=2, n=3, m=4)
    given |= {each: given[each][:0] for each in "qkv"}
    options = {"causal": True, "query_start": start}
    for vjp in (fastpe.attention_vjp, reference.attention_vjp):
        out, pull = vjp(**given, **options)
        assert out.shape == given["q"].shape
        for slot, gradient in pull(out).items():
            np.testing.assert_array_equal(gradient, np.zeros(np.shape(given[slot])), err_msg=slot)
