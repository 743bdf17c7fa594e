"""Documents of a text as subwords, and the division of a text, on whose training part a tokenizer is trained."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastpe.text import subwords
from fastpe.text.characters import Cleaner, characters, to_disk
from fastpe.text.vocabulary import Vocabulary

Array = np.ndarray[Any, Any]

_PIECE = 2**20  # tokens whose sizes are added at a time
_DOCUMENT = 2**24  # characters of a document that a tokenizer encodes as a whole: it needs 50 times the memory


def cut_at(edges: Array, share: float) -> int:
    """Where the last `share` of a text begins. edges: beginnings of its documents, and its end, in tokens or bytes."""
    return int(edges[nearest(edges, share)] if len(edges) > 2 else edges[-1] * (1.0 - share))


def nearest(edges: Array, share: float) -> int:
    """The number of the document, but the first, whose beginning is nearest to the last `share` of a text."""
    return 1 + int(np.argmin(np.abs(edges[1:-1] - int(edges[-1] * (1.0 - share)))))


def index_of(sizes: Array, target: int) -> int:
    """The number of the first tokens whose sizes add up to at most `target`."""
    before = 0
    for start in range(0, len(sizes), _PIECE):
        ends = before + np.cumsum(sizes[start : start + _PIECE], dtype=np.int64)
        if ends[-1] > target:
            return start + int(np.searchsorted(ends, target, side="right"))
        before = int(ends[-1])
    return len(sizes)


class Encoded(NamedTuple):
    """Files as subwords.

    tokens and sizes are those of `fastpe.text.corpus.Corpus`, starts the beginnings of its documents and its end,
    digests the SHA-256 of the files, changed how the tokens differ from the files, and separated whether the separator
    occurs.
    """

    tokens: Array
    sizes: Array
    starts: list[int]
    digests: list[str]
    changed: set[str]
    separated: bool


def encoded(found: Sequence[Path], vocabulary: Vocabulary, separator: str) -> Encoded:
    """Encode the documents of files, each as a whole, with a tokenizer."""
    made = Encoded(np.empty(0), np.empty(0), [0], [], set(), False)
    restored, separated, left = True, False, 0
    with tempfile.TemporaryFile() as tokens, tempfile.TemporaryFile() as sizes:
        for path in found:
            digest, cleaner = hashlib.sha256(), Cleaner("")
            for text, ends in documents(path, separator, cleaner, digest.update):
                own, widths, same = vocabulary.subwords.measured(text)
                left += len(text.encode()) - int(widths.sum())  # the bytes of a document without tokens
                if len(own):
                    widths[0] += left
                    left = 0
                to_disk(tokens.write, own.astype(vocabulary.dtype).tobytes())
                to_disk(sizes.write, widths.astype(np.uint32).tobytes())
                restored = restored and same
                if ends:
                    made.starts.append(tokens.tell() // vocabulary.dtype.itemsize)
                    separated = True
            made.digests.append(digest.hexdigest())
            made.changed.update(cleaner.changed)
            made.starts.append(tokens.tell() // vocabulary.dtype.itemsize)
        if not tokens.tell():
            raise ValueError(f"data: {found[0]} has no tokens")
        if not restored:
            made.changed.add("its tokens do not restore it exactly; bits per byte count the bytes of the text")
        to_disk(tokens.flush)
        to_disk(sizes.flush)
        bytes_of = np.memmap(sizes, np.uint32, mode="r+")
        bytes_of[-1] += left
        return made._replace(
            tokens=np.asarray(np.memmap(tokens, vocabulary.dtype, mode="r")),
            sizes=np.asarray(bytes_of),
            separated=separated,
        )


def trained(found: Sequence[Path], separator: str, size: int, share: float, tuning: bool) -> Vocabulary:
    """Train a tokenizer on the training part of a text, which ends at the same byte for all tokenizers."""
    subwords.package()  # raises before the text is read
    edges = [0]
    for path in found:
        end = edges[-1]
        for text, ends in documents(path, separator, Cleaner("")):
            end += len(text.encode())
            edges += [end] if ends else []
        edges.append(end)
    places = np.unique(edges)
    cut = cut_at(places, share)
    if tuning:
        cut = cut_at(np.append(places[places < cut], cut), share)

    def training() -> Iterator[str]:
        left = cut
        for path in found:
            for text, _ in documents(path, separator, Cleaner("")):
                content = text.encode()
                yield text if len(content) <= left else content[:left].decode("utf-8", "ignore")
                left -= len(content)
                if left <= 0:
                    return

    return Vocabulary.of_tokenizer(subwords.trained(training(), size))


def documents(
    path: Path, separator: str, cleaner: Cleaner, piece_read: Callable[[bytes], None] = lambda piece: None
) -> Iterator[tuple[str, bool]]:
    """Yield the documents of a file, and whether a separator ends them; long ones come in several pieces.

    Where they are cut does not depend on how much of the file is read at a time.
    """
    rest = ""
    for text in characters(path, cleaner, piece_read):
        *whole, rest = (rest + text).split(separator) if separator else [rest + text]
        for document in whole:
            *pieces, last = _pieces(document + separator, len(separator))
            yield from ((piece, False) for piece in pieces)
            yield last, True
        *pieces, rest = _pieces(rest, len(separator))
        yield from ((piece, False) for piece in pieces)
    if rest:
        yield rest, False


def _pieces(document: str, spare: int) -> list[str]:
    """A document, cut at line ends so that no piece is too long; `spare` characters at its end may be a separator."""
    pieces = []
    while len(document) > _DOCUMENT + spare:
        cut = document.rfind("\n", 0, _DOCUMENT) + 1 or _DOCUMENT
        pieces.append(document[:cut])
        document = document[cut:]
    return [*pieces, document]
