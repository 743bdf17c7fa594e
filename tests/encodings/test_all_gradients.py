"""Gradients of everything that an encoding learns, in float64: through attention, and through the whole model."""

from collections.abc import Mapping

import numpy as np
import pytest
from encoding_variants import SIZES, is_causal, label, learning
from through_attention import assert_same_along, away

import fastpe
from fastpe import reference
from fastpe.encodings import registry

LENGTH, LAYERS = 12, 2
CASES = learning(LENGTH)
AT_THE_INPUT = {"table", "qk_table", "taps"}
AWAY = {"clex": 0.1, "dape": 0.2}
"""Others 0.3. An ODE of large maps ends at frequencies of which differences are noise; a difference must not lead over
a kink of the network's units."""
Arrays = dict[str, np.ndarray]


class Whole:
    """The model with one encoding, and the reference of its loss, with slots built by the references alone."""

    def __init__(self, name: str, options: dict, rng: np.random.Generator) -> None:
        self.name, self.causal = name, is_causal(name)
        self.request = {**SIZES, "causal": self.causal, "dtype": np.float64, **options}
        self.config = fastpe.ModelConfig(
            name, options, width=24, heads=2, layers=LAYERS, hidden=8, causal=self.causal, train_length=LENGTH,
            dtype="float64", activation="gelu",  # ReLU has no slope at 0, and a difference may step across that
        )  # fmt: skip
        self.model = fastpe.Transformer(self.config)
        self.own = [key for key in self.model.parameters if "encoding." in key]
        for key in self.own:
            self.model.parameters[key][...] = away(self.model.parameters[key], rng, AWAY.get(name, 0.3))
        self.x, self.y = rng.normal(size=(2, 3, LENGTH))

    def of_layer(self, layer: int) -> dict[str, str]:
        """The names in the model of one layer's parameters, by their own."""
        mine = [key for key in self.own if not key.startswith("layers.") or key.startswith(f"layers.{layer}.")]
        return {key.rpartition(".")[2]: key for key in mine}

    def slots(self, parameters: Mapping[str, np.ndarray]) -> list[dict]:
        return [
            fastpe.build(
                self.name, LENGTH, reference=True, **self.request,
                params={key: parameters[full] for key, full in self.of_layer(layer).items()},
            )
            for layer in range(LAYERS)
        ]  # fmt: skip

    def loss(self, parameters: Mapping[str, np.ndarray]) -> float:
        outputs = reference.model_forward(self.config, parameters, self.slots(parameters), self.x)
        return float(np.square(outputs - self.y).mean())

    def gradients(self) -> tuple[float, Arrays]:
        """Those of the reference model, and of the encoding's parameters by its own `pull`."""
        parameters, slots = self.model.parameters, self.slots(self.model.parameters)
        loss, found, of_slots = reference.model_loss_and_grads(self.config, parameters, slots, self.x, self.y)
        found |= {key: np.zeros_like(parameters[key]) for key in self.own}
        for layer, (built, given) in enumerate(zip(slots, of_slots, strict=True)):
            names = self.of_layer(layer)
            dslots = {
                slot: given.get(slot, np.zeros_like(array))  # what acts at the input is the first layer's
                for slot, array in built.items()
                if isinstance(array, np.ndarray) and slot != "index"
            }
            params = {key: parameters[full] for key, full in names.items()}
            pulled = fastpe.pull(self.name, LENGTH, dslots, params=params, **self.request)
            for key, gradient in pulled.items():
                found[names[key]] += gradient
        return loss, found


@pytest.mark.parametrize(("name", "options"), CASES, ids=label)
def test_gradients_of_a_whole_model_are_those_of_the_reference(name: str, options: dict) -> None:
    rng = np.random.default_rng(3)
    whole = Whole(name, options, rng)
    loss, got = whole.model.loss_and_grads(whole.x, whole.y)
    expected_loss, expected = whole.gradients()
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-12)
    assert set(got) == set(expected) > set(whole.own) != set()
    sizes = whole.model._encoding.reference_gradient_sizes(whole.model.parameters, whole.x, whole.y)
    for key, exact in expected.items():
        bound = 1e-11 * (np.abs(exact).max() + 0.001 * sizes[key].max())
        assert np.abs(got[key] - exact).max() <= bound, key
    # and what the reference's gradients are: the slopes of its loss, along any direction
    parameters = {key: value.copy() for key, value in whole.model.parameters.items()}
    for key in whole.own:
        for _ in range(2):
            along = rng.normal(size=parameters[key].shape)
            along /= np.linalg.norm(along)
            ends = [whole.loss({**parameters, key: parameters[key] + step * along}) for step in (1e-5, -1e-5)]
            slope = (ends[0] - ends[1]) / 2e-5
            np.testing.assert_allclose(
                (got[key] * along).sum(), slope, rtol=1e-6, atol=1e-8 * sizes[key].max(), err_msg=key
            )


@pytest.mark.parametrize(
    ("name", "options"),
    [case for case in CASES if set(registry.get(case[0]).slots) - AT_THE_INPUT],
    ids=label,
)
def test_gradients_through_attention_are_slopes_of_the_reference(name: str, options: dict) -> None:
    assert_same_along(name, LENGTH, 2, size=AWAY.get(name, 0.3), causal=is_causal(name), **SIZES, **options)
