"""Which mutants are tried: drawn at random within groups of files, the same ones from the same seed."""

import ast
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import mutant_import
import mutant_sites
from mutant_map import ROOT, module_of

# Of each hundred mutants so many, from these files. What deletes folders of the user is left alone.
GROUPS = {
    "kernels": (26, "kernels/**/*.py"),
    "encodings": (30, "encodings/**/*.py"),
    "random": (8, "base/random.py base/initial_values.py"),
    "files": (
        11,
        "base/files.py base/stored.py training/run_folder.py training/*_file.py training/forms.py model/*_file.py",
    ),
    "training": (8, "training/config.py training/e*.py training/loop.py training/progress.py tasks/*.py"),
    "model": (7, "model/[!m]*.py"),
    "attention": (5, "functional/*.py"),
    "arguments": (5, "base/validation.py base/guard.py base/memory.py base/shielded.py"),
}
DANGEROUS = {"_prune"}


@dataclass(frozen=True)
class Mutant:
    """One mistake. `at` is its number in its file: see mutant_sites.py."""

    group: str
    path: str
    at: int
    line: int
    function: str
    kind: str
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.path}:{self.at}"

    @property
    def module(self) -> str:
        return module_of(ROOT / self.path)


def drawn(group: str, count: int, seed: int) -> Iterator[Mutant]:
    """`count` mutants of a group. A larger count begins with the same ones."""
    paths = sorted({path for pattern in GROUPS[group][1].split() for path in (ROOT / "fastpe").glob(pattern)})
    found = {path: mutant_sites.sites(ast.parse(path.read_text())) for path in paths}
    lines = sorted({(path, site.line) for path, sites in found.items() for site in sites})
    chance = random.Random(f"{seed} {group}")
    chance.shuffle(lines)
    for path, line in lines:
        if not count:
            return
        here = [(n, site) for n, site in enumerate(found[path]) if site.line == line and site.function not in DANGEROUS]
        if not here:
            continue
        kind = chance.choice(sorted({site.kind for _, site in here}))
        at, site = chance.choice([(n, site) for n, site in here if site.kind == kind])
        source = path.read_text()
        tree, _, before, after = mutant_sites.mutate(source, at)
        if mutant_import.same_code(source, tree):
            continue
        count -= 1
        yield Mutant(group, path.relative_to(ROOT).as_posix(), at, line, site.function, kind, before, after)


def population(count: int, seed: int, results: Path) -> list[Mutant]:
    """The mutants of all groups, in random order: cut off at any time, all groups have had their share."""
    kept = results.with_suffix(f".{seed}-{count}.drawn")  # drawing takes a minute
    if kept.exists():
        return [Mutant(**each) for each in json.loads(kept.read_text())]
    chosen = [m for group, (share, _) in GROUPS.items() for m in drawn(group, round(count * share / 100), seed)]
    random.Random(seed).shuffle(chosen)
    kept.write_text(json.dumps([asdict(mutant) for mutant in chosen]))
    return chosen
