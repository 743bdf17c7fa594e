"""``result.json``, the result of a run, and ``seal.json``, its checksum and the identity of the run."""

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
    """Write the seal: the checksum of the result, and `facts` about the run."""
    value = {**facts, "result": _digest(files.read_file(folder / NAME))}
    files.write_file(folder / SEAL, files.dump_json(value))


def read(folder: Path, config: TrainConfig) -> tuple[dict[str, Any], dict[str, str]] | None:
    """Read the result in a run folder and the facts in its seal; None if there is no seal.

    Raises
    ------
    DamagedFileError
        If the result differs from the sealed one, or does not fit the configuration.
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
    """Delete an unsealed or damaged result, so that it is computed again from the checkpoint."""
    for name in (SEAL, NAME):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / name).unlink()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
