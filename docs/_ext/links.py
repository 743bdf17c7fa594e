"""Checks the links inside a folder of HTML pages. Links to other places are not opened."""

import posixpath
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADING = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("link", "href")}


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


def _is_page(name: str) -> bool:
    return name.endswith(".html") and not name.startswith("_static/")


def broken(folder: Path) -> list[str]:
    """Describe every link inside a folder of HTML that leads nowhere, and every file that is loaded from elsewhere.

    Pages in `_static` are templates of the theme. For links of source code in `_modules` to the reference, only the
    page is checked: `sphinx.ext.viewcode` knows one name for each module, and so names the wrong part of some pages.
    """
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    pages = {name: _Page((folder / name).read_text("utf-8")) for name in sorted(files) if _is_page(name)}
    found = []
    for name, page in pages.items():
        for link in sorted(page.loaded | page.links):
            place = urlsplit(link)
            if place.scheme or place.netloc:
                if link in page.loaded and place.scheme != "data":
                    found.append(f"{name} loads {link}")
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(place.path)))
            target, part = target if place.path else name, unquote(place.fragment)
            if target not in files:
                found.append(f"{name}: {link} does not exist")
            elif part and target in pages and part not in pages[target].parts and not name.startswith("_modules/"):
                found.append(f"{name}: {link} has no such part")
    return found
