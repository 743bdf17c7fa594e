"""Which of a user's own files a stored model came from: stated beside it, compared when it is read.

A stored file gives such a file's key, name and SHA-256, but never causes it to be run: the user has to name it again.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastpe.base import stored
from fastpe.base.registry import Registry
from fastpe.base.stored import cut

Stated = Mapping[str, Mapping[str, str]]

FORM = stored.by_key(stored.record({"file": stored.text, "sha256": stored.sha256}))
"""Of what `Registry.own_files` gives, in a stored file: key -> name and SHA-256."""


def check_registered(path: Path, stated: Stated, registry: Registry[Any]) -> None:
    """Raise ValueError if a file states an encoding or a task of one's own that is not registered here."""
    for key in stated:
        if key not in registry.names():
            raise ValueError(
                f"{path} has {registry.kind.one} {cut(key, 100)!r} that is not fastpe's, from a file called "
                f"{cut(stated[key]['file'], 100)!r}: name that file, {registry.kind.how}"
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
