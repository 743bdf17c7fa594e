"""Files of tokens that another program wrote: nanoGPT's .bin, and .npy with one row of integers.

The files are memory-mapped, not copied. Files of pickles are never read.
"""

from __future__ import annotations

import tokenize
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import stored

Array = np.ndarray[Any, Any]

ENDINGS = (".bin", ".npy")
_LLM_C = {20240520: "GPT-2", 20240801: "Llama 3"}  # the first number of its files, by the tokens that follow
_OF_MEGATRON = b"MMIDIDX"  # its .idx begins with this
_PICKLED = (".pkl", ".pickle", ".pt", ".pth")
_PIECE = 2**22
_MOST = 2**24  # tokens of a model


def holds(path: str | Path) -> bool:
    """Whether the name of a file is that of tokens."""
    return Path(path).suffix.lower() in ENDINGS


def refuse_others(path: Path) -> None:
    """Raise ValueError if a file is known to be neither a text nor tokens: a pickle, or an index of Megatron."""
    if path.suffix.lower() in _PICKLED:
        raise ValueError(f"data {path} is a pickle, which fastpe never reads, because it could run any code")
    if path.suffix.lower() == ".idx":
        raise ValueError(f"data {path} is an index of Megatron, {_ADVICE}")


_ADVICE = "which fastpe does not read: write its documents as one .npy of integers"


def read(path: Path) -> Array:
    """Map a file of tokens, (T,) of an integer type.

    Raises
    ------
    ValueError
        If it is no such file, or a file of llm.c or Megatron; the message says what to do.
    OSError
        If it cannot be read.
    """
    return _npy(path) if path.suffix.lower() == ".npy" else _bin(path)


def largest(path: Path, tokens: Array) -> int:
    """The largest token of a file, in one pass. Raises ValueError if there is a token below 0 or beyond 2**24."""
    most = 0
    for start in range(0, len(tokens), _PIECE):
        piece = tokens[start : start + _PIECE]
        least, most = int(piece.min()), max(most, int(piece.max()))
        if least < 0:
            raise ValueError(f"data {path} must hold tokens of at least 0, not {least}")
    if most >= _MOST:
        raise ValueError(f"data {path} must hold tokens below 2**24, not {most}")
    return most


def _bin(path: Path) -> Array:
    """nanoGPT's: uint16, little endian, without a header."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        first = int.from_bytes(file.read(4), "little")
    if first in _LLM_C:
        raise ValueError(
            f"data {path} is a file of llm.c with tokens of {_LLM_C[first]}: it has a header of 1,024 bytes. Write the "
            "tokens behind it as .npy"
        )
    index = path.with_suffix(".idx")
    if index.is_file():
        with open(index, "rb") as file:
            if file.read(len(_OF_MEGATRON)) == _OF_MEGATRON:
                raise ValueError(f"data {path} is a file of Megatron, whose index is {index.name}, {_ADVICE}")
    if size % 2:
        raise ValueError(f"data {path} must hold tokens of two bytes each (uint16), but has {size} bytes")
    if not size:
        raise ValueError(f"data {path} is empty")
    return np.asarray(np.memmap(path, "<u2", mode="r"))


def _npy(path: Path) -> Array:
    try:
        found = np.lib.format.open_memmap(path, mode="r")  # refuses arrays of objects, which are pickles
    except (
        ValueError, EOFError, OverflowError, MemoryError, SyntaxError, TypeError, RecursionError, tokenize.TokenError,
    ) as error:  # fmt: skip
        said = stored.cut(stored.printable(str(error)), 200)
        raise ValueError(f"data {path} is no .npy file of integers: {said}") from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        kind = stored.cut(str(found.dtype), 40)
        raise ValueError(f"data {path} must hold one row of integers, not {kind} with the shape {found.shape}")
    if not len(found):
        raise ValueError(f"data {path} is empty")
    return np.asarray(found)
