"""Conversion between text and tokens. A token is a byte, a character of the training text, or a subword."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fastpe.base import stored
from fastpe.base.validation import choice, shown
from fastpe.text import subwords

Array = np.ndarray[Any, Any]

WITHOUT_FILE = ("bytes", "characters")
"""Kinds of tokens whose number follows from the text."""
KINDS = (*WITHOUT_FILE, "tokenizer", "ids")
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
    kind : {"bytes", "characters", "tokenizer", "ids"}
        "bytes": tokens are the 256 values of a byte of UTF-8, so that no text has unknown symbols. "characters": tokens
        are the characters of `alphabet`. "tokenizer": tokens are those of a tokenizer.json. "ids": tokens are numbers
        whose text is unknown.
    alphabet : str
        The distinct characters in the order of their code points; "" for other kinds.
    tokens : int
        Number of tokens, for a tokenizer and for ids. It may be larger than that of the tokenizer, because the
        embeddings of many models are.
    digest : str
        The SHA-256 of the tokenizer's file.
    content : bytes
        The content of this file; b"" if it is missing. Then text is neither encoded nor decoded.

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
    tokens: int = 0
    digest: str = ""
    content: bytes = field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        choice("tokens", self.kind, KINDS)
        if not isinstance(self.alphabet, str):
            raise TypeError(f"alphabet must be a str, not {shown(self.alphabet)}")
        if self.kind == "characters" and len(self.alphabet) < 2:
            raise ValueError(f"alphabet must have at least two characters, not {self.alphabet!r}")
        if self.kind != "characters" and self.alphabet:
            raise ValueError(f"alphabet must be '' for {self.kind}, not {stored.cut(self.alphabet, 40)!r}")
        if list(self.alphabet) != sorted(set(self.alphabet)):
            raise ValueError(f"alphabet must be characters in order, each once, not {stored.cut(self.alphabet, 40)!r}")
        if len(self.alphabet) > MOST_CHARACTERS:
            raise ValueError(f"alphabet must have at most 2**16 characters, not {len(self.alphabet)}: use bytes")
        if self.kind not in WITHOUT_FILE and self.tokens < 2:
            raise ValueError(f"tokens must be at least 2 for {self.kind}, not {self.tokens}")

    @classmethod
    def of(cls, text: str) -> Vocabulary:
        """The vocabulary of all characters of a text."""
        return cls("characters", "".join(sorted(set(text))))

    @classmethod
    def of_tokenizer(cls, content: bytes, tokens: int | None = None) -> Vocabulary:
        """The vocabulary of a tokenizer.json.

        tokens: number of tokens of the model; by default that of the tokenizer.

        Raises
        ------
        ValueError, ModuleNotFoundError
            As `fastpe.text.subwords.Subwords` does; also if the tokenizer has more tokens.
        """
        own = subwords.opened(content).size
        if tokens is not None and tokens < own:
            raise ValueError(f"vocabulary must be at least {own}, the number of tokens of the tokenizer, not {tokens}")
        return cls("tokenizer", "", tokens or own, subwords.digest_of(content), content)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return {"bytes": _BYTES, "characters": len(self.alphabet)}.get(self.kind, self.tokens)

    @property
    def subwords(self) -> subwords.Subwords:
        """The opened tokenizer.

        Raises
        ------
        ValueError
            If its file is missing or has more tokens than the vocabulary, or if tokens are ids.
        ModuleNotFoundError
            If the package `tokenizers` is not installed.
        """
        if self.kind == "ids":
            raise ValueError(
                "the text of these tokens is unknown: train the model with their tokenizer, --tokens FILE (in Python: "
                "the task option tokens)"
            )
        if not self.content:
            raise ValueError(
                f"the tokenizer of this model, a {subwords.NAME} with the SHA-256 {self.digest}, is missing: put it "
                "into the folder of the model"
            )
        found = subwords.opened(self.content)
        if found.size > self.tokens:
            raise ValueError(f"the tokenizer has {found.size} tokens, more than the {self.tokens} of the model")
        return found

    @property
    def digits(self) -> tuple[int, ...]:
        """The tokens of the digits 0, 1, ..., 9; digits that are not in the vocabulary have none.

        Raises
        ------
        ValueError
            If tokens are subwords, and some have a digit among other characters: then no token has the place of a
            digit.

        >>> Vocabulary.of("a1b2").digits
        (0, 1)
        """
        if self.kind == "bytes":
            return tuple(b"0123456789")
        if self.kind == "characters":
            return tuple(token for token, symbol in enumerate(self.alphabet) if symbol in "0123456789")
        if self.kind == "ids":
            return ()
        own = self.subwords
        found = [token for token, piece in enumerate(own.pieces) if token not in own.special and _has_digit(piece)]
        for token in found:
            if len(own.pieces[token]) > 1:
                merged = own.pieces[token].decode("utf-8", "replace")
                raise ValueError(f"positions of digits need tokens of single digits: the tokenizer has {merged!r}")
        return tuple(sorted(found, key=lambda token: own.pieces[token]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that holds a token."""
        return np.dtype(np.uint8 if self.size <= _BYTES else np.uint16 if self.size <= 2**16 else np.uint32)

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
        """The tokens of a text, (any,) of the type `dtype`.

        Raises
        ------
        UnknownSymbols
            If the text has characters that are not in the vocabulary; the message names them.
        ValueError, ModuleNotFoundError
            As `subwords` does.
        """
        if self.kind == "bytes":
            return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)
        if self.kind != "characters":
            return self.subwords.encode(text).astype(self.dtype)
        codes = _code_points(text)
        tokens = self._places[codes]
        if len(tokens) and tokens.min() < 0:
            raise UnknownSymbols(f"the vocabulary has no {named(set(map(chr, codes[tokens < 0])))}")
        return tokens.astype(self.dtype)

    def decode(self, tokens: Any) -> str:
        """The text of some tokens from its beginning; bytes that are not valid UTF-8 become U+FFFD.

        A space that the tokenizer puts before every text is left out.
        """
        text = self.continuation(tokens)
        return text.removeprefix(" ") if self.kind == "tokenizer" and self.subwords.prepends else text

    def continuation(self, tokens: Any) -> str:
        """The text that some tokens add to a text that has begun; bytes that are not valid UTF-8 become U+FFFD."""
        return self.bytes_of(tokens).decode("utf-8", "replace")

    def bytes_of(self, tokens: Any) -> bytes:
        """The bytes that some tokens add to a text in UTF-8. They need not be UTF-8, unless tokens are characters."""
        given = np.asarray(tokens)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= self.size):
            raise ValueError(f"tokens must be integers in [0, {self.size}), not {stored.cut(str(given.tolist()), 40)}")
        if self.kind == "bytes":
            return given.astype(np.uint8).tobytes()
        if self.kind != "characters":
            return self.subwords.joined(given.ravel().tolist())
        return "".join(self.alphabet[token] for token in given.ravel()).encode("utf-8", "surrogatepass")

    @cached_property
    def widths(self) -> Array:
        """Number of bytes of every token in UTF-8, (size,) int64; 0 for special tokens (see `Subwords.widths`)."""
        if self.kind not in WITHOUT_FILE:
            return np.concatenate([own := self.subwords.widths, np.zeros(self.size - len(own), np.int64)])
        found = np.ones(self.size, np.int64)
        found[: len(self.alphabet)] = [len(c.encode("utf-8", "surrogatepass")) for c in self.alphabet]
        return found

    def bytes_in(self, tokens: Array) -> int | None:
        """The number of bytes of the text of some tokens; None if it is unknown, as that of ids."""
        unknown = self.kind == "ids" or (self.kind == "tokenizer" and not self.content)
        return None if unknown else int(self.widths[tokens].sum())

    def to_dict(self) -> dict[str, Any]:
        """The vocabulary as plain JSON values, without the tokenizer's file; `from_dict` is its inverse."""
        stated = {"kind": self.kind, "alphabet": self.alphabet}
        return stated | {name: fact for name, fact in (("tokens", self.tokens), ("sha256", self.digest)) if fact}

    @classmethod
    def from_dict(cls, settings: dict[str, Any], content: bytes = b"") -> Vocabulary:
        """Build a vocabulary from the return value of `to_dict`, and the content of its tokenizer's file."""
        return cls(
            settings["kind"], settings["alphabet"], settings.get("tokens", 0), settings.get("sha256", ""), content
        )


def _has_digit(piece: bytes) -> bool:
    return any(digit in piece for digit in b"0123456789")


def _alphabet(key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise stored.Unfit.of(key, value, "characters")


FORM = stored.record(
    {"kind": stored.one_of(*KINDS), "alphabet": _alphabet},
    optional={"tokens": stored.whole(2, 2**24), "sha256": stored.sha256},
)
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
