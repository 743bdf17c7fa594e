"""Files as tokens: one, or a folder of them; documents, parts, digests; what is no text."""

import hashlib
import io
import os

import numpy as np
import pytest

from fastpe.base import files
from fastpe.text import corpus
from fastpe.text.corpus import TextNotFound, read, read_known
from fastpe.text.vocabulary import UnknownSymbols, Vocabulary


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("one. two é. three".encode())
    return path


@pytest.mark.parametrize("kind", ["bytes", "characters"])
def test_a_file(text, kind):
    found = read(text, kind)
    assert found.vocabulary.bytes_of(found.tokens) == text.read_bytes()
    assert found.digest == hashlib.sha256(text.read_bytes()).hexdigest()
    assert found.documents.tolist() == [0, len(found.tokens)]
    assert found.name == str(text)
    assert len(found.tokens) == {"bytes": 18, "characters": 17}[kind]


@pytest.mark.parametrize("kind", ["bytes", "characters"])
@pytest.mark.parametrize("piece", [1, 2, 3, 7])
def test_pieces_change_nothing(text, kind, piece, monkeypatch):
    whole = read(text, kind, ". ")
    monkeypatch.setattr(corpus, "_PIECE", piece)
    monkeypatch.setattr(files, "_PIECE", piece)
    monkeypatch.setattr(corpus, "_last", None)
    again = read(text, kind, ". ")
    np.testing.assert_array_equal(again.tokens, whole.tokens)
    np.testing.assert_array_equal(again.documents, whole.documents)
    assert (again.digest, again.vocabulary) == (whole.digest, whole.vocabulary)


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    (tmp_path / "b").mkdir()
    for name, content in (("b/x.txt", "bx"), ("a.txt", "a"), ("c", "cc"), (".hidden", "h"), ("b/.h", "h"), ("d", "")):
        (tmp_path / name).write_text(content)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("no")
    found = read(tmp_path)
    assert found.vocabulary.decode(found.tokens) == "abxcc"
    assert found.documents.tolist() == [0, 1, 3, 5]
    (tmp_path / "a.txt").rename(tmp_path / "aa.txt")
    assert read(tmp_path).digest != found.digest


def test_separators_end_documents(text):
    for kind, ends in (("bytes", [0, 5, 13, 18]), ("characters", [0, 5, 12, 17])):
        assert read(text, kind, ". ").documents.tolist() == ends
    text.write_text("aaaa\n\n\\n\n\nb")
    assert read(text, "bytes", r"\n\n").documents.tolist() == [0, 6, 10, 11]
    assert read(text, "bytes", r"\\n").documents.tolist() == [0, 8, 11]
    assert read(text, "bytes", "aa").documents.tolist() == [0, 2, 4, 11]
    for kind, missing in (("bytes", "zz"), ("characters", "z"), ("characters", "ba")):
        with pytest.raises(ValueError, match=rf"separator '{missing}' does not occur in "):
            read(text, kind, missing)


@pytest.mark.parametrize(
    ("documents", "share", "cut"),
    [
        ([0, 10], 0.1, 9), ([0, 10], 0.5, 5), ([0, 10], 0.25, 7),  # one document is cut
        ([0, 1, 4, 7, 10], 0.1, 7), ([0, 1, 4, 7, 10], 0.5, 4), ([0, 1, 4, 7, 10], 0.9, 1),  # several are kept whole
    ],
)  # fmt: skip
def test_the_last_part_has_about_its_share(documents, share, cut):
    tokens = np.arange(10, dtype=np.uint8)
    first, last = corpus.Corpus("", Vocabulary(), tokens, np.array(documents), "").parts(share)
    assert (first.tolist(), last.tolist()) == (list(range(cut)), list(range(cut, 10)))


def test_the_text_is_mapped_and_is_not_what_becomes_of_the_file(text):
    found = read(text)
    assert isinstance(found.tokens.base, np.memmap)
    assert not found.tokens.flags.writeable
    before = found.tokens.copy()
    text.write_bytes(b"")
    np.testing.assert_array_equal(found.tokens, before)


def test_a_text_that_has_not_changed_is_not_read_again(text):
    found = read(text)
    assert read(text) is found
    assert read(text, "characters") is not found
    text.write_text("another")
    assert read(text).vocabulary.decode(read(text).tokens) == "another"


def test_a_given_vocabulary_must_know_everything(text):
    known = Vocabulary.of(text.read_text() + "zq")
    assert read(text, "characters", vocabulary=known).vocabulary is known
    with pytest.raises(
        UnknownSymbols, match=r"data: .*a\.txt has characters that are not in the vocabulary: 'e', 'h', 'r', 't', "
    ):
        read(text, "characters", vocabulary=Vocabulary.of("no. "))
    with pytest.raises(ValueError, match="tokens must be 'bytes', as in the vocabulary, not 'characters'"):
        read(text, "characters", vocabulary=Vocabulary())


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"", "bytes", "is empty"),
        (b"", "characters", "is empty"),
        (b"aaaa", "characters", "has only the character 'a': there is nothing to learn"),
        (b"abc\xffd", "characters", "is not UTF-8, byte 3 is 0xff: tokens 'bytes' accept any file"),
        (b"abc\xc3", "characters", "is not UTF-8, byte 3 is 0xc3"),
    ],
)
def test_what_is_no_text(tmp_path, content, kind, message):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a", kind)


def test_the_place_of_a_wrong_byte_is_that_in_the_file(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes("ééé".encode() + b"\xe2\x82x")
    for piece in (1, 2, 5, 100):
        monkeypatch.setattr(files, "_PIECE", piece)
        with pytest.raises(ValueError, match="byte 6 is 0xe2"):
            read(tmp_path / "a", "characters")


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"data .*pipe is a pipe or a device: name a file, or a folder of files"):
        read(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a pipe or a device: name a folder of texts only"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"data .*none: there is no such file or folder"):
        read(tmp_path / "none")


def test_folders_of_links_are_left_out_and_those_that_cannot_be_read_are_said(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("ab")
    (tmp_path / "other").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "b").write_text("cd")
    (tmp_path / "texts" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "texts" / "c").symlink_to(tmp_path / "a")
    found = read(tmp_path / "texts")
    assert found.vocabulary.decode(found.tokens) == "cdab"

    def refuse(path, onerror):
        onerror(PermissionError(13, "Permission denied", str(path)))

    monkeypatch.setattr(os, "walk", refuse)
    with pytest.raises(PermissionError):
        read(tmp_path / "texts")


def test_a_full_disk_is_told_of_the_copy(text, monkeypatch):
    monkeypatch.setattr(corpus, "_last", None)

    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus.tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match=r"the temporary copy of the text .* \(TMPDIR\) cannot be written: No space left"):
        read(text)


def test_too_many_characters(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MOST_CHARACTERS", 3)
    (tmp_path / "a").write_text("abcd")
    with pytest.raises(ValueError, match=r"a has 4 characters, more than 2\*\*16: use tokens 'bytes'"):
        read(tmp_path / "a", "characters")


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="holds no file"):
        read(tmp_path)
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    for kind in ("bytes", "characters"):
        with pytest.raises(ValueError, match=r"picture\.png is not a text, it has zero bytes: name a folder of texts"):
            read(tmp_path, kind)
    assert len(read(tmp_path / "picture.png").tokens) == 6


MARKED = "\ufeffone\r\ntwo\r\rthrée\n\ufeff".encode()


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_a_byte_order_mark_and_carriage_returns_are_no_characters(tmp_path, piece, monkeypatch):
    monkeypatch.setattr(corpus, "_PIECE", piece)
    monkeypatch.setattr(files, "_PIECE", piece)
    monkeypatch.setattr(corpus, "_last", None)
    path = tmp_path / "a.txt"
    path.write_bytes(MARKED)
    found = read(path, "characters", r"\r\n")
    assert found.vocabulary.decode(found.tokens) == "one\ntwo\n\nthrée\n"
    assert found.documents.tolist() == [0, 4, 8, 9, 15]
    assert found.digest == hashlib.sha256(MARKED).hexdigest()
    assert found.changed == "byte order marks are left out and line ends CRLF and CR are read as LF"
    again = read(path, "characters", r"\r\n", found.vocabulary)
    np.testing.assert_array_equal(again.tokens, found.tokens)
    raw = read(path, "bytes")
    assert (raw.vocabulary.bytes_of(raw.tokens), raw.changed) == (MARKED, "")


def test_a_vocabulary_that_has_them_keeps_them(tmp_path):
    """That of a run that was made before they were left out."""
    path = tmp_path / "a.txt"
    path.write_bytes(MARKED)
    found = read(path, "characters", r"\r\n", Vocabulary.of(MARKED.decode()))
    assert (found.vocabulary.bytes_of(found.tokens), found.changed) == (MARKED, "")
    assert found.documents.tolist() == [0, 6, 18]


def test_every_file_of_a_folder_may_have_a_byte_order_mark_and_text_without_any_is_as_it_was(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + name.encode())
    assert read(tmp_path, "characters").vocabulary.alphabet == "ab"
    (tmp_path / "b").write_text("b\nc")
    (tmp_path / "a").write_text("a")
    found = read(tmp_path, "characters")
    assert (found.vocabulary.decode(found.tokens), found.changed) == ("ab\nc", "")


@pytest.mark.parametrize("vocabulary", [None, Vocabulary.of("ab")])
def test_a_text_of_nothing_but_a_byte_order_mark_is_refused(tmp_path, vocabulary):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf")
    with pytest.raises(ValueError, match=r"a\.txt has only byte order marks"):
        read(tmp_path / "a.txt", "characters", vocabulary=vocabulary)


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="a file of Linux")
def test_a_file_without_an_end_is_read_up_to_its_size():
    with pytest.raises(TextNotFound, match="/proc/self/pagemap has another SHA-256"):
        read_known(["/proc/self/pagemap"], "0" * 64)
    with pytest.raises(ValueError, match="is empty"):
        read("/proc/self/pagemap")


def test_a_text_of_too_many_bytes_or_files_is_refused(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"text")
    monkeypatch.setattr(corpus, "_MOST_BYTES", 7)
    with pytest.raises(ValueError, match="is larger than"):
        read(tmp_path)
    with pytest.raises(TextNotFound, match="or is too large"):
        read_known([tmp_path], "0" * 64)
    monkeypatch.setattr(corpus, "_MOST_FILES", 1)
    with pytest.raises(ValueError, match="holds more than 1 files"):
        read(tmp_path)
