"""Reads files of text as one array of tokens, divided into documents, and computes the digest of the files.

The array is a memory map of an unnamed temporary file with one or two bytes per token. So a text need not fit into
memory, and changes of its files do not affect a training that is under way.
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

from fastpe.base import files, stored, validation
from fastpe.text.vocabulary import MOST_CHARACTERS, UnknownSymbols, Vocabulary, named

Array = np.ndarray[Any, Any]

# whether the files are in a folder, and the path and the signature of each file
_Files = tuple[bool, tuple[tuple[str, tuple[int, ...]], ...]]

_MOST_BYTES, _MOST_FILES = 10**11, 10**6  # limits for a text, because the run of another user may name any folder
_PIECE = 2**20  # tokens that are searched at a time
_MARK = "\ufeff"  # a byte order mark
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


class TextNotFound(ValueError):
    """None of the given paths has the text with the given SHA-256."""


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
        Index of the first token of each document, followed by T.
    digest : str
        SHA-256 of the file, or of the names and digests of a folder's files.
    changed : str
        How the text differs from the files, in words; "" if it does not.
    """

    name: str
    vocabulary: Vocabulary
    tokens: Array
    documents: Array
    digest: str
    changed: str = ""

    def parts(self, share: float, tuning: bool = False) -> tuple[Array, Array]:
        """The tokens of the training part and of the validation part, which is the last `share` of the text.

        If there are several documents, the parts are divided at the nearest beginning of a document. For tuning, the
        validation part is left out and the training part is divided in the same way.

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
        """The index at which the last `share` of the tokens before `end` begins."""
        cut = int(end * (1.0 - share))
        inside = self.documents[(self.documents > 0) & (self.documents < end)]
        return int(inside[np.argmin(np.abs(inside - cut))]) if len(inside) else cut


@dataclass(frozen=True)
class _Read:
    """The text that was read last. It is kept because a run reads its text twice, for settings and for training."""

    files: _Files
    kind: str
    separator: str
    vocabulary: Vocabulary | None  # as the caller gave it
    corpus: Corpus

    def serves(self, files: _Files, kind: str, separator: str, vocabulary: Vocabulary | None) -> bool:
        """Whether reading these files in this way would give the same corpus."""
        same = (self.files, self.kind, self.separator) == (files, kind, separator)
        return same and vocabulary in (self.vocabulary, self.corpus.vocabulary)


_last: _Read | None = None


def read(path: str | Path, kind: str = "bytes", separator: str = "", vocabulary: Vocabulary | None = None) -> Corpus:
    r"""Read a file, or all files of a folder sorted by name; every file is a document.

    If tokens are bytes, they are the bytes of the files. If they are characters, byte order marks (U+FEFF) are left
    out, and the line ends CRLF and CR become LF, unless `vocabulary` has these characters. In both cases, the digest is
    that of the bytes of the files.

    Hidden files of a folder and linked folders are left out. The text that was read last is not read again unless its
    files have changed.

    Parameters
    ----------
    path : str or pathlib.Path
    kind : {"bytes", "characters"}
        The kind of tokens. Characters are decoded from UTF-8.
    separator : str
        The text that ends a document within a file. It stays in the text. The escapes ``\n``, ``\t``, ``\r`` and
        ``\\`` are known.
    vocabulary : Vocabulary, optional
        The vocabulary of a model, which must have every character of the text.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If the text is empty, a file is not UTF-8 although tokens are characters, a folder has a file that is not text,
        the separator does not occur, or (`UnknownSymbols`) the vocabulary lacks characters.

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
    if kind == "bytes" and vocabulary is None:
        vocabulary = Vocabulary()
    kind = validation.choice("tokens", kind, ("bytes", "characters"))
    if vocabulary is not None and vocabulary.kind != kind:
        raise ValueError(f"tokens must be {vocabulary.kind!r}, as in the vocabulary, not {kind!r}")
    found, inside = _found(given)
    key = _key(found, inside)
    if _last is not None and _last.serves(key, kind, separator, vocabulary):
        return _last.corpus
    if inside:
        _refuse_binaries(found)
    if not any(each.stat().st_size for each in found):
        raise ValueError(f"data {given} is empty")
    own = _vocabulary_of(found) if vocabulary is None else vocabulary
    corpus = _encoded(given, found, own, separator, inside)
    _last = _Read(key, kind, separator, vocabulary, corpus)
    return corpus


def read_known(
    places: Sequence[str | Path], digest: str, kind: str = "bytes", separator: str = "",
    vocabulary: Vocabulary | None = None,
) -> Corpus:  # fmt: skip
    """Read the text with a known SHA-256 from the first path that has it.

    The paths may come from a file that another user wrote. Therefore a text is first only hashed. It is decoded, and
    errors may quote it, only if its SHA-256 is the known one.

    Parameters
    ----------
    places : sequence of str or pathlib.Path
    digest : str
    kind, separator, vocabulary
        As for `read`.

    Raises
    ------
    TextNotFound
        If no path has the text; the message names all paths and the SHA-256.
    ValueError, OSError
        As `read` does.

    Examples
    --------
    >>> read_known(["nowhere.txt"], "0" * 8)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fastpe.text.corpus.TextNotFound: data: no text with the SHA-256 00000000 was found: nowhere.txt does not exist...
    """
    reasons = []
    for place in dict.fromkeys(map(str, places)):
        try:
            known = _digest_at(Path(place)) == digest
            reason = "has another SHA-256"
        except (FileNotFoundError, NotADirectoryError):
            known, reason = False, "does not exist"
        except OSError as error:
            known, reason = False, f"cannot be read ({error.strerror or error})"
        except ValueError:  # the message of the error is not used, because it would tell what a folder holds
            known, reason = False, "is not a file or a folder of files, or is too large"
        if known:
            corpus = read(place, kind, separator, vocabulary)
            if corpus.digest == digest:
                return corpus
            reason = "changed while it was read"
        reasons.append(stored.printable(f"{place} {reason}"))
    raise TextNotFound(
        f"data: no text with the SHA-256 {stored.cut(digest, 64)} was found: {'; '.join(reasons)}. Give its path with "
        "--data (in Python: data)"
    )


def _found(path: Path) -> tuple[list[Path], bool]:
    """The files of a text, and whether they are in a folder."""
    try:
        found = _files(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"data {path}: there is no such file or folder") from None
    if sum(each.stat().st_size for each in found) > _MOST_BYTES:
        raise ValueError(f"data {path} is larger than {_MOST_BYTES / 1e9:.0f} GB")
    return found, path.is_dir()


def _key(found: Sequence[Path], inside: bool) -> _Files:
    return inside, tuple((str(each), _signature(each)) for each in found)


def _digest_at(path: Path) -> str:
    """SHA-256 of the text at a path, without decoding it."""
    found, inside = _found(path)
    if _last is not None and _last.files == _key(found, inside):
        return _last.corpus.digest
    digests = []
    for each in found:
        _refuse_devices(each)
        digest = hashlib.sha256()
        for piece in files.pieces(each):
            digest.update(piece)
        digests.append(digest.hexdigest())
    return _joined(path, found, digests, inside)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"data {path} is a pipe or a device: name a file, or a folder of files")
        return [path]
    walk = (
        Path(folder, name)
        for folder, inner, names in os.walk(path, onerror=_raise)
        if not _hide(inner)
        for name in names
        if not name.startswith(".")
    )
    found = list(itertools.islice(walk, _MOST_FILES + 1))
    if len(found) > _MOST_FILES:
        raise ValueError(f"data {path} holds more than {_MOST_FILES} files")
    if not found:
        raise ValueError(f"data {path} holds no file")
    return sorted(found, key=lambda each: each.relative_to(path).parts)


def _raise(error: OSError) -> None:
    raise error


def _hide(folders: list[str]) -> bool:
    """Remove hidden folders from the list of a walk, and return False."""
    folders[:] = sorted(name for name in folders if not name.startswith("."))
    return False


def _signature(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _refuse_binaries(found: Sequence[Path]) -> None:
    """Refuse files with zero bytes, so that no model is trained on a folder of images by mistake."""
    for path in found:
        _refuse_devices(path)
        if any(b"\0" in piece for piece in files.pieces(path)):
            raise ValueError(f"data: {path} is not a text, it has zero bytes: name a folder of texts only, or one file")


def _refuse_devices(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"data: {path} is a pipe or a device: name a folder of texts only")


class _Cleaner:
    """Removes byte order marks and changes the line ends CRLF and CR to LF, in a text that comes in pieces.

    kept: the alphabet of a model. If the alphabet contains the mark or CR, the model was trained on a text with this
    character, and the character is not removed. The alphabets of new models contain neither of the two.
    """

    def __init__(self, kept: str) -> None:
        self.changed: set[str] = set()
        self._drops_marks = _MARK not in kept
        self._newlines = None if "\r" in kept else io.IncrementalNewlineDecoder(None, translate=True)

    def clean(self, text: str, final: bool) -> str:
        """Clean the next piece; final: whether it is the last one."""
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
    """The text of a file in pieces. Raises ValueError if it is not UTF-8."""
    decoder, before = codecs.getincrementaldecoder("utf-8")(), 0
    for piece in itertools.chain(files.pieces(path), [b""]):
        piece_read(piece)
        kept = len(decoder.getstate()[0])
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            place, byte = before - kept + error.start, error.object[error.start]
            raise ValueError(
                f"data: {path} is not UTF-8, byte {place} is 0x{byte:02x}: tokens 'bytes' accept any file"
            ) from None
        before += len(piece)
        yield cleaner.clean(text, final=not piece)


def _vocabulary_of(found: Sequence[Path]) -> Vocabulary:
    symbols: set[str] = set()
    for path in found:
        for text in _characters(path, _Cleaner("")):
            symbols |= set(text)
    if not symbols:
        raise ValueError(f"data: {found[0]} has only byte order marks")
    if len(symbols) == 1:
        raise ValueError(f"data: {found[0]} has only the character {named(symbols)}: there is nothing to learn")
    if len(symbols) > MOST_CHARACTERS:
        raise ValueError(f"data: {found[0]} has {len(symbols):,} characters, more than 2**16: use tokens 'bytes'")
    return Vocabulary("characters", "".join(sorted(symbols)))


def _encoded(path: Path, found: Sequence[Path], vocabulary: Vocabulary, separator: str, inside: bool) -> Corpus:
    starts, digests, changed = [0], [], set[str]()
    with tempfile.TemporaryFile() as storage:
        for each in found:
            digests.append(_encode_file(each, vocabulary, storage, changed))
            starts.append(storage.tell() // vocabulary.dtype.itemsize)
        if not storage.tell():
            raise ValueError(f"data: {path} has only byte order marks")
        _to_disk(storage.flush)
        # a plain array that views the memory map
        tokens = np.asarray(np.memmap(storage, vocabulary.dtype, mode="r"))
    documents = np.unique(np.array(starts, np.int64))
    if separator:
        ends = _ends_of(tokens, _separator(separator, vocabulary, path))
        if not len(ends):
            raise NoSeparator(f"separator {separator!r} does not occur in {path}")
        documents = np.unique(np.concatenate([documents, ends]))
    return Corpus(
        str(path), vocabulary, tokens, documents, _joined(path, found, digests, inside), " and ".join(sorted(changed))
    )


def _joined(path: Path, found: Sequence[Path], digests: Sequence[str], inside: bool) -> str:
    """SHA-256 of a text, computed from those of its files."""
    if not inside:
        return digests[0]
    names = (each.relative_to(path).as_posix() for each in found)
    listed = "".join(f"{own}  {name}\n" for own, name in zip(digests, names, strict=True))
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()


def _encode_file(path: Path, vocabulary: Vocabulary, storage: IO[bytes], changed: set[str]) -> str:
    """Write the tokens of a file, add to `changed` how its text was changed, and return the digest of the file."""
    digest = hashlib.sha256()
    if vocabulary.kind == "bytes":
        for piece in files.pieces(path):
            digest.update(piece)
            _to_disk(storage.write, piece)
        return digest.hexdigest()
    unknown: set[str] = set()
    known = set(vocabulary.alphabet)
    cleaner = _Cleaner(vocabulary.alphabet)
    for text in _characters(path, cleaner, digest.update):
        lacking = set(text) - known
        if not lacking and not unknown:
            tokens = vocabulary.encode(text).tobytes()
            _to_disk(storage.write, tokens)
        unknown |= lacking
    if unknown:
        raise UnknownSymbols(f"data: {path} has characters that are not in the vocabulary: {named(unknown)}")
    changed |= cleaner.changed
    return digest.hexdigest()


def _to_disk(write: Callable[..., Any], *content: bytes) -> None:
    """Write to the temporary copy. Errors name the folder of the copy, because the user did not choose this folder."""
    try:
        write(*content)
    except OSError as error:
        where = f"the temporary copy of the text in {tempfile.gettempdir()} (TMPDIR) cannot be written"
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
    """The end of each occurrence of the separator; an occurrence that overlaps an earlier one is skipped."""
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
