"""Results that are kept: a run folder's `result.json`, sealed with what it is a result of.

A sealed result is reused only where the configuration, fastpe's sources, the versions and the CPU are those it was made
with. The name of a run folder carries all of them (`identity`), so that two of them never meet in one folder.
"""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from fastpe import files, record
from fastpe.config import TrainConfig
from fastpe.files import DamagedFileError
from fastpe.kernels import _jit

RESULT, SEAL = "result.json", "seal.json"


def identity(config: TrainConfig) -> str:
    """Digest of everything that the bits of a run depend on."""
    material = {"config": config.to_dict(), "sources": _jit.source_digest(), **record.environment()}
    return record.digest(material)


def read(folder: Path, key: str) -> dict[str, Any] | None:
    """The sealed result in a run folder, or None where there is no seal.

    Raises
    ------
    DamagedFileError
        If the result is not the one that was sealed under this identity.
    """
    try:
        seal = files.read_json(folder / SEAL)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = (folder / RESULT).read_bytes()
    except FileNotFoundError as error:
        raise DamagedFileError(f"{folder / RESULT} is missing") from error
    if seal != {"identity": key, "result": hashlib.sha256(content).hexdigest()}:
        raise DamagedFileError(f"{folder / RESULT} is damaged: it does not match its seal")
    result: dict[str, Any] = files.read_json(folder / RESULT)
    return result


def seal(folder: Path, key: str) -> None:
    """Declare the result in a run folder to be whole."""
    content = (folder / RESULT).read_bytes()
    value = {"identity": key, "result": hashlib.sha256(content).hexdigest()}
    files.write_file(folder / SEAL, files.dump_json(value))


def discard(folder: Path) -> None:
    """Delete an unsealed or damaged result, so that it is made again from the checkpoint."""
    for name in (SEAL, RESULT):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / name).unlink()
