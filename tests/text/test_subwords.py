"""Tokenizers of subwords: what their tokens stand for, what is refused, and what a byte-pair encoding is trained on."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tokenizer_files as made
from tokenizers import Tokenizer

from fastpe.base.stored import DamagedFileError
from fastpe.text import subwords
from fastpe.text.subwords import Subwords
from fastpe.text.vocabulary import Vocabulary

BYTES = made.byte_level()


def test_byte_level_tokens_are_the_bytes_of_their_letters():
    own, theirs = Subwords(BYTES), Tokenizer.from_str(BYTES.decode())
    tokens = own.encode(made.TEXT)
    assert tokens.tolist() == theirs.encode(made.TEXT).ids
    assert own.joined(tokens) == made.TEXT.encode()
    assert own.widths[tokens].sum() == len(made.TEXT.encode())
    assert Vocabulary.of_tokenizer(BYTES).decode(tokens) == theirs.decode(tokens.tolist()) == made.TEXT
    assert max(map(len, own.pieces)) > 3


@pytest.mark.parametrize("text", ["The cat", " The  cat\n", "日本語 \U0001f600", "x"])
def test_tokens_of_sentencepiece(text):
    """Bytes of unknown characters count one byte each, U+2581 one; the space before the text is not part of it."""
    content = made.sentencepiece()
    own, theirs, vocabulary = Subwords(content), Tokenizer.from_str(content.decode()), Vocabulary.of_tokenizer(content)
    tokens, sizes, restored = own.measured(text)
    assert own.prepends
    assert tokens.tolist() == theirs.encode(text, add_special_tokens=False).ids
    assert vocabulary.decode(tokens) == theirs.decode(tokens.tolist()) == text
    assert vocabulary.continuation(tokens) == f" {text}"
    assert restored
    assert sizes.sum() == len(text.encode())


def test_a_normalizer_does_not_change_the_number_of_bytes_that_are_counted():
    """Each token counts the bytes of the text from the end of the token before it."""
    own, text = Subwords(made.lower_case()), "ÄÖ The CAT. \n\n İstanbul"
    tokens, sizes, restored = own.measured(text)
    assert not restored
    assert own.joined(tokens) == text.lower().encode()
    assert sizes.sum() == len(text.encode())
    assert own.widths[tokens].sum() != len(text.encode())
    assert not Subwords(made.word_pieces()).measured("The cats  sat")[2]
    assert Subwords(made.word_pieces()).measured("The cats  sat")[1].sum() == len("The cats  sat")


def test_word_pieces_are_joined_as_words():
    vocabulary = Vocabulary.of_tokenizer(made.word_pieces())
    assert vocabulary.continuation(vocabulary.encode("the cats sat")) == " the cats sat"


def test_special_tokens_in_a_text_count_their_bytes():
    """In a file of tokens, they mark the ends of documents and count none."""
    content = made.with_special(BYTES, "<|end|>")
    own, text = Subwords(content), "a<|end|>b"
    tokens, sizes, restored = own.measured(text)
    assert (tokens.tolist(), sizes.tolist(), restored) == ([64, 300, 65], [1, 7, 1], True)
    assert own.widths[300] == 0
    assert own.joined(tokens) == text.encode()
    changing = Subwords(made.with_special(made.lower_case(), "<|end|>"))
    assert changing.measured("A<|end|>Ä")[1].sum() == len("A<|end|>Ä".encode())


def test_a_tokenizer_neither_cuts_nor_pads_nor_draws_nor_adds():
    """Whatever its file says: training on cut texts would go unnoticed."""
    cutting = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 500}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "!",
    }  # fmt: skip
    model = {**json.loads(BYTES)["model"], "dropout": 0.5}
    expected = Subwords(BYTES).encode(made.TEXT)
    for content in (
        made.changed(BYTES, truncation=cutting), made.changed(BYTES, padding=padding), made.changed(BYTES, model=model),
        made.with_template(BYTES),
    ):  # fmt: skip
        np.testing.assert_array_equal(Subwords(content).encode(made.TEXT), expected)


@pytest.mark.full("starts processes")
def test_training_is_deterministic_in_all_processes():
    """Also with another seed of hashes and number of threads."""
    program = (
        "import sys; from tokenizer_files import *; sys.stdout.write(subwords.digest_of(byte_level(TEXT * 3, 600)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads},
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"))
    }  # fmt: skip
    assert found == {subwords.digest_of(made.byte_level(made.TEXT * 3, 600))}


def test_only_single_digits_are_digits():
    vocabulary = Vocabulary.of_tokenizer(made.single_digits())
    assert vocabulary.digits == tuple(vocabulary.encode("0123456789").tolist())
    merged = Vocabulary.of_tokenizer(made.byte_level("12 12 12 12 345 345", 270))
    with pytest.raises(ValueError, match=r"^positions of digits need tokens of single digits: the tokenizer has '"):
        _ = merged.digits


def test_a_vocabulary_without_its_file_still_has_a_size():
    full = Vocabulary.of_tokenizer(BYTES, 320)
    stored = json.loads(json.dumps(full.to_dict()))
    assert stored == {"kind": "tokenizer", "alphabet": "", "tokens": 320, "sha256": subwords.digest_of(BYTES)}
    bare = Vocabulary.from_dict(stored)
    assert bare == full
    assert (bare.size, bare.dtype, full.widths.shape) == (320, np.uint16, (320,))
    assert bare.bytes_in(np.array([1, 2])) is None
    assert full.continuation([310]) == ""
    with pytest.raises(ValueError, match=r"with the SHA-256 .* is missing: put it into the folder of the model"):
        bare.encode("a")
    with pytest.raises(
        ValueError, match=r"^vocabulary must be at least 300, the number of tokens of the tokenizer, not 9$"
    ):
        Vocabulary.of_tokenizer(BYTES, 9)


def test_a_tokenizer_with_more_tokens_than_the_vocabulary_is_refused():
    """Or its tokens would be cut to the type of the vocabulary."""
    wrong = Vocabulary("tokenizer", "", 250, subwords.digest_of(BYTES), BYTES)
    for call in (wrong.encode, lambda text: wrong.decode([1])):
        with pytest.raises(ValueError, match="the tokenizer has 300 tokens, more than the 250 of the model"):
            call("a")
    for kind in ("tokenizer", "ids"):
        with pytest.raises(ValueError, match=f"tokens must be at least 2 for {kind}, not 1"):
            Vocabulary(kind, tokens=1)


def test_ids_have_no_text():
    ids = Vocabulary("ids", tokens=70_000)
    assert (ids.size, ids.dtype, ids.digits, ids.bytes_in(np.array([1]))) == (70_000, np.uint32, (), None)
    for call in (ids.encode, ids.decode):
        with pytest.raises(
            ValueError, match="the text of these tokens is unknown: train the model with their tokenizer, --tokens"
        ):
            call("a" if call == ids.encode else [1])


def replacing(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def test_a_decoder_cannot_ask_for_much_memory(monkeypatch):
    """Also if every single token is short enough."""
    monkeypatch.setattr(subwords, "MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match="its decoder makes more than 10000 bytes of its tokens"):
        Subwords(made.changed(BYTES, decoder=replacing("", "b" * 50)))


NO_MODEL = '{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":%s,"merges":%s}}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "EOF while parsing"),
        (b"{}", "Model missing"),
        (b"\xff\xfe", "its bytes are not UTF-8"),
        (b"\x80\x04\x95", "its bytes are not UTF-8"),  # a pickle
        (BYTES[:-5], "EOF"),
        (b"[" * 100_000, "expected struct Tokenizer"),
        (b'{"a":' * 100_000, "expected `,` or `}`"),
        (BYTES.replace(b'"BPE"', b'"eval"'), "untagged enum"),
        ((NO_MODEL % ('{"a":0,"b":0}', "[]")).encode(), "several of its tokens have the same number"),
        ((NO_MODEL % ('{"a":0,"b":4294967295}', "[]")).encode(), "at most 1048575 is supported"),
        ((NO_MODEL % ('{"a":0}', "[]")).encode(), "it has 1 tokens"),
        ((NO_MODEL % ('{"a":0,"b":1}', '[["a","zz"]]')).encode(), "out of vocabulary"),
        (made.changed(BYTES, decoder={"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True}),
         "its decoder 'CTC' is not supported"),
        (made.changed(BYTES, decoder={"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}),
         "its decoder 'Replace' is not supported"),
        (made.changed(BYTES, decoder=replacing("a", "b" * 10**6)), "its decoder makes a token of more than 65536"),
        (made.changed(BYTES, decoder=replacing("", "b" * 10**6)), "its decoder makes a token of more than 65536"),
        (made.changed(BYTES, decoder={"type": "Sequence", "decoders": [replacing("a", "aa")] * 60}),
         "its decoder makes a token of more than 65536"),
        (made.changed(BYTES, decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}] * 101}),
         "its decoder has 101 steps: at most 100 are supported"),
    ],
)  # fmt: skip
def test_what_is_no_tokenizer_costs_one_line(content, message, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(DamagedFileError, match=message) as caught:
        subwords.read(tmp_path / "tokenizer.json")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 700


def test_places_that_are_no_file(tmp_path):
    with pytest.raises(DamagedFileError, match="it is a folder, where a file was expected"):
        subwords.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        subwords.read(tmp_path / "none")
    (tmp_path / "tokenizer.json").write_bytes(BYTES)
    with pytest.raises(DamagedFileError, match="its SHA-256 is not 00, which is that of the model's tokenizer"):
        subwords.kept(tmp_path, "00")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match=r"need the package tokenizers: pip install 'fastpe\[hf\]'"):
        Subwords(BYTES)


@pytest.mark.parametrize("tokens", ["bpe:", "bpe:256", "bpe:2000000", "bpe:1e3", "bpe:-5", "bpe:³"])
def test_sizes_that_no_byte_pair_encoding_has(tokens):
    with pytest.raises(ValueError, match="must be bpe:N with N from 257 to 1048576, not"):
        subwords.specified(tokens)
