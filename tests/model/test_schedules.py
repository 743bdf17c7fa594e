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
    assert PATTERNS.keys() == BASES.keys() == SCHEDULES.keys()


def test_mistakes():
    with pytest.raises(ValueError, match=r"^schedule must be .*gemma3.*, not 'gema3'"):
        schedule("gema3")
    with pytest.raises(ValueError, match=r"^near must be None for schedule 'smollm3', whose layers have no windows"):
        schedule("smollm3", 8)
    with pytest.raises(ValueError, match=r"^near must be at least 1, not 0"):
        schedule("gemma2", 0)


def test_the_command_line_takes_one(tmp_path):
    said = command_line.fastpe("train", *TINY, "--layers", 2, "--out", tmp_path / "run", "--schedule", "gemma2:8")
    assert said.exit_code == 0, said.output
    assert "schedule gemma2, RoPE, with a window in every other layer" in said.stderr
    config = fastpe.load(tmp_path / "run").config
    assert (config.encoding, config.sight, config.options["rope.base"]) == ("rope", "window:8,all", 1e4)
    assert "leave out --encoding" in refused(2, "train", "--schedule", "gemma2", "--encoding", "rope")
    assert "schedule must be a name, or a name and positions" in refused(2, "train", "--schedule", "gemma2:x")
