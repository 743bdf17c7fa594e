"""What fastpe runs on: versions, CPU, threads, and the cache of compiled code. `probe` measures how fast it is.

Importing this module imports neither NumPy nor Numba.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

_ALSO = ("click", "rich", "safetensors")
_OPTIONAL = ("matplotlib", "torch", "transformers", "jax")


def usable_cores() -> int:
    """Cores that this process may run on, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str | None]:
    """Versions of fastpe, Python and all packages that fastpe uses; None where an optional one is not installed."""
    from importlib import metadata

    from fastpe.training import config_file

    found: dict[str, str | None] = {**config_file.environment()["versions"]}
    for name in (*_ALSO, *_OPTIONAL):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def cpu() -> dict[str, Any]:
    """Name and vector features of the CPU, the bytes of the registers that kernels use, and the cores."""
    from fastpe.kernels import simd
    from fastpe.training import config_file

    cores = {"cores": os.cpu_count(), "usable_cores": usable_cores()}
    return {**config_file.environment()["cpu"], "register_bytes": simd.REGISTER_BYTES, **cores}


def threads() -> dict[str, Any]:
    """Threads that fastpe uses by default, and Numba's threading layer: None before the first parallel call."""
    import numba

    from fastpe.kernels.threads.team import default_threads

    try:
        layer = numba.threading_layer()
    except ValueError:  # not chosen yet
        layer = None
    return {"default": default_threads(), "layer": layer}


def compile_cache() -> dict[str, Any]:
    """Where compiled code is kept, and how much of it.

    Returns
    -------
    dict
        ``folder``, or None; ``problem``, why there is none; ``files`` and ``bytes`` there, of all states of the
        sources and all versions; ``stale``, whether a source was changed since this process started.
    """
    from fastpe.kernels.compile import cache, sources

    folder = None if cache.problem else cache.folder
    sizes = [] if folder is None else _sizes(folder)
    return {
        "folder": None if folder is None else str(folder),
        "problem": cache.problem,
        "files": len(sizes),
        "bytes": sum(sizes),
        "stale": folder is not None and sources.changed(),
    }


def _sizes(folder: Path) -> list[int]:
    """Bytes of the files in a folder; another process may be writing or pruning there."""
    sizes = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes
