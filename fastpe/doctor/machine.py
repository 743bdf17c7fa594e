"""What fastpe runs on: versions, CPU, threads, and the cache of compiled code. `probe` measures how fast it is.

Importing this module imports neither NumPy nor Numba.
"""

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

    from fastpe.kernels.threads import default_threads

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
        ``folder`` of this process, or None; ``problem``, why there is none; ``files`` and ``bytes`` in that folder;
        ``stale``, whether the sources that machine code comes from have changed since the folder was opened;
        ``digests``, how many states of sources and versions have machine code beside each other, and ``total_bytes`` of
        them all.
    """
    from fastpe.kernels import _jit

    folder = None if _jit.cache_problem else _jit.cache_folder
    root = _jit.cache_root().resolve()
    everything = _sizes(root)
    own = [size for path, size in everything.items() if folder is not None and path.is_relative_to(folder)]
    return {
        "folder": None if folder is None else str(folder),
        "problem": _jit.cache_problem,
        "files": len(own),
        "bytes": sum(own),
        "stale": folder is not None and folder.name != _jit.code_digest(),
        "digests": len({path.relative_to(root).parts[0] for path in everything}),
        "total_bytes": sum(everything.values()),
    }


def _sizes(folder: Path) -> dict[Path, int]:
    """Bytes of the machine code and indices below a folder; another process may be writing or pruning there."""
    sizes = {}
    for path in folder.glob("*/*.nb?"):
        try:
            sizes[path] = path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes
