"""KERPLE, power kernel: the penalty is a_h |j - i|^p_h, and each head h learns a_h and p_h.

    S_ij = s q_i . k_j - a_h |j - i|^p_h,    0 < p <= 2

Source: Chi, Fan, Ramadge and Rudnicky 2022, "KERPLE: Kernelized Relative Positional Embedding for Length
Extrapolation" (arXiv:2205.09921), section 4, eqs. (1) and (4); initial values and clamps: chijames/KERPLE,
megatron/mpu/layers.py, ParallelKerplePower.

**Slot**: `bias` (H, 2N-1), or `scores` (H, N, N) if positions are given.
**Learns**: `a` (H,), initially uniform in (0, 1), and `p` (H,), initially uniform in (0, 2); shared by all layers.

**Options**: none.

**Past the training length**: defined. With p = 1 the bias is that of ALiBi with learned slopes; with p = 2 it is a
Gaussian window.

**Accuracy.** Unless positions are given, the error at any distance is at most 4 units in the last place in float64, and
0.52 in float32. From 64 on, distances are grouped into runs of consecutive distances. One power is computed for each
run, at its middle. The other values of the run are computed from it by the series of (1 + u)^p, |u| < 1/16.

**Traps.** Before every use, the authors' code overwrites values of `a` below 0.01 with 0.01, and values of `p` outside
[0.01, 2] with the nearest end of this interval. The next update starts from there. Here the parameter keeps its value:
it acts as the bound and has a gradient of zero, so only the optimiser's momentum can move it back. The bias is added to
scores that are already divided by sqrt(D), as in the code; eq. (1) of the paper divides the bias too. The bias is even
in j - i: without a causal mask the model cannot tell left from right. The released code is for causal models. It can
also multiply the scores by exp(-a' |j - i|^p'); this is not implemented here.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts import kerple
from fastpe.encodings.parts.distance_runs import Runs, fill_runs, geometric, moments, most_terms
from fastpe.encodings.parts.offset_biases import as_slots, pairwise, shapes
from fastpe.encodings.slots import Spec

_MOST = {"p": 2.0}


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Two numbers per head."""
    return {"a": (spec.heads,), "p": (spec.heads,)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """a uniform in (0, 1), p uniform in (0, 2)."""
    drawn = rng.uniform((2, spec.heads))
    return {"a": drawn[0], "p": 2.0 * drawn[1]}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The formula above, -a r^p."""
    a = np.maximum(params["a"], 0.01)[:, None, None]
    p = np.minimum(np.maximum(params["p"], 0.01), 2)[:, None, None]
    return as_slots(spec, -a * np.abs(pairwise(spec))[..., None, :, :] ** p)


def _powers(runs: Runs, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m^p at each run's middle m, (H, R); u for one step of distance, (1, 1, R); series of (1 + u)^p, (H, 1 + n)."""
    k = np.arange(1, most_terms(runs) + 1)
    series = np.cumprod(np.concatenate([np.ones((len(p), 1)), (p[:, None] - k + 1) / k], axis=1), axis=1)
    return runs.middle ** p[:, None], 1.0 / np.maximum(runs.middle, 1.0)[None, None], series


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `bias`, or `scores` if positions are given."""
    values = kerple.clamped(params, _MOST)
    if spec.positions is not None:
        kerple.fill(spec, values, out["scores"], lambda r, a, p: -a * r**p)
        return
    runs = geometric(spec.length, out["bias"].dtype)
    power, rate, series = _powers(runs, values["p"])
    level = -values["a"][:, None] * power[None]
    fill_runs(out["bias"], runs, level, level, rate, series[:, 1:])


def _derivatives(r: np.ndarray, a: float, p: float) -> tuple[np.ndarray, np.ndarray]:
    power = r**p
    return -power, -a * power * np.log(np.where(r > 0.0, r, 1.0))


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """da = -sum of dbias r^p, dp = -sum of dbias a r^p ln r; the terms of dp at r = 0 are 0."""
    values = kerple.clamped(params, _MOST)
    if spec.positions is None:
        found = _totals(spec, dslots["bias"], values["a"], values["p"])
    else:
        found = kerple.totals(spec, values, dslots["scores"], _derivatives)
    kerple.add(params, values, found, dparams)


def _totals(spec: Spec, dbias: np.ndarray, a: np.ndarray, p: np.ndarray) -> np.ndarray:
    runs = geometric(spec.length, dbias.dtype)
    power, rate, series = _powers(runs, p)
    sums = moments(dbias, runs, rate, series.shape[1] - 1)[0] * power[:, :, None]
    slopes = np.zeros_like(series)  # the derivative with respect to p: the series of (1 + u)^p ln(1 + u)
    for k in range(1, series.shape[1]):
        slopes[:, k] = (slopes[:, k - 1] * (p - k + 1) + series[:, k - 1]) / k
    along = np.einsum("hrk,hk->hr", sums, series)
    dp = np.einsum("hr,r->h", along, np.log(np.maximum(runs.middle, 1.0))) + np.einsum("hrk,hk->h", sums, slopes)
    return -np.array([along.sum(axis=1), a * dp])


ENCODING = Encoding(
    summary="penalty by a learned power of the distance",
    formula=r"S_{ij} = s\, q_i \cdot k_j - a_h \left| j - i \right|^{p_h}, \quad 0 < p \le 2",
    use_when="heads should learn the shape of their penalty, from ALiBi's line to a Gaussian window",
    not_to_be_confused={"BAM": "a power of the distance from a learned centre"},
    use="proposed",
    slots=("bias", "scores"),
    options={},
    beyond="defined",
    direction="no",
    source="Chi, Fan, Ramadge and Rudnicky 2022, arXiv:2205.09921, section 4, eqs. (1) and (4)",
    reported=Reported(
        "holds",
        "Trained on 512 tokens: perplexity on OpenWebText2 falls from 23.9 to 21.6 at 16384; GitHub and ArXiv "
        "are alike.",
        "Chi et al. 2022, arXiv:2205.09921, table 3",
    ),
    ulp=8.0,
    shapes=shapes,
)
