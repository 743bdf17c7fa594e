"""Texts beside PyTorch, where it is installed: a recipe's updates, what is written, weights that are loaded there."""

import re
from dataclasses import replace

import numpy as np
import pytest
import readme

import fastpe
from fastpe import Transformer, train
from fastpe.training.presets import preset
from fastpe.training.text_data import text_parts

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
torch_gpt = pytest.importorskip("torch_gpt")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # two of them wait for each other wherever another test runs
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The text that nanoGPT's recipe is known by, where it is; else this repository's own."""
    there = readme.ROOT.parent / "shared" / "data" / "tinyshakespeare.txt"
    if there.exists():
        return there
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("\n".join(page.read_text() for page in sorted(readme.ROOT.glob("*.md"))))
    return path


@pytest.mark.full("takes seconds")
def test_fifty_updates_of_nanogpts_recipe_agree_with_pytorchs(text):
    """Losses to 1e-9 in float64; and a peer with another rate is told apart."""
    config = replace(preset("nanogpt-cpu", "learned", task="text", data=text), dtype="float64")
    assert torch_gpt.compare_steps(config, 50) < 1e-9
    assert torch_gpt.compare_steps(config, 15, peer=replace(config, lr=config.lr * 1.0001)) > 1e-9


@pytest.mark.full("float64, and a model of 3 million parameters")
def test_updates_of_nanochats_recipe_agree_with_pytorchs(text):
    """Losses to 1e-9 in float64, with fewer layers, shorter sequences and bytes."""
    encoding, options = torch_gpt.OPTIONS["nanochat-cpu"]
    config = preset(
        "nanochat-cpu", encoding, options, task="text", data=text, task_options={"tokens": "bytes"}, layers=2,
        train_length=64, batch=2, warmup=5, dtype="float64",
    )  # fmt: skip
    assert torch_gpt.compare_steps(config, 20) < 1e-9


def test_the_same_text_is_written_and_measured(text):
    config = preset("nanogpt-cpu", "learned", task="text", data=text, dtype="float64")
    model = Transformer(replace(config, train_length=256).model)
    gpt = torch_gpt.Gpt(model.config, 256).load(model, 256)
    prompt = text_parts(config)[1][:16].astype(np.int64)
    assert model.generate(prompt, 200, temperature=0.0).tolist() == torch_gpt.write(gpt, prompt, 200)
    part = text_parts(config)[1][:1000]
    (point,) = fastpe.length_curve(model, part, [64]).points
    assert torch_gpt.validate(gpt, part, 64) == pytest.approx(point.loss, rel=1e-12)


@pytest.mark.full("takes seconds")
def test_the_readmes_twelve_lines_load_a_run(text, tmp_path, monkeypatch):
    (code,) = re.findall(r"<!-- code: torch -->\n```python\n(.*?)```", readme.README.read_text(), re.DOTALL)
    assert len(code.splitlines()) == 12
    monkeypatch.chdir(tmp_path)
    config = preset("nanogpt-cpu", "learned", task="text", data=text, samples=24, epochs=1, warmup=0, test_lengths=())
    model = train(config, out="runs/gpt", progress=False).model
    names = {"fastpe": fastpe, "torch": torch}
    exec(compile(code, "README", "exec"), names)
    tokens = text_parts(config)[1][:64].astype(np.int64)
    with torch.no_grad():
        mask = torch.nn.Transformer.generate_square_subsequent_mask(64)
        z = names["gpt"](names["rows"](tokens)[None], mask=mask, is_causal=True)
        logits = (z @ names["w"]["embed.weight"].T)[0].numpy()
    np.testing.assert_allclose(logits, model(tokens), atol=1e-5)
