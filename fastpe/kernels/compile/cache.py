"""Machine code on disk: one file for each function and each combination of argument types.

Numba's own cache checks only the file of a cached function for changes. If a *helper* in another file changed, or was
upgraded with the package, stale machine code would be used. Here the name of a cache file contains the digest of all
sources that the machine code in it can come from (`sources`), and the last few old versions are kept. After an edit,
only the functions that the edit can have changed are compiled. If the edit is undone, nothing is compiled.

A cache file is a pickle that contains machine code. So the folder is private to the user (mode 0700), and nobody else
may replace it: every folder above it must belong to the user or to root, and must not be writable by others unless it
is sticky. Otherwise code is compiled again in every process, and `problem` says why.
"""

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from fastpe.base.files import make_folder, write_file
from fastpe.kernels.compile import sources

_KEPT_STATES = 4
_FILE = re.compile(r"(.+)-([0-9a-f]{20})-[0-9a-f]{20}\.code")  # function, digest of sources, digest of types

on_compile: Callable[[str], None] | None = None
"""Called with a short description whenever something is compiled because it is not in the cache."""

problem: str | None = None
"""The reason why this process caches nothing on disk, or None if it caches machine code."""


def root() -> Path:
    """The user's folder for compiled code: `FASTPE_CACHE_DIR`, or the platform's default location."""
    if chosen := os.environ.get("FASTPE_CACHE_DIR"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "fastpe" / "cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/fastpe").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastpe"


def _private_folder(path: Path) -> None:
    """Make a private folder of the user; an existing folder that is not private is an error, and is not changed."""
    make_folder(path, exist_ok=True, mode=0o700)
    if hasattr(os, "geteuid"):
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{path} is not a folder that only this user can access")


def _check_path(folder: Path) -> None:
    """Raise PermissionError if another user could replace this folder or a folder above it. OpenSSH checks the folders
    of its files in the same way.

    `folder` must be a real path. Folders are checked from the root down, so that checked folders cannot change later.
    """
    if not hasattr(os, "geteuid"):
        return
    for place in (*reversed(folder.parents), folder):
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode):  # a link that was created after the path was resolved
            raise PermissionError(f"{place}, on the way to the compile cache {folder}, is not a folder")
        if status.st_uid not in (0, os.geteuid()):
            raise PermissionError(
                f"{place}, on the way to the compile cache {folder}, belongs to user {status.st_uid}, who could "
                f"replace compiled code: it must belong to this user ({os.geteuid()}) or to root, or FASTPE_CACHE_DIR "
                "must name another folder"
            )
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            mode = stat.S_IMODE(status.st_mode)
            raise PermissionError(
                f"{place}, on the way to the compile cache {folder}, has mode {mode:04o}, with which other users "
                "could replace compiled code: run chmod go-w on it, or name another folder in FASTPE_CACHE_DIR"
            )


def _open_folder() -> Path | None:
    global problem
    try:
        above = root()
        make_folder(above, exist_ok=True, mode=0o700)
        above = above.resolve(strict=True)  # follow no link from here on: another user could change it
        _check_path(above)
        _private_folder(above / "code")
    except (OSError, RuntimeError) as error:  # RuntimeError: the home folder is unknown
        problem = str(error)
        return None
    return above / "code"


folder: Path | None = None if numba.config.DISABLE_JIT else _open_folder()
"""The folder in which this process stores machine code, or None."""


# Private to Numba: the functions that pickle and restore a compilation result. If one of them is missing, nothing is
# cached. (`decorators` describes the attribute `_cache` in which dispatchers look for code.)
try:
    from numba.core.compiler import CompileResult
    from numba.core.serialize import dumps, loads

    _reduce, _rebuild = CompileResult._reduce, CompileResult._rebuild
except (ImportError, AttributeError) as error:
    problem, folder = f"this version of Numba keeps machine code differently ({error})", None


class Cache:
    """Replaces Numba's cache for the machine code of one function.

    Errors here cost a compilation, but never stop the program.

    Parameters
    ----------
    function : callable
        Only functions of fastpe's modules without closure cells are cached: for others the sources are unknown.
    label : str
        Description of the function for `on_compile`.
    kept : bool
        Whether the function's machine code may be cached at all.
    """

    def __init__(self, function: Callable[..., Any], label: str, kept: bool = True) -> None:
        self._label, self._module, code = label, function.__module__, function.__code__
        self._name = re.sub(r"[^\w.]", "", f"{self._module}.{function.__qualname__}")[-100:]
        self._code = f"{code.co_firstlineno} {code.co_code.hex()}"
        self._kept = kept and function.__closure__ is None

    @property
    def cache_path(self) -> str | None:
        """The cache folder. Numba's dispatchers read this property."""
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compilation result for these argument types and this CPU, or None if the cache does
        not have it.
        """
        found = None
        if (path := self._path(signature, target)) is not None:
            try:
                target.refresh()  # as Numba does
                meant, parts = loads(path.read_bytes())
                found = _rebuild(target, *parts) if meant == signature else None  # different types may have equal names
                os.utime(path)
            except FileNotFoundError:
                pass
            except Exception:  # a damaged file
                found = None
        if found is None and on_compile is not None:
            dtype = re.search(r"float\d+", str(signature))  # of the first array
            on_compile(f"{self._label} ({dtype[0]})" if dtype else self._label)
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Store the result of a compilation."""
        # Two errors lose only the cache entry: a full disk, and an interrupt in the callback in which LLVM returns
        # machine code. Numba then has no code to save ("no compiled object yet"), although the function works.
        with contextlib.suppress(OSError, RuntimeError):
            path = self._path(signature, compiled.target_context)
            if path is not None and not compiled.library.has_dynamic_globals:
                write_file(path, dumps((signature, _reduce(compiled))))
                self._prune()

    def flush(self) -> None:
        """Delete all entries of the function; Numba calls this before it compiles the function again."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _path(self, signature: Any, target: Any) -> Path | None:
        digest = sources.digest_of(self._module) if self._kept and folder is not None else None
        if digest is None or folder is None:
            return None
        key = f"{self._code} {signature} {target.codegen().magic_tuple()}"
        return folder / f"{self._name}-{digest}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.code"

    def _files(self) -> dict[Path, str]:
        """Return the files of the function, each with the digest of sources in its name."""
        found = {} if folder is None else {path: _FILE.fullmatch(path.name) for path in folder.iterdir()}
        return {path: name[2] for path, name in found.items() if name is not None and name[1] == self._name}

    def _prune(self) -> None:
        """Keep only the entries of the source versions used last. Another process may delete files at the same time, so
        a missing file is no error."""
        used: dict[str, float] = {}
        for path, digest in (files := self._files()).items():
            used[digest] = max(used.get(digest, 0.0), path.stat().st_mtime)
        kept = sorted(used, key=used.__getitem__)[-_KEPT_STATES:]
        for path, digest in files.items():
            if digest not in kept:
                path.unlink(missing_ok=True)
