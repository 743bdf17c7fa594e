"""Files of text as one long row of tokens, in documents, beside the digest of what was read.

The row is a memory map of an unnamed temporary file, one or two bytes a token: a text need not fit into memory, and
whatever becomes of its files while a model learns changes nothing.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastpe.base import files, validation
from fastpe.text.vocabulary import MOST_CHARACTERS, UnknownSymbols, Vocabulary, named

Array = np.ndarray[Any, Any]

_PIECE = 2**20  # bytes that are read at a time
_MARK = "\ufeff"  # a byte order mark
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


class NoSeparator(ValueError):
    """The separator does not occur in a text."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as tokens.

    Attributes
    ----------
    name : str
        The file or folder.
    vocabulary : Vocabulary
    tokens : (T,) uint8 or uint16
    documents : (D + 1,) int64
        Where each document begins, and T.
    digest : str
        SHA-256 of the file, or of the names and digests of a folder's files.
    changed : str
        What of the text is not as it is in the files, in words; "" if nothing was changed.
    """

    name: str
    vocabulary: Vocabulary
    tokens: Array
    documents: Array
    digest: str
    changed: str = ""

    def parts(self, share: float, tuning: bool = False) -> tuple[Array, Array]:
        """The tokens to train with, and after them the last `share` to validate with.

        Of several documents none is cut: the parts meet at the beginning of the one that is nearest. For tuning what
        would be validated with is set aside, and the rest divided in the same way.

        Examples
        --------
        >>> vocabulary = Vocabulary.of("ab")
        >>> corpus = Corpus("", vocabulary, vocabulary.encode("abbabaabab"), np.array([0, 3, 7, 10]), "")
        >>> [vocabulary.decode(part) for part in corpus.parts(0.5)]
        ['abb', 'abaabab']
        >>> [vocabulary.decode(part) for part in corpus.parts(0.2, tuning=True)]
        ['abb', 'abaa']
        """
        end = len(self.tokens)
        cut = self._cut(end, share)
        if tuning:
            end, cut = cut, self._cut(cut, share)
        return self.tokens[:cut], self.tokens[cut:end]

    def _cut(self, end: int, share: float) -> int:
        """Where the last `share` of the tokens before `end` begins."""
        cut = int(end * (1.0 - share))
        inside = self.documents[(self.documents > 0) & (self.documents < end)]
        return int(inside[np.argmin(np.abs(inside - cut))]) if len(inside) else cut


_last: tuple[tuple[Any, ...], Corpus] | None = None  # a run's settings and its training read the same text


def read(path: str | Path, kind: str = "bytes", separator: str = "", vocabulary: Vocabulary | None = None) -> Corpus:
    r"""Read a file, or all files of a folder, sorted by name, each of which is a document.

    Bytes are those of the files. As characters, byte order marks (U+FEFF) are left out, and the line ends CRLF and CR
    become LF, unless `vocabulary` has these characters; the digest is always that of the bytes.

    Hidden files of a folder are left out, and folders that links lead to. A file is not read again as long as it has
    not changed.

    Parameters
    ----------
    path : str or pathlib.Path
    kind : {"bytes", "characters"}
        What a token is. Characters are those of UTF-8.
    separator : str
        What ends a document within a file; it stays in the text. ``\n``, ``\t``, ``\r`` and ``\\`` may be spelled out.
    vocabulary : Vocabulary, optional
        That of a model, of which every character of the text must be.

    Raises
    ------
    OSError
        If something cannot be read.
    ValueError
        If there is no text, characters are asked for and a file is not UTF-8, a folder has files that are no text, the
        separator does not occur, or (`UnknownSymbols`) the vocabulary lacks characters.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("one. two. ")
    ...     corpus = read(folder, "characters", separator=". ")
    >>> corpus.vocabulary.alphabet, corpus.documents.tolist()
    (' .enotw', [0, 5, 10])
    """
    global _last
    given = validation.path("data", path)
    kind = validation.choice("tokens", kind, ("bytes", "characters"))
    if vocabulary is not None and vocabulary.kind != kind:
        raise ValueError(f"tokens must be {vocabulary.kind!r}, as the vocabulary has them, not {kind!r}")
    try:
        found = _files(given)
    except FileNotFoundError:
        raise FileNotFoundError(f"data {given}: there is no such file or folder") from None
    key = (kind, separator, vocabulary, *((str(each), _signature(each)) for each in found))
    if _last is not None and _last[0] == key:
        return _last[1]
    inside = given.is_dir()
    if inside:
        _refuse_binaries(found)
    if not any(each.stat().st_size for each in found):
        raise ValueError(f"data {given} is empty")
    if kind == "characters" and vocabulary is None:
        vocabulary = _vocabulary_of(found)
    corpus = _encoded(given, found, vocabulary or Vocabulary(), separator, inside)
    _last = key, corpus
    return corpus


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"data {path} is a pipe or a device: name a file, or a folder of files")
        return [path]
    found = [
        Path(folder, name)
        for folder, inner, names in os.walk(path, onerror=_raise)
        if not _hide(inner)
        for name in names
        if not name.startswith(".")
    ]
    if not found:
        raise ValueError(f"data {path} holds no file")
    return sorted(found, key=lambda each: each.relative_to(path).parts)


def _raise(error: OSError) -> None:
    raise error


def _hide(folders: list[str]) -> bool:
    """Leave out hidden folders of a walk."""
    folders[:] = sorted(name for name in folders if not name.startswith("."))
    return False


def _signature(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _pieces(path: Path) -> Iterator[bytes]:
    with files.open_file(path) as file:
        while piece := file.read(_PIECE):
            yield piece


def _refuse_binaries(found: Sequence[Path]) -> None:
    """A folder that was taken for one of texts is better known before a model has learned pictures."""
    for path in found:
        if not path.is_file():
            raise ValueError(f"data: {path} is a pipe or a device: name a folder of texts alone")
        if any(b"\0" in piece for piece in _pieces(path)):
            raise ValueError(f"data: {path} is no text, it has zero bytes: name a folder of texts alone, or one file")


class _Cleaner:
    """Leaves out the byte order marks of a text that comes in pieces, and makes LF of other line ends.

    kept: the characters that a model has. Vocabularies of new models have neither mark nor CR. If one has, its text
    was read before these were left out, and is read in the same way again.
    """

    def __init__(self, kept: str) -> None:
        self.changed: set[str] = set()
        self._drops_marks = _MARK not in kept
        self._newlines = None if "\r" in kept else io.IncrementalNewlineDecoder(None, translate=True)

    def clean(self, text: str, final: bool) -> str:
        """The next piece."""
        if self._drops_marks and _MARK in text:
            self.changed.add("byte order marks are left out")
            text = text.replace(_MARK, "")
        if self._newlines is None:
            return text
        if "\r" in text:
            self.changed.add("line ends CRLF and CR are read as LF")
        return self._newlines.decode(text, final)


def _characters(
    path: Path, cleaner: _Cleaner, piece_read: Callable[[bytes], None] = lambda piece: None
) -> Iterator[str]:
    """The text of a file, piece by piece; raises ValueError where it is not UTF-8."""
    decoder, before = codecs.getincrementaldecoder("utf-8")(), 0
    for piece in itertools.chain(_pieces(path), [b""]):
        piece_read(piece)
        kept = len(decoder.getstate()[0])
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            place, byte = before - kept + error.start, error.object[error.start]
            raise ValueError(
                f"data: {path} is not UTF-8, byte {place} is 0x{byte:02x}: tokens 'bytes' take any file"
            ) from None
        before += len(piece)
        yield cleaner.clean(text, final=not piece)


def _vocabulary_of(found: Sequence[Path]) -> Vocabulary:
    symbols: set[str] = set()
    for path in found:
        for text in _characters(path, _Cleaner("")):
            symbols |= set(text)
    if not symbols:
        raise ValueError(f"data: {found[0]} is empty but for byte order marks")
    if len(symbols) == 1:
        raise ValueError(f"data: {found[0]} has no character but {named(symbols)}: there is nothing to learn")
    if len(symbols) > MOST_CHARACTERS:
        raise ValueError(f"data: {found[0]} has {len(symbols):,} characters, more than 2**16: take tokens 'bytes'")
    return Vocabulary("characters", "".join(sorted(symbols)))


def _encoded(path: Path, found: Sequence[Path], vocabulary: Vocabulary, separator: str, inside: bool) -> Corpus:
    starts, digests, changed = [0], [], set[str]()
    with tempfile.TemporaryFile() as room:
        for each in found:
            digests.append(_encode_file(each, vocabulary, room, changed))
            starts.append(room.tell() // vocabulary.dtype.itemsize)
        if not room.tell():
            raise ValueError(f"data: {path} is empty but for byte order marks")
        _to_disk(room.flush)
        # of the memory map itself nothing is written: a plain array that looks at it
        tokens = np.asarray(np.memmap(room, vocabulary.dtype, mode="r"))
    documents = np.unique(np.array(starts, np.int64))
    if separator:
        ends = _ends_of(tokens, _separator(separator, vocabulary, path))
        if not len(ends):
            raise NoSeparator(f"separator {separator!r} does not occur in {path}")
        documents = np.unique(np.concatenate([documents, ends]))
    digest = digests[0]
    if inside:
        names = (each.relative_to(path).as_posix() for each in found)
        listed = "".join(f"{own}  {name}\n" for own, name in zip(digests, names, strict=True))
        digest = hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()
    return Corpus(str(path), vocabulary, tokens, documents, digest, " and ".join(sorted(changed)))


def _encode_file(path: Path, vocabulary: Vocabulary, room: IO[bytes], changed: set[str]) -> str:
    """Write a file's tokens, and add to `changed` how its text was changed; returns the file's digest."""
    digest = hashlib.sha256()
    if vocabulary.kind == "bytes":
        for piece in _pieces(path):
            digest.update(piece)
            _to_disk(room.write, piece)
        return digest.hexdigest()
    unknown: set[str] = set()
    known = set(vocabulary.alphabet)
    cleaner = _Cleaner(vocabulary.alphabet)
    for text in _characters(path, cleaner, digest.update):
        lacking = set(text) - known
        if not lacking and not unknown:
            tokens = vocabulary.encode(text).tobytes()
            _to_disk(room.write, tokens)
        unknown |= lacking
    if unknown:
        raise UnknownSymbols(f"data: the vocabulary lacks what {path} has: {named(unknown)}")
    changed |= cleaner.changed
    return digest.hexdigest()


def _to_disk(write: Callable[..., Any], *content: bytes) -> None:
    """Write to the copy, of which its user knows nothing: an error says where it is."""
    try:
        write(*content)
    except OSError as error:
        where = f"the copy of a text that is made in {tempfile.gettempdir()} (TMPDIR) cannot be written"
        raise OSError(f"{where}: {error.strerror}") from error


def _separator(text: str, vocabulary: Vocabulary, path: Path) -> Array:
    text = re.sub(r"\\([ntr\\])", lambda spelled: _ESCAPES[spelled[1]], text)
    if vocabulary.kind == "characters":
        text = _Cleaner(vocabulary.alphabet + _MARK).clean(text, final=True)
    try:
        return vocabulary.encode(text)
    except UnknownSymbols:
        raise NoSeparator(f"separator {text!r} does not occur in {path}") from None


def _ends_of(tokens: Array, separator: Array) -> Array:
    """Where each occurrence of the separator ends; of those that overlap the first."""
    size, found = len(separator), []
    for start in range(0, len(tokens) - size + 1, _PIECE):
        places = np.arange(start, min(start + _PIECE, len(tokens) - size + 1))
        for k in range(size):
            places = places[tokens[places + k] == separator[k]]
        found.append(places)
    ends, last = [], 0
    for place in np.concatenate(found).tolist() if found else []:
        if place >= last:
            last = place + size
            ends.append(last)
    return np.array(ends, np.int64)
