"""Moirai: several time series in one sequence; RoPE of the time, and a learned bias for tokens of the same series.

    S_ij = s R(t_i) q_i . R(t_j) k_j + bias[1, h] if v_i = v_j
                                       bias[0, h] else

v is the number of a token's series (its variate) and t its time. R rotates the first R channels of a head as `rope`
does, by t base^(-2n/R) for pair n.

Source: Woo et al. 2024, "Unified Training of Universal Time Series Forecasting Transformers" (arXiv:2402.02592);
SalesforceAIResearch/uni2ts, uni2ts/module/position/attn_bias.py, BinaryAttentionBias, and attn_projection.py.

**Slots**: `index` (N, N), `values` (H, 2), `angles` (1, N, R/2), `pairs`. **Learns**, separately in every layer: `bias`
(2, H), initially N(0, 1). Renumbering the series changes nothing, and there may be any number of them.

**Options**
- `grid`: the number of series and of times; the tokens are the series one after the other. Default: the factors of
  the length that are closest to each other.
- `rotated`: R. Default: half of the channels, as in the authors' code, rounded down to an even number.
- `base`, `pairs`: as for `rope`; the authors' code uses `interleaved`.

Positions, if given, are (v, t) of each token. Times may be any real numbers.

**Past the training length**: defined. The slow pairs reach angles that did not occur in training.

**Traps.** `index` takes O(N^2) memory. The series and the time of a token are both needed: two series have tokens of
the same time. Moirai also normalises the queries and keys of each head, which is a setting of the model here.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts.angles import Array, exact_angles, fill_angles, precise, turns
from fastpe.encodings.parts.grids import coordinates
from fastpe.encodings.parts.rotary import base_option, ladder, pairs_option, plain_pairs, printed_ladder, rotated_width
from fastpe.encodings.slots import Spec

Grid = tuple[int, ...] | None


def _width(spec: Spec, rotated: int | None) -> int:
    """R, the number of rotated channels of a head."""
    return rotated_width(spec, max(spec.head_dim // 4 * 2, 2) if rotated is None else rotated)


def _tokens(spec: Spec, grid: Grid) -> tuple[Array, Array]:
    """The series and the time of every token, (..., N) each."""
    points = coordinates(spec, grid, 2)
    return points[..., 0], points[..., 1]


def check(spec: Spec, *, grid: Grid, rotated: int | None, **options: Any) -> None:
    """Require an even number of rotated channels, and a grid with one cell for each token."""
    _width(spec, rotated)
    if spec.positions is None:
        _tokens(spec, grid)


def axes(**options: Any) -> int:
    """The series and the time."""
    return 2


def shapes(spec: Spec, *, rotated: int | None, **options: Any) -> dict[str, tuple[int, ...]]:
    """Which of two values every pair of tokens gets, and one angle for each token and pair of channels."""
    return {
        "index": (*spec.batch, spec.length, spec.length),
        "values": (spec.heads, 2),
        "angles": (*spec.batch, 1, spec.length, _width(spec, rotated) // 2),
    }


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A number for pairs of different series, and one for pairs of the same series, for each head."""
    return {"bias": (2, spec.heads)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Numbers drawn from N(0, 1)."""
    return {"bias": rng.normal((2, spec.heads))}


def reference(
    spec: Spec, params: dict[str, Any], *, grid: Grid, rotated: int | None, base: float, pairs: str
) -> dict[str, Any]:  # fmt: skip
    """Index 1 for tokens of the same series, and the angles of `rope` at the times."""
    series, times = _tokens(spec, grid)
    with precise():
        theta = printed_ladder(base, _width(spec, rotated))
    return {
        "index": series[..., :, None] == series[..., None, :],
        "values": params["bias"].T,
        "angles": exact_angles(times, list(theta))[..., None, :, :],
    }


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: Grid, rotated: int | None, base: float, pairs: str
) -> None:  # fmt: skip
    """Fill `index`, `values` and `angles`."""
    series, times = _tokens(spec, grid)
    np.equal(series[..., :, None], series[..., None, :], out=out["index"], casting="unsafe")
    out["values"][...] = params["bias"].T
    fill_angles(times[..., None], turns(ladder(base, _width(spec, rotated))), out["angles"])


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dbias = dvalues, transposed."""
    dparams["bias"] += dslots["values"].T


ENCODING = Encoding(
    summary="for several time series: rotary, and a bias",
    formula=r"""
        S_{ij} &= s\, R(t_i) q_i \cdot R(t_j) k_j + \begin{cases}
        \mathrm{bias}[1, h] & v_i = v_j \\
        \mathrm{bias}[0, h] & \text{otherwise}
        \end{cases} \\
        &v \text{ the series, } t \text{ the time of a token}
    """,
    use_when="a sequence holds several time series, whose order is arbitrary",
    also_called=("binary attention bias", "any-variate attention"),
    not_to_be_confused={
        "mrope": "all coordinates are rotated, so their order counts",
        "time2vec": "features of the time, added to the embeddings",
    },
    use="other",
    needs=Needs("coordinates"),
    slots=("index", "values", "angles", "pairs"),
    options={
        "grid": Option(None, "series and times; none: the closest factors", tuple, optional=True),
        "rotated": Option(
            None, "how many channels of a head are rotated, an even number; none: half", int, minimum=2, optional=True
        ),
        "base": base_option(),
        "pairs": pairs_option("interleaved"),
    },
    per_layer=("bias",),
    direction="yes",
    ulp=2.0,
    plain=plain_pairs,
    source="Woo et al. 2024, arXiv:2402.02592, and released code",
)
