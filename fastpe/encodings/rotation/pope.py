"""PoPE: content makes radii, positions angles: every channel is a point of the plane by itself.

    S_ij = scale sum over c of softplus(q_ic) softplus(k_jc) cos((j - i) theta_c + phi_hc),   theta_c = base^(-c/D)

Source: Gopalakrishnan, Csordas, Schmidhuber and Mozer 2025, "Decoupling the What and Where With Polar Coordinate
Positional Embeddings" (arXiv:2509.10534); released in x-transformers (PolarEmbedding) and PoPE-pytorch.

**Slots**: `polar` (H, D), phi, and `angles` (1, N, D), j theta. **Learns**: `phases` (H, D), the same for all layers;
phi is what they are clipped to, in [-2 pi, 0].

A rotary pair turns two channels together, so that its angle depends on content: on the quotient of the two. Here an
angle depends on positions alone, and on a phase of the key that every head learns. There are D frequencies, twice as
many as `rope` has. Scores are products of rows 2 D wide, and the scale stays 1/sqrt(D).

**Initial values.** Phases are 0.

**Options**
- `base`: the slowest frequency is about 1/base.
- `initial`: `zero`, or `uniform`: phases drawn from (-2 pi, 0].

Angles are as precise as those of `rope`.

**Past the training length**: defined.

**Facts.** Without phases a score depends on the distance alone: left and right are the same. A score of a token with
itself is then never below 0. There is no R: all channels turn, the last ones by little.

**Traps.** The phase is added to the key's angle: with that of the query its sign turns. The gradient of a phase is that
of phi inside the interval and at its ends, and 0 outside: a step up from 0 leaves it, and that channel stays at 0 for
good, unless weight decay brings it back. Terms that read queries and keys as vectors of D channels, `rel_key` and
others, cannot be added.
"""

import math
from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import base_option, ladder
from fastpe.encodings.slots import Spec

_LEAST = -2.0 * math.pi  # radians


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A phase for every head and channel."""
    return {"phases": (spec.heads, spec.head_dim)}


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Phases, and an angle for every token and channel."""
    return {"polar": (spec.heads, spec.head_dim), "angles": (*spec.batch, 1, spec.length, spec.head_dim)}


def check(spec: Spec, **options: Any) -> None:
    """Heads must divide the width."""
    parameters(spec)


def init(spec: Spec, rng: Any, *, initial: str, **options: Any) -> dict[str, Any]:
    """Zeros, or uniform in (-2 pi, 0]."""
    shape = parameters(spec)["phases"]
    return {"phases": _LEAST * rng.uniform(shape) if initial == "uniform" else np.zeros(shape)}


def reference(spec: Spec, params: dict[str, Any], *, base: float, **options: Any) -> dict[str, Any]:
    """The clipped phases, and p theta_c."""
    width = spec.head_dim
    with precise():
        theta = [1 / Decimal(base) ** (Decimal(c) / width) for c in range(width)]
    return {
        "polar": np.clip(np.asarray(params["phases"], np.float64), _LEAST, 0.0),
        "angles": exact_angles(spec.points(), theta)[..., None, :, :],
    }


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, **options: Any) -> None:
    """Fill `polar` and `angles`."""
    out["polar"][...] = np.clip(params["phases"], _LEAST, 0.0)
    fill_line(spec, ladder(base, spec.head_dim, 1), out["angles"])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any
) -> None:  # fmt: skip
    """The gradient of phi where nothing was clipped, ends included."""
    kept = (params["phases"] >= _LEAST) & (params["phases"] <= 0.0)
    dparams["phases"] += np.where(kept, dslots["polar"], 0.0)


ENCODING = Encoding(
    summary="radii of content at angles of positions",
    use="proposed",
    slots=("polar", "angles"),
    options={
        "base": base_option(),
        "initial": Option("zero", "phases at first: zero, or uniform in (-2 pi, 0]", str, ("zero", "uniform")),
    },
    beyond="defined",
    direction="yes",
    source="Gopalakrishnan et al. 2025, arXiv:2509.10534, and released code",
    reported=Reported(
        "holds",
        "Language models go on past the training length without fine-tuning, better than with RoPE or YaRN.",
        "Gopalakrishnan, Csordas, Schmidhuber and Mozer 2025, arXiv:2509.10534, abstract",
    ),
    ulp=2.0,
)
