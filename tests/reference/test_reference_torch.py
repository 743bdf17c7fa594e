"""The reference beside PyTorch: stored values everywhere, and live where it is installed."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastpe.reference import adam_step, attention_vjp, model_forward, model_gradient_sizes, model_loss_and_grads

DATA = Path(__file__).parent.parent / "data"


def torch_cases(flat):
    cases = {}
    for key, value in flat.items():
        case, _, name = key.partition("/")
        cases.setdefault(case, {})[name] = json.loads(str(value)) if name == "settings" else value
    return cases


def part(case, kind):
    return {name.removeprefix(f"{kind}/"): value for name, value in case.items() if name.startswith(f"{kind}/")}


def stored():
    with np.load(DATA / "torch_values.npz", allow_pickle=False) as file:
        return torch_cases(file)


def live():
    pytest.importorskip("torch")
    import make_torch_values

    return torch_cases(make_torch_values.values(seed=17))


@pytest.fixture(scope="module", params=[stored, live])
def torch_values(request):
    return request.param()


@pytest.mark.parametrize("name", ["sdpa", "rotary", "everything"])
def test_attention_agrees_with_torch(torch_values, name):
    case = torch_values[name]
    inputs = part(case, "in")
    dout = inputs.pop("dout")
    out, pullback = attention_vjp(**inputs, **case["settings"])
    np.testing.assert_allclose(out, case["out/out"], rtol=0, atol=1e-13)
    gradients, expected = pullback(dout), part(case, "grad")
    assert set(expected) <= set(gradients)
    for argument, gradient in expected.items():
        np.testing.assert_allclose(gradients[argument], gradient, rtol=0, atol=1e-12, err_msg=argument)


@pytest.mark.parametrize("name", ["paper", "deep", "bare", "tokens", "today", "gpt", "unbiased"])
def test_the_model_agrees_with_torch(torch_values, name):
    case = torch_values[f"model-{name}"]
    config, inputs = SimpleNamespace(**case["settings"]), part(case, "in")
    x, y = inputs.pop("x"), inputs.pop("y")
    slots = {slot: inputs.pop(slot) for slot in config.slots}
    factors = part(case, "factor")
    assert bool(factors) == hasattr(config, "dropout")
    if not factors:
        np.testing.assert_allclose(model_forward(config, inputs, slots, x), case["out/prediction"], rtol=0, atol=1e-12)
    loss, gradients, slot_gradients = model_loss_and_grads(config, inputs, slots, x, y, None, factors)
    np.testing.assert_allclose(loss, case["out/loss"], rtol=1e-12)
    assert set(gradients) == set(inputs)
    assert set(slot_gradients) == set(slots)
    expected = part(case, "grad")
    sizes, slot_sizes = model_gradient_sizes(config, inputs, slots, x, y, None, factors)
    for parameter, gradient in expected.items():
        # the gradient of a key map's bias is zero in theory: its rounding is measured by its terms
        tolerance = 1e-9 * np.abs(gradient).max() + 1e-13 * np.max((sizes | slot_sizes)[parameter])
        got = (gradients | slot_gradients)[parameter]
        np.testing.assert_allclose(got, gradient, rtol=0, atol=tolerance, err_msg=parameter)


def test_adam_agrees_with_torch(torch_values):
    case = torch_values["adam"]
    parameters = {"p": case["in/parameter"].copy()}
    first, second = {"p": np.zeros(6)}, {"p": np.zeros(6)}
    for step, gradient in enumerate(case["in/gradients"], start=1):
        adam_step(parameters, {"p": gradient}, first, second, step, **case["settings"])
        np.testing.assert_allclose(parameters["p"], case["out/trajectory"][step - 1], rtol=0, atol=1e-14)


def test_adamw_and_clipping_agree_with_torch(torch_values):
    case = torch_values["adamw"]
    parameters = {name: value.copy() for name, value in part(case, "in").items()}
    first, second = ({name: np.zeros_like(value) for name, value in parameters.items()} for _ in range(2))
    for step in range(1, 5):
        gradients = {name: own[step - 1] for name, own in part(case, "gradients").items()}
        adam_step(parameters, gradients, first, second, step, **case["settings"])
        for name, value in parameters.items():
            np.testing.assert_allclose(value, case[f"out/{name}"][step - 1], rtol=0, atol=1e-14, err_msg=name)
