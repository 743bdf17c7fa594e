"""The user-defined files that a stored model needs. They are recorded with the model, and compared when it is read.

A stored file records the key, name and SHA-256 of such a file, but never causes it to run: users must name it again.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastpe.base import stored
from fastpe.base.registry import Registry
from fastpe.base.stored import cut

Stated = Mapping[str, Mapping[str, str]]

FORM = stored.by_key(stored.record({"file": stored.text, "sha256": stored.sha256}))
"""The form of the value of `Registry.own_files` in a stored file: key -> name and SHA-256."""


def check_registered(path: Path, stated: Stated, registry: Registry[Any]) -> None:
    """Raise ValueError if a file refers to a user-defined encoding or task that is not registered here."""
    for key in stated:
        if key not in registry.names():
            raise ValueError(
                f"{path} has {registry.kind.one} {cut(key, 100)!r} that is not fastpe's, from a file called "
                f"{cut(stated[key]['file'], 100)!r}: name that file, {registry.kind.how}"
            )


def check_same(path: Path, stated: Stated, registry: Registry[Any], keys: Iterable[str]) -> None:
    """Raise ValueError if a user-defined file has changed since `path` was stored with it."""
    now = registry.own_files(keys)
    for key in sorted(stated.keys() | now):
        before, after = (found.get(key, {}).get("sha256", "none") for found in (stated, now))
        if before != after:
            raise ValueError(
                f"{path} was made with another {registry.kind.word} {key!r}: the SHA-256 of its file was "
                f"{before[:16]}, and that of {registry.file_of(key)} is {after[:16]}"
            )
