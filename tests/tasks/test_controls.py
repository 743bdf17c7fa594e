"""Controls: what a small model must learn of each task, and what theory says that it cannot."""

import pytest

from fastpe import TrainConfig, train
from fastpe.tasks import list_tasks, load_task

BASE = {
    "encoding": "rope", "causal": True, "width": 32, "hidden": 64, "layers": 2, "heads": 2, "norm": "layernorm",
    "lr": 1e-3, "samples": 1024, "epochs": 60, "validation": 60, "stop_solved": True, "test_sequences": 300,
}  # fmt: skip
SOLVED = {
    "addition": {"train_length": 5},
    "bin_majority": {"train_length": 7},
    "cycle_navigation": {"train_length": 3},
    "depth": {"train_length": 10},
    "duplicate": {"train_length": 3},
    "even_pairs": {"train_length": 4},
    "flip_flop": {"train_length": 10, "lengths": "fixed"},
    "induction": {"train_length": 12, "lengths": "fixed", "task_options": {"symbols": 6}, "heads": 1, "lr": 2e-3},
    "majority": {"train_length": 6, "task_options": {"letters": 4}},
    "missing_duplicate": {"train_length": 4},
    "modular_arithmetic": {"train_length": 1},
    "mqar": {"train_length": 8, "lengths": "fixed", "task_options": {"pairs": 1, "vocabulary": 10}},
    "odds_first": {"train_length": 4},
    "parity": {"train_length": 3},
    "posgen": {"train_length": 8, "task_options": {"near": 1, "far": 1, "modulus": 3}},
    "repeat_copy": {"train_length": 4},
    "reverse": {"train_length": 4},
    "sort": {"train_length": 4, "task_options": {"symbols": 8}},
    "unique_copy": {"train_length": 4, "task_options": {"symbols": 8}},
}
NUMBERS = {"first_quarter": 0.5, "running_mean": 0.3, "running_sum": 0.1, "shift": 0.3}


def found_by(**settings):
    config = {**BASE, **settings}
    (found,) = train(
        TrainConfig(**{"test_lengths": (config["train_length"],), **config}), progress=False
    ).result["test"].values()  # fmt: skip
    return found


def test_every_task_with_a_recipe_has_a_control():
    assert {*SOLVED, *NUMBERS} == {name for name in list_tasks() if load_task(name).recipe is not None}


@pytest.mark.parametrize("task", SOLVED)
def test_a_small_model_learns(task):
    assert found_by(task=task, **SOLVED[task])["exact"] > 0.85


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(("task", "bound"), NUMBERS.items())
def test_a_small_model_learns_numbers(task, bound):
    """Its error is a small part of that of always answering 0."""
    settings = {"task": task, "train_length": 8, "lr": 3e-3, "epochs": 15, "stop_solved": False, "samples": 2048}
    assert found_by(**settings, encoding="learned")["nmse"] < bound


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("task", ["reverse", "unique_copy", "odds_first", "even_pairs"])
def test_without_mask_and_positions_no_order_is_known(task):
    """Every blank of an answer looks alike then: the same token would stand at all of them."""
    settings = {**SOLVED[task], "task": task, "causal": False, "lengths": "fixed"}
    assert found_by(**settings, encoding="nope", epochs=20)["exact"] < 0.1
    assert found_by(**settings, encoding="learned")["exact"] > 0.85


@pytest.mark.full("takes seconds")
def test_one_layer_cannot_do_induction():
    """Sanford, Hsu and Telgarsky 2024: not at this width. Two layers can, see above."""
    assert found_by(task="induction", **SOLVED["induction"], layers=1)["exact"] < 0.3


@pytest.mark.full("takes seconds")
def test_one_layer_without_positions_tells_three_blocks_and_not_four():
    """Yang et al. 2025: a depth of d solves L_k up to k = d + 2."""
    settings = {"task": "depth", "encoding": "nope", "train_length": 24, "layers": 1, "heads": 1, "width": 64,
                "hidden": 128}  # fmt: skip
    assert found_by(**settings, task_options={"blocks": 3})["exact"] > 0.85
    assert found_by(**settings, task_options={"blocks": 4})["exact"] < 0.6
