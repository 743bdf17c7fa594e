"""A model in one file, its loss without gradients, and what it says of itself."""

import json
import tracemalloc

import damage
import numpy as np
import own_encodings
import pytest
from model_cases import DEEP, PAPER, SMALL, pair_of

import fastpe
from fastpe.base.files import write_tensors
from fastpe.base.stored import DamagedFileError
from fastpe.encodings import registry
from fastpe.model import model_file
from fastpe.pictures.look import look_at_path

LEARNING = fastpe.ModelConfig("learned+shaw", {"shaw.reach": 2}, width=16, heads=2, hidden=24, train_length=9)
CONFIGS = [PAPER, DEEP, SMALL, LEARNING]
NAMES = ["paper", "deep", "tokens", "learning"]


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_a_saved_model_comes_back_to_the_bit(config, tmp_path):
    model, (x, y) = fastpe.Transformer(config), pair_of(config)
    fastpe.Adam(model).step(x, y)
    model.save(tmp_path / "model.safetensors")
    again = fastpe.load(str(tmp_path / "model.safetensors"))
    assert again.config == config
    np.testing.assert_array_equal(again(x), model(x))
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_runs_own_file_loads_alone(tmp_path):
    config = fastpe.TrainConfig("nope", width=8, hidden=8, train_length=4, samples=8, epochs=1, test_lengths=())
    trained = fastpe.train(config, out=tmp_path / "run").model
    for path in (tmp_path / "run", tmp_path / "run" / "model.safetensors"):
        np.testing.assert_array_equal(fastpe.load(path).parameters["head.weight"], trained.parameters["head.weight"])


@pytest.mark.parametrize("byte", [3, 40, -1])
def test_a_damaged_file_is_refused(byte, tmp_path):
    path = tmp_path / "model.safetensors"
    fastpe.Transformer(LEARNING).save(path)
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"model\.safetensors"):
        fastpe.load(path)


def test_a_file_that_holds_no_model_or_another_one_is_refused(tmp_path):
    path, model = tmp_path / "model.safetensors", fastpe.Transformer(LEARNING)
    write_tensors(path, model.parameters, {"schema": model_file.SCHEMA})
    with pytest.raises(DamagedFileError, match="contains no fastpe model"):
        fastpe.load(path)
    wider = {**model.config.to_dict(), "width": 18}
    write_tensors(path, model.parameters, {"schema": model_file.SCHEMA, "model": wider})
    with pytest.raises(DamagedFileError, match=r"does not match its configuration: embed\.bias, embed\.weight"):
        fastpe.load(path)
    with pytest.raises(FileNotFoundError, match=r"there is no run folder or model file .*absent"):
        fastpe.load(tmp_path / "absent")


def test_what_cannot_be_written_leaves_what_was_there(tmp_path):
    model = fastpe.Transformer(LEARNING)
    with pytest.raises(TypeError, match="path must be a path"):
        model.save(3)
    with pytest.raises(OSError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "model.safetensors")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_the_loss_without_gradients_is_the_loss(config, dtype):
    model = fastpe.Transformer(fastpe.ModelConfig.from_dict({**config.to_dict(), "dtype": dtype}))
    for sequences in (1, 3, 70):
        x, y = pair_of(model.config, sequences)
        found = {model.loss(x, y, threads=threads) for threads in (1, 2)}
        assert len(found) == 1
        expected = model.loss_and_grads(x, y)[0]  # whose forward pass keeps what the backward pass needs
        assert found.pop() == pytest.approx(expected, rel=float(16 * np.finfo(dtype).eps))
    with pytest.raises(ValueError, match="y must have the shape of x"):
        model.loss(x, y[:1])


def test_a_model_an_optimiser_and_a_result_say_what_they_are(tmp_path):
    model = fastpe.Transformer(DEEP)
    count = sum(parameter.size for parameter in model.parameters.values())
    for word in ("alibi", "causal", "3 layers", "width 64", "4 heads", f"{count:,} parameters", "float32"):
        assert word in repr(model)
    assert "of 17 tokens" in repr(fastpe.Transformer(SMALL))
    config = fastpe.TrainConfig(
        "axial", {"grid": (2, 2)}, width=8, hidden=8, train_length=4, samples=8, epochs=1, test_lengths=(4, 9)
    )
    result = fastpe.train(config, out=tmp_path / "run")
    for word in ("axial", "1 steps", f"4: {result.result['test']['4']['mse']:.4g}", "9: undefined", str(tmp_path)):
        assert word in repr(result)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result.result


def test_weights_are_what_a_linear_layer_of_pytorch_has_transposed():
    torch = pytest.importorskip("torch", reason="PyTorch is optional: pip install -e '.[torch]' from a clone of fastpe")
    model = fastpe.Transformer(PAPER)
    weight, bias = (model.parameters[f"layers.0.feedforward.in.{kind}"] for kind in ("weight", "bias"))
    linear = torch.nn.Linear(*weight.shape)
    linear.weight.data, linear.bias.data = torch.from_numpy(weight.T), torch.from_numpy(bias)
    x = np.random.default_rng(0).standard_normal((5, weight.shape[0])).astype(np.float32)
    np.testing.assert_allclose(linear(torch.from_numpy(x)).detach().numpy(), x @ weight + bias, rtol=1e-5, atol=1e-6)


def test_a_model_of_ones_own_encoding_needs_the_same_file_again(tmp_path, monkeypatch):
    monkeypatch.setattr(registry.ENCODINGS, "_registered", {})
    key = fastpe.register(own_encodings.write(tmp_path))
    model = fastpe.Transformer(fastpe.ModelConfig(key, width=8, hidden=8, train_length=4))
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(fastpe.load(tmp_path / "model.safetensors")([1, 2]), model([1, 2]))
    monkeypatch.setattr(registry.ENCODINGS, "_registered", {})
    with pytest.raises(ValueError, match=r"has an encoding 'mine' that is not fastpe's, from a file called 'mine\.py'"):
        fastpe.load(tmp_path / "model.safetensors")
    fastpe.register(own_encodings.write(tmp_path, ("0.5", "0.6")))
    with pytest.raises(ValueError, match="was made with another encoding 'mine': the SHA-256 of its file was"):
        fastpe.load(tmp_path / "model.safetensors")


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope", "alibi"])
def test_a_file_that_states_a_long_training_length_costs_no_memory_for_it(tmp_path, encoding):
    path = tmp_path / "model.safetensors"
    fastpe.Transformer(fastpe.ModelConfig(encoding, width=8, hidden=8, train_length=4)).save(path)
    damage.with_header(path, lambda entries, facts, data: facts["model"].update(train_length=2**27))
    tracemalloc.start()
    try:
        model = fastpe.load(path)
        assert np.isfinite(model([1.0, 2.0])).all()
        assert tracemalloc.get_traced_memory()[1] < 2**28  # every row would take 2**32 bytes
    finally:
        tracemalloc.stop()
    with pytest.raises(ValueError, match="length is missing: train_length=134217728 needs a length"):
        look_at_path(path)
    assert look_at_path(path, 16).spec.length == 16
