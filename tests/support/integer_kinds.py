"""Integers of every kind, and what is none: for tests of arguments that are integers."""

from typing import Any

import numpy as np


class Index:
    """An object with `__index__` alone."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def equal_to(number: int) -> dict[str, Any]:
    """The small number of at least 0 as everything that is an integer."""
    kinds: dict[str, Any] = {"int": number, "object": Index(number), "big-endian": np.array(number, ">i4")}
    kinds |= {f"numpy {kind}": np.dtype(kind).type(number) for kind in np.typecodes["AllInteger"]}
    kinds |= {f"array {kind}": np.array(number, kind) for kind in ("int8", "uint8", "uint64", "object")}
    try:
        import torch
    except ImportError:
        return kinds
    names = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    return kinds | {f"torch {name}": torch.tensor(number, dtype=getattr(torch, name)) for name in names}


def no_integers() -> dict[str, Any]:
    """What is no integer, or not one alone."""
    kinds: dict[str, Any] = {
        "bool": True, "numpy bool": np.True_, "array bool": np.array(True), "float": 1.0, "fraction": 1.5,
        "nan": float("nan"), "numpy float": np.float64(1.0), "str": "1", "bytes": b"1", "set": {1}, "class": int,
        "array float": np.array(1.0), "array str": np.array("1"), "array object": np.array(1.0, object),
        "two": np.array([1, 1]), "complex": 1j, "date": np.datetime64(1, "s"),
        "duration": np.timedelta64(3), "array duration": np.array(3, "m8[ns]"), "nanosecond": np.datetime64(3, "ns"),
    }  # fmt: skip
    try:
        import torch
    except ImportError:
        return kinds
    return kinds | {"torch bool": torch.tensor(True), "torch float": torch.tensor(1.0)}


def far_off() -> list[Any]:
    """Integers that few arguments, or none, may be."""
    found: list[Any] = [2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 100, 2**64 - 1, 2**64, 2**100, 10**5000]
    found += [-1, -(2**31), -(2**63), -(2**63) - 1, -(2**70)]
    found += [np.uint64(2**64 - 1), np.array(2**64 - 1, np.uint64), np.int64(-(2**63)), Index(2**64)]
    try:
        import torch
    except ImportError:
        return found
    return [*found, torch.tensor(2**64 - 1, dtype=torch.uint64), torch.tensor(-1)]


def as_int(value: Any) -> int:
    """One of `far_off` as Python's own."""
    return value.number if isinstance(value, Index) else int(getattr(value, "item", lambda: value)())
