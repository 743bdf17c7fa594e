"""Recipes of tasks: which settings they give, and that small models solve tasks with them."""

import pytest

import fastpe
from fastpe.tasks import list_tasks, load_task
from fastpe.training.config import TrainConfig
from fastpe.training.presets import SMALL, preset

TASKS = [name for name in list_tasks() if load_task(name).recipe is not None]


@pytest.mark.parametrize("task", TASKS)
def test_a_recipe_names_settings_and_the_runs_that_show_it(task):
    recipe = load_task(task).recipe
    config = preset("recipe", recipe.encoding, task=task)
    assert {key: getattr(config, key) for key in recipe.settings} == recipe.settings
    assert 0 < recipe.seconds < 120
    assert recipe.solved >= 9 or recipe.remark
    assert config.causal
    assert config.hidden == 4 * config.width
    first, *_ = config.test_lengths
    assert first in (config.train_length, f"1-{config.train_length}")
    assert config.stop_solved == (config.validation > 0) == (load_task(task).kind != "numbers")


def test_given_settings_replace_those_of_a_recipe():
    config = preset("recipe", "rope", task="induction", task_options={"symbols": 5}, width=16, causal=False, epochs=1)
    assert (config.width, config.hidden, config.causal, config.task_options["symbols"]) == (16, 64, False, 5)
    assert config.warmup == config.steps // 10
    assert preset("recipe", "rope", task="shift", train_length=7).test_lengths == (7, 14, 21)


def test_a_learned_table_is_trained_in_all_rows_that_tests_need():
    config = preset("recipe", "learned", task="reverse")
    assert config.positions == "offset:74"  # twice the largest tested length, begin and separator
    assert preset("recipe", "learned", task="reverse", positions="usual").positions == "usual"


def test_a_task_without_a_recipe_has_the_settings_of_small_models(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from fastpe.tasks import Task\n"
        "TASK = Task(kind='answer', summary='the input again', symbols=2)\n"
        "def sample(draws, length, count):\n"
        "    inputs = draws.integers(2, (count, length))\n"
        "    return inputs, inputs\n"
    )
    config = preset("recipe", "rope", task=str(file))
    assert {key: getattr(config, key) for key in SMALL} == dict(SMALL)


@pytest.mark.parametrize("task", [name for name in list_tasks() if name not in {*TASKS, "text"}])
def test_every_task_without_a_recipe_has_settings_of_small_models_at_one_of_its_lengths(task):
    config = preset("recipe", "rope", task=task)
    assert config.train_length >= SMALL["train_length"]
    assert config.test_lengths


def test_the_protocol_of_the_paper_is_the_default_of_settings():
    assert preset("li2025", "wavelet", task="running_sum") == TrainConfig("wavelet")
    assert preset("li2025", "rope", task="sort") == TrainConfig("rope", task="sort", causal=True)
    assert preset("li2025", "xpos", task="running_sum").causal


@pytest.mark.full("trains models")
@pytest.mark.parametrize("task", ["bin_majority", "depth", "posgen"])
def test_recipes_solve_their_tasks(task):
    result = fastpe.train(preset("recipe", load_task(task).recipe.encoding, task=task, seed=20), progress=False)
    exact, *_ = (found["exact"] for found in result.result["test"].values())
    assert exact >= 0.99
