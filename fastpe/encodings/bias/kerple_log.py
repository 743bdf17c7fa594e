"""KERPLE, logarithmic kernel: the penalty is r1 ln(1 + r2 |j - i|), with r1 and r2 learned for each head.

    S_ij = s q_i . k_j - r1_h ln(1 + r2_h |j - i|)

Source: Chi, Fan, Ramadge and Rudnicky 2022, "KERPLE: Kernelized Relative Positional Embedding for Length
Extrapolation" (arXiv:2205.09921), section 4, eqs. (1) and (4); initial values and clamps: chijames/KERPLE,
megatron/mpu/layers.py, ParallelKerpleLog.

**Slot**: `bias` (H, 2N-1), or `scores` (H, N, N) if positions are given.
**Learns**: `r1` (H,), initially uniform in (0, 2), and `r2` (H,), initially uniform in (0, 1); shared by all layers.

**Options**: none.

**Past the training length**: defined. The penalty flattens: doubling the distance adds about r1 ln 2.

**Accuracy.** Unless positions are given, the error at any distance is at most 4 units in the last place in float64, and
0.52 in float32. From 64 on, distances are grouped into runs of consecutive distances. One logarithm is computed for
each run, at its middle. The other values of the run are computed from it by the series of ln(1 + u), |u| < 1/16.

**Traps.** Before every use, the authors' code overwrites values of r1 and r2 below 0.01 with 0.01, and the next update
starts from there. Here the parameter keeps its value: it acts as 0.01 and has a gradient of zero, so only the
optimiser's momentum can move it back. The bias is added to scores that are already divided by sqrt(D), as in the code;
eq. (1) of the paper divides the bias too. The bias is even in j - i: without a causal mask the model cannot tell left
from right. The released code is for causal models.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts import kerple
from fastpe.encodings.parts.distance_runs import Runs, fill_runs, geometric, moments, most_terms
from fastpe.encodings.parts.offset_biases import as_slots, pairwise, shapes
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Two numbers per head."""
    return {"r1": (spec.heads,), "r2": (spec.heads,)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """r1 uniform in (0, 2), r2 uniform in (0, 1)."""
    drawn = rng.uniform((2, spec.heads))
    return {"r1": 2.0 * drawn[0], "r2": drawn[1]}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The formula above, -r1 ln(1 + r2 r)."""
    r1, r2 = (np.maximum(params[name], 0.01)[:, None, None] for name in ("r1", "r2"))
    return as_slots(spec, -r1 * np.log1p(r2 * np.abs(pairwise(spec))[..., None, :, :]))


def _logarithms(runs: Runs, r2: np.ndarray) -> tuple[np.ndarray, ...]:
    """ln(1 + r2 r) and 1 + r2 r at each run's middle, (H, R), and the series of ln(1 + u), (1, n)."""
    at_middle = r2[:, None] * runs.middle
    k = np.arange(1, most_terms(runs) + 1)
    return np.log1p(at_middle), 1.0 + at_middle, ((-1.0) ** (k + 1) / k)[None]


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `bias`, or `scores` if positions are given."""
    values = kerple.clamped(params, {})
    if spec.positions is not None:
        kerple.fill(spec, values, out["scores"], lambda r, r1, r2: -r1 * np.log1p(r2 * r))
        return
    runs, r1, r2 = geometric(spec.length, out["bias"].dtype), values["r1"][None, :, None], values["r2"]
    level, grown, series = _logarithms(runs, r2)
    fill_runs(out["bias"], runs, -r1 * level, -r1, (r2[:, None] / grown)[None], series)


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dr1 = -sum of dbias ln(1 + r2 r), dr2 = -sum of dbias r1 r / (1 + r2 r)."""
    values = kerple.clamped(params, {})
    if spec.positions is None:
        found = _totals(spec, dslots["bias"], values["r1"], values["r2"])
    else:
        found = kerple.totals(
            spec, values, dslots["scores"], lambda r, r1, r2: (-np.log1p(r2 * r), -r1 * r / (1.0 + r2 * r))
        )
    kerple.add(params, values, found, dparams)


def _totals(spec: Spec, dbias: np.ndarray, r1: np.ndarray, r2: np.ndarray) -> np.ndarray:
    runs = geometric(spec.length, dbias.dtype)
    level, grown, series = _logarithms(runs, r2)
    sums = moments(dbias, runs, (r2[:, None] / grown)[None], series.shape[1])[0]
    dr1 = np.einsum("hr,hr->h", level, sums[..., 0]) + np.einsum("hrk,k->h", sums[..., 1:], series[0])
    # r / (1 + r2 r) = (m / (1 + r2 m) + u / r2) / (1 + u)
    signs = (-1.0) ** np.arange(sums.shape[2])
    near = np.einsum("hr,hrk,k->h", runs.middle / grown, sums, signs)
    dr2 = near + np.einsum("hrk,k->h", sums[..., 1:], signs[:-1]) / r2
    return -np.array([dr1, r1 * dr2])


ENCODING = Encoding(
    summary="learned penalty, logarithmic in the distance",
    formula=r"S_{ij} = s\, q_i \cdot k_j - r_{1,h} \ln(1 + r_{2,h} \left| j - i \right|)",
    use_when="a causal model must read far beyond its training length with a penalty that it learns",
    also_called=("KERPLE",),
    use="proposed",
    slots=("bias", "scores"),
    options={},
    beyond="defined",
    direction="no",
    source="Chi, Fan, Ramadge and Rudnicky 2022, arXiv:2205.09921, section 4, eqs. (1) and (4)",
    reported=Reported(
        "holds",
        "Trained on 512 tokens: perplexity on OpenWebText2 falls from 23.9 to 21.4 at 16384; GitHub and ArXiv "
        "are alike.",
        "Chi et al. 2022, arXiv:2205.09921, table 3",
    ),
    ulp=8.0,
    shapes=shapes,
)
