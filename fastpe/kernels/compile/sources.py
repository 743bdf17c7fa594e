"""Digests of fastpe's sources: of all sources, and of the sources that the machine code of one module can come from.

The machine code of a module can come from the module, from all modules that it imports (at the top or in a function),
from all modules that these import, and so on. No source is missing from this list: a function must be imported before
it can be compiled into another function, and the code that registers a type with Numba is in the module that defines
the type.
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
# The expressions begin with letters, not with the start of a line (^), because the search is then many times faster.
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
    """Return what machine code depends on, except the sources and the CPU. (Names of cache files contain the CPU.)"""
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__, platform.machine())
    builds = {"checked": switches.CHECK_BOUNDS, "plain": switches.PLAIN_NUMBA}
    return "".join(f"{each}\0" for each in (*versions, *(build for build, chosen in builds.items() if chosen))).encode()


def digest_of(module: str) -> str | None:
    """Digest of a module of fastpe, of all modules that it imports, of versions and of the build.

    The result is None if `module` is not a module of fastpe, if one of the files cannot be read, or if one of them was
    changed after this process had started, because the imported version may then differ from the file. Every call
    checks when the files were changed.
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
    """Return a module of fastpe and all modules that are imported with it, including packages. `fastpe` itself is left
    out, because it imports everything on demand and compiles nothing."""
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
    """Return the file of a module, the digest of this file, and the modules of fastpe that the module imports."""
    if (path := _file_of(module)) is None:
        raise FileNotFoundError(f"{module} has no source file")
    source = path.read_bytes()
    return path, hashlib.sha256(source).digest(), imports(source)


def imports(source: bytes) -> set[str]:
    """Modules of fastpe that a source imports, including imports in comments and strings.

    Regular expressions find them, because Python's parser takes half a second for the sources of a training step.
    """
    found = {name.decode() for name in _IMPORT.findall(source)}
    for package, names in ((package.decode(), names.decode()) for package, names in _FROM.findall(source)):
        found |= {package, *(f"{package}.{name}" for name in _NAME.findall(names))}
    return {name for name in found if _file_of(name) is not None}
