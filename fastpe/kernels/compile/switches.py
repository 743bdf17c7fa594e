"""The builds that environment variables choose; each has machine code of its own in the cache."""

import os


def switch(name: str) -> bool:
    """Whether an environment variable says 1, not 0, which is also meant where there is none."""
    chosen = os.environ.get(name, "")
    if chosen not in ("", "0", "1"):
        raise ValueError(f"{name} must be 0 or 1, not {chosen!r}")
    return chosen == "1"


CHECK_BOUNDS = switch("FASTPE_CHECK_BOUNDS")
"""Whether kernels check every access to memory (see `simd.pointers`)."""

PLAIN_NUMBA = switch("FASTPE_PLAIN_NUMBA")
"""Whether Numba compiles as it always does, as with a version whose parts `pipeline` does not know: the same numbers,
after two to three times as long."""
