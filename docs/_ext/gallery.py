"""Settings of sphinx-gallery, which runs `docs/examples/*.py` and makes a page and a notebook of each."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx.util import logging
from sphinx_gallery.scrapers import figure_rst, matplotlib_scraper

_NEEDS = re.compile(r"^# Needs: (.+)$", re.MULTILINE)
"""A line of an example that names the packages without which it is shown, but not run."""


def settings(here: Path) -> dict[str, Any]:
    """The settings; examples whose packages are missing are not run."""
    left_out = [path.name for path in sorted((here / "examples").glob("*.py")) if missing(path)]
    for name in left_out:
        logging.getLogger(__name__).info("example %s is shown without results: a package is missing", name)
    names = "|".join(map(re.escape, left_out))
    return {
        "examples_dirs": [str(here / "examples")],
        "gallery_dirs": [str(here / "gallery")],
        "filename_pattern": rf"/(?!{names})[^/]+\.py$" if names else r"\.py$",
        "within_subsection_order": "FileNameSortKey",
        "image_scrapers": (matplotlib_scraper, Returned()),
        "capture_repr": ("_repr_html_", "__str__"),
        "ignore_repr_types": r"matplotlib|Picture",
        "remove_config_comments": True,
        "show_memory": False,
        "show_signature": False,
        "reference_url": {},
    }


def missing(path: Path) -> list[str]:
    """The packages that an example needs and that are not installed."""
    found = _NEEDS.search(path.read_text("utf-8"))
    return [name for name in (found[1].split(", ") if found else ()) if find_spec(name) is None]


class Returned:
    """A scraper of figures that pyplot does not know, such as those of `fastpe.show`: the variables of the example."""

    def __init__(self) -> None:
        self._seen: list[Figure] = []

    def __repr__(self) -> str:
        return "Returned()"

    def __call__(self, block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any], **_: Any) -> str:
        """Save the figures that the block has made, and return the reStructuredText that shows them."""
        paths = []
        for value in block_vars["example_globals"].values():
            if not isinstance(value, Figure) or value.canvas.manager is not None:  # pyplot's own figures have a manager
                continue
            if not any(value is each for each in self._seen):
                self._seen.append(value)
                paths.append(next(block_vars["image_path_iterator"]))
                value.savefig(paths[-1], dpi=110)
        return figure_rst(paths, gallery_conf["src_dir"])
