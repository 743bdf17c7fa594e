"""A grid of settings that a short file names may have more combinations than memory has room for."""

import pytest

from fastpe.experiments.study import Study


def test_a_grid_of_too_many_combinations_is_refused():
    with pytest.raises(ValueError, match="at most 10000 combinations of values, not 1000000"):
        Study(["nope"], ["reverse"], seeds=1, choose={name: range(1, 101) for name in ("lr", "eps", "clip")})


def test_a_study_of_too_many_encodings_is_refused():
    encodings = {f"nope {n}": {"encoding": "nope"} for n in range(10_001)}
    with pytest.raises(ValueError, match="at most 10000 entries, not 10001"):
        Study(encodings, ["reverse"], seeds=1)
