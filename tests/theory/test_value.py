"""A number and how it is known."""

import json

import pytest

from fastpe.theory.value import Value, certified, estimate, exact


def test_a_bound_has_a_direction_and_an_estimate_an_interval():
    assert certified("P6", high=0.25).high == 0.25
    with pytest.raises(ValueError, match="needs at least one of low and high"):
        certified("P6")
    with pytest.raises(ValueError, match="an estimate needs low and high"):
        Value(1.0, "estimate", None, 2.0, "draws")
    with pytest.raises(ValueError, match="kind must be exact or certified or estimate, not 'guess'"):
        Value(1.0, "guess", None, None, "")


def test_a_value_lies_between_its_ends():
    with pytest.raises(ValueError, match=r"low <= value <= high must hold, not 1\.0, 0\.5, 2\.0"):
        estimate(0.5, 1.0, 2.0, "draws")


def test_as_json_in_full_precision():
    kept = json.loads(json.dumps(exact(0.1 + 0.2, "a sum", length=3).to_dict(), allow_nan=False))
    assert kept["value"] == 0.1 + 0.2
    assert kept["inputs"] == {"length": 3}
    assert exact(float("inf"), "no limit").to_dict()["value"] == "inf"
