"""The files of a release agree: one version, one date, and the lower bounds of the dependencies that CI tests."""

import re
import tomllib
from pathlib import Path

import fastpe

ROOT = Path(__file__).resolve().parent.parent


def test_the_version_is_that_of_the_changelog_and_of_the_citation():
    released = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text().splitlines()
    assert released is not None
    assert released[1] == fastpe.__version__
    assert {f"version: {released[1]}", f"date-released: {released[2]}"} <= set(citation)


def test_ci_installs_the_lower_bound_of_each_dependency():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    oldest = [line for line in (ROOT / ".ci" / "oldest.txt").read_text().splitlines() if not line.startswith("#")]
    assert oldest == [each.partition(",")[0].replace(">=", "==") for each in dependencies]
