"""Which tests ``python -m pytest`` runs: a default selection. ``--full`` runs all tests.

Paths, node ids and ``-k`` select by themselves: ``python -m pytest tests/model`` runs all tests in that folder.

The default selection leaves out

- tests marked ``full``: they take long, or compile much that no other test needs;
- dtypes other than float32, where a test has float32 among its parameters and is not marked ``dtypes``;
- a part of long parameter lists. Which parameters stay follows from the commit's tree, so every commit runs others, and
  the same commit the same ones again.
"""

import hashlib
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

MOST = 6
"""Parameter sets of one test function that stay, at least."""
SHARE = 3
"""One in so many of the others stays."""
_OTHER_DTYPES = {"float64", "float16", "bfloat16"}


def is_default(config: pytest.Config) -> bool:
    """Whether this run takes the default selection; workers of pytest-xdist do as their controller."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput["default_selection"])
    return is_whole(config) and not config.getoption("--full") and not config.getoption("--rest")


def is_whole(config: pytest.Config) -> bool:
    """Whether nothing on the command line selects tests."""
    chosen = config.getoption("keyword") or config.getoption("markexpr")
    return not chosen and config.args_source is pytest.Config.ArgsSource.TESTPATHS


def selected(items: Iterable[pytest.Item], seed: str) -> list[pytest.Item]:
    """The items of the default selection, in their order."""
    items = [item for item in items if item.get_closest_marker("full") is None]
    kept = {item for group in _by_function(items) for item in _in_float32(group)}
    items = [item for item in items if item in kept]
    return drawn(items, lambda count: min(count, MOST + max(count - MOST, 0) // SHARE), seed)


def drawn(items: list[pytest.Item], count_of: Callable[[int], int], seed: str) -> list[pytest.Item]:
    """Of the parameter sets of each test function as many as `count_of` their number says, in their order."""
    kept = set()
    for group in _by_function(items):
        by_hash = sorted(group, key=lambda item: hashlib.sha256(f"{seed} {item.nodeid}".encode()).digest())
        kept |= set(by_hash[: count_of(len(group))])
    return [item for item in items if item in kept]


def _by_function(items: Iterable[pytest.Item]) -> Iterable[list[pytest.Item]]:
    groups = defaultdict(list)
    for item in items:
        groups[item.nodeid.partition("[")[0]].append(item)
    return groups.values()


def seed_of_tree() -> str:
    """The hash of the commit's tree; of no repository, a constant."""
    command = ["git", "rev-parse", "HEAD^{tree}"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no repository"


def _in_float32(group: list[pytest.Item]) -> list[pytest.Item]:
    """Without other dtypes, if there is float32 to choose."""
    if group[0].get_closest_marker("dtypes") is not None:
        return group
    dtypes = {item: _dtypes_of(item) for item in group}
    if not any("float32" in found for found in dtypes.values()):
        return group
    return [item for item in group if not dtypes[item] & _OTHER_DTYPES]


def _dtypes_of(item: pytest.Item) -> set[str]:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    found = set()
    for value in values:
        name = value if isinstance(value, str) else getattr(value, "__name__", getattr(value, "name", ""))
        if name == "float32" or name in _OTHER_DTYPES:
            found.add(name)
    return found
