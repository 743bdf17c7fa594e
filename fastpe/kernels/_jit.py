"""How everything here is compiled, and where the machine code is kept: the only place that chooses either.

Numba stamps a cached function with a hash of that function's own file. A kernel whose *helper* changed in another
file, or was upgraded with the package, would be answered by stale machine code. So the cache lives in a folder
named after a digest of all sources that machine code can come from and of the versions that took part, and old folders
are pruned.

The index of Numba's cache is a pickle, and its files are machine code. The folder therefore belongs to the user alone
(mode 0700), and nobody else may replace it: every folder above it belongs to the user or to root, and others may not
write to it unless it is sticky. Otherwise code is compiled anew in every process and `cache_problem` says why.
"""

import contextlib
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
import numpy as np
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock

from fastpe.base.files import lock_folder, make_folder
from fastpe.base.shielded import shielded
from fastpe.kernels._pipeline import compilers, undisturbed

Function = TypeVar("Function", bound=Callable[..., Any])


def _check_bounds() -> bool:
    chosen = os.environ.get("FASTPE_CHECK_BOUNDS", "")
    if chosen not in ("", "0", "1"):
        raise ValueError(f"FASTPE_CHECK_BOUNDS must be 0 or 1, not {chosen!r}")
    return chosen == "1"


CHECK_BOUNDS = _check_bounds()
"""Whether kernels check every access to memory (FASTPE_CHECK_BOUNDS=1; see `simd.pointers`)."""

# No fast-math: sums keep the order they are written in, so the same source gives the same bits, and infinities work.
_OPTIONS = {"nogil": True, "error_model": "numpy", **({"boundscheck": True} if CHECK_BOUNDS else {})}
_KEPT_DIGESTS = 4
PLAIN_ROOMS = (
    "experiments", "functional", "model", "pictures", "reference", "tasks", "text", "theory", "torch", "training",
)  # fmt: skip
"""Rooms without compiled code, which no compiled code imports: an edit there costs no compilation."""
_PATIENCE, _BLINK = 2.0, 0.002  # seconds that a process waits for another that saves, and between its looks
_MARKER = "fastpe-compiled-code"  # what a folder holds that may be pruned

on_compile: Callable[[str], None] | None = None
"""Called with a short description whenever something is compiled because the cache does not hold it."""

cache_problem: str | None = None
"""Why nothing is cached on disk in this process, or None when it is."""


_PLAIN, _LINKED = compilers()


def inner(function: Function) -> Function:
    """Compile a function that only compiled code calls; it becomes a part of its callers' machine code."""
    compiled: Function = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_LINKED, **_OPTIONS)(function)
    return compiled


def inlined(function: Function) -> Function:
    """As `inner`, for a part of a loop's body: a call would cost more than the function, and move vectors to memory."""
    compiled: Function = numba.njit(
        forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_LINKED, **_OPTIONS
    )(function)  # fmt: skip
    return compiled


def entry(function: Function | None = None, *, label: str = "", parallel: bool = False) -> Any:
    """Compile a function that Python calls, keeping its machine code on disk.

    Parameters
    ----------
    label : str
        What the user is told is being compiled; the function's name by default.
    parallel : bool
        Whether the function has a `numba.prange` (see `kernels.threads`).
    """
    if function is None:
        return lambda f: entry(f, label=label, parallel=parallel)
    dispatcher = numba.njit(parallel=parallel, no_cfunc_wrapper=True, **_PLAIN, **_OPTIONS)(function)
    if not numba.config.DISABLE_JIT:
        dispatcher._cache = _open_cache(function, label or function.__name__.strip("_").replace("_", " "))
        # Numba's own tables, such as those of what it knows how to compile, do not survive an exception within
        compile_quickly = undisturbed()(dispatcher._compile_for_args)
        dispatcher._compile_for_args = shielded(compile_quickly, global_compiler_lock.is_locked)
    return dispatcher


# ---------------------------------------------------------------------------------------------------------------------
# The cache on disk


def code_digest() -> str:
    """As `source_digest`, of the rooms that machine code can come from: the name of the cache's folder."""
    return source_digest(without=PLAIN_ROOMS)


def source_digest(without: Sequence[str] = ()) -> str:
    """Digest of fastpe's sources, of the versions that machine code depends on, and of whether it is checked.

    Parameters
    ----------
    without : sequence of str
        Rooms, folders of the package, that are left out.
    """
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for version in (sys.version, numba.__version__, llvmlite.__version__, np.__version__, platform.machine()):
        digest.update(version.encode() + b"\0")
    if CHECK_BOUNDS:
        digest.update(b"checked\0")
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in without:
            continue
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:20]


def cache_root() -> Path:
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
    global cache_problem
    try:
        root = cache_root()
        make_folder(root, exist_ok=True, mode=0o700)
        root = root.resolve(strict=True)  # from here on no link that somebody could change is followed
        _check_path(root)
        folder = root / code_digest()
        _private_folder(folder)
        os.utime(folder)
        (folder / _MARKER).touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder is known
        cache_problem = str(error)
        return None
    _prune(folder)
    return folder


def _prune(current: Path) -> None:
    """Delete all but the most recently used digests, and nothing else; another process may be doing the same."""
    with contextlib.suppress(OSError):
        others = [
            path
            for path in current.parent.iterdir()
            if path != current and re.fullmatch(r"[0-9a-f]{20}", path.name) and (path / _MARKER).is_file()
        ]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in others[_KEPT_DIGESTS - 1 :]:
            shutil.rmtree(old, ignore_errors=True)


cache_folder: Path | None = None if numba.config.DISABLE_JIT else _open_folder()
"""Where this process keeps its machine code, or None."""


def _open_cache(function: Callable[..., Any], label: str) -> Any:
    global cache_problem
    if getattr(numba.config, "CACHE_LOCATOR_CLASSES", ""):
        cache_problem = "NUMBA_CACHE_LOCATOR_CLASSES overrides where Numba keeps compiled code"
    elif cache_folder is not None:
        try:
            return _Cache(function, label)
        except Exception as error:  # private classes of Numba: whatever goes wrong, only the cache is lost
            cache_problem = f"this version of Numba keeps its cache differently ({error})"
    return _NoCache(label)


def _announce(label: str, signature: Any) -> None:
    if on_compile is not None:
        dtype = re.search(r"float\d+", str(signature))  # of the first array
        on_compile(f"{label} ({dtype[0]})" if dtype else label)


class _NoCache(caching.NullCache):
    def __init__(self, label: str) -> None:
        self._label = label

    def load_overload(self, sig: Any, target_context: Any) -> None:
        _announce(self._label, sig)


class _Locator(caching._CacheLocator):
    """Puts every function's machine code into `cache_folder`, whose name already tells the sources' state."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module = function.__module__
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_Locator":
        return cls(py_func)

    def get_cache_path(self) -> str:
        return str(cache_folder)

    def get_source_stamp(self) -> str:
        return "by digest"

    def get_disambiguator(self) -> str:
        return f"{self._module}-{self._line}"


class _CacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _CacheFile(caching.IndexDataCacheFile):
    """Numba numbers its files: of two processes that save at once both take the next number, and the index of one then
    names the machine code of the other. Here nobody else takes the name of a file."""

    def save(self, key: Any, data: Any) -> None:
        """As Numba's; one process after the other, or an entry of the index might be lost, and compiled again."""
        end, lock = time.monotonic() + _PATIENCE, lock_folder(Path(self._cache_path))
        while lock is None and time.monotonic() < end:
            time.sleep(_BLINK)
            lock = lock_folder(Path(self._cache_path))
        try:
            super().save(key, data)
        finally:
            if lock is not None:
                lock.close()

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        """As Numba's; the user can read the file again whatever the umask is."""
        with super()._open_for_write(filepath) as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)
            yield file

    def flush(self) -> None:
        """Forget everything; Numba would write over its files, these are deleted."""
        super().flush()
        for path in Path(self._cache_path).glob(f"{glob.escape(self._base())}.*.nbc"):
            path.unlink(missing_ok=True)

    def _data_name(self, number: int) -> str:
        return f"{self._base()}.{secrets.token_hex(8)}.nbc"

    def _base(self) -> str:
        return str(self._index_name).removesuffix(".nbi")


class _Cache(caching.FunctionCache):
    _impl_class = _CacheImpl

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        super().__init__(function)
        self._cache_file = _CacheFile(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )  # fmt: skip
        self._label = label

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # a damaged file must cost a compilation, never the run
            self.flush()
            found = None
        if found is None:
            _announce(self._label, sig)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        # a full disk loses the cache, not the run; so does an interrupt inside the callback by which LLVM hands over
        # machine code: Numba has none to save then ("no compiled object yet"), though the function is there and works
        with contextlib.suppress(OSError, RuntimeError):
            super().save_overload(sig, data)
