"""Reads files of text as one array of tokens, divided into documents, and computes the digest of the files.

The array is a memory map of an unnamed temporary file with one, two or four bytes per token. So a text need not fit
into memory, and changes of its files do not affect a training that is under way. Files of tokens are mapped themselves.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastpe.base import files, stored, validation
from fastpe.text import documents, subwords, token_files
from fastpe.text.characters import MARK, Cleaner, characters, to_disk, unescaped
from fastpe.text.documents import cut_at, index_of, nearest
from fastpe.text.vocabulary import KINDS, MOST_CHARACTERS, WITHOUT_FILE, UnknownSymbols, Vocabulary, named

Array = np.ndarray[Any, Any]

# whether the files are in a folder, and the path and the signature of each file
_Files = tuple[bool, tuple[tuple[str, tuple[int, ...]], ...]]

_MOST_BYTES, _MOST_FILES = 10**11, 10**6  # limits for a text, because the run of another user may name any folder
_PIECE = 2**20  # tokens that are searched at a time


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
    tokens : (T,) unsigned integers
    documents : (D + 1,) int64
        Index of the first token of each document, followed by T.
    digest : str
        SHA-256 of the file, or of the names and digests of a folder's files.
    changed : str
        How the text differs from the files, in words; "" if it does not.
    sizes : (T,) uint32, optional
        Number of bytes of the text that each token stands for, if tokens are subwords of a text (see
        `Subwords.measured`).
    """

    name: str
    vocabulary: Vocabulary
    tokens: Array
    documents: Array
    digest: str
    changed: str = ""
    sizes: Array | None = None

    def parts(self, share: float, tuning: bool = False) -> tuple[Array, Array]:
        """The tokens of the training part and of the validation part, which is the last `share` of the text.

        If there are several documents, the parts are divided at the nearest beginning of a document. For tuning, the
        validation part is left out and the training part is divided in the same way. Subwords of a text are divided by
        the bytes of the text, so that the parts are the same for all tokenizers.

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

    def bytes_in(self, start: int, stop: int) -> int | None:
        """The number of bytes of the text of tokens[start:stop]; None if tokens are ids, whose text is unknown."""
        if self.sizes is not None:
            return int(self.sizes[start:stop].sum(dtype=np.int64))
        return self.vocabulary.bytes_in(self.tokens[start:stop])

    def _cut(self, end: int, share: float) -> int:
        """The index at which the last `share` of the tokens before `end` begins."""
        edges = np.append(self.documents[self.documents < end], end)
        if self.sizes is None:
            return cut_at(edges, share)
        reached = np.append(0, np.cumsum(np.add.reduceat(self.sizes[:end], edges[:-1], dtype=np.int64)))
        if len(edges) > 2:
            return int(edges[nearest(reached, share)])
        return index_of(self.sizes[:end], cut_at(reached, share))


@dataclass(frozen=True)
class _Read:
    """The text that was read last. It is kept because a run reads its text twice, for settings and for training."""

    files: _Files
    way: tuple[Any, ...]  # kind, separator and, if a tokenizer is trained, the division of the text
    vocabulary: Vocabulary | None  # as the caller gave it
    corpus: Corpus

    def serves(self, files: _Files, way: tuple[Any, ...], vocabulary: Vocabulary | None) -> bool:
        """Whether reading these files in this way would give the same corpus."""
        return (self.files, self.way) == (files, way) and vocabulary in (self.vocabulary, self.corpus.vocabulary)


_last: _Read | None = None


# Long: a docstring with every rule
def read(
    path: str | Path, kind: str = "bytes", separator: str = "", vocabulary: Vocabulary | None = None,
    share: float = 0.1, tuning: bool = False,
) -> Corpus:  # fmt: skip
    r"""Read a file, or all files of a folder sorted by name; every file is a document.

    If tokens are bytes, they are the bytes of the files. If they are characters or subwords, byte order marks (U+FEFF)
    are left out, and the line ends CRLF and CR become LF, unless the alphabet of `vocabulary` has these characters. In
    all cases, the digest is that of the bytes of the files.

    A tokenizer encodes each document as a whole, because the tokens at a cut would be others. A document of more than
    2**24 characters is cut at the last line end before.

    Hidden files of a folder and linked folders are left out. The text that was read last is not read again unless its
    files have changed.

    Parameters
    ----------
    path : str or pathlib.Path
    kind : str
        The kind of tokens: "bytes", "characters", "tokenizer" or "ids", as in `Vocabulary`, or "bpe:N" for a byte-pair
        encoding of N tokens that is trained on the training part of the text, unless `vocabulary` is given. Ids are
        read from a .bin or .npy file (see `fastpe.text.token_files`), other kinds are encoded from UTF-8. A tokenizer
        may also be that of a file of ids.
    separator : str
        The text that ends a document within a file. It stays in the text. The escapes ``\n``, ``\t``, ``\r`` and
        ``\\`` are known. For a file of ids, a special token of the tokenizer, or the number of a token.
    vocabulary : Vocabulary, optional
        The vocabulary of a model, which must have every character of the text.
    share, tuning
        The division into parts (see `Corpus.parts`), on which "bpe:N" is trained.

    Raises
    ------
    OSError
        If a file cannot be read.
    ModuleNotFoundError
        If tokens are subwords, and the package `tokenizers` is not installed.
    ValueError
        If the text is empty, a file is not UTF-8 although tokens are not bytes, a folder has a file that is not text,
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
    size = subwords.specified(kind)
    kind = "tokenizer" if size is not None else validation.choice("tokens", kind, KINDS)
    if kind == "bytes" and vocabulary is None:
        vocabulary = Vocabulary()
    if vocabulary is not None and vocabulary.kind != kind:
        raise ValueError(f"tokens must be {vocabulary.kind!r}, as in the vocabulary, not {kind!r}")
    found, inside = _found(given)
    key, way = _key(found, inside), (kind, size, separator, *((share, tuning) if size is not None else ()))
    if _last is not None and _last.serves(key, way, vocabulary):
        return _last.corpus
    if inside:
        _refuse_binaries(found)
    elif kind not in WITHOUT_FILE:
        token_files.refuse_others(given)
    if not any(each.stat().st_size for each in found):
        raise ValueError(f"data {given} is empty")
    if not inside and token_files.holds(given) and kind in ("ids", "tokenizer"):
        corpus = _of_tokens(given, vocabulary, separator, size)
    elif kind == "ids":
        raise ValueError(f"data must be a file of tokens, .bin or .npy, for tokens 'ids', not {given}")
    elif kind == "tokenizer":
        corpus = _of_subwords(given, found, inside, separator, vocabulary, size, (share, tuning))
    else:
        own = _vocabulary_of(found) if vocabulary is None else vocabulary
        corpus = _encoded(given, found, own, separator, inside)
    _last = _Read(key, way, vocabulary, corpus)
    return corpus


def read_known(places: Sequence[str | Path], digest: str, kind: str = "bytes", *how: Any) -> Corpus:
    """Read the text with a known SHA-256 from the first path that has it.

    The paths may come from a file that another user wrote. Therefore a text is first only hashed. It is decoded, and
    errors may quote it, only if its SHA-256 is the known one.

    Parameters
    ----------
    places : sequence of str or pathlib.Path
    digest : str
    kind, *how
        The arguments of `read` behind the path.

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
            known = digest_at(Path(place)) == digest
            reason = "has another SHA-256"
        except (FileNotFoundError, NotADirectoryError):
            known, reason = False, "does not exist"
        except OSError as error:
            known, reason = False, f"cannot be read ({error.strerror or error})"
        except ValueError:  # the message of the error is not used, because it would tell what a folder holds
            known, reason = False, "is not a file or a folder of files, or is too large"
        if known:
            corpus = read(place, kind, *how)
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


def digest_at(path: Path) -> str:
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


def _vocabulary_of(found: Sequence[Path]) -> Vocabulary:
    symbols: set[str] = set()
    for path in found:
        for text in characters(path, Cleaner("")):
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
        to_disk(storage.flush)
        # a plain array that views the memory map
        tokens = np.asarray(np.memmap(storage, vocabulary.dtype, mode="r"))
    edges = np.unique(np.array(starts, np.int64))
    if separator:
        ends = _ends_of(tokens, _separator(separator, vocabulary, path))
        if not len(ends):
            raise NoSeparator(f"separator {separator!r} does not occur in {path}")
        edges = np.unique(np.concatenate([edges, ends]))
    told, digest = " and ".join(sorted(changed)), _joined(path, found, digests, inside)
    return Corpus(str(path), vocabulary, tokens, edges, digest, told)


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
            to_disk(storage.write, piece)
        return digest.hexdigest()
    unknown: set[str] = set()
    known = set(vocabulary.alphabet)
    cleaner = Cleaner(vocabulary.alphabet)
    for text in characters(path, cleaner, digest.update):
        lacking = set(text) - known
        if not lacking and not unknown:
            tokens = vocabulary.encode(text).tobytes()
            to_disk(storage.write, tokens)
        unknown |= lacking
    if unknown:
        raise UnknownSymbols(f"data: {path} has characters that are not in the vocabulary: {named(unknown)}")
    changed |= cleaner.changed
    return digest.hexdigest()


def _separator(text: str, vocabulary: Vocabulary, path: Path) -> Array:
    text = unescaped(text)
    if vocabulary.kind == "characters":
        text = Cleaner(vocabulary.alphabet + MARK).clean(text, final=True)
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


def _of_subwords(
    path: Path, found: Sequence[Path], inside: bool, separator: str, vocabulary: Vocabulary | None, size: int | None,
    division: tuple[float, bool],
) -> Corpus:  # fmt: skip
    """Encode files with a tokenizer; if there is none, train one of `size` tokens on the training part before."""
    separator = Cleaner(MARK).clean(unescaped(separator), final=True)
    if vocabulary is None:
        if size is None:
            raise ValueError("tokens 'tokenizer' need a vocabulary")
        vocabulary = documents.trained(found, separator, size, *division)
    made = documents.encoded(found, vocabulary, separator)
    if separator and not made.separated:
        raise NoSeparator(f"separator {separator!r} does not occur in {path}")
    own = vocabulary.subwords.size
    if size is not None and own < size:
        made.changed.add(f"it gives a vocabulary of only {own} tokens, not {size}")
    told, digest = " and ".join(sorted(made.changed)), _joined(path, found, made.digests, inside)
    return Corpus(str(path), vocabulary, made.tokens, np.unique(made.starts), digest, told, made.sizes)


def _of_tokens(path: Path, vocabulary: Vocabulary | None, separator: str, size: int | None) -> Corpus:
    if size is not None:
        raise ValueError(
            f"tokens 'bpe:{size}' are trained on a text, but data {path} holds tokens: name their tokenizer, --tokens "
            "FILE (in Python: the task option tokens)"
        )
    _refuse_devices(path)
    tokens = token_files.read(path)
    most, changed = token_files.largest(path, tokens), ""
    if vocabulary is None:
        vocabulary = Vocabulary("ids", tokens=max(2, most + 1))
        changed = f"the vocabulary has {vocabulary.size} tokens, up to the largest one"
    if vocabulary.kind == "tokenizer":
        _ = vocabulary.subwords  # raises if its file is missing: bits per byte need it
    if most >= vocabulary.size:
        raise ValueError(f"vocabulary must be at least {most + 1}, because data {path} has the token {most}")
    edges = np.array([0, len(tokens)])
    if separator:
        ends = _ends_of(tokens, np.array([_separating(separator, vocabulary)]))
        if not len(ends):
            raise NoSeparator(f"separator {separator!r} does not occur in {path}")
        edges = np.unique(np.concatenate([edges, ends]))
    digest = hashlib.sha256()
    for piece in files.pieces(path):
        digest.update(piece)
    return Corpus(str(path), vocabulary, tokens, edges, digest.hexdigest(), changed)


def _separating(separator: str, vocabulary: Vocabulary) -> int:
    """The token that ends a document in a file of tokens."""
    if vocabulary.kind == "ids":
        if not (separator.isascii() and separator.isdigit() and len(separator) < 9):
            raise ValueError(f"separator must be the number of a token, because tokens are ids, not {separator!r}")
        return int(separator)
    found = vocabulary.encode(unescaped(separator)).tolist()
    if len(found) != 1 or found[0] not in vocabulary.subwords.special:
        raise ValueError(f"separator must be a special token of the tokenizer, not {separator!r}, which is {found}")
    return int(found[0])
