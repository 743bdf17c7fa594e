"""Which of a user's own files a stored model came from: stated beside it, compared when it is read.

A path or a package that a stored file names is never run: its user names such a file anew.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastpe.base import stored
from fastpe.base.registry import Registry

Stated = Mapping[str, Mapping[str, str]]

FORM = stored.by_key(stored.record({"file": stored.text, "sha256": stored.sha256}))
"""Of what `Registry.own_files` gives, in a stored file: key -> name and SHA-256."""


def refuse_path(what: str, name: Any) -> None:
    """Raise ValueError if a name out of a file is the path of a file: what others wrote must never be run."""
    if isinstance(name, str) and any(part.strip().endswith(".py") for part in name.split("+")):
        raise ValueError(f"the {what} of a stored configuration must be a key, not the path of a file: {name!r}")


def check_registered(path: Path, stated: Stated, registry: Registry[Any], how: str) -> None:
    """Refuse what is stored with an encoding or a task of one's own that is not known here.

    `how` is the way to name its file. Raises ValueError that names the first such file.
    """
    for key in stated:
        if key not in registry.names():
            raise ValueError(
                f"{path} has {registry.kind.one} {key!r} that is not fastpe's, from a file called "
                f"{stated[key]['file']!r}: name that file, {how}"
            )


def check_same(path: Path, stated: Stated, registry: Registry[Any], keys: Iterable[str]) -> None:
    """Refuse what is stored with a file of one's own that is another by now. Raises ValueError that names both."""
    now = registry.own_files(keys)
    for key in sorted(stated.keys() | now):
        before, after = (found.get(key, {}).get("sha256", "none") for found in (stated, now))
        if before != after:
            raise ValueError(
                f"{path} was made with another {registry.kind.word} {key!r}: the SHA-256 of its file was "
                f"{before[:16]}, and that of {registry.file_of(key)} is {after[:16]}"
            )
