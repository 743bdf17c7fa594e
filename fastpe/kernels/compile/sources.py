"""Digests of fastpe's sources: of all of them, and of those that the machine code of one module can come from.

The latter are the module and all that it imports, at its top or within a function, and what those import: whatever is
compiled into a function was imported to be called, and code that makes a type known to Numba is next to the type.
"""

import hashlib
import platform
import re
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import llvmlite
import numba
import numpy as np

from fastpe.kernels.compile import switches

PACKAGE = Path(__file__).resolve().parents[2]
_START = time.time()
# both begin with letters, and not with a line: such are found many times sooner
_FROM = re.compile(rb"from (fastpe[\w.]*) import (\([^)]*\)|[^\n]*)")
_IMPORT = re.compile(rb"import (fastpe[\w.]*)")
_NAME = re.compile(r"\w+")


def source_digest(without: Sequence[str] = ()) -> str:
    """Digest of fastpe's sources, of the versions that machine code depends on, and of the build.

    Parameters
    ----------
    without : sequence of str
        Folders of the package to leave out.
    """
    digest = hashlib.sha256(_surroundings())
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in without:
            continue
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:20]


def _surroundings() -> bytes:
    """What machine code depends on besides sources; the CPU is part of the file names."""
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__, platform.machine())
    builds = {"checked": switches.CHECK_BOUNDS, "plain": switches.PLAIN_NUMBA}
    return "".join(f"{each}\0" for each in (*versions, *(build for build, chosen in builds.items() if chosen))).encode()


def digest_of(module: str) -> str | None:
    """Digest of a module of fastpe, of all modules that it imports, of versions and of the build.

    None if it is not a module of fastpe, or if one of those files cannot be read or was changed after this process had
    started, which is checked each time: the imported version may differ from the file.
    """
    if _file_of(module) is None:
        return None
    digest = hashlib.sha256(_surroundings())
    try:
        for name in sorted(closure(module)):
            path, content, _ = _read(name)
            if path.stat().st_mtime > _START:
                return None
            digest.update(name.encode() + b"\0" + content)
    except OSError:
        return None
    return digest.hexdigest()[:20]


def closure(module: str) -> set[str]:
    """A module of fastpe and all modules imported with it, including packages; without `fastpe` itself, which imports
    everything on demand, and compiles nothing."""
    found, coming = {"fastpe"}, [module]
    while coming:
        name = coming.pop()
        if name not in found:
            found.add(name)
            coming += [name.rpartition(".")[0], *_read(name)[2]]
    return found - {"fastpe"}


def changed() -> bool:
    """Whether a source of fastpe was changed after this process had started."""
    return any(path.stat().st_mtime > _START for path in PACKAGE.rglob("*.py"))


@cache
def _file_of(module: str) -> Path | None:
    if module != "fastpe" and not module.startswith("fastpe."):
        return None
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _read(module: str) -> tuple[Path, bytes, set[str]]:
    """A module's file, its digest, and the modules of fastpe that it imports."""
    if (path := _file_of(module)) is None:
        raise FileNotFoundError(f"{module} has no source file")
    source = path.read_bytes()
    return path, hashlib.sha256(source).digest(), imports(source)


def imports(source: bytes) -> set[str]:
    """Modules of fastpe that a source imports, including imports in comments and strings.

    Python's parser takes half a second for the sources of a training step.
    """
    found = {name.decode() for name in _IMPORT.findall(source)}
    for package, names in ((package.decode(), names.decode()) for package, names in _FROM.findall(source)):
        found |= {package, *(f"{package}.{name}" for name in _NAME.findall(names))}
    return {name for name in found if _file_of(name) is not None}
