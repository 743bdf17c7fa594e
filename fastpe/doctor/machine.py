"""The environment of fastpe: versions, CPU, threads, and the compile cache. `probe` measures the speed.

Importing this module imports neither NumPy nor Numba.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

_ALSO = ("click", "rich", "safetensors")
_OPTIONAL = ("matplotlib", "torch", "transformers", "jax")


def usable_cores() -> int:
    """Return the number of cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str | None]:
    """Return versions of fastpe, Python and all packages that fastpe uses; None if one is not installed."""
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
    """Return the name and vector features of the CPU, the register width of kernels in bytes, and the cores."""
    from fastpe.kernels import simd
    from fastpe.training import config_file

    cores = {"cores": os.cpu_count(), "usable_cores": usable_cores()}
    return {**config_file.environment()["cpu"], "register_bytes": simd.REGISTER_BYTES, **cores}


def threads() -> dict[str, Any]:
    """Return the default number of threads, and Numba's threading layer, or None before the first parallel call."""
    import numba

    from fastpe.kernels.threads.team import default_threads

    try:
        layer = numba.threading_layer()
    except ValueError:  # not chosen yet
        layer = None
    return {"default": default_threads(), "layer": layer}


def compile_cache() -> dict[str, Any]:
    """Return the folder of the cache of compiled code, and its size.

    Returns
    -------
    dict
        - ``folder``: the folder, or None;
        - ``problem``: the reason why there is no folder, or None;
        - ``files`` and ``bytes``: the number of files and their size, for all versions of the sources;
        - ``stale``: whether a source was changed since this process started.
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
    """Return the sizes in bytes of the files in a folder, which another process may be changing."""
    sizes = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes
