"""Files of UTF-8 as text in pieces, without byte order marks and with LF as the only line end."""

from __future__ import annotations

import codecs
import io
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastpe.base import files

MARK = "\ufeff"  # a byte order mark
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


class Cleaner:
    """Removes byte order marks and changes the line ends CRLF and CR to LF, in a text that comes in pieces.

    kept: the alphabet of a model. If the alphabet contains the mark or CR, the model was trained on a text with this
    character, and the character is not removed. The alphabets of new models contain neither of the two.
    """

    def __init__(self, kept: str) -> None:
        self.changed: set[str] = set()
        self._drops_marks = MARK not in kept
        self._newlines = None if "\r" in kept else io.IncrementalNewlineDecoder(None, translate=True)

    def clean(self, text: str, final: bool) -> str:
        """Clean the next piece; final: whether it is the last one."""
        if self._drops_marks and MARK in text:
            self.changed.add("byte order marks are left out")
            text = text.replace(MARK, "")
        if self._newlines is None:
            return text
        if "\r" in text:
            self.changed.add("line ends CRLF and CR are read as LF")
        return self._newlines.decode(text, final)


def characters(path: Path, cleaner: Cleaner, piece_read: Callable[[bytes], None] = lambda piece: None) -> Iterator[str]:
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


def unescaped(separator: str) -> str:
    r"""A separator whose escapes ``\n``, ``\t``, ``\r`` and ``\\`` are replaced."""
    return re.sub(r"\\([ntr\\])", lambda spelled: _ESCAPES[spelled[1]], separator)


def to_disk(write: Callable[..., Any], *content: bytes) -> None:
    """Write to the temporary copy. Errors name the folder of the copy, because the user did not choose this folder."""
    try:
        write(*content)
    except OSError as error:
        where = f"the temporary copy of the text in {tempfile.gettempdir()} (TMPDIR) cannot be written"
        raise OSError(f"{where}: {error.strerror}") from error
