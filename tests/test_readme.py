"""The README tells the truth: its commands are run by CI, its table comes from the registry, its example works."""

import doctest
import re

import pytest
import readme


def test_every_block_of_commands_is_run_by_ci():
    text = readme.README.read_text()
    assert text.count("```sh") == len(readme.blocks())
    assert {"main", "test"} <= set(readme.blocks())


def test_the_table_of_encodings_is_that_of_the_registry():
    found = readme.TABLE.search(readme.LIST.read_text())
    assert found is not None
    assert found[1] == readme.table(), "run python tests/support/readme.py write"


def test_it_is_short_and_its_links_lead_somewhere():
    text = readme.README.read_text()
    assert len(text.splitlines()) <= 200
    for page in (readme.README, readme.LIST, readme.ROOT / "bench" / "README.md"):
        text = page.read_text()
        headings = {f"#{title.lower().replace(' ', '-')}" for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
        for link in re.findall(r"\]\(([^):]+)\)", text):
            assert link in headings or (page.parent / link).exists(), f"{page}: {link}"


def test_the_example_runs():
    failed, attempted = doctest.testfile(str(readme.README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert attempted >= 5
    assert failed == 0


def test_nothing_names_a_machine():
    tracked = [*readme.ROOT.glob("*.md"), *readme.ROOT.glob("*/**/*.py"), readme.ROOT / "pyproject.toml"]
    for path in tracked:
        if ".venv" in path.parts or path.name == "test_readme.py":
            continue
        for mark in ("/home/", "/root/", "/work/"):
            if mark in path.read_text():
                pytest.fail(f"{path.name} names a path of a machine: {mark}")
