"""The layers of released models, compared with the table of their configurations, and as models that can be trained."""

import command_line
import numpy as np
import pytest
from command_line import TINY, refused

import fastpe
from fastpe import ModelConfig, Transformer
from fastpe.model import sight
from fastpe.model.schedules import SCHEDULES, schedule

# as the released models' configurations have them: of how many layers one sees all, and what the others see
PATTERNS = {
    "command_a": (4, "window:4096"), "exaone4": (4, "window:4096"), "gemma2": (2, "window:4096"),
    "gemma3": (6, "window:512"), "gemma4": (6, "window:1024"), "gpt_oss": (2, "window:128"),
    "llama4": (4, "chunks:8192"), "olmo3": (4, "window:4096"), "smollm3": (1, None),
}  # fmt: skip
BASES = {  # of the near layers and of those that see all; None: they do not rotate
    "command_a": (1e4, None), "exaone4": (1e4, None), "gemma2": (1e4, 1e4), "gemma3": (1e4, 1e6),
    "gemma4": (1e4, 1e6), "gpt_oss": (1.5e5, 1.5e5), "llama4": (5e5, None), "olmo3": (5e5, 5e5),
    "smollm3": (2e6, None),
}  # fmt: skip
# the others: which of 12 layers see all ("F") and what those with a window ("S") see; the bases of both
LAYERS = {
    "beam": ("SSSSSFSSSSSF", "window:512", 1e4, None), "cwm": ("FSSSFSSSFSSS", "window:8192", 1e6, 1e6),
    "dory": ("SSSFSSSFSSSF", "window:1024", 1e4, 1e7), "flint": ("FFSSSFSSSFSF", "window:513", 1e4, None),
    "gpt_neo": ("FSFSFSFSFSFS", "window:256", None, None),
    "granite_swa": ("FSSSFSSSFSSS", "window:128", 1e4, 1e4), "kolibri1": ("SSSSFSSSSFSS", "window:513", 1e4, None),
    "mimo_v2_flash": ("FSSSSFSSSSSF", "window:129", 1e4, 5e6),
    "modernbert": ("FSSFSSFSSFSS", "window:65", 1e4, 1.6e5),
    "modernbert_decoder": ("FSSFSSFSSFSS", "window:64", 1e4, 1.6e5),
    "muse_spark": ("SSSFSSSFSSSF", "window:2048", 5e5, None), "ultrabert": ("SSFSSFSSFSSF", "window:129", 1e4, 2.56e6),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_patterns_with_exceptions_are_those_of_the_released_model(name):
    kinds, near, *bases = LAYERS[name]
    config = ModelConfig(**schedule(name, layers=12), layers=12, width=32, heads=2, causal="bert" not in name)
    assert list(sight.of_layers(config.sight, 12)) == ["all" if kind == "F" else near for kind in kinds]
    if name == "gpt_neo":
        return
    angles = np.broadcast_to(Transformer(config).slots(9)["angles"], (12, 1, 9, 8))
    for layer, kind in enumerate(kinds):
        base = bases[kind == "F"]
        fast = slice(0, 1 if name == "cwm" else 8)  # Llama 3's rule changes the slower pairs
        theta = [base ** (-pair / 8) if base else 0.0 for pair in range(8)]
        np.testing.assert_allclose(angles[layer, 0, 3, fast], 3 * np.array(theta)[fast], rtol=1e-6)


@pytest.mark.parametrize("layers", [5, 14])
def test_exceptions_follow_the_number_of_layers(layers):
    kinds = {5: ("SSSSF", "FFSSF", "FSSSS", "FSSSF"), 14: ("SSSSSFSSSSSFSF", "FFSSSFSSSFSSSF", "FSSSSFSSSSSFSS",
             "SFSSSFSSSFSSSF")}[layers]  # fmt: skip
    for name, expected in zip(("beam", "flint", "mimo_v2_flash", "muse_spark"), kinds, strict=True):
        found = sight.of_layers(schedule(name, 7, layers)["sight"], layers)
        assert ["F" if each == "all" else "S" for each in found] == list(expected), name
        assert {each for each in found if each != "all"} == {"window:7"}


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "gpt_neo"])
def test_layers_are_those_of_hugging_faces_configurations(name):
    from importlib import import_module

    pytest.importorskip("transformers")
    try:
        module = import_module(f"transformers.models.{name}.configuration_{name}")
    except ModuleNotFoundError:
        pytest.skip(f"this version of transformers has no {name}")
    wanted = f"{name}{'text' if name == 'muse_spark' else ''}config".replace("_", "")
    config = next(getattr(module, each) for each in dir(module) if each.lower() == wanted)()
    kinds = [kind for kind in config.layer_types if kind != "mlp"]
    found = sight.of_layers(schedule(name)["sight"], len(kinds))
    assert [each == "all" for each in found] == [kind == "full_attention" for kind in kinds]
    size = config.sliding_window + (
        "bert" in name and name != "modernbert_decoder"
    )  # of bidirectional models: |o| <= W
    assert {each for each in found if each != "all"} == {f"window:{size}"}


@pytest.mark.parametrize("name", PATTERNS)
def test_layers_are_those_of_the_released_model(name):
    every, near = PATTERNS[name]
    config = ModelConfig(**schedule(name), layers=12, width=32, heads=2, causal=True)
    expected = ["all" if near is None or (layer + 1) % every == 0 else near for layer in range(12)]
    assert list(sight.of_layers(config.sight, 12)) == expected
    angles = np.broadcast_to(Transformer(config).slots(9)["angles"], (12, 1, 9, 8))
    far = 4 if near is None else every
    for layer in range(12):
        base = BASES[name][(layer + 1) % far == 0]
        if name != "gpt_oss":  # YaRN changes the slower pairs
            turning = 2 if name == "gemma4" and base == 1e6 else 8
            theta = [base ** (-pair / 8) if base and pair < turning else 0.0 for pair in range(8)]
            np.testing.assert_allclose(angles[layer, 0, 3], 3 * np.array(theta), rtol=1e-6)


@pytest.mark.parametrize(("near", "expected"), [(None, [1, 1, 1]), (2, [1, 1.069314718, 1.109861229])])
def test_layers_of_llama_4_without_positions_have_their_temperature(near, expected):
    config = ModelConfig(**schedule("llama4", near), layers=8, width=32, heads=2, causal=True, dtype="float64")
    factors = Transformer(config).slots(9)["row_scale"]
    for layer in range(8):
        found = factors[layer, 0, [0, 1, 3]]
        np.testing.assert_allclose(found, expected if (layer + 1) % 4 == 0 else 1, atol=1e-9)


def test_every_schedule_is_tested():
    assert PATTERNS.keys() == BASES.keys()
    assert SCHEDULES.keys() == PATTERNS.keys() | LAYERS.keys()
    assert not PATTERNS.keys() & LAYERS.keys()


def test_mistakes():
    with pytest.raises(ValueError, match=r"^schedule must be .*gemma3.*, not 'gema3'"):
        schedule("gema3")
    with pytest.raises(ValueError, match=r"^near must be None for schedule 'smollm3', whose layers have no windows"):
        schedule("smollm3", 8)
    with pytest.raises(ValueError, match=r"^near must be at least 1, not 0"):
        schedule("gemma2", 0)
    with pytest.raises(ValueError, match=r"^layers must be at least 1, not 0"):
        schedule("beam", layers=0)


def test_the_command_line_takes_one(tmp_path):
    said = command_line.fastpe("train", *TINY, "--layers", 2, "--out", tmp_path / "run", "--schedule", "gemma2:8")
    assert said.exit_code == 0, said.output
    assert "schedule gemma2, RoPE, with a window in every other layer" in said.stderr
    config = fastpe.load(tmp_path / "run").config
    assert (config.encoding, config.sight, config.options["rope.base"]) == ("rope", "window:8,all", 1e4)
    assert "leave out --encoding" in refused(2, "train", "--schedule", "gemma2", "--encoding", "rope")
    assert "schedule must be a name, or a name and positions" in refused(2, "train", "--schedule", "gemma2:x")
