"""Training on subwords and on files of tokens: the parts of a text, bits per byte, run folders, and what is refused."""

import errno
import json
import math
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
import tokenizer_files as made
from small_run import assert_same_run, interrupted
from tokenizers import Tokenizer

from fastpe import TrainConfig, length_curve, load, receptive_field, train
from fastpe.base import files
from fastpe.base.stored import DamagedFileError
from fastpe.experiments.jobs import from_message, to_message
from fastpe.experiments.study import RunKey, Study
from fastpe.text import corpus, documents, subwords
from fastpe.text.corpus import read
from fastpe.text.vocabulary import Vocabulary
from fastpe.training.config_file import RunError, read_config
from fastpe.training.events import EpochDone
from fastpe.training.presets import preset
from fastpe.training.run_folder import Run
from fastpe.training.text_data import predicted_bytes, text_parts
from fastpe.training.text_metrics import block_losses

TEXT = "Fünf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. The cat sat on the mat.\n" * 30
TEXT += "zzqq zzqq zzqq zzqq " * 5  # in the validation part alone
SMALL = {
    "task": "text", "causal": True, "width": 16, "hidden": 16, "layers": 1, "train_length": 8, "samples": 40,
    "batch": 8, "epochs": 2, "lr": 0.01, "validation": 5,
}  # fmt: skip


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, "utf-8")
    return path


def config_of(data, tokens="bpe:280", encoding="rope", **changes):
    options = {} if tokens is None else {"tokens": str(tokens)}
    return TrainConfig(encoding, data=data, task_options=options, **{**SMALL, **changes})


def trained_on(vocabulary):
    """The texts of all merged tokens."""
    return {piece for piece in vocabulary.subwords.pieces if len(piece) > 1}


# ---------------------------------------------------------------------------------------------------------------------
# Texts


def test_a_byte_pair_encoding_is_trained_on_the_training_part_alone(text):
    found = read(text, "bpe:300")
    content = TEXT.encode()
    training = content[: int(0.9 * len(content))].decode()
    assert "zz" not in training
    assert found.vocabulary == Vocabulary.of_tokenizer(subwords.trained(iter([training]), 300))
    assert not any(b"z" in piece for piece in trained_on(found.vocabulary))
    tuned = read(text, "bpe:300", share=0.1, tuning=True)
    part = content[: int(0.9 * int(0.9 * len(content)))].decode()
    assert tuned.vocabulary == Vocabulary.of_tokenizer(subwords.trained(iter([part]), 300))


def test_whole_documents_are_in_the_training_part(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(f"{name * 2} " * 100)
    found = read(tmp_path, "bpe:270", share=0.3)
    assert {bytes(piece.strip()) for piece in trained_on(found.vocabulary)} == {b"aa", b"bb"}
    training, validation = found.parts(0.3)
    assert (set(found.vocabulary.decode(training)), set(found.vocabulary.decode(validation))) == ({*"ab "}, {*"c "})


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_parts_of_a_text_are_the_same_for_all_tokenizers(text, share):
    """But for a token across the cut, which is in the validation part."""
    expected = TEXT.encode()[int((1.0 - share) * len(TEXT.encode())) :]
    for size in (258, 280, 400):
        found = read(text, f"bpe:{size}", share=share)
        part = found.vocabulary.bytes_of(found.parts(share)[1])
        assert part.endswith(expected)
        assert len(part) - len(expected) < max(map(len, found.vocabulary.subwords.pieces))
        assert found.bytes_in(0, len(found.tokens)) == len(TEXT.encode())


def test_a_document_is_encoded_as_a_whole(text, monkeypatch):
    """Not at the blocks in which a file is read: the tokens at a cut are others."""
    monkeypatch.setattr(files, "_PIECE", 7)
    found = read(text, "bpe:300")
    expected = Tokenizer.from_str(found.vocabulary.content.decode()).encode(TEXT).ids
    assert found.tokens.tolist() == expected
    pieces = [found.vocabulary.encode(TEXT[i : i + 7]) for i in range(0, len(TEXT), 7)]
    assert np.concatenate(pieces).tolist() != expected


def test_documents_end_with_the_separator(text, monkeypatch):
    for piece in (2**20, 3):
        monkeypatch.setattr(files, "_PIECE", piece)
        monkeypatch.setattr(corpus, "_last", None)
        found = read(text, "bpe:300", separator="mat.\\n")
        parts = np.split(found.tokens, found.documents[1:-1])
        assert [found.vocabulary.decode(part) for part in parts] == TEXT.replace("mat.\n", "mat.\n\0").split("\0")
        for part in parts:
            assert part.tolist() == found.vocabulary.encode(found.vocabulary.decode(part)).tolist()
    with pytest.raises(corpus.NoSeparator, match="separator '###' does not occur in "):
        read(text, "bpe:300", separator="###")


@pytest.mark.parametrize("piece", [2**20, 11])
def test_a_long_document_is_cut_at_a_line_end(text, piece, monkeypatch):
    monkeypatch.setattr(documents, "_DOCUMENT", 200)
    monkeypatch.setattr(files, "_PIECE", piece)
    found = list(documents.documents(text, "", documents.Cleaner("")))
    assert "".join(part for part, _ in found) == TEXT
    assert {part[-1] for part, _ in found[:-1]} == {"\n"}
    assert all(len(part) <= 200 for part, _ in found)
    assert len(read(text, "bpe:300").documents) == 2  # it is still one document


def test_line_ends_and_marks_are_read_as_those_of_characters(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfab\r\ncd\r\n" * 30)
    found = read(tmp_path / "a", "bpe:258")
    assert found.vocabulary.decode(found.tokens) == "ab\ncd\n" * 30
    assert "line ends CRLF and CR are read as LF" in found.changed
    (tmp_path / "b").write_bytes(b"abc\xff")
    with pytest.raises(ValueError, match=r"b is not UTF-8, byte 3 is 0xff: tokens 'bytes' accept any file"):
        read(tmp_path / "b", "bpe:258")


def test_a_text_with_few_pairs_gives_few_tokens(tmp_path):
    (tmp_path / "a").write_text("ab" * 100)
    found = read(tmp_path / "a", "bpe:4000")
    assert found.vocabulary.size < 300
    assert f"it gives a vocabulary of only {found.vocabulary.size} tokens, not 4000" in found.changed


def test_a_tokenizer_that_does_not_restore_the_text_is_noted(text, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(made.lower_case())
    found = config_of(text, tmp_path / "tokenizer.json").read_text()
    assert "its tokens do not restore it exactly; bits per byte count the bytes of the text" in found.changed
    assert found.bytes_in(0, len(found.tokens)) == len(TEXT.encode())


@pytest.mark.parametrize("special", ["the", "Deich. ", "Deich.", "\n"])
def test_the_bytes_of_all_tokens_are_those_of_the_text(text, special):
    """Also if special tokens occur in the text, or a document has no tokens."""
    for content in (made.byte_level(), made.lower_case(), made.word_pieces()):
        vocabulary = Vocabulary.of_tokenizer(made.with_special(content, special))
        for separator in ("", special, "mat."):
            found = read(text, "tokenizer", separator, vocabulary)
            assert found.bytes_in(0, len(found.tokens)) == len(TEXT.encode())


def test_documents_without_tokens_count_their_bytes(tmp_path):
    for name, content in (("a", " \n"), ("b", "the cat"), ("c", "\n\n"), ("d", "sat."), ("e", " ")):
        (tmp_path / name).write_text(content)
    found = read(tmp_path, "tokenizer", vocabulary=Vocabulary.of_tokenizer(made.word_pieces()))
    assert found.sizes.tolist() == [5, 4, 5, 2]
    assert found.documents.tolist() == [0, 2, 4]


# ---------------------------------------------------------------------------------------------------------------------
# Runs


def test_bits_per_byte_count_the_bytes_of_the_validation_text(text):
    config = config_of(text, dtype="float64", epochs=1)
    result, part = train(config, progress=False), text_parts(config)[1]
    nats = np.nansum(block_losses(result.model, part, 8))
    size = len(config.symbols.bytes_of(part[1:]))
    assert result.result["validation"] == pytest.approx(
        {"loss": nats / (len(part) - 1), "bits_per_byte": nats / math.log(2) / size, "tokens": len(part) - 1}, rel=1e-12
    )
    assert predicted_bytes(config) == size != len(part) - 1


def test_a_run_keeps_its_tokenizer(text, tmp_path):
    config = config_of(text)
    result = train(config, out=tmp_path / "run", progress=False)
    content = (tmp_path / "run" / "tokenizer.json").read_bytes()
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (stored["tokenizer"], stored["vocabulary"]) == (subwords.digest_of(content), 280)
    assert "merges" not in json.dumps(stored)
    text.unlink()
    again = load(tmp_path / "run")
    assert again.vocabulary == config.symbols
    assert again.generate("The cat", 9, temperature=0.0) == result.model.generate("The cat", 9, temperature=0.0)
    assert read_config(tmp_path / "run") == config
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert pickle.loads(pickle.dumps(result.model)).generate("The", 3) == result.model.generate("The", 3)


def test_an_interrupted_run_ends_as_if_it_had_not_been(text, tmp_path):
    config = config_of(text)
    train(config, out=tmp_path / "whole", progress=False)
    interrupted(config, tmp_path / "run", EpochDone, epoch=1)
    (tmp_path / "run" / "tokenizer.json").unlink()  # a byte-pair encoding is then trained again
    train(read_config(tmp_path / "run"), out=tmp_path / "run", resume=True, progress=False, threads=1)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_models_file_has_its_tokenizer_beside_it(text, tmp_path):
    model = train(config_of(text, epochs=1), progress=False).model
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    model.save(tmp_path / "a" / "model.safetensors")
    assert b"merges" not in (tmp_path / "a" / "model.safetensors").read_bytes()
    again = load(tmp_path / "a" / "model.safetensors")
    assert again.generate("The", 5) == model.generate("The", 5)
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path / "b")
    assert not (tmp_path / "tokenizer.json").exists()
    (tmp_path / "b" / "tokenizer.json").write_bytes(made.byte_level())
    with pytest.raises(ValueError, match=r"tokenizer\.json is another tokenizer than that of the model"):
        model.save(tmp_path / "b" / "model.safetensors")
    (tmp_path / "a" / "tokenizer.json").unlink()
    bare = load(tmp_path / "a" / "model.safetensors")
    np.testing.assert_array_equal(bare.generate([1, 2], 5), model.generate([1, 2], 5))
    with pytest.raises(ValueError, match="is missing: put it into the folder of the model"):
        bare.generate("The", 5)


def test_measures_of_a_trained_model(text, tmp_path):
    config = config_of(text, epochs=1)
    model = train(config, out=tmp_path / "run", progress=False).model
    part = text_parts(config)[1]
    of_run, of_tokens, of_text = (
        length_curve(*what, lengths=(8, 16)).points
        for what in ((tmp_path / "run",), (model, part), (model, config.symbols.decode(part)))
    )
    assert of_run[0].bits_per_byte == of_tokens[0].bits_per_byte == of_text[0].bits_per_byte
    stored = json.loads((tmp_path / "run" / "result.json").read_text())["test"]["8"]
    assert of_run[0].bits_per_byte == pytest.approx(stored["bits_per_byte"], rel=1e-12)
    assert receptive_field(tmp_path / "run", length=8, blocks=2).shares.sum() == pytest.approx(1.0)


def test_a_tokenizer_of_a_file(text, tmp_path):
    path = tmp_path / "own.json"
    path.write_bytes(made.byte_level(size=290))
    config = config_of(text, path, vocabulary=300, epochs=1)
    assert (config.task_options["tokens"], config.model.vocabulary) == ("tokenizer", 300)
    train(config, out=tmp_path / "run", progress=False)
    path.unlink()
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == config.tokenizer_content
    assert load(tmp_path / "run").generate("The", 5)
    with pytest.raises(ValueError, match=r"must be bytes, characters, ids, bpe:N or the path of a tokenizer\.json"):
        config_of(text, path)
    path.write_bytes(made.byte_level(size=295))
    with pytest.raises(ValueError, match="tokens must be those of the tokenizer with the SHA-256"):
        replace(config, task_options={"tokens": str(path)})


def test_a_tokenizer_that_is_trained_again_is_written(text, tmp_path):
    """Also in a run of a study, which is always resumed, and in a run whose file was lost."""
    config = config_of(text, epochs=1)
    stored = TrainConfig.from_dict(config.to_dict())
    assert not stored.tokenizer_content
    model = train(stored, out=tmp_path / "run", resume=True, progress=False).model
    path = tmp_path / "run" / "tokenizer.json"
    assert path.read_bytes() == config.tokenizer_content
    assert model.vocabulary.content == config.tokenizer_content
    path.unlink()
    train(stored, out=tmp_path / "run", resume=True, progress=False)
    assert path.read_bytes() == config.tokenizer_content


def test_a_run_takes_a_lost_tokenizer_from_the_settings(text, tmp_path, monkeypatch):
    own = tmp_path / "own.json"
    own.write_bytes(made.byte_level(size=290))
    config = config_of(text, own)
    train(config, out=tmp_path / "whole", progress=False)
    interrupted(config, tmp_path / "run", EpochDone, epoch=1)
    (tmp_path / "run" / "tokenizer.json").unlink()
    monkeypatch.setattr(corpus, "_last", None)
    with pytest.raises(ValueError, match=r"the tokenizer of this model, .* is missing"):
        train(read_config(tmp_path / "run"), out=tmp_path / "run", resume=True, progress=False, threads=1)
    again = replace(read_config(tmp_path / "run"), task_options={"tokens": str(own)})
    train(again, out=tmp_path / "run", resume=True, progress=False, threads=1)
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == own.read_bytes()
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_only_text_needs_the_package_of_tokenizers(text, tmp_path, monkeypatch):
    model = train(config_of(text, epochs=1), out=tmp_path / "run", progress=False).model
    expected = model.generate([1, 2], 5)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    subwords.opened.cache_clear()
    config, again = read_config(tmp_path / "run"), load(tmp_path / "run")
    assert (config.model, config.tokenizer_content) == (model.config, model.vocabulary.content)
    np.testing.assert_array_equal(again.generate([1, 2], 5), expected)
    again.save(tmp_path / "model.safetensors")
    with pytest.raises(ModuleNotFoundError, match="need the package tokenizers"):
        again.generate("The", 5)


def test_positions_of_digits_of_a_stored_run(tmp_path):
    """They are found with the tokenizer, whose file is in the run folder."""
    (tmp_path / "text.txt").write_text("12 + 34 = 46\n" * 60)
    (tmp_path / "own.json").write_bytes(made.single_digits())
    config = config_of(tmp_path / "text.txt", tmp_path / "own.json", encoding="abacus", positions="digits:5", epochs=1)
    train(config, out=tmp_path / "run", progress=False)
    assert read_config(tmp_path / "run") == config.tested()
    assert from_message(to_message(config)) == config


def test_a_run_folder_without_room_for_the_tokenizer_is_removed(text, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Run, "keep_tokenizer", fail)
    with pytest.raises(RunError, match="cannot be written: No space left on device"):
        train(config_of(text), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_other_texts_and_encodings_of_a_trained_model(text, tmp_path):
    train(config_of(text, epochs=1), out=tmp_path / "run", progress=False)
    (tmp_path / "b.txt").write_text("The mat sat on the cat. " * 40)
    small = {"samples": 8, "epochs": 1, "batch": 8}
    config = TrainConfig.starting_from(tmp_path / "run", "nope", data=tmp_path / "b.txt", **small)
    assert config.symbols == load(tmp_path / "run").vocabulary
    train(config, out=tmp_path / "next", progress=False)
    assert load(tmp_path / "next").generate("The", 3)
    with pytest.raises(ValueError, match=r"option 'tokens' of task 'text' must be 'tokenizer', as in .*, not 'bytes'"):
        TrainConfig.starting_from(tmp_path / "run", task_options={"tokens": "bytes"}, **small)


def test_runs_of_a_study_have_the_same_tokenizer(text):
    settings = {name: value for name, value in SMALL.items() if name != "task"}
    study = Study(["alibi", "nope"], ["text"], 1, settings={**settings, "data": str(text)})
    study = replace(study, tasks={"text": {"task": "text", "options": {"tokens": "bpe:280"}}}).with_texts()
    entry = study.tasks["text"]
    assert (len(entry["tokenizer"]), entry["vocabulary"]) == (64, 280)
    again = Study.from_toml(study.to_toml())
    text.unlink()
    assert again.config(RunKey("text", "nope", 0)).tokenizer == entry["tokenizer"]


def test_a_report_needs_neither_the_file_nor_the_package_of_its_tokenizer(text, tmp_path, monkeypatch):
    path = tmp_path / "own.json"
    path.write_bytes(made.byte_level(size=290))
    settings = {name: value for name, value in SMALL.items() if name != "task"}
    study = Study(["alibi", "nope"], ["text"], 1, settings={**settings, "data": str(text)})
    study = replace(study, tasks={"text": {"task": "text", "options": {"tokens": str(path)}}}).with_texts()
    config = study.config(RunKey("text", "nope", 0))
    sent = json.loads(json.dumps(to_message(config)))
    again = from_message(sent)
    assert (again, again.tokenizer_content) == (config, path.read_bytes())
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    subwords.opened.cache_clear()
    assert study.config(RunKey("text", "nope", 0)) == config
    path.unlink()
    moved = study.config(RunKey("text", "nope", 0))
    assert moved == config
    monkeypatch.setattr(corpus, "_last", None)
    with pytest.raises(ValueError, match=r"the tokenizer of this model, .* is missing"):
        moved.read_text()


def test_a_run_folder_with_another_tokenizer_is_damaged(text, tmp_path):
    train(config_of(text, epochs=1), out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "tokenizer.json"
    content = path.read_bytes()
    for wrong in (content[:-1], b"", made.byte_level()):
        path.write_bytes(wrong)
        with pytest.raises(DamagedFileError, match=r"tokenizer\.json is damaged: its SHA-256 is not"):
            load(tmp_path / "run")
    path.unlink()
    assert load(tmp_path / "run").config.vocabulary == 280


def test_stored_settings_open_no_path(text):
    """Because they may be those of another user."""
    stored = config_of(text).to_dict()
    stored["task_options"]["tokens"] = str(text)
    with pytest.raises(ValueError, match="stored tokens cannot be a path, as "):
        TrainConfig.from_dict(stored)


@pytest.mark.parametrize(
    ("tokens", "changes", "message"),
    [
        ("bpe:200", {}, "must be bpe:N with N from 257 to 1048576, not 'bpe:200'"),
        ("tokenizer", {}, r"must be the path of a tokenizer\.json, not 'tokenizer'"),
        ("ids", {}, r"data must be a file of tokens, \.bin or \.npy, for tokens 'ids'"),
        (
            "bpe:280",
            {"encoding": "abacus", "positions": "digits:5"},
            "positions of digits need tokens of single digits",
        ),
        ("bytes", {"vocabulary": 256}, "vocabulary must be None"),
        ("bpe:280", {"vocabulary": 300}, "vocabulary must be None for tokens 'bpe:280', which set it, not 300"),
        ("bytes", {"tokenizer": "0" * 64}, "tokenizer must be None for tokens 'bytes'"),
    ],
)
def test_settings_that_do_not_go_with_subwords(tmp_path, tokens, changes, message):
    (tmp_path / "a.txt").write_text("12 12 12 12 and 12. " * 40)
    with pytest.raises(ValueError, match=message):
        config_of(tmp_path / "a.txt", tokens, **changes)


def test_settings_from_before_subwords_are_the_same(text):
    """They have neither a tokenizer nor a vocabulary, and tokens of a file named .bin are its bytes."""
    stored = config_of(text, "characters").to_dict()
    assert "tokenizer" not in stored
    assert stored["vocabulary"] is None
    stored["task_options"] = {}
    old = TrainConfig.from_dict({**stored, "data": "old.bin", "alphabet": ""})
    assert old.model.vocabulary == 256


# ---------------------------------------------------------------------------------------------------------------------
# Files of tokens


def test_a_run_on_ids(tmp_path):
    tokens = np.tile(np.arange(50, dtype=np.uint16), 20)
    tokens.tofile(tmp_path / "train.bin")
    config = preset("nanogpt-cpu", "alibi", task="text", data=tmp_path / "train.bin", **{
        name: value for name, value in SMALL.items() if name not in ("task", "causal")
    }, warmup=1, vocabulary=64)  # fmt: skip
    assert (config.task_options["tokens"], config.model.vocabulary) == ("ids", 64)
    result = train(config, out=tmp_path / "run", progress=False)
    assert result.result["validation"]["bits_per_byte"] is None
    assert result.result["validation"]["loss"] > 0
    model = load(tmp_path / "run")
    assert model.generate([1, 2, 3], 4).shape == (4,)
    with pytest.raises(ValueError, match="the text of these tokens is unknown: train the model with their tokenizer"):
        model.generate("a", 4)
    assert length_curve(tmp_path / "run", lengths=(8,)).points[0].bits_per_byte is None
    assert read_config(tmp_path / "run") == config
    again = train(config, out=tmp_path / "run", resume=True, progress=False)
    assert again.result == result.result


def test_ids_with_their_tokenizer_have_bits_per_byte(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(made.byte_level())
    vocabulary = Vocabulary.of_tokenizer(made.byte_level())
    np.save(tmp_path / "tokens.npy", vocabulary.encode(made.TEXT))
    config = config_of(tmp_path / "tokens.npy", tmp_path / "tokenizer.json", epochs=1)
    found = train(config, out=tmp_path / "run", progress=False).result["validation"]
    size = len(vocabulary.bytes_of(text_parts(config)[1][1:]))
    assert found["bits_per_byte"] == pytest.approx(found["loss"] * found["tokens"] / math.log(2) / size)
    assert load(tmp_path / "run").generate("The", 4)


def test_ids_do_not_lose_their_bits_per_byte_with_the_tokenizer(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_bytes(made.byte_level())
    np.save(tmp_path / "tokens.npy", Vocabulary.of_tokenizer(made.byte_level()).encode(made.TEXT))
    config = config_of(tmp_path / "tokens.npy", tmp_path / "tokenizer.json")
    interrupted(config, tmp_path / "run", EpochDone, epoch=1)
    (tmp_path / "run" / "tokenizer.json").unlink()
    monkeypatch.setattr(corpus, "_last", None)
    with pytest.raises(ValueError, match=r"the tokenizer of this model, .* is missing"):
        train(read_config(tmp_path / "run"), out=tmp_path / "run", resume=True, progress=False)


def test_a_changed_file_of_tokens_is_refused(tmp_path):
    path = tmp_path / "train.bin"
    np.tile(np.arange(50, dtype=np.uint16), 20).tofile(path)
    train(config_of(path, None, epochs=1), out=tmp_path / "run", progress=False)
    np.tile(np.arange(40, dtype=np.uint16), 20).tofile(path)
    with pytest.raises(corpus.TextNotFound, match="has another SHA-256"):
        text_parts(read_config(tmp_path / "run"))
    with pytest.raises(RunError, match="cannot be resumed with other settings"):
        train(config_of(path, None, epochs=1), out=tmp_path / "run", resume=True, progress=False)
