"""Which files a stored model's own encodings came from: stated beside it, compared when it is read.

A path or a package that a stored file names is never run: its user names the file of an encoding anew.
"""

from collections.abc import Mapping
from pathlib import Path

from fastpe.base import stored
from fastpe.encodings import registry

Stated = Mapping[str, Mapping[str, str]]

FORM = stored.by_key(stored.record({"file": stored.text, "sha256": stored.sha256}))
"""Of what `registry.own_files` gives, in a stored file: key -> name and SHA-256."""


def check_registered(path: Path, stated: Stated) -> None:
    """Refuse a stored model whose own encodings are not known here.

    Raises
    ------
    ValueError
        Naming the first such encoding and its file.
    """
    for key in stated:
        if key not in registry.list_encodings():
            raise ValueError(
                f"{path} has an encoding {key!r} that is not fastpe's, from a file called {stated[key]['file']!r}: "
                "name that file, by --encoding on the command line or fastpe.register in Python"
            )


def check_same(path: Path, stated: Stated, encoding: str) -> None:
    """Refuse a stored model whose own encodings are others by now.

    Raises
    ------
    ValueError
        Naming the file and both digests.
    """
    now = registry.own_files(encoding)
    for key in sorted(stated.keys() | now):
        before, after = (found.get(key, {}).get("sha256", "none") for found in (stated, now))
        if before != after:
            raise ValueError(
                f"{path} was made with another encoding {key!r}: the SHA-256 of its file was {before[:16]}, "
                f"and that of {registry.file_of(key)} is {after[:16]}"
            )
