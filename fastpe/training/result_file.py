"""``result.json``, what a run found, and ``seal.json``, which tells that it is whole and what it is a result of."""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastpe.base import files, stored
from fastpe.base.stored import damaged
from fastpe.training import forms
from fastpe.training.config import TrainConfig

NAME, SEAL = "result.json", "seal.json"


def write(folder: Path, result: Mapping[str, Any]) -> None:
    """Write a result and its seal."""
    files.write_file(folder / NAME, files.dump_json(result))
    seal(folder)


def seal(folder: Path, **facts: str) -> None:
    """Declare the result in a run folder to be whole, and to be one of these `facts`."""
    value = {**facts, "result": _digest(files.read_file(folder / NAME))}
    files.write_file(folder / SEAL, files.dump_json(value))


def read(folder: Path, config: TrainConfig) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The result in the run folder of a configuration and the facts on its seal, or None where there is no seal.

    Raises
    ------
    DamagedFileError
        If the result is not the one that was sealed, or is none of such a run.
    """
    path = folder / NAME
    try:
        facts: dict[str, str] = stored.checked(folder / SEAL, files.read_json(folder / SEAL), forms.SEAL)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    if facts.pop("result") != _digest(content):
        raise damaged(path, "it does not match its seal")
    return stored.checked(path, files.parsed(path, content), forms.result(config)), facts


def discard(folder: Path) -> None:
    """Delete an unsealed or damaged result, so that it is made again from the checkpoint."""
    for name in (SEAL, NAME):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / name).unlink()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
