"""Learning rates, validation, early stops, the best epoch: and all of it the same after an interruption."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fastpe import TrainConfig, load, train
from fastpe.training.events import Noted
from fastpe.training.presets import preset
from fastpe.training.schedule import rate

CONFIG = TrainConfig(
    "rope", task="reverse", causal=True, width=16, hidden=16, train_length=4, samples=96, batch=8, epochs=6,
    test_lengths=("1-4",), test_sequences=20, lr=0.01, warmup=5, decay="cosine", min_lr=1e-4, weight_decay=0.1,
    clip=1.0, dropout=0.1, validation=30, keep="best", norm="layernorm", final_norm=True, tied=True,
)  # fmt: skip


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_rates_are_those_of_the_formulas(decay):
    config = replace(CONFIG, decay=decay, min_lr=0.0 if decay == "constant" else 1e-4)
    rates = [rate(config, step) for step in range(config.steps)]
    assert rates[:5] == pytest.approx([0.01 * (i + 1) / 6 for i in range(5)])
    shares = (np.arange(5, 72) - 5) / 67
    fall = {"constant": np.ones(67), "linear": 1 - shares, "cosine": (1 + np.cos(np.pi * shares)) / 2}[decay]
    low = config.min_lr
    np.testing.assert_allclose(rates[5:], low + fall * (0.01 - low), rtol=1e-12)


def test_each_update_has_the_rate_of_its_number(monkeypatch):
    from fastpe.model.adam import Adam

    seen, original = [], Adam.step

    def record(self, *arguments, **named):
        seen.append((self.steps, self.lr))
        return original(self, *arguments, **named)

    monkeypatch.setattr(Adam, "step", record)
    train(CONFIG, progress=False)
    assert seen[1:] == [(step, rate(CONFIG, step)) for step in range(CONFIG.steps)]  # the first compiles


def test_the_best_epoch_is_kept_and_the_last_one_where_it_is_asked_for(tmp_path):
    """With a rate that rises to one far too large, so does the loss: a hundredfold, whatever the machine's rounding."""
    config = replace(CONFIG, lr=30.0, min_lr=0.0, decay="constant", clip=None, warmup=48, seed=2, epochs=5)
    best = train(config, out=tmp_path / "best", progress=False)
    last = train(replace(config, keep="last"), out=tmp_path / "last", progress=False)
    losses = [line["validation"]["loss"] for line in best.history]
    assert losses == [line["validation"]["loss"] for line in last.history]
    assert (best.result["validation"]["loss"], last.result["validation"]["loss"]) == (min(losses), losses[-1])
    epoch = best.result["train"]["best_epoch"]
    assert epoch == 1 + int(np.argmin(losses))
    assert epoch < 5
    assert best.result["test"] != last.result["test"]
    stored = load(tmp_path / "best")
    assert all((stored.parameters[name] == p).all() for name, p in best.model.parameters.items())


def test_training_ends_where_the_loss_no_longer_falls_and_says_so(tmp_path):
    config = replace(CONFIG, lr=0.3, min_lr=0.0, decay="constant", clip=None, warmup=0, patience=2, epochs=40)
    notes = []
    found = train(config, out=tmp_path / "run", progress=lambda e: notes.append(e) if isinstance(e, Noted) else None)
    done = found.result["train"]
    assert done["ended"] == "validation"
    assert len(found.history) == done["best_epoch"] + 2 < 40
    assert any("training ended after epoch" in note.message for note in notes)
    again = train(config, out=tmp_path / "run", resume=True, progress=False)
    assert again.result == found.result
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    assert train(config, out=tmp_path / "run", resume=True, progress=False).result == found.result


def test_a_loss_that_rises_is_told_of():
    notes = []
    config = replace(CONFIG, lr=0.3, min_lr=0.0, decay="constant", clip=None, warmup=0, epochs=12)
    train(config, progress=lambda e: notes.append(e.message) if isinstance(e, Noted) else None)
    assert any("validation loss has not fallen for 3 epochs; its minimum was " in note for note in notes)


def test_training_ends_once_everything_is_right():
    config = TrainConfig(
        "rope", task="reverse", task_options={"symbols": 2}, causal=True, width=32, hidden=64, norm="layernorm",
        lr=3e-3, train_length=3, samples=1024, epochs=30, validation=60, stop_solved=True, test_lengths=(3,),
        test_sequences=50,
    )  # fmt: skip
    found = train(config, progress=False)
    assert found.result["train"]["ended"] == "solved"
    assert len(found.history) < 30
    assert found.history[-1]["validation"]["exact"] == 1.0 > found.history[0]["validation"]["exact"]


def test_validation_changes_no_bit_of_the_training():
    plain = replace(CONFIG, validation=0, keep="last")
    runs = [train(config, progress=False) for config in (plain, replace(plain, validation=30))]
    ours, other = ({name: p.tobytes() for name, p in run.model.parameters.items()} for run in runs)
    assert ours == other


def test_numbers_are_validated_by_their_loss():
    config = TrainConfig("alibi", width=8, hidden=8, train_length=6, samples=64, epochs=4, validation=40,
                         test_lengths=(6,), test_sequences=10)  # fmt: skip
    found = train(config, progress=False)
    assert all(set(line["validation"]) == {"loss"} for line in found.history)
    assert math.isfinite(found.history[-1]["validation"]["loss"])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"warmup": 73}, "warmup must be at most the number of updates, 72, not 73"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"min_lr": 0.02}, "min_lr must be at most lr=0.01, not 0.02"),
        ({"decay": "constant"}, "min_lr needs a decay:"),
        ({"decay": "cos"}, "decay must be constant or linear or cosine"),
        ({"validation": 0}, "keep 'best' needs validation"),
        ({"validation": 0, "keep": "last", "patience": 2}, "patience needs validation"),
        ({"validation": 0, "keep": "last", "stop_solved": True}, "stop_solved needs validation"),
        ({"validation": -1}, "validation must be at least 0"),
        ({"keep": "first"}, "keep must be last or best"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"clip": 0}, "clip must be above 0"),
    ],
)
def test_settings_that_exclude_each_other_are_named(settings, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        replace(CONFIG, **settings)


# ---------------------------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("name", ["lacoco", "nanogpt-cpu"])
def test_presets_are_what_their_sources_say(name):
    config = preset(name, "learned", task="unique_copy")
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.hidden == 4 * config.width
    assert config.tied
    assert config.final_norm
    assert config.init_by_depth
    if name == "lacoco":
        assert (config.layers, config.heads, config.width, config.lr) == (2, 1, 64, 1e-3)
        assert (config.steps, config.steps_per_epoch, config.batch, config.decay) == (30_000, 3_000, 64, "linear")
        assert (config.positions, config.activation, config.bias) == ("offset:302", "gelu_tanh", True)
    else:
        assert (config.layers, config.heads, config.width, config.train_length) == (4, 4, 128, 64)
        assert (config.steps, config.steps_per_epoch, config.batch, config.warmup) == (2_000, 250, 12, 100)
        assert (config.beta2, config.weight_decay, config.clip, config.min_lr) == (0.99, 0.1, 1.0, 1e-4)
        assert (config.bias, config.activation, config.dropout) == (False, "gelu", 0.0)


def test_the_preset_of_nanochat_has_its_sizes():
    config = preset("nanochat-cpu", "rope", task="unique_copy")
    assert (config.layers, config.heads, config.width, config.hidden, config.train_length) == (6, 6, 384, 1536, 512)
    assert (config.steps, config.steps_per_epoch, config.batch, config.warmup) == (5_000, 100, 32, 40)
    assert (config.activation, config.qk_norm, config.logit_softcap) == ("relu2", "head", 15.0)
    assert config.score_scale == pytest.approx(1.2**2 / 64**0.5)
    assert not config.tied


def test_what_is_given_takes_the_place_of_a_presets():
    config = preset("lacoco", "alibi", task="reverse", width=32, epochs=2)
    assert (config.width, config.hidden, config.epochs, config.positions) == (32, 128, 2, "usual")
    known = "recipe or li2025 or lacoco or nanogpt-cpu or nanochat-cpu"
    with pytest.raises(ValueError, match=f"^preset must be {known}, not 'gpt'"):
        preset("gpt", "alibi", task="reverse")
    with pytest.raises(ValueError, match=r"^preset 'lacoco' is for tasks of tokens, and 'running_sum' has numbers"):
        preset("lacoco", "alibi", task="running_sum")
