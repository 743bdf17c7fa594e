"""Training on a text: what is read, measured and kept; the same bytes after an interruption, on the same text alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from small_run import assert_same_run, interrupted

from fastpe import TrainConfig, Transformer, evaluate, load, train
from fastpe.reference import model_loss_and_grads
from fastpe.text.corpus import TextNotFound
from fastpe.training.data import training_data
from fastpe.training.estimate import estimate
from fastpe.training.events import EpochDone
from fastpe.training.presets import preset
from fastpe.training.run_folder import read_config
from fastpe.training.text_data import text_parts
from fastpe.training.text_metrics import block_losses, text_metrics

TEXT = "Fünf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. " * 12
SMALL = {
    "task": "text", "causal": True, "width": 16, "hidden": 16, "layers": 1, "train_length": 8, "samples": 40,
    "batch": 8, "epochs": 3, "lr": 0.01, "validation": 5, "keep": "best", "dropout": 0.1,
}  # fmt: skip


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, "utf-8")
    return path


def config_of(text, tokens="characters", share=0.1, **changes):
    options = {"tokens": tokens, "share": share}
    return TrainConfig("rope", data=text, task_options=options, **{**SMALL, **changes})


def test_settings_know_their_text(text):
    config = config_of(text)
    assert config.alphabet == "".join(sorted(set(TEXT)))
    assert config.model.vocabulary == len(config.alphabet)
    assert config.model.train_length == 8
    assert config.test_lengths == (8, 16, 32)
    assert config_of(text, "bytes").model.vocabulary == 256
    assert TrainConfig.from_dict(config.to_dict()) == config
    text.unlink()
    assert TrainConfig.from_dict(config.to_dict()) == config  # what is known is not read again


def test_crops_are_blocks_of_the_first_part_and_the_tokens_after_them(text):
    config = config_of(text, samples=2000, seed=5)
    training, validation = text_parts(config)
    assert len(training) == int(0.9 * len(TEXT))
    assert config.symbols.decode(np.concatenate([training, validation])) == TEXT
    data = training_data(config)
    batches = list(data.batches(1))
    assert [len(batch.x) for batch in batches] == [8] * 250
    blocks = {training[i : i + 9].tobytes() for i in range(len(training) - 8)}
    rows = np.concatenate([np.column_stack([batch.x, batch.y[:, -1]]) for batch in batches]).astype(np.uint8)
    assert {row.tobytes() for row in rows} == blocks  # every place, the last one too, and nothing else
    assert all((batch.x[:, 1:] == batch.y[:, :-1]).all() for batch in batches)
    again = list(training_data(config).batches(1))
    assert all((a.x == b.x).all() for a, b in zip(batches, again, strict=True))
    for other in (data.batches(2), training_data(replace(config, seed=6)).batches(1)):
        assert (next(other).x != batches[0].x).any()
    assert (next(training_data(replace(config, encoding="nope")).batches(1)).x == batches[0].x).all()


def reference_losses(model, blocks):
    """By `fastpe.reference`, block by block: of each the sum of its losses."""
    parameters = {name: array.astype(np.float64) for name, array in model.parameters.items()}
    found = []
    for x, y in blocks:
        slots = model._encoding.reference_slots(len(x), parameters)
        found.append(len(x) * float(model_loss_and_grads(model.config, parameters, slots, x[None], y[None])[0]))
    return found


@pytest.mark.parametrize("tokens", ["bytes", "characters"])
def test_validation_is_the_whole_part_and_in_bits_per_byte(text, tokens):
    """Beside the reference in NumPy, and the bytes of the text itself."""
    config = config_of(text, tokens, dtype="float64", epochs=1)
    result = train(config, progress=False)
    part = text_parts(config)[1]
    starts = range(0, len(part) - 1, 8)
    blocks = [(part[i : min(i + 8, len(part) - 1)].astype(int), part[i + 1 : i + 9].astype(int)) for i in starts]
    nats = sum(reference_losses(result.model, blocks))
    predicted = config.symbols.bytes_of(part[1:])
    expected = {
        "loss": nats / (len(part) - 1), "bits_per_byte": nats / math.log(2) / len(predicted), "tokens": len(part) - 1,
    }  # fmt: skip
    assert result.result["validation"] == pytest.approx(expected, rel=1e-12)
    assert result.result["test"]["8"] == result.result["validation"]
    if tokens == "characters":
        assert len(predicted) > len(part) - 1
    assert "bits per byte at length 8: " in repr(result)


def test_losses_of_blocks_are_those_of_the_blocks(text):
    config = config_of(text, dtype="float64")
    model, part = Transformer(config.model), text_parts(config)[1]
    losses = block_losses(model, part, 8)
    assert losses.shape == (math.ceil((len(part) - 1) / 8), 8)
    for row, start in zip(losses, range(0, len(part), 8), strict=False):
        x, y = part[start : start + 8], part[start + 1 : start + 9]
        assert np.isnan(row[len(y) :]).all()
        x = x[: len(y)]
        assert row[: len(y)].mean() == pytest.approx(model.loss(x.astype(int), y.astype(int)), rel=1e-12)
    whole = text_metrics(model, part, len(part), None)
    assert whole["reason"] == f"the validation text has only {len(part)} tokens"


def test_a_small_model_learns_a_text(text):
    """The control of this task: it repeats itself, so that next to nothing is left to be guessed."""
    config = config_of(text, samples=800, epochs=8, train_length=24, dropout=0.0, width=32, hidden=64, lr=5e-3)
    found = train(config, progress=False)
    assert found.result["validation"]["bits_per_byte"] < 1.0
    assert found.model.generate("jagen V", 40, temperature=0.0) == "iktor quer über den großen Sylter Deich."


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_run_ends_as_if_it_had_not_been(text, tmp_path, after):
    config = config_of(text)
    train(config, out=tmp_path / "whole", progress=False)
    interrupted(config, tmp_path / "run", EpochDone, epoch=after)
    train(read_config(tmp_path / "run"), out=tmp_path / "run", resume=True, progress=False, threads=1)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_text_that_has_changed_is_refused(text, tmp_path):
    config = config_of(text)
    interrupted(config, tmp_path / "run", EpochDone, epoch=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    text.write_text(TEXT[1:], "utf-8")
    said = rf"no text with the SHA-256 {config.digest} was found: .*text\.txt has another SHA-256\. Give its path with "
    with pytest.raises(TextNotFound, match=said):
        train(read_config(tmp_path / "run"), out=tmp_path / "run", resume=True, progress=False)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    with pytest.raises(TextNotFound, match="has another SHA-256"):
        train(config, out=tmp_path / "another", progress=False)
    assert not (tmp_path / "another").exists()


def test_a_finished_run_and_a_models_file_keep_the_vocabulary(text, tmp_path):
    config = config_of(text, epochs=1)
    model = train(config, out=tmp_path / "run", progress=False).model
    assert load(tmp_path / "run").vocabulary == config.symbols
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.vocabulary == config.symbols
    assert again.generate("Fünf", 20) == model.generate("Fünf", 20)
    with pytest.raises(ValueError, match="vocabulary must have"):
        model.vocabulary = type(config.symbols).of("ab")


def test_an_estimate_needs_no_run(text):
    found = estimate(config_of(text))
    assert found.updates == 15
    assert found.flop > 0


def test_the_recipe_of_a_preset(text):
    config = preset("nanogpt-cpu", "learned", task="text", data=text)
    assert (config.steps, config.task_options, config.validation, config.model.vocabulary) == (
        2000, {"tokens": "characters"}, 240, len(set(TEXT)),
    )  # fmt: skip
    assert preset("nanogpt-cpu", "nope", task="text", data=text, task_options={"share": 0.2}).task_options == {
        "tokens": "characters", "share": 0.2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "data must be a file, or a folder of files, for task 'text'"),
        ({"causal": False}, "task 'text' is made for causal models"),
        ({"lengths": "uniform"}, "lengths must be 'fixed' for task 'text', not 'uniform'"),
        ({"stop_solved": True}, "stop_solved needs a task whose answers are right or wrong: task 'text' has none"),
        ({"target_scale": "train"}, "target_scale must be 'one' for task 'text' of tokens"),
        ({"test_lengths": ("1-50",)}, "test_lengths must be an integer"),
        ({"vocabulary": 256}, "vocabulary must be None"),
        ({"task_options": {"share": 0.0}}, "option 'share' of task 'text' must be"),
    ],
)
def test_settings_that_do_not_go_with_a_text(text, changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainConfig("rope", **{**SMALL, "data": text, **changes})


def test_settings_of_a_text_for_other_tasks():
    with pytest.raises(ValueError, match="data must be fixed or fresh, not"):
        TrainConfig("rope", data="text.txt")
    with pytest.raises(ValueError, match="digest needs task 'text', not 'running_sum'"):
        TrainConfig("rope", digest="0" * 64)
    with pytest.raises(ValueError, match=r"task 'text' is tested on a text.*fastpe\.length_curve"):
        evaluate(Transformer(TrainConfig("rope").model), [5], 10, task="text")


def test_documents_that_leave_no_such_share_are_refused(tmp_path):
    """They are kept whole: a small file and a large one."""
    (tmp_path / "texts").mkdir()
    for name, count in (("a", 40), ("b", 4000)):
        (tmp_path / "texts" / name).write_text("abcdefghi " * (count // 10))
    with pytest.raises(ValueError, match=r"a share of whole documents: the one nearest to 0\.1 is 0\.990"):
        train(config_of(tmp_path / "texts"), progress=False)
    notes = []
    train(config_of(tmp_path / "texts" / "b", epochs=1), progress=lambda event: notes.append(str(event)))
    assert any("3,600 training tokens, 400 validation tokens" in note for note in notes)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (6, "train_length must be below the 5 tokens that .* has for training, not 8"),
        (9, "train_length must be below the 8 tokens that .* has for training, not 8"),
        (10, "data must have at least two tokens for validation, but .* has 1: its text is too short for share=0.1"),
    ],
)
def test_a_text_that_is_too_short(tmp_path, count, message):
    (tmp_path / "a").write_text("abcdefghij"[:count])
    with pytest.raises(ValueError, match=message):
        train(config_of(tmp_path / "a"), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_the_last_block_may_be_shorter_than_a_block(tmp_path):
    """A validation part of three tokens."""
    (tmp_path / "a").write_text("abcabcabcabc")
    result = train(config_of(tmp_path / "a", share=0.25, epochs=1), progress=False).result
    assert result["validation"]["tokens"] == 2
    assert result["test"]["8"] == {
        "loss": None, "bits_per_byte": None, "tokens": 0, "reason": "the validation text has only 3 tokens",
    }  # fmt: skip
