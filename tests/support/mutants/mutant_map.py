"""Who contains a place of the sources, and so which tests see it and which compiled functions have it in them.

Of functions that Python runs, mutant_record.py knows the tests. Compiled code is seen only where Python calls it, so
what is inside comes from the sources: which definition at the top of a file names which others, in all of fastpe.
"""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMPILED = {"inner", "inlined", "entry", "intrinsic"}
IMPLICIT = {"register_model", "lower_builtin", "type_callable", "overload"}  # found by Numba, not by name


class References:
    """Definitions at the top of fastpe's files, ``module:name``, and which of them names which."""

    def __init__(self) -> None:
        self.kind: dict[str, str] = {}  # "entry", "compiled", "python", "class" or "value"
        self.users: dict[str, set[str]] = defaultdict(set)
        self._names: dict[str, dict[str, str]] = {}  # of each module: a name in it -> the definition or module it is
        self._trees = {module_of(path): ast.parse(path.read_text()) for path in sorted(ROOT.glob("fastpe/**/*.py"))}
        for module, tree in self._trees.items():
            self._names[module] = dict(self._named(module, tree))
        for module, tree in self._trees.items():
            for statement in tree.body:
                for name in defined(statement):
                    self._note(module, name, statement)
        self.used_in_compiling = self._below(
            {name for name, kind in self.kind.items() if kind in ("entry", "compiled")}
        )

    def _named(self, module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
        for statement in tree.body:
            for name in defined(statement):
                yield name, f"{module}:{name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fastpe"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield alias.asname or alias.name, whole if whole in self._trees else f"{node.module}:{alias.name}"

    def _note(self, module: str, name: str, statement: ast.stmt) -> None:
        own = f"{module}:{name}"
        self.kind[own] = _kind(statement)
        for node in ast.walk(statement):
            for used in self._meant(module, node):
                if used != own:
                    self.users[used].add(own)

    def _meant(self, module: str, node: ast.AST) -> Iterator[str]:
        """The definition that a name, or an attribute of a module, leads to."""
        if isinstance(node, ast.Name):
            found = self._names[module].get(node.id, "")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            home = self._names[module].get(node.value.id, "")
            found = self._names.get(home, {}).get(node.attr, "")
        else:
            return
        while ":" in found:  # through the names that a package's __init__ passes on
            home, name = found.split(":")
            following = self._names.get(home, {}).get(name, found)
            if following == found:
                yield found
                return
            found = following

    def _below(self, names: set[str]) -> set[str]:
        """All that some definitions name, at any depth."""
        uses = defaultdict(set)
        for used, users in self.users.items():
            for user in users:
                uses[user].add(used)
        found, waiting = set(names), list(names)
        while waiting:
            fresh = uses[waiting.pop()] - found
            found |= fresh
            waiting += fresh
        return found

    def in_compiled_code(self, module: str, function: str) -> bool:
        """Whether a place is a part of compiled code, or of what is worked out before and held in it."""
        own = f"{module}:{function.split('.')[0]}"
        return not function or self.kind.get(own) not in ("python", "class") or own in self.used_in_compiling

    def callers(self, module: str, name: str) -> set[str]:
        """The functions that Python calls and that have a definition in them, at any depth, itself included."""
        own = f"{module}:{name.split('.')[0]}"
        if self.kind.get(own) == "implicit":
            return {each for each, kind in self.kind.items() if kind == "entry"}
        found, waiting = {own}, [own]
        while waiting:
            here = waiting.pop()
            if self.kind.get(here) == "python" and here not in self.used_in_compiling:
                continue  # whoever calls it, the tests that reach it are recorded
            fresh = self.users[here] - found
            found |= fresh
            waiting += fresh
        return {each for each in found if self.kind.get(each) in ("python", "entry")}

    def files_above(self, module: str, name: str) -> set[str]:
        """The modules that have a definition in them, through whatever functions."""
        found, waiting = set(), [f"{module}:{name.split('.')[0]}"]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += self.users[here]
        return {each.split(":")[0] for each in found}

    def stale(self, module: str, name: str) -> set[str]:
        """The compiled functions that have a definition in them."""
        return {each for each in self.callers(module, name) if self.kind[each] == "entry"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.For | ast.If | ast.With | ast.AugAssign):
        nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name | ast.FunctionDef | ast.ClassDef)]
        return [
            node.id if isinstance(node, ast.Name) else node.name
            for node in nodes
            if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store)
        ]
    return []


def _kind(statement: ast.stmt) -> str:
    if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return "value"
    made_by = {
        getattr(each, "attr", getattr(each, "id", ""))
        for each in (d.func if isinstance(d, ast.Call) else d for d in statement.decorator_list)
    }
    if made_by & IMPLICIT:
        return "implicit"
    if "entry" in made_by:
        return "entry"
    if made_by & COMPILED:
        return "compiled"
    return "class" if isinstance(statement, ast.ClassDef) else "python"


class Record:
    """What mutant_record.py wrote, the last line of each test: its seconds, and the functions it calls where known.

    Tests that were only collected are found by their names: those that have the name of a file in them.
    """

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.seconds = {line["test"]: line["seconds"] for line in lines}
        self.calls = {line["test"]: frozenset(line["calls"]) for line in lines if line["calls"] is not None}
        self.kills: Counter[str] = Counter()

    def tests_of(self, module: str, function: str, references: References) -> list[str]:
        """The tests that see a place, the most promising first: near, good at it before, different, fast."""
        anew: frozenset[str] = frozenset()
        if references.in_compiled_code(module, function):
            anew = frozenset(references.stale(module, function))
            wanted = references.callers(module, function)
        else:
            wanted = {f"{module}:{function}", f"{module}:{function.replace('.', '.<locals>.')}"}
        chosen = {test for test, calls in self.calls.items() if wanted & calls}
        if not chosen:  # at the top of a file, say: whoever calls anything of that file
            chosen = {test for test, calls in self.calls.items() if any(c.startswith(module + ":") for c in calls)}
        unknown = self.seconds.keys() - self.calls.keys()
        if unknown:
            files = references.files_above(module, function) | {module}
            names = {name.split(".")[-1] for name in files if name.split(".")[1] == module.split(".")[1]}
            chosen |= {test for test in unknown if names & _words(test) or _distance(test, module) == 0}
        return self._ordered(chosen, module, anew)

    def _ordered(self, chosen: set[str], module: str, anew: frozenset[str]) -> list[str]:
        near = {test: _distance(test, module) for test in chosen}
        turn: Counter[str] = Counter()
        rank = {}
        for test in sorted(chosen, key=lambda test: (near[test], self.seconds[test], test)):
            rank[test] = turn[test.split("[")[0]]
            turn[test.split("[")[0]] += 1
        compiled = {test: len(anew & self.calls.get(test, anew)) for test in chosen}
        return sorted(
            chosen,
            key=lambda test: (
                near[test] > 0, -self.kills[test], near[test], rank[test], compiled[test], self.seconds[test], test,
            ),
        )  # fmt: skip


# compiled code whose tests stand in the rooms that call it
HOMES = {
    "fastpe.kernels.attention": "tests/functional/test_attention",
    "fastpe.kernels.model.transformer": "tests/model/test_",
    "fastpe.kernels": "tests/kernels/test_kernels",
    "fastpe.training": "tests/training/test_",
    "fastpe.base.files": "tests/training/test_run_folder",
    "fastpe.tasks": "tests/tasks/test_",
}


def _words(test: str) -> set[str]:
    """The names in a test's name: of its file, of what stands in brackets, and of runs of words of its own name."""
    file, _, name = test.partition("::")
    name, _, case = name.partition("[")
    parts = name.removeprefix("test_").split("_")
    runs = {"_".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, min(i + 4, len(parts)) + 1)}
    return {Path(file).stem.removeprefix("test_"), *re.findall(r"\w+", case), *runs}


def _distance(test: str, module: str) -> int:
    """0: this file's own tests. 1: those of its room. 2: others. 3: through a framework."""
    words = module.split(".")
    path = test.split("::")[0]
    home = next((home for start, home in HOMES.items() if module.startswith(start)), None)
    if home and path.startswith(home) and not (home.endswith("attention") and "input" in path):
        return 0
    if "_adapter" in path:
        return 3
    if Path(path).stem == f"test_{words[-1]}":
        return 0
    if f"/{words[1]}/" not in path:
        return 2
    return 0 if words[-1].strip("_") in _words(test) or path == "/".join(words) + ".py" else 1
