"""Checkpoints with a tokenizer of subwords: copied on export, read with the package tokenizers, and without it."""

import subprocess
import sys

import pytest
from hf_models import made

import fastpe
from fastpe.text.vocabulary import Vocabulary

pytest.importorskip("tokenizers", reason="subwords need it: pip install -e '.[hf]' from a clone of fastpe")

from tokenizer_files import byte_level, with_special

CONTENT = with_special(byte_level(), "<|end|>")


@pytest.fixture
def model():
    """A model with more embeddings than its tokenizer has tokens."""
    model = made("llama", vocabulary=400)
    model.vocabulary = Vocabulary.of_tokenizer(CONTENT, 400)
    return model


def test_the_tokenizer_is_copied_and_read_again(model, tmp_path):
    fastpe.to_hf(model, tmp_path / "model", eos="<|end|>")
    assert (tmp_path / "model" / "tokenizer.json").read_bytes() == CONTENT
    again = fastpe.load_hf(tmp_path / "model")
    assert again.vocabulary == model.vocabulary
    assert again.generate("the ", 9, seed=1) == model.generate("the ", 9, seed=1)


def test_the_end_of_a_text_must_be_a_special_token(model, tmp_path):
    with pytest.raises(ValueError, match="eos must be a special token of the tokenizer, not 't'"):
        fastpe.to_hf(model, tmp_path / "model", eos="t")


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(model, tmp_path):
    small = made("llama", vocabulary=65)
    fastpe.to_hf(small, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_bytes(CONTENT)
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged: vocabulary must be at least"):
        fastpe.load_hf(tmp_path / "model")


def test_the_model_is_read_without_the_package(model, tmp_path):
    fastpe.to_hf(model, tmp_path / "model")
    program = (
        "import sys\nsys.modules['tokenizers'] = None\nimport fastpe\nmodel = fastpe.load_hf('model')\n"
        "print(model([1, 2, 3]).shape)\nmodel.generate('the ', 3)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "(3, 400)\n"
    assert "pip install 'fastpe[hf]'" in done.stderr
