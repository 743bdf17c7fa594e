"""Results that are kept: a run folder's `result.json`, sealed with what it is a result of.

A sealed result is reused only where the configuration, fastpe's sources and those of encodings of one's own, the
versions and the CPU are those it was made with. The name of a run folder carries all of them (`identity`), so that two
of them never meet in one folder.
"""

from functools import cache
from pathlib import Path
from typing import Any

from fastpe.base.stored import DamagedFileError
from fastpe.encodings import registry
from fastpe.kernels.compile.sources import source_digest
from fastpe.training import config_file, result_file
from fastpe.training.config import TrainConfig

_APART = ("paper_claims", "pictures", "theory")  # rooms that no run enters


def identity(config: TrainConfig) -> str:
    """Digest of everything that the bits of a run depend on."""
    sources = {"sources": _sources(), "encodings": registry.own_files(config.encoding)}
    material = {"config": config.to_dict(), **sources, **config_file.environment()}
    return config_file.digest(material)


@cache
def _sources() -> str:
    """Of fastpe's own files, when the first run of this process asks: reading them takes longer than a small run."""
    return source_digest(without=_APART)


def read(folder: Path, config: TrainConfig, key: str) -> dict[str, Any] | None:
    """The result in the run folder of a configuration, sealed under this identity, or None where there is none.

    Raises
    ------
    DamagedFileError
        If the result or its seal is not what was written.
    """
    found = result_file.read(folder, config)
    if found is None or not found[1]:  # training seals its result by itself, without an identity
        return None
    content, facts = found
    if facts != {"identity": key}:
        raise DamagedFileError(f"{folder / result_file.SEAL} is damaged: it does not seal a result of this run")
    return content


def seal(folder: Path, key: str) -> None:
    """Declare the result in a run folder to be of this identity."""
    result_file.seal(folder, identity=key)
