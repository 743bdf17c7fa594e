"""What a step and its products cost in floating point operations, counted on the reference."""

import numpy as np
import pytest

import fastpe
from fastpe import reference
from fastpe.base import validation
from fastpe.benchmarks import models
from fastpe.model.cost import step_flop
from fastpe.model.transformer import Transformer

PAPER = models.CASES["paper"]


class Counted(np.ndarray):
    """An array that counts the FLOPs of the matrix products that it takes part in."""

    flop = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **extra):
        plain = [each.view(np.ndarray) if isinstance(each, Counted) else each for each in inputs]
        outs = {} if out is None else {"out": tuple(each.view(np.ndarray) for each in out)}
        result = getattr(ufunc, method)(*plain, **outs, **extra)
        if ufunc is np.matmul:
            Counted.flop += 2 * result.size * plain[0].shape[-1]
        if out is not None:
            return out[0]
        return result.view(Counted) if isinstance(result, np.ndarray) else result


def counted_flop(config, batch, monkeypatch):
    """FLOPs of all products of the reference's step, less the gradient of a number that enters, which nobody needs."""
    model = Transformer(config)
    case = models.Case(config, batch, 0.0, {}, 0.0)
    x, y = models.batch_of(case)
    parameters = {name: value.astype(np.float64).view(Counted) for name, value in model.parameters.items()}
    slots = {name: value.astype(np.float64).view(Counted) for name, value in model.slots(x.shape[1]).items()}
    inputs = x if config.vocabulary else x.astype(np.float64).view(Counted)
    Counted.flop = 0
    with monkeypatch.context() as patch:
        patch.setattr(np, "asarray", np.asanyarray)
        patch.setattr(validation, "array", lambda _, value, *__, **___: np.asanyarray(value))  # as they come: `Counted`
        reference.model_loss_and_grads(config, parameters, slots, inputs, y)
    return Counted.flop - (0 if config.vocabulary else 2 * x.size * config.width)


@pytest.mark.parametrize(
    "changes", [{}, {"heads": 4, "norm": "layernorm"}, {"encoding": "alibi", "causal": True}, {"vocabulary": 11}]
)
def test_the_formula_counts_the_products_of_the_reference(changes, monkeypatch):
    settings = {"encoding": "sinusoidal", "width": 16, "hidden": 24, "layers": 3, "train_length": 7, **changes}
    config = fastpe.ModelConfig(**settings)
    assert step_flop(config, 5) == counted_flop(config, 5, monkeypatch)


@pytest.mark.parametrize("name", ["paper", "lm"])
def test_the_products_listed_are_all_of_a_step(name):
    config = models.CASES[name].config
    n, c = config.train_length, config.width
    of_layers = 0
    for product in models.products(config):
        for part in product.name.split(", "):
            times = config.heads if part in PER_HEAD else 1
            of_layers += product.flop * times * (1 if part in ONCE else config.layers)
    ends = 0 if config.vocabulary else 10 * n * c
    assert of_layers + ends == step_flop(config, 1)


PER_HEAD = ("scores", "weighted sum", "d weights", "d values", "d keys", "d queries")
ONCE = ("logits", "d head.weight", "d head input")


def test_the_papers_step_has_753_million():
    assert step_flop(PAPER.config, 32) == 753_049_600


def test_masked_scores_can_be_left_out():
    causal = models.CASES["causal"].config
    n, c = causal.train_length, causal.width
    spared = 3 * 4 * c * (n * n - n * (n + 1) // 2) * causal.layers * 32
    assert step_flop(causal, 32, unmasked=True) == step_flop(causal, 32) - spared
    assert step_flop(PAPER.config, 32, unmasked=True) == step_flop(PAPER.config, 32)
