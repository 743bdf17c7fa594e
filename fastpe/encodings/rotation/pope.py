"""PoPE: each channel is a point in the plane; its radius comes from the content, its angle from the position.

    S_ij = scale sum over c of softplus(q_ic) softplus(k_jc) cos((j - i) theta_c + phi_hc),   theta_c = base^(-c/D)

Source: Gopalakrishnan, Csordas, Schmidhuber and Mozer 2025, "Decoupling the What and Where With Polar Coordinate
Positional Embeddings" (arXiv:2509.10534); released in x-transformers (PolarEmbedding) and PoPE-pytorch.

**Slots**: `polar` (H, D) holds phi, and `angles` (1, N, D) holds j theta_c. **Learns**: `phases` (H, D), shared by all
layers; phi is `phases` clipped to [-2 pi, 0].

RoPE rotates two channels together, as one point in the plane. The angle of that point also depends on the content,
namely on the ratio of the two channels. In PoPE, angles do not depend on the content: they depend only on the positions
and on the learned phases of the keys. There are D frequencies, twice as many as in `rope`. A score is a dot product of
vectors of 2 D numbers, but the scale is still 1/sqrt(D).

**Initial values.** By default all phases start at 0.

**Options**
- `base`: the slowest frequency is about 1/base.
- `initial`: the initial phases. `zero`: all are 0. `uniform`: they are drawn uniformly from (-2 pi, 0].

Angles are as precise as those of `rope`.

**Past the training length**: defined.

**Facts.** If all phases are 0, a score depends on positions only through the distance, so keys to the left and right
are treated alike. The score of a token with its own key is then never negative. There is no option `rotated`, because
all channels are rotated (the last ones slowly).

**Traps.** The phase is added to the angle of the key. If it were added to the angle of the query, it would have the
opposite effect. The gradient of a phase equals that of phi inside the interval [-2 pi, 0] and at its ends, and is 0
outside. If an update moves a phase above 0, the phase leaves the interval. Its phi then stays 0 unless weight decay
brings the phase back. PoPE cannot be combined with slots such as `rel_key`, which use queries and keys as vectors of D
channels.
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
    """A phase for each head and channel."""
    return {"phases": (spec.heads, spec.head_dim)}


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Phases, and an angle for each token and channel."""
    return {"polar": (spec.heads, spec.head_dim), "angles": (*spec.batch, 1, spec.length, spec.head_dim)}


def check(spec: Spec, **options: Any) -> None:
    """Require a number of heads that divides the width."""
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
    """The gradient of phi where the phase is in the interval, ends included."""
    kept = (params["phases"] >= _LEAST) & (params["phases"] <= 0.0)
    dparams["phases"] += np.where(kept, dslots["polar"], 0.0)


ENCODING = Encoding(
    summary="radii of content at angles of positions",
    formula=r"""
        S_{ij} &= \mathrm{scale} \sum_c \mathrm{softplus}(q_{ic})\, \mathrm{softplus}(k_{jc}) \cos((j - i)\, \theta_c +
            \phi_{hc}) \\
        \theta_c &= \mathrm{base}^{-c/D}
    """,
    use_when="a language model must read beyond its training length, and what and where should not mix",
    also_called=("polar coordinate position embedding",),
    not_to_be_confused={
        "PoPE (arXiv:2405.04585)": "Legendre polynomials added to the embeddings, see `legendre`",
        "PoSE": 'skipped positions in training, set by positions="pose"',
    },
    use="proposed",
    slots=("polar", "angles"),
    options={
        "base": base_option(),
        "initial": Option("zero", "initial phases: zero, or uniform in (-2 pi, 0]", str, ("zero", "uniform")),
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
