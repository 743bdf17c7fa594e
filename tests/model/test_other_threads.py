"""What is written or copied while another thread trains the model is that of one moment."""

import copy
import pickle
import threading
from contextlib import contextmanager

import numpy as np

import fastpe

CONFIG = fastpe.ModelConfig("nope", width=32, hidden=32, train_length=4)


@contextmanager
def meanwhile(call):
    """Another thread calls it again and again."""
    over = threading.Event()

    def repeat():
        while not over.is_set():
            call()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def training(adam):
    """Another thread updates the model all the time."""
    x = np.ones((2, 4), np.float32)
    adam.step(x, x)
    return meanwhile(lambda: adam.step(x, x, threads=1))


def moments_of_one_step(model, steps, first, second):
    """Parameters after so many updates by hand, which the others must be those of."""
    expected = fastpe.Transformer(model.config)
    adam, x = fastpe.Adam(expected), np.ones((2, 4), np.float32)
    for _ in range(steps):
        adam.step(x, x, threads=1)
    for name, value in expected.parameters.items():
        np.testing.assert_array_equal(model.parameters[name], value, err_msg=name)
        np.testing.assert_array_equal(first[name], adam.first[name], err_msg=name)
        np.testing.assert_array_equal(second[name], adam.second[name], err_msg=name)


def test_a_model_saved_while_another_thread_trains_it_is_whole(tmp_path):
    model = fastpe.Transformer(CONFIG)
    with training(fastpe.Adam(model)):
        for _ in range(25):
            model.save(tmp_path / "m")
            fastpe.load(tmp_path / "m")


def test_copies_are_of_one_step():
    adam = fastpe.Adam(fastpe.Transformer(CONFIG))
    with training(adam):
        taken = [adam.copies() for _ in range(5)]
        pickled = [pickle.loads(pickle.dumps(adam.model)) for _ in range(5)]
    for steps, arrays in taken:
        copy = fastpe.Transformer(CONFIG)
        copy.parameters = {name.removeprefix("model."): x for name, x in arrays.items() if name.startswith("model.")}
        groups = [
            {name.removeprefix(f"adam.{which}."): x for name, x in arrays.items() if name.startswith(f"adam.{which}.")}
            for which in ("first", "second")
        ]
        moments_of_one_step(copy, steps, *groups)
    assert all(np.isfinite(value).all() for model in pickled for value in model.parameters.values())


def test_a_file_that_is_replaced_while_it_is_read_is_one_or_the_other(tmp_path):
    models = [fastpe.Transformer(fastpe.ModelConfig("nope", width=8, hidden=8, seed=seed)) for seed in (1, 2)]
    models[0].save(path := tmp_path / "m")
    with meanwhile(lambda: [model.save(path) for model in models]):
        found = [fastpe.load(path) for _ in range(60)]
    for model in found:
        same = models[model.config.seed - 1]
        assert all(np.array_equal(model.parameters[name], value) for name, value in same.parameters.items())


def test_the_owners_views_are_written_whatever_was_done_to_the_users(tmp_path):
    model = fastpe.Transformer(CONFIG)
    x = np.ones((1, 4))
    expected = model(x)
    model.parameters["head.weight"].shape = (1, 32)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(fastpe.load(tmp_path / "m")(x), expected)


def test_a_copy_of_an_optimiser_is_of_one_step_with_its_model():
    adam = fastpe.Adam(fastpe.Transformer(CONFIG))
    with training(adam):
        taken = [copy.deepcopy(adam) for _ in range(5)]
        taken += [pickle.loads(pickle.dumps((adam.model, adam)))[1] for _ in range(5)]
    for each in taken:
        moments_of_one_step(each.model, each.steps, each.first, each.second)


def test_parameters_that_are_assigned_and_copied_at_once_are_not_mixed():
    model = fastpe.Transformer(CONFIG)
    values = [{name: np.full(x.shape, k) for name, x in model.parameters.items()} for k in (1.0, 2.0)]

    def assign():
        for each in values:
            model.parameters = each

    assign()
    with meanwhile(assign):
        for _ in range(200):
            assert len({x for array in model.copies().values() for x in np.unique(array)}) == 1
