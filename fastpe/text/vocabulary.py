"""Conversion between text and tokens. A token is a byte, or a character of the training text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastpe.base import stored
from fastpe.base.validation import choice, shown

Array = np.ndarray[Any, Any]

KINDS = ("bytes", "characters")
_BYTES = 256
MOST_CHARACTERS = 2**16  # largest number of characters of an alphabet; a text in many languages has fewer
_CODES = 0x110000  # code points of Unicode
_SHOWN = 8  # number of unknown symbols that an error names


class UnknownSymbols(ValueError):
    """A text has characters that are not in the vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """The symbols that tokens stand for.

    Parameters
    ----------
    kind : {"bytes", "characters"}
        "bytes": tokens are the 256 values of a byte of UTF-8, so that no text has unknown symbols. "characters": tokens
        are the characters of `alphabet`.
    alphabet : str
        The distinct characters in the order of their code points; "" for bytes.

    Raises
    ------
    ValueError
        If the alphabet is not in order, or is given for bytes.

    Examples
    --------
    >>> letters = Vocabulary.of("abracadabra")
    >>> letters.alphabet, letters.encode("bad").tolist(), letters.decode([3, 0, 1])
    ('abcdr', [1, 0, 3], 'dab')
    >>> letters.encode("bath")
    Traceback (most recent call last):
        ...
    fastpe.text.vocabulary.UnknownSymbols: the vocabulary has no 'h', 't'
    """

    kind: str = "bytes"
    alphabet: str = ""

    def __post_init__(self) -> None:
        choice("tokens", self.kind, KINDS)
        if not isinstance(self.alphabet, str):
            raise TypeError(f"alphabet must be a str, not {shown(self.alphabet)}")
        if self.kind == "characters" and len(self.alphabet) < 2:
            raise ValueError(f"alphabet must have at least two characters, not {self.alphabet!r}")
        if self.kind == "bytes" and self.alphabet:
            raise ValueError(f"alphabet must be '' for bytes, not {stored.cut(self.alphabet, 40)!r}")
        if list(self.alphabet) != sorted(set(self.alphabet)):
            raise ValueError(f"alphabet must be characters in order, each once, not {stored.cut(self.alphabet, 40)!r}")
        if len(self.alphabet) > MOST_CHARACTERS:
            raise ValueError(f"alphabet must have at most 2**16 characters, not {len(self.alphabet)}: use bytes")

    @classmethod
    def of(cls, text: str) -> Vocabulary:
        """The vocabulary of all characters of a text."""
        return cls("characters", "".join(sorted(set(text))))

    @property
    def size(self) -> int:
        """Number of tokens."""
        return _BYTES if self.kind == "bytes" else len(self.alphabet)

    @property
    def digits(self) -> tuple[int, ...]:
        """The tokens of the digits 0, 1, ..., 9; digits that are not in the vocabulary have none.

        >>> Vocabulary.of("a1b2").digits
        (0, 1)
        """
        if self.kind == "bytes":
            return tuple(b"0123456789")
        return tuple(token for token, symbol in enumerate(self.alphabet) if symbol in "0123456789")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that holds a token."""
        return np.dtype(np.uint8 if self.size <= _BYTES else np.uint16)

    @cached_property
    def _codes(self) -> Array:
        """The code points of the alphabet."""
        return _code_points(self.alphabet)

    @cached_property
    def _places(self) -> Array:
        """The token of every code point; -1 if it is not in the alphabet."""
        places = np.full(_CODES, -1, np.int32)
        places[self._codes] = np.arange(len(self.alphabet))
        return places

    def encode(self, text: str) -> Array:
        """The tokens of a text, (any,) uint8 or uint16.

        Raises
        ------
        UnknownSymbols
            If the text has characters that are not in the vocabulary; the message names them.
        """
        if self.kind == "bytes":
            return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)
        codes = _code_points(text)
        tokens = self._places[codes]
        if len(tokens) and tokens.min() < 0:
            raise UnknownSymbols(f"the vocabulary has no {named(set(map(chr, codes[tokens < 0])))}")
        return tokens.astype(self.dtype)

    def decode(self, tokens: Any) -> str:
        """The text of some tokens; bytes that are not valid UTF-8 become U+FFFD."""
        return self.bytes_of(tokens).decode("utf-8", "replace")

    def bytes_of(self, tokens: Any) -> bytes:
        """The text of some tokens in UTF-8. If tokens are bytes, the tokens themselves, which need not be UTF-8."""
        given = np.asarray(tokens)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= self.size):
            raise ValueError(f"tokens must be integers in [0, {self.size}), not {stored.cut(str(given.tolist()), 40)}")
        if self.kind == "bytes":
            return given.astype(np.uint8).tobytes()
        return "".join(self.alphabet[token] for token in given.ravel()).encode("utf-8", "surrogatepass")

    @cached_property
    def widths(self) -> Array:
        """Number of bytes of every token in UTF-8, (size,) int64."""
        found = np.ones(self.size, np.int64)
        found[: len(self.alphabet)] = [len(c.encode("utf-8", "surrogatepass")) for c in self.alphabet]
        return found

    def to_dict(self) -> dict[str, str]:
        """The vocabulary as plain JSON values; `from_dict` is its inverse."""
        return {"kind": self.kind, "alphabet": self.alphabet}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Vocabulary:
        """Build a vocabulary from the return value of `to_dict`."""
        return cls(settings["kind"], settings["alphabet"])


def _alphabet(key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise stored.Unfit.of(key, value, "characters")


FORM = stored.record({"kind": stored.one_of(*KINDS), "alphabet": _alphabet})
"""The form of a vocabulary in the header of a file."""


def named(symbols: set[str]) -> str:
    """The first of some characters and the number of the others, for an error message.

    >>> named({"b", "a"})
    "'a', 'b'"
    """
    known = sorted(symbols)
    told = ", ".join(f"{c!r}" if c.isprintable() and c.isascii() else f"{c!r} (U+{ord(c):04X})" for c in known[:_SHOWN])
    return f"{told} and {len(known) - _SHOWN} more" if len(known) > _SHOWN else told


def _code_points(text: str) -> Array:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
