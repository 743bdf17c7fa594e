"""Machine code on disk: a file for each function and the types of its arguments.

Numba stamps a cached function with a hash of that function's own file. A kernel whose *helper* changed in another
file, or was upgraded with the package, would be answered by stale machine code. Here the name of a file holds the
digest of all sources that its machine code can come from (`sources`), and of old states the last few are kept: an edit
costs the compilation of what it can have changed, and going back costs none.

A file is a pickle with machine code in it. The folder therefore belongs to the user alone (mode 0700), and nobody else
may replace it: every folder above it belongs to the user or to root, and others may not write to it unless it is
sticky. Otherwise code is compiled anew in every process and `problem` says why.
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
_FILE = re.compile(r"(.+)-([0-9a-f]{20})-[0-9a-f]{20}\.code")  # of a function, its sources, and types of arguments

on_compile: Callable[[str], None] | None = None
"""Called with a short description whenever something is compiled because the cache does not hold it."""

problem: str | None = None
"""Why nothing is cached on disk in this process, or None when it is."""


def root() -> Path:
    """The user's folder for compiled code: `FASTPE_CACHE_DIR`, or the platform's usual place."""
    if chosen := os.environ.get("FASTPE_CACHE_DIR"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "fastpe" / "cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/fastpe").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastpe"


def _private_folder(path: Path) -> None:
    """Make a folder that is the user's alone; one that is there and is not is refused, never changed."""
    make_folder(path, exist_ok=True, mode=0o700)
    if hasattr(os, "geteuid"):
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{path} is not a folder of this user alone")


def _check_path(folder: Path) -> None:
    """Raise PermissionError if another user could replace a folder or one above it: the rule of OpenSSH for its files.

    `folder` must be a real path. Folders are checked from the root down, so that what was checked stays as it is.
    """
    if not hasattr(os, "geteuid"):
        return
    for place in (*reversed(folder.parents), folder):
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode):  # a link that has come to be there since the path was resolved
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
                f"{place}, on the way to the compile cache {folder}, has mode {mode:04o}, by which other users could "
                "replace compiled code: run chmod go-w on it, or name another folder by FASTPE_CACHE_DIR"
            )


def _open_folder() -> Path | None:
    global problem
    try:
        above = root()
        make_folder(above, exist_ok=True, mode=0o700)
        above = above.resolve(strict=True)  # from here on no link that somebody could change is followed
        _check_path(above)
        _private_folder(above / "code")
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder is known
        problem = str(error)
        return None
    return above / "code"


folder: Path | None = None if numba.config.DISABLE_JIT else _open_folder()
"""Where this process keeps its machine code, or None."""


# Private to Numba: how the result of a compilation becomes a pickle and is made of one again. Without any of it nothing
# is kept. That its dispatchers ask what is in `_cache` for code, see `decorators`.
try:
    from numba.core.compiler import CompileResult
    from numba.core.serialize import dumps, loads

    _reduce, _rebuild = CompileResult._reduce, CompileResult._rebuild
except (ImportError, AttributeError) as error:
    problem, folder = f"this version of Numba keeps machine code differently ({error})", None


class Cache:
    """What Numba asks for the machine code of one function in place of a cache of its own.

    Whatever goes wrong here costs a compilation, never the run.

    Parameters
    ----------
    function : callable
        Only one of fastpe's modules is kept, without cells: of others nobody knows what they are compiled from.
    label : str
        What the user is told is being compiled.
    kept : bool
        Whether its machine code may be kept at all.
    """

    def __init__(self, function: Callable[..., Any], label: str, kept: bool = True) -> None:
        self._label, self._module, code = label, function.__module__, function.__code__
        self._name = re.sub(r"[^\w.]", "", f"{self._module}.{function.__qualname__}")[-100:]
        self._code = f"{code.co_firstlineno} {code.co_code.hex()}"
        self._kept = kept and function.__closure__ is None

    @property
    def cache_path(self) -> str | None:
        """Numba's name for the folder."""
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The result of a compilation, for arguments of such types and this CPU, or None where none is kept."""
        found = None
        if (path := self._path(signature, target)) is not None:
            try:
                target.refresh()  # as Numba's
                meant, parts = loads(path.read_bytes())
                found = _rebuild(target, *parts) if meant == signature else None  # names of types may be alike
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
        """Keep the result of a compilation."""
        # a full disk loses the cache, not the run; so does an interrupt inside the callback by which LLVM hands over
        # machine code: Numba has none to save then ("no compiled object yet"), though the function is there and works
        with contextlib.suppress(OSError, RuntimeError):
            path = self._path(signature, compiled.target_context)
            if path is not None and not compiled.library.has_dynamic_globals:
                write_file(path, dumps((signature, _reduce(compiled))))
                self._prune()

    def flush(self) -> None:
        """Forget all of the function, as Numba asks before it is compiled anew."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _path(self, signature: Any, target: Any) -> Path | None:
        digest = sources.digest_of(self._module) if self._kept and folder is not None else None
        if digest is None or folder is None:
            return None
        key = f"{self._code} {signature} {target.codegen().magic_tuple()}"
        return folder / f"{self._name}-{digest}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.code"

    def _files(self) -> dict[Path, str]:
        """The files of the function, and the digests in their names."""
        found = {} if folder is None else {path: _FILE.fullmatch(path.name) for path in folder.iterdir()}
        return {path: name[2] for path, name in found.items() if name is not None and name[1] == self._name}

    def _prune(self) -> None:
        """Delete what comes of other states of the sources than those used last; another process may be doing so."""
        used: dict[str, float] = {}
        for path, digest in (files := self._files()).items():
            used[digest] = max(used.get(digest, 0.0), path.stat().st_mtime)
        kept = sorted(used, key=used.__getitem__)[-_KEPT_STATES:]
        for path, digest in files.items():
            if digest not in kept:
                path.unlink(missing_ok=True)
