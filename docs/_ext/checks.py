"""A Sphinx extension that checks the built site, and writes the atlas into it.

- Every public name of fastpe has an entry in the reference.
- Every link inside the site leads to a page, a file and a part of the page that exist.
- No page loads anything from another place.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from links import broken
from sphinx.application import Sphinx
from sphinx.util import logging

import fastpe
from fastpe.encodings import catalogue
from fastpe.encodings.registry import built_in
from fastpe.pictures.atlas.page import atlas

MODULES = ("angles", "bands", "columns", "heads", "reference", "spans", "tasks", "temperatures", "theory", "torch")
"""Public modules, whose names are checked too. The framework of fastpe.torch may be missing."""
_LOG = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    """Check names before the pages are written, and links when all files are there."""
    app.connect("env-check-consistency", _check_names)
    app.connect("env-check-consistency", _forget_modules_without_source)
    app.connect("build-finished", _finish, priority=900)  # after the other extensions have written their files
    return {"parallel_read_safe": True}


def public_names() -> Iterator[str]:
    """The full names of everything that is public."""
    yield from (f"fastpe.{name}" for name in fastpe.__all__)
    for name in MODULES:
        try:
            module = importlib.import_module(f"fastpe.{name}")
        except ImportError:
            continue
        own = getattr(module, "__all__", None) or [
            each for each in vars(module) if f" {each} as {each}" in _source(module)
        ]
        yield from (f"fastpe.{name}.{each}" for each in own)


def _source(module: Any) -> str:
    return Path(module.__file__).read_text("utf-8")


def _check_names(app: Sphinx, env: Any) -> None:
    documented = set(env.domaindata["py"]["objects"])
    for name in public_names():
        if name not in documented:
            _LOG.warning("%s is public, but not in the reference", name)


def _forget_modules_without_source(app: Sphinx, env: Any) -> None:
    """The list of modules would have a link to a missing page, such as that of builtins for the type `Option.item`."""
    modules = getattr(env, "_viewcode_modules", {})
    for name in [name for name, source in modules.items() if not source]:
        del modules[name]


def _finish(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir)
    own = [entry for entry in catalogue.entries()[0] if entry.key in built_in()]  # examples may register others
    (folder / "atlas.html").write_text(atlas(own), "utf-8")
    for problem in broken(folder):
        _LOG.warning("%s", problem)
