"""A Sphinx extension that checks the built site, and writes the atlas into it.

- Every public name of fastpe has an entry in the reference.
- Every link inside the site leads to a page, a file and a part of the page that exist.
- No page loads anything from another place.
- Every class in the figures of encodings has a rule in `fastpe.css`, because fastpe draws them for its own pages.
"""

import importlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

import fastpe
from fastpe.encodings import catalogue
from fastpe.pictures.atlas.page import atlas

MODULES = ("angles", "bands", "columns", "reference", "spans", "tasks", "temperatures", "theory", "torch")
"""Public modules, whose names are checked too. The framework of fastpe.torch may be missing."""
_LOADING = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("link", "href")}
_FIGURE = re.compile(r'<div class="pictures">.*?</div>', re.DOTALL)
_LOG = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    """Check names before the pages are written, and links when all files are there."""
    app.connect("env-check-consistency", _check_names)
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


def _finish(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir)
    (folder / "atlas.html").write_text(atlas(catalogue.entries()[0]), "utf-8")
    for problem in (*broken(folder), *_without_style(folder)):
        _LOG.warning("%s", problem)


def _without_style(folder: Path) -> list[str]:
    style = (folder / "_static" / "fastpe.css").read_text("utf-8")
    pages = sorted((folder / "reference" / "encodings").glob("*.html"))
    figures = "".join("".join(_FIGURE.findall(page.read_text("utf-8"))) for page in pages)
    used = {name for names in re.findall(r'class="([^"]+)"', figures) for name in names.split()}
    return [f"fastpe.css has no rule for .{name} of figures" for name in sorted(used) if f".{name}" not in style]


class _Page(HTMLParser):
    """The links, the loaded files and the parts of a page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.parts: set[str] = set()
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the attributes of one element."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.parts.add(value)
            if (tag, name) in _LOADING and ("rel", "canonical") not in attrs:
                self.loaded.add(value)
            elif tag == "a" and name == "href":
                self.links.add(value)


def broken(folder: Path) -> list[str]:
    """Describe every link inside a folder of HTML that leads nowhere, and every file that is loaded from elsewhere."""
    pages = {path: _Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        for link in sorted(page.loaded | page.links):
            place = urlsplit(link)
            if place.scheme or place.netloc:
                if link in page.loaded and place.scheme != "data":
                    found.append(f"{name} loads {link}")
                continue
            target = path if not place.path else (path.parent / unquote(place.path)).resolve()
            if target.is_dir():
                target /= "index.html"
            part = unquote(place.fragment)
            if not target.exists():
                found.append(f"{name}: {link} does not exist")
            elif part and target in pages and part not in pages[target].parts and not re.match(r":~:text", part):
                found.append(f"{name}: {link} has no such part")
    return found
