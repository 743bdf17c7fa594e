"""Root penalty: a penalty by a power of the distance, with a learned slope for each head.

    S_ij = s q_i . k_j - slope_h |j - i|^power

Source: an own construction.

**Slot**: `bias` (H, 2N-1); the pair (i, j) uses element j - i + N - 1 of its head's row.
**Learns**: `slope` (H,), initially uniform in (0, 1).

**Options**
- `power`: the power of the distance.

**Past the training length**: defined; the penalty keeps growing.
"""

import numpy as np

import fastpe


def _distances(spec, power):
    return np.abs(np.arange(1.0 - spec.length, spec.length)) ** power


def parameters(spec, **options):
    return {"slope": (spec.heads,)}


def init(spec, rng, **options):
    return {"slope": rng.uniform(spec.heads)}


def reference(spec, params, *, power):
    return {"bias": -params["slope"][:, None] * _distances(spec, power)}


def pull(spec, params, dslots, dparams, *, power):
    dparams["slope"] -= (dslots["bias"] * _distances(spec, power)).sum(axis=1)


ENCODING = fastpe.Encoding(
    slots=("bias",),
    summary="a penalty by a power of the distance",
    options={"power": fastpe.Option(0.5, "power of the distance", float, above=0.0, maximum=4.0)},
    beyond="defined",
    direction="no",
    source="an own construction",
    ulp=4.0,
)
