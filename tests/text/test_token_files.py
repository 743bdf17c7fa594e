"""Files of tokens: nanoGPT's .bin and .npy; those of other programs are refused by name, and pickles are never read."""

import hashlib
import io
import pickle

import numpy as np
import pytest
import tokenizer_files as made

from fastpe.text import token_files
from fastpe.text.corpus import NoSeparator, read
from fastpe.text.vocabulary import Vocabulary

TOKENS = np.array([5, 0, 7, 300, 7, 2, 5, 300, 1], np.uint16)


@pytest.fixture(params=["bin", "npy"])
def file(request, tmp_path):
    path = tmp_path / f"train.{request.param}"
    if request.param == "bin":
        TOKENS.tofile(path)
    else:
        np.save(path, TOKENS.astype(np.int32))
    return path


def test_a_file_of_tokens_is_mapped_as_it_is(file):
    found = read(file, "ids")
    assert found.tokens.tolist() == TOKENS.tolist()
    base = found.tokens
    while isinstance(base.base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert found.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert found.vocabulary == Vocabulary("ids", tokens=301)
    assert found.changed == "the vocabulary has 301 tokens, up to the largest one"
    assert [part.tolist() for part in found.parts(0.25)] == [TOKENS[:6].tolist(), TOKENS[6:].tolist()]
    assert found.bytes_in(0, 5) is None


def test_the_number_of_tokens_may_be_larger(file):
    assert read(file, "ids", vocabulary=Vocabulary("ids", tokens=512)).changed == ""
    with pytest.raises(ValueError, match=r"^vocabulary must be at least 301, because data .* has the token 300$"):
        read(file, "ids", vocabulary=Vocabulary("ids", tokens=300))


def test_a_separator_is_a_token(file):
    assert read(file, "ids", "300").documents.tolist() == [0, 4, 8, 9]
    with pytest.raises(NoSeparator):
        read(file, "ids", "6")
    with pytest.raises(ValueError, match="separator must be the number of a token"):
        read(file, "ids", "\\n")
    vocabulary = Vocabulary.of_tokenizer(made.with_special(made.byte_level(), "<|end|>"))
    assert read(file, "tokenizer", "<|end|>", vocabulary).documents.tolist() == [0, 4, 8, 9]
    with pytest.raises(ValueError, match="separator must be a special token of the tokenizer, not 'a', which is"):
        read(file, "tokenizer", "a", vocabulary)


def test_a_tokenizer_gives_the_tokens_of_a_file_their_text(file):
    vocabulary = Vocabulary.of_tokenizer(made.with_special(made.byte_level(), "<|end|>"))
    found = read(file, "tokenizer", vocabulary=vocabulary)
    assert found.bytes_in(0, len(TOKENS)) == sum(len(vocabulary.bytes_of([t])) for t in TOKENS if t != 300)
    with pytest.raises(ValueError, match=r"are trained on a text, but data .* holds tokens: name"):
        read(file, "bpe:300")


def header(dtype, shape):
    """The header of a .npy file, without its numbers."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was read",))


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.bin", b"", "is empty"),
        ("a.bin", b"abc", r"must hold tokens of two bytes each \(uint16\), but has 3 bytes"),
        ("a.bin", np.array([20240520, 1, 9] + [0] * 253, "<i4").tobytes(),
         r"is a file of llm\.c with tokens of GPT-2"),
        ("a.bin", np.array([20240801] + [0] * 255, "<i4").tobytes(), r"is a file of llm\.c with tokens of Llama 3"),
        ("a.idx", b"MMIDIDX\0\0", "is an index of Megatron, which fastpe does not read"),
        ("meta.pkl", pickle.dumps(Trap()), "is a pickle, which fastpe never reads, because it could run any code"),
        ("a.npy", b"", "is empty"),
        ("a.npy", pickle.dumps(Trap()), r"is no \.npy file of integers"),
        ("a.npy", saved(np.array([Trap()], object)), r"is no \.npy file of integers.*Python objects"),
        ("a.npy", saved(np.zeros(3)), "must hold one row of integers, not float64"),
        ("a.npy", saved(np.zeros((3, 2), int)), r"must hold one row of integers, not int64 with the shape \(3, 2\)"),
        ("a.npy", saved(np.zeros(3, [("a", "i4")])), "must hold one row of integers"),
        ("a.npy", saved(np.zeros(0, int)), "is empty"),
        ("a.npy", saved(np.array([1, -1])), "must hold tokens of at least 0, not -1"),
        ("a.npy", saved(np.array([1, 2**40])), r"must hold tokens below 2\*\*24, not 1099511627776"),
        ("a.npy", header("<i8", (10**12,)) + b"ab", r"is no \.npy file of integers"),
        ("a.npy", header("<i8", (-5,)) + b"ab", r"is no \.npy file of integers|is empty"),
        ("a.npy", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, r"is no \.npy file of integers"),
        ("a.npy", saved(np.arange(9))[:-8], r"is no \.npy file of integers"),
        ("a.npy", saved(np.arange(9)).replace(b"(9,)", b"(9, "), r"is no \.npy file of integers"),
        ("a.npy", saved(np.arange(9)).replace(b"}", b"("), r"is no \.npy file of integers"),
    ],
)  # fmt: skip
def test_other_files_cost_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(path, "ids")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_a_file_of_megatron_is_known_by_its_index(tmp_path):
    TOKENS.tofile(tmp_path / "a.bin")
    (tmp_path / "a.idx").write_bytes(b"MMIDIDX\0\0" + bytes(20))
    with pytest.raises(ValueError, match=r"is a file of Megatron, whose index is a\.idx"):
        read(tmp_path / "a.bin", "ids")


def test_only_names_tell_files_of_tokens(tmp_path):
    """A .bin file may also be read as bytes, as before there were files of tokens."""
    TOKENS.tofile(tmp_path / "a.bin")
    assert read(tmp_path / "a.bin", "bytes").tokens.tobytes() == TOKENS.tobytes()
    assert (token_files.holds("a.BIN"), token_files.holds("a.txt")) == (True, False)
    for name in ("a.pkl", "a.pt", "a.idx"):  # bytes are neither unpickled nor decoded
        TOKENS.tofile(tmp_path / name)
        assert read(tmp_path / name, "bytes").tokens.tobytes() == TOKENS.tobytes()
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(ValueError, match=r"data must be a file of tokens, \.bin or \.npy, for tokens 'ids'"):
        read(tmp_path / "a.txt", "ids")
