"""The builds that environment variables select; each has separate machine code in the cache."""

import os


def switch(name: str) -> bool:
    """Whether an environment variable is 1; 0 is the default."""
    chosen = os.environ.get(name, "")
    if chosen not in ("", "0", "1"):
        raise ValueError(f"{name} must be 0 or 1, not {chosen!r}")
    return chosen == "1"


CHECK_BOUNDS = switch("FASTPE_CHECK_BOUNDS")
"""Whether kernels check every access to memory (see `simd.pointers`)."""

PLAIN_NUMBA = switch("FASTPE_PLAIN_NUMBA")
"""Whether functions are compiled with Numba's default pipeline, as for versions of Numba that `pipeline` does not
support. Results are the same, but compilation takes two to three times as long."""
