"""User-defined encodings: turn a module that `fastpe.base.own` has executed into a checked encoding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

from fastpe.base.own import Kind, declared
from fastpe.encodings import encoding, guards, record
from fastpe.encodings.encoding import Encoding


def template() -> str:
    """Return a template file with a docstring page, a formula, one learned parameter and its gradient."""
    return Path(__file__).with_name("template.py").read_text(encoding="utf-8")


def completed(kind: Kind[Encoding], module: ModuleType, path: Path) -> Encoding:
    """Return the encoding that a user's module defines. It is checked here and at every later call.

    Raises
    ------
    ValueError
        If something is missing or wrong; the message names the file.
    """
    declared(kind, module, path, Encoding)
    own = encoding.of_module(module)
    if fault := record.fault(own, module):
        raise ValueError(f"{path.name}: {fault}")
    return guards.guarded(replace(own, file=path.name), path)
