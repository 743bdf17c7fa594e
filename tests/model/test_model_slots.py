"""The model with every slot, compared with the reference: a test encoding whose parameters are the slots."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fastpe
from fastpe import reference
from fastpe.base.random import Stream
from fastpe.encodings import registry
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.slots import Spec
from fastpe.model.passes import Passes
from fastpe.reference import model_gradient_sizes

WIDTH, HEADS, LAYERS, REACH = 12, 2, 2, 4
HOME = Path(fastpe.__file__).parent / "encodings"
SHAPES = {
    "table": lambda n: (n, WIDTH),
    "qk_table": lambda n: (n, WIDTH),
    "taps": lambda n: (4, WIDTH),
    "rotors": lambda n: (HEADS, n, 2, 3, 3),
    "angles": lambda n: (HEADS, n, 2),
    "growth": lambda n: (n, 2),
    "row_scale": lambda n: (HEADS, n),
    "rel_gain": lambda n: (1, 2 * REACH + 1, WIDTH // HEADS),
    "rel_key": lambda n: (HEADS, 2 * REACH + 1, WIDTH // HEADS),
    "rel_query": lambda n: (1, 2 * REACH + 1, WIDTH // HEADS),
    "rel_value": lambda n: (1, 2 * REACH + 1, WIDTH // HEADS),
    "key_bias": lambda n: (HEADS, WIDTH // HEADS),
    "gain": lambda n: (HEADS, 2 * REACH + 1),
    "bias": lambda n: (HEADS, 2 * n - 1),
    "values": lambda n: (HEADS, 7),
    "scores": lambda n: (HEADS, n, n),
    "counts": lambda n: (HEADS, 5, WIDTH // HEADS),
}
ONCE, CAUSAL = ("table", "qk_table", "taps"), ("growth", "counts")


def slots_of(rng: np.random.Generator, names: tuple[str, ...], n: int) -> dict[str, np.ndarray]:
    made = {name: rng.normal(size=SHAPES[name](n)) for name in names}
    if "growth" in made:
        made["growth"] = np.arange(n)[:, None] * np.array([0.01, 0.02])
    for name in ("gain", "rel_gain"):
        if name in made:
            made[name] = 1 + 0.3 * made[name]
    if "values" in made:
        made["index"] = rng.integers(0, 7, (n, n)).astype(np.int32)
    return made


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch):
    """Register an encoding `everything` that fills these slots with its parameters; returns its initial values."""

    def register(names: tuple[str, ...], n: int, plain: dict, *, per_layer: bool) -> None:
        def init(spec: Spec, rng: Stream, **options: object) -> dict:
            seed = int(1e6 * rng.uniform((1,))[0])
            return {k: v for k, v in slots_of(np.random.default_rng(seed), names, n).items() if k in learned}

        fixed = slots_of(np.random.default_rng(1), names, n)

        def fill(spec: Spec, params: dict, out: dict, **options: object) -> None:
            for slot, array in out.items():
                array[...] = params.get(slot, fixed.get(slot))

        def pull(spec: Spec, params: dict, dslots: dict, dparams: dict, **options: object) -> None:
            for slot in dparams:
                dparams[slot] += dslots[slot]

        learned = list(names)
        module = ModuleType("fastpe.encodings.bias.everything")
        module.ENCODING = Encoding(
            slots=tuple(fixed), options={}, beyond="defined", direction="yes", source="", ulp=1.0, reference=fill,
            fill=fill, pull=pull, init=init,
            parameters=lambda spec, **o: {name: SHAPES[name](n) for name in learned},
            shapes=lambda spec, **o: {name: array.shape for name, array in fixed.items()},
            plain=lambda spec, **o: plain, per_layer=tuple(learned) if per_layer else (),
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "fastpe.encodings.bias.everything", module)
        monkeypatch.setattr(registry.ENCODINGS, "files", {"everything": HOME / "bias" / "everything.py"})

    return register


def with_slots(names, of_parameters: dict, of_slots: list) -> dict:
    """Both by the names that the model has for them."""
    found = dict(of_parameters)
    for name in names:
        if name.startswith("encoding."):
            found[name] = sum(own[slot] for own in of_slots if (slot := name.split(".")[-1]) in own)
        elif ".encoding." in name:
            _, layer, *_, slot = name.split(".")
            found[name] = of_slots[int(layer)][slot]
    return found


def compare(config: fastpe.ModelConfig, n: int, tolerance: float) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(3, n)), rng.normal(size=(3, n))
    model = fastpe.Transformer(config)
    if config.vocabulary:
        x, y = (rng.integers(0, config.vocabulary, (3, n)) for _ in range(2))
    loss, gradients = model.loss_and_grads(x, y)
    slots, layered = model.slots(n), model._encoding.layered
    by_layer = [
        {
            slot: value if isinstance(value, str | bool) else np.float64(value[layer] if slot in layered else value)
            for slot, value in slots.items()
        }
        for layer in range(config.layers)
    ]
    for own in by_layer:
        if "index" in own:
            own["index"] = own["index"].astype(int)
    parameters = {name: value.astype(np.float64) for name, value in model.parameters.items()}
    expected_loss, *exact = reference.model_loss_and_grads(config, parameters, by_layer, x, y)
    expected, sizes = (
        with_slots(gradients, *found) for found in (exact, model_gradient_sizes(config, parameters, by_layer, x, y))
    )
    assert set(gradients) == set(expected)
    np.testing.assert_allclose(loss, expected_loss, rtol=tolerance)
    for name, exact in expected.items():
        bound = tolerance * (np.abs(exact).max() + 0.001 * np.abs(np.asarray(sizes[name])).max())
        assert np.abs(gradients[name] - exact).max() <= bound, name
    outputs = reference.model_forward(config, parameters, by_layer, x)
    np.testing.assert_allclose(model(x), outputs, atol=tolerance * np.abs(outputs).max())


def config_of(n: int, **settings: object) -> fastpe.ModelConfig:
    sizes = {"width": WIDTH, "heads": HEADS, "layers": LAYERS, "hidden": 10, "dtype": "float64"}
    return fastpe.ModelConfig("everything", train_length=n, **{**sizes, **settings})


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_every_slot_alone(everything, name: str, per_layer: bool) -> None:
    if per_layer and name in ONCE:
        pytest.skip("acts once")
    everything((name,), 9, {}, per_layer=per_layer)
    compare(config_of(9, causal=name in CAUSAL), 9, 1e-11)


@pytest.mark.parametrize("n", [1, 50, 96, 97, 130])
@pytest.mark.parametrize("causal", [False, True])
def test_all_slots_together_at_every_kind_of_length(everything, n: int, causal: bool) -> None:
    names = tuple(name for name in SHAPES if causal or name not in CAUSAL)
    everything(names, n, {"scale": 0.3, "pairs": "half", "rectify": True}, per_layer=False)
    compare(config_of(n, causal=causal, norm="layernorm"), n, 1e-9)


def test_slots_of_layers_with_plain_values_in_float32(everything) -> None:
    names = tuple(name for name in SHAPES if name not in (*ONCE, *CAUSAL))
    everything(names, 20, {"scale": 0.2}, per_layer=True)
    compare(config_of(20, dtype="float32", causal=True, residual=False), 20, 2e-4)


def test_a_model_of_tokens_takes_them_too(everything) -> None:
    everything(("table", "taps", "qk_table", "angles", "rel_key", "rel_value"), 11, {}, per_layer=False)
    compare(config_of(11, vocabulary=5, causal=True, activation="gelu"), 11, 1e-11)


@pytest.mark.parametrize("groups", [9, 1])  # with one, lanes share its gradients
@pytest.mark.parametrize("names", [tuple(SHAPES), ("polar", "angles", "qk_table")], ids=["all", "radii"])
def test_bits_do_not_depend_on_threads(everything, monkeypatch, groups: int, names: tuple) -> None:
    monkeypatch.setattr(Passes, "_groups", lambda self, batch, lengths: batch * np.arange(groups + 1) // groups)
    if "polar" in names:
        monkeypatch.setitem(SHAPES, "polar", lambda n: (HEADS, WIDTH // HEADS))
        monkeypatch.setitem(SHAPES, "angles", lambda n: (1, n, WIDTH // HEADS))
    everything(names, 13, {}, per_layer=False)
    x = np.random.default_rng(0).normal(size=(9, 13))
    found = [
        fastpe.Transformer(config_of(13, dtype="float32", causal=True)).loss_and_grads(x, x, threads=threads)
        for threads in (1, 2, 3)
    ]
    for loss, gradients in found[1:]:
        assert loss == found[0][0]
        for name, array in gradients.items():
            assert array.tobytes() == found[0][1][name].tobytes()


def test_what_acts_once_cannot_be_a_layers_own(everything) -> None:
    everything(("table",), 9, {}, per_layer=True)
    with pytest.raises(ValueError, match="fills 'table' in every layer, but this slot acts only once"):
        fastpe.Transformer(config_of(9))


@pytest.mark.parametrize("shape", [(1, 1, 1, 6, 6), (HEADS, 1, 3, 2, 2), (1, 9, 6, 1, 1)])
@pytest.mark.parametrize("others", [(), ("angles", "rel_key", "growth")])
def test_maps_of_every_kind(everything, monkeypatch, shape: tuple, others: tuple) -> None:
    """Of all heads and positions together, and with slots that read rows before they are mapped."""
    monkeypatch.setitem(SHAPES, "rotors", lambda n: shape)
    everything(("rotors", *others), 9, {"pairs": "half"}, per_layer=bool(others))
    compare(config_of(9, causal=True), 9, 1e-11)


BESIDE_RADII = ("angles", "row_scale", "gain", "bias", "values", "scores", "rel_value")


@pytest.mark.parametrize(("others", "heads"), [((), HEADS), (("angles",), 1), (BESIDE_RADII, HEADS)])
@pytest.mark.parametrize(("n", "per_layer"), [(1, False), (9, True), (9, False), (130, False)])
def test_channels_as_radii(everything, monkeypatch, n: int, per_layer: bool, others: tuple, heads: int) -> None:
    monkeypatch.setitem(SHAPES, "polar", lambda n: (heads, WIDTH // HEADS))
    monkeypatch.setitem(SHAPES, "angles", lambda n: (heads, n, WIDTH // HEADS))
    everything(("polar", *others), n, {"scale": 0.3}, per_layer=per_layer)
    compare(config_of(n, causal=bool(others), norm="layernorm"), n, 1e-9)
