"""Tokenizers of subwords: files in the format tokenizer.json of the package `tokenizers`, read or trained on a text.

The package is imported when it is needed, because a model can be loaded and trained on tokens without it. A tokenizer
has no dropout, does not cut or pad texts, and adds no tokens to them, whatever its file says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import files, stored
from fastpe.base.stored import damaged

Array = np.ndarray[Any, Any]

NAME = "tokenizer.json"
LEAST, MOST = 257, 2**20  # sizes of a vocabulary: a byte-pair encoding has the 256 bytes, and at least one pair
MOST_BYTES = 2**26  # of a file, and of all pieces of a text; a file of 256,000 tokens has 2**25
_MOST_STEPS = 100  # of a decoder; that of SentencePiece has four
_LONGEST = 2**16  # characters of a token after a replacement
_SPECIFICATION = re.compile(r"bpe:([0-9]{1,9})")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _letters() -> dict[str, int]:
    """The byte of each of GPT-2's letters for bytes: printable ones stand for themselves, others for U+0100 and on.

    Source: openai/gpt-2, src/encoder.py, bytes_to_unicode.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


LETTERS = _letters()


class Subwords:
    """An opened tokenizer.

    Parameters
    ----------
    content : bytes
        The bytes of its file.

    Attributes
    ----------
    size : int
        The largest token + 1.
    pieces : list of bytes
        The bytes that each token adds to a text; b"" for a token that does not exist.

    Raises
    ------
    ModuleNotFoundError
        If the package `tokenizers` is not installed.
    ValueError
        If the content is no tokenizer, or its way of joining tokens is unknown.
    """

    def __init__(self, content: bytes) -> None:
        tokenizers = package()
        text = _utf8(content)
        self._tokenizer = _called(tokenizers.Tokenizer.from_str, text)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if getattr(self._tokenizer.model, "dropout", None) is not None:
            self._tokenizer.model.dropout = None
        tokens: Mapping[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        if len(tokens) < 2:
            raise ValueError(f"it has {len(tokens)} tokens: there is nothing to predict")
        if len(set(tokens.values())) < len(tokens):
            raise ValueError("several of its tokens have the same number")
        self.size = max(tokens.values()) + 1
        if self.size > MOST:
            raise ValueError(f"its largest token is {self.size - 1}: at most {MOST - 1} is supported")
        added = self._tokenizer.get_added_tokens_decoder()
        self.special = {number for number, token in added.items() if token.special}
        self.pieces = [b""] * self.size
        decoder = self._tokenizer.decoder
        joining = _joining(None if decoder is None else json.loads(decoder.__getstate__()))
        total = 0
        for token, number in tokens.items():
            self.pieces[number] = token.encode() if number in added else _piece(token, joining)
            total += len(self.pieces[number])
            if total > MOST_BYTES:
                raise ValueError(f"its decoder makes more than {MOST_BYTES} bytes of its tokens")

    @cached_property
    def widths(self) -> Array:
        """Number of bytes that each token of a file of tokens stands for, (size,) int64; 0 for special tokens.

        There, special tokens mark the ends of documents. In a text, they are written out (see `measured`).
        """
        found = np.array([len(piece) for piece in self.pieces], np.int64)
        found[list(self.special)] = 0
        return found

    @cached_property
    def prepends(self) -> bool:
        """Whether the tokenizer puts a space before a text, as those of SentencePiece do."""
        return self.joined(self.encode("a")) == b" a"

    def encode(self, text: str) -> Array:
        """The tokens of a text, (any,) int64, without those that a model would expect before or after it."""
        return np.array(self._encoding(text).ids, np.int64)

    def joined(self, tokens: Iterable[int]) -> bytes:
        """The bytes that some tokens add to a text."""
        return b"".join(self.pieces[token] if token < self.size else b"" for token in tokens)

    def measured(self, text: str) -> tuple[Array, Array, bool]:
        """The tokens of a document, the number of its bytes that each of them stands for, and whether they restore it.

        The numbers are those of `pieces` if the tokens give the document back. Otherwise, for example after a
        normalization to lower case, each token stands for the bytes from the end of the token before it to its own end,
        and the last one also for the bytes after it. Their sum is the number of bytes of the document, unless it has no
        tokens.
        """
        encoding = self._encoding(text)
        tokens = np.array(encoding.ids, np.int64)
        joined = self.joined(encoding.ids)
        if joined == text.encode():
            return tokens, np.array([len(self.pieces[token]) for token in encoding.ids], np.int64), True
        before = np.concatenate([[0], np.cumsum([len(letter.encode()) for letter in text])])
        ends = np.maximum.accumulate([end for _, end in encoding.offsets] or [0])
        ends[-1] = len(text)
        sizes = np.diff(before[ends], prepend=0)[: len(tokens)]
        return tokens, sizes, joined == b" " + text.encode() and self.prepends

    def _encoding(self, text: str) -> Any:
        return _called(self._tokenizer.encode, text, add_special_tokens=False)


@lru_cache(maxsize=4)
def opened(content: bytes) -> Subwords:
    """The tokenizer in the content of a file. The last ones stay open, because opening takes up to a second."""
    return Subwords(content)


def package() -> Any:
    """Import the package `tokenizers`.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed; the message says how to install it.
    """
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        if error.name != "tokenizers":
            raise
        raise ModuleNotFoundError(
            "tokens of subwords need the package tokenizers: pip install 'fastpe[hf]'", name="tokenizers"
        ) from None
    return tokenizers


def read(path: Path, known: str | None = None) -> bytes:
    """Read and check the file of a tokenizer. A file with the SHA-256 `known` is not checked again.

    Raises
    ------
    OSError
        If it cannot be read.
    DamagedFileError
        If it is no tokenizer.
    ModuleNotFoundError
        If the package `tokenizers` is not installed.
    """
    content = files.read_file(path, MOST_BYTES)
    try:
        if digest_of(content) != known:
            opened(content)
    except ValueError as error:
        raise damaged(path, f"it is no tokenizer.json that the package tokenizers can read: {error}") from None
    return content


def kept(folder: Path, digest: str) -> bytes:
    """The content of the tokenizer.json that is kept beside a model; b"" if there is none.

    Raises
    ------
    DamagedFileError
        If it has another SHA-256.
    """
    path = folder / NAME
    if not os.path.lexists(path):
        return b""
    content = files.read_file(path, MOST_BYTES)
    if digest_of(content) != digest:
        raise damaged(path, f"its SHA-256 is not {stored.cut(digest, 64)}, which is that of the model's tokenizer")
    return content


def keep(folder: Path, content: bytes) -> None:
    """Write a tokenizer.json beside a model. Raises ValueError if the folder has that of another model."""
    path = folder / NAME
    if not os.path.lexists(path):
        files.write_file(path, content)
    elif files.read_file(path, MOST_BYTES) != content:
        raise ValueError(f"{path} is another tokenizer than that of the model: choose another folder for the model")


def digest_of(content: bytes) -> str:
    """The SHA-256 of a tokenizer's file."""
    return hashlib.sha256(content).hexdigest()


def specified(tokens: str) -> int | None:
    """The size of the vocabulary in a specification such as "bpe:4096"; None if `tokens` is none.

    >>> specified("bpe:4096"), specified("bytes")
    (4096, None)
    >>> specified("bpe:100")
    Traceback (most recent call last):
        ...
    ValueError: option 'tokens' of task 'text' must be bpe:N with N from 257 to 1048576, not 'bpe:100'
    """
    if not tokens.startswith("bpe:"):
        return None
    found = _SPECIFICATION.fullmatch(tokens)
    if found is None or not LEAST <= int(found[1]) <= MOST:
        limits = f"bpe:N with N from {LEAST} to {MOST}"
        raise ValueError(f"option 'tokens' of task 'text' must be {limits}, not {stored.cut(tokens, 40)!r}")
    return int(found[1])


def trained(texts: Iterator[str], size: int) -> bytes:
    """Train a byte-pair encoding of bytes, as that of GPT-2, on some documents; return the bytes of its file.

    The result has fewer than `size` tokens if the documents have no more pairs. It is the same in every process.
    """
    tokenizers = package()
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(LETTERS), special_tokens=[], show_progress=False
    )
    _called(made.train_from_iterator, texts, trainer)
    content: str = made.to_str()
    return content.encode()


# ---------------------------------------------------------------------------------------------------------------------
# How tokens are joined to a text


def _joining(decoder: Any) -> list[dict[str, Any]]:
    """The steps of a decoder that change a token; raises ValueError if one of them is unknown."""
    if decoder is None:
        return [{"type": "spaces"}]
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"its decoder has {len(steps)} steps: at most {_MOST_STEPS} are supported")
    for step in steps:
        known = step["type"] in ("ByteLevel", "ByteFallback", "Metaspace", "WordPiece", "BPEDecoder", "Fuse", "Strip")
        if not known and not (step["type"] == "Replace" and "String" in step["pattern"]):
            raise ValueError(f"its decoder {stored.cut(str(step['type']), 40)!r} is not supported")
    return [step for step in steps if step["type"] not in ("Fuse", "Strip")]  # these change the ends of a text alone


def _piece(token: str, joining: list[dict[str, Any]]) -> bytes:
    r"""The bytes that a token adds to a text that has begun.

    >>> _piece("Ġcat", [{"type": "ByteLevel"}]), _piece("##ing", [{"type": "WordPiece", "prefix": "##"}])
    (b' cat', b'ing')
    >>> _piece("<0x0A>", [{"type": "ByteFallback"}]), _piece("_a", [{"type": "Metaspace", "replacement": "_"}])
    (b'\n', b' a')
    """
    for step in joining:
        match step["type"]:
            case "ByteLevel" if all(letter in LETTERS for letter in token):
                return bytes(LETTERS[letter] for letter in token)
            case "ByteFallback" if found := _BYTE_TOKEN.fullmatch(token):
                return bytes([int(found[1], 16)])
            case "Metaspace":
                token = _replaced(token, step["replacement"], " ")
            case "Replace":
                token = _replaced(token, step["pattern"]["String"], step["content"])
            case "WordPiece":
                token = token.removeprefix(step["prefix"]) if token.startswith(step["prefix"]) else f" {token}"
            case "BPEDecoder":
                token = _replaced(token, step["suffix"], " ")
            case "spaces":
                token = f" {token}"
    return token.encode()


def _replaced(token: str, old: str, new: str) -> str:
    """Replace a part of a token, unless the result is so long that no tokenizer can mean it."""
    if len(token) + token.count(old) * len(new) > max(len(token), _LONGEST):
        raise ValueError(f"its decoder makes a token of more than {_LONGEST} characters")
    return token.replace(old, new)


# ---------------------------------------------------------------------------------------------------------------------
# Errors of the package


def _utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("its bytes are not UTF-8") from None


def _called(function: Any, *args: Any, **more: Any) -> Any:
    """Call a function of the package, whose errors are of the class Exception or, if it panics, of BaseException."""
    try:
        return function(*args, **more)
    except (KeyboardInterrupt, SystemExit, MemoryError, OSError):
        raise
    except BaseException as error:
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise ValueError(stored.printable(stored.cut(str(error), 200))) from None
        raise
