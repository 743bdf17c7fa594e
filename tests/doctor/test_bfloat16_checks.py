"""The checks of bfloat16 products: they pass, and fail where operands are not rounded, or rounded otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from fastpe import reference
from fastpe.doctor import bfloat16_checks
from fastpe.doctor.diagnosis import STEPS, checks, judge
from fastpe.kernels import arrays
from fastpe.kernels.products.bfloat16 import on_arrays
from fastpe.model import precision

SMALL = replace(STEPS["tokens"], layers=1, width=16, heads=2, hidden=24, train_length=9)


@pytest.mark.full("compiles products of bfloat16")
def test_products_pass():
    (check,) = checks(["bfloat16 product"])
    verdict = judge(check)
    assert verdict.passed
    assert 0 < verdict.error <= verdict.bound


@pytest.mark.parametrize("wrong", ["not rounded", "cut off"])
def test_wrong_products_fail(wrong, monkeypatch):
    def product(a, b, mode, d, e, way):
        if wrong == "cut off":
            a, b = ((x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for x in (a.copy("A"), b))
        return arrays.gemm(a, b, mode, d, e)

    monkeypatch.setattr(on_arrays, "product", product)
    assert not all(each.allowed for each in bfloat16_checks.product_differences("float32"))


def test_a_step_passes_and_one_that_does_not_round_fails(monkeypatch):
    assert all(each.allowed for each in bfloat16_checks.step_differences(SMALL, "float32"))
    monkeypatch.setattr(precision.isa, "fastest", lambda: None)
    found = list(bfloat16_checks.step_differences(SMALL, "float32"))
    assert sum(not each.allowed for each in found) > len(found) / 2


def test_rounding_is_of_products_alone():
    x = np.array([[1 + 2.0**-12]]).view(reference.Rounding)
    assert (x @ x).item() == 1.0
    assert (x * x).item() > 1.0
