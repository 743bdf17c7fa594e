"""Which tests ``python -m pytest`` runs: a default selection. ``--full`` runs all tests.

Paths, node ids and ``-k`` select by themselves: ``python -m pytest tests/model`` runs all tests in that folder.

The default selection leaves out

- tests marked ``full``: they take long, or compile much that no other test needs;
- dtypes other than float32, where a test has float32 among its parameters;
- a part of long parameter lists. Which parameters stay follows from the commit's tree, so every commit runs others, and
  the same commit the same ones again. The encodings that stay are the same in all tests, as each must be compiled.

A test marked ``unsampled`` keeps all its parameters.
"""

import hashlib
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import fastpe

MOST = 2
"""Parameter sets of one test function that stay, at least."""
SHARE = 40
"""One in so many of the others stays."""
_ENCODINGS = set(fastpe.list_encodings())
_OTHER_DTYPES = {"float64", "float16", "bfloat16"}


def is_default(config: pytest.Config) -> bool:
    """Whether this run takes the default selection; workers of pytest-xdist do as their controller."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput["default_selection"])
    return is_whole(config) and not (config.getoption("--full") or config.getoption("--rest"))


def is_whole(config: pytest.Config) -> bool:
    """Whether nothing on the command line selects tests."""
    chosen = config.getoption("keyword") or config.getoption("markexpr")
    return not chosen and config.args_source is pytest.Config.ArgsSource.TESTPATHS


def selected(items: Iterable[pytest.Item], seed: str) -> list[pytest.Item]:
    """The items of the default selection, in their order."""
    groups = defaultdict(list)
    for item in items:
        if item.get_closest_marker("full") is None:
            groups[item.nodeid.partition("[")[0]].append(item)
    kept = {item for group in groups.values() for item in _drawn(group, seed)}
    return [item for item in items if item in kept]


def _drawn(group: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """A part of the parameter sets of one test function."""
    if group[0].get_closest_marker("unsampled") is not None:
        return group
    group = sorted(_in_float32(group), key=lambda item: _order(item, seed))
    return group[: MOST + max(len(group) - MOST, 0) // SHARE]


def _order(item: pytest.Item, seed: str) -> list[bytes]:
    """A sort key: first a hash of the encoding among the parameters, then one of all of them."""
    encoding = next((value for value in _parameters(item) if isinstance(value, str) and value in _ENCODINGS), "")
    return [hashlib.sha256(f"{seed} {text}".encode()).digest() for text in (encoding, item.nodeid)]


def seed_of_tree() -> str:
    """The hash of the commit's tree; of no repository, a constant."""
    command = ["git", "rev-parse", "HEAD^{tree}"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no repository"


def _in_float32(group: list[pytest.Item]) -> list[pytest.Item]:
    """Without other dtypes, if there is float32 to choose."""
    dtypes = {item: _dtypes_of(item) for item in group}
    if not any("float32" in found for found in dtypes.values()):
        return group
    return [item for item in group if not dtypes[item] & _OTHER_DTYPES]


def _dtypes_of(item: pytest.Item) -> set[str]:
    found = set()
    for value in _parameters(item):
        name = value if isinstance(value, str) else getattr(value, "__name__", getattr(value, "name", ""))
        if name == "float32" or name in _OTHER_DTYPES:
            found.add(name)
    return found


def _parameters(item: pytest.Item) -> Iterable[object]:
    return item.callspec.params.values() if hasattr(item, "callspec") else ()
