"""Checks the links inside a folder of HTML pages. Links to other places are not opened."""

import re
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
