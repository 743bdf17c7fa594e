"""The documentation site: its reference is complete, its check of links finds mistakes, and its examples have figures.

Building the site runs the examples and checks the pages.
"""

import ast
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import fastpe

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))


def _links():
    spec = spec_from_file_location("links", DOCS / "_ext" / "links.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(path.read_text() for path in (DOCS / "reference" / "python").glob("*.rst"))
    listed = set(re.findall(r"^   ([\w.]+)$", pages, re.MULTILINE))
    modules = set(re.findall(r"module:: fastpe\.(\w+)$", pages, re.MULTILINE))
    assert set(fastpe.__all__) <= listed | modules
    assert {"torch", "jax"} <= modules


def test_the_check_of_links_finds_what_is_missing(tmp_path):
    (tmp_path / "other.html").write_text('<h1 id="top">Other</h1>')
    (tmp_path / "page.html").write_text(
        '<a href="other.html#top">right</a> <a href="other.html#no">part</a> <a href="none.html">page</a> '
        '<a href="https://example.org/">outside</a> <script src="https://example.org/a.js"></script> '
        '<a href="#here">own</a> <p id="here"></p>'
    )
    assert _links().broken(tmp_path) == [
        "page.html loads https://example.org/a.js",
        "page.html: none.html does not exist",
        "page.html: other.html#no has no such part",
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_title_and_a_figure(example):
    text = example.read_text()
    title, line, *_ = ast.get_docstring(ast.parse(text)).splitlines()
    assert line == "=" * len(title)
    assert any(each in text for each in ("plt.subplots(", "fastpe.show(", ".plot()"))
