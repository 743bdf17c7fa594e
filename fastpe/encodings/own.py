"""Encodings of one's own: what `fastpe.base.own` has run becomes an encoding that is held to its word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

from fastpe.base.own import declared
from fastpe.encodings import encoding, guards, record
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.registry import ENCODINGS


def template() -> str:
    """A file to start from: a page, a formula, one learned parameter and its gradient."""
    return Path(__file__).with_name("template.py").read_text(encoding="utf-8")


def completed(module: ModuleType, path: Path) -> Encoding:
    """A module's encoding with its functions, checked, and held to its word wherever it is used.

    Raises
    ------
    ValueError
        Naming the file and what it lacks.
    """
    declared(ENCODINGS.kind, module, path, Encoding)
    own = encoding.of_module(module)
    if fault := record.fault(own, module):
        raise ValueError(f"{path.name}: {fault}")
    return guards.guarded(replace(own, file=path.name), path)
