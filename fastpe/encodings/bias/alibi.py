"""ALiBi: a penalty on the score that grows linearly with the distance between query and key.

    S_ij = s q_i . k_j - slope_h |j - i|

Source: Press, Smith and Lewis 2021, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation" (arXiv:2108.12409), section 3; the list of slopes: ofirpress/attention_with_linear_biases,
fairseq/models/transformer.py, get_slopes. Li (2025), section 5.3 and eq. (9), uses a single head, with the slope alpha
= 0.1 / N_train, where N_train is the training length.

**Slot**: `bias` (H, 2N-1); the pair (i, j) uses element j - i + N - 1 of its head's row. If positions are given, the
distance is not a function of j - i; the slot is then `scores` (H, N, N), with a value for every pair. **Learns**:
nothing by default. The option `learned` trains `slope` (H,); the form `nonsymmetric`, which needs this option, also
trains `slope_future` (H,), used for j > i.

**Slopes.** If H is a power of two, head h = 0 .. H-1 has the slope 2^(-8(h+1)/H). For any other H, let n be the largest
power of two below H: the slopes of n heads come first, followed by the first, third, fifth, ... slope of 2n heads,
until there are H.

**Forms.** `symmetric` is the formula above. In a causal model it equals the paper's formula, -slope (i - j), because
keys with j > i are masked. For models without a mask, the first author describes two more forms (issue 5 of the code's
repository):

- `one_sided` ("nonsymmetric with mask") shows the past to the first half of the heads and the future to the other half,
  each half with the slopes of H/2 heads. Hidden keys get a slope of 2^30, so their scores are at least 10^9 lower.
- `nonsymmetric` ("with no mask") learns two slopes for each head, one for each side. The author initialises the slopes
  as the sigmoid of N(-2, 1); here both start with the slopes stated above.

**Options**
- `slope`: one slope for all heads, instead of the slopes stated above.
- `alpha0`: all heads have the slope alpha0 / N_train, as in Li (2025). It cannot be combined with `slope`.
- `factor`: multiplies the slopes, whichever option sets them. BiPE (He et al. 2024, arXiv:2401.16421) uses 96 and takes
  the index of a token's segment as its position. For BiPE, pass the indices of segments as positions, or train a causal
  model with `--positions segments:SEP`.
- `learned`: train the slopes; the values set by the other options are only the initial ones.
- `form`: `symmetric`, `one_sided` or `nonsymmetric`.
- `schedule`: the factor on the slopes at a length N beyond N_train. `constant`: 1. `linear`: N_train / N, so that the
  penalties of the training length are stretched over the new length (Al-Khateeb et al. 2023, "Position Interpolation
  Improves ALiBi Extrapolation", arXiv:2310.13017). `log`: ln(1 + N_train) / ln(1 + N), a construction of this library,
  which lies between these two. Li (2025), section 8, asks for slopes that adapt to the length but gives no formula.

The paper's released code adds slope_h * j instead of -slope_h |j - i|. In a causal model this gives the same weights
after the softmax; in a bidirectional model it is wrong. The bias is not multiplied by 1/sqrt(D).

**Past the training length**: defined; the penalty keeps growing with the distance. A `schedule` makes it grow more
slowly, and changes the penalty at every distance.

**Traps.** The symmetric bias is even in j - i: without a causal mask, reversing the input reverses the output, so the
model cannot tell left from right. With a causal mask but no start token, a sequence of equal tokens still has equal
outputs at all positions. Li's slope is 0.1/50 = 0.002 for a training length of 50, which is almost no bias. A learned
slope may become negative; it then favours distant keys.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.distance_runs import Runs, fill_runs, moments
from fastpe.encodings.parts.offset_biases import as_slots, pairwise, shapes
from fastpe.encodings.parts.row_blocks import row_blocks
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inlined
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.simd import at, lanes, load_first, minus, pointer, splat, store_rounded, where_negative


def slopes(heads: int) -> np.ndarray:
    """The authors' slopes, (H,) float64, for any number of heads.

    Round H up to a power of two n; list the slopes of n heads at odd indices, then those at even indices, and keep the
    first H. The authors' recursion gives the same list.

    >>> slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    """
    n = 1 << (heads - 1).bit_length()
    full = np.array([2.0 ** (-8.0 * (h + 1) / n) for h in range(n)])
    return full if n == heads else np.concatenate([full[1::2], full[0::2]])[:heads]


_HIDDEN = 2.0**30  # the slope for keys that a head of the form one_sided must not see


def check(
    spec: Spec, *, slope: float | None, alpha0: float | None, learned: bool, form: str, **options: Any
) -> None:  # fmt: skip
    """Allow at most one of `slope` and `alpha0`, and only a form that suits the heads, the mask and `learned`."""
    if slope is not None and alpha0 is not None:
        raise ValueError(f"options 'slope' ({slope:g}) and 'alpha0' ({alpha0:g}) exclude each other: give only one")
    if form == "one_sided" and (spec.causal or spec.heads % 2):
        raise ValueError(
            f"form 'one_sided' needs an even number of heads and no causal mask, not heads={spec.heads}, "
            f"causal={spec.causal}"
        )
    if form == "nonsymmetric" and not learned:
        raise ValueError("form 'nonsymmetric' learns a slope for each side: set option learned=True")


def _column(
    spec: Spec, *, learned: bool, form: str, schedule: str, **options: Any
) -> tuple[float, ...] | None:  # fmt: skip
    """The slopes, if they are symmetric and depend on neither parameters nor a schedule; otherwise None."""
    fixed = not learned and form == "symmetric" and schedule == "constant"
    return tuple(_chosen(spec, form=form, **options).tolist()) if fixed else None


def parameters(spec: Spec, *, learned: bool, form: str, **options: Any) -> dict[str, tuple[int, ...]]:
    """The slopes, if they are learned."""
    names = ("slope", "slope_future") if form == "nonsymmetric" else ("slope",)
    return dict.fromkeys(names, (spec.heads,)) if learned else {}


def _chosen(
    spec: Spec, slope: float | None, alpha0: float | None, factor: float, form: str, **options: Any
) -> np.ndarray:  # fmt: skip
    if slope is not None:
        found = np.full(spec.heads, slope)
    elif alpha0 is not None:
        found = np.full(spec.heads, alpha0 / spec.train_length)
    else:
        found = np.tile(slopes(spec.heads // 2), 2) if form == "one_sided" else slopes(spec.heads)
    return factor * found


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """The chosen slopes."""
    return dict.fromkeys(parameters(spec, **options), _chosen(spec, **options))


def reference(
    spec: Spec, params: dict[str, Any], *, slope: float | None, alpha0: float | None, learned: bool, factor: float,
    form: str, schedule: str,
) -> dict[str, Any]:  # fmt: skip
    """-slope |j - i| (Press et al. 2021, section 3), with the slopes of the authors' recursion."""
    heads, n, n_train = spec.heads, spec.length, spec.train_length
    if learned:
        past, future = params["slope"], params.get("slope_future", params["slope"])
    elif alpha0 is not None:
        past = future = factor * np.array([alpha0 / n_train] * heads)
    elif slope is not None:
        past = future = factor * np.array([slope] * heads)
    else:
        own = _authors_slopes(heads // 2) * 2 if form == "one_sided" else _authors_slopes(heads)
        past = future = factor * np.array(own)
    if n > n_train and schedule == "linear":
        past, future = past * n_train / n, future * n_train / n
    elif n > n_train and schedule == "log":
        past, future = (each * math.log(1 + n_train) / math.log(1 + n) for each in (past, future))
    if form == "one_sided":
        first = np.arange(heads) < heads // 2
        past, future = np.where(first, past, 2.0**30), np.where(first, 2.0**30, future)
    offset = pairwise(spec)[..., None, :, :]
    left, right = np.maximum(-offset, 0), np.maximum(offset, 0)
    return as_slots(spec, -past[:, None, None] * left - future[:, None, None] * right)


def _authors_slopes(heads: int) -> list[float]:
    exponent = math.log2(heads)
    if exponent.is_integer():
        start = 2.0 ** -(2.0 ** -(exponent - 3))
        return [start * start**h for h in range(heads)]
    below = 2 ** math.floor(exponent)
    return _authors_slopes(below) + _authors_slopes(2 * below)[0::2][: heads - below]


def _factor(spec: Spec, schedule: str) -> float:
    """The factor by which the schedule multiplies the slopes."""
    if schedule == "constant" or spec.length <= spec.train_length:
        return 1.0
    if schedule == "linear":
        return spec.train_length / spec.length
    return math.log1p(spec.train_length) / math.log1p(spec.length)


def _visible(heads: int, form: str) -> np.ndarray:
    """Whether each head sees the past and the future, (2, H)."""
    half = np.arange(heads) < heads // 2
    return np.array([half, ~half]) if form == "one_sided" else np.ones((2, heads), bool)


_ONE, _NOTHING = np.ones((1, 1, 1)), np.zeros((1, 1, 1))


def _all_distances(spec: Spec) -> Runs:
    """All distances as one run: the penalty is linear, so a series of one term gives it exactly."""
    return Runs(np.array([0, spec.length]), np.zeros(1), np.ones(1, np.int64))


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, learned: bool, form: str, schedule: str,
    **options: Any,
) -> None:  # fmt: skip
    """Fill `bias`, or `scores` if positions are given."""
    own = params["slope"].astype(np.float64) if learned else _chosen(spec, form=form, **options)
    sides = np.array([own, params["slope_future"] if form == "nonsymmetric" else own]) * _factor(spec, schedule)
    sides = np.where(_visible(spec.heads, form), sides, _HIDDEN)
    if spec.positions is None:
        even = (sides[0] == sides[1]).all()
        fill_runs(out["bias"], _all_distances(spec), _NOTHING, -sides[: 1 if even else 2, :, None], _ONE, _ONE[0])
        return
    points, scores, n = spec.positions.reshape(-1, spec.length), out["scores"], spec.length
    heads = spec.heads
    for rows, first, row_step, step in row_blocks(scores):
        row = np.arange(rows.start, rows.stop)
        sample, head, query = row // (heads * n), row // n % heads, row % n
        _fill_pairs(points, sample, query, sides[:, head], first, row_step, step, scores.nbytes >= LARGE)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, form: str, schedule: str,
    **options: Any,
) -> None:  # fmt: skip
    """dslope_h = -sum of dbias times distance, separately for each side."""
    sides = np.zeros((2, spec.heads))
    if spec.positions is None:
        sides = moments(dslots["bias"], _all_distances(spec), _ONE, 1, sides=2)[:, :, 0, 1]
    else:
        n = spec.length
        _pull_pairs(spec.positions.reshape(-1, n), dslots["scores"].reshape(-1, spec.heads, n, n), sides)
    past, future = np.where(_visible(spec.heads, form), sides, 0.0) * _factor(spec, schedule)
    if form == "nonsymmetric":
        dparams["slope"] -= past
        dparams["slope_future"] -= future
    else:
        dparams["slope"] -= past + future


_PIECE = 4096  # elements of a row computed in a buffer before they are copied


@inlined
def _penalty(offset, past, future):  # type: ignore[no-untyped-def]
    """-past |offset| before the query, -future |offset| after it."""
    return where_negative(offset, past, minus(future)) * offset


@entry(label="ALiBi scores")
def _fill_pairs(
    points: np.ndarray, sample: np.ndarray, query: np.ndarray, sides: np.ndarray, first: np.ndarray, row_step: int,
    step: int, large: bool,
) -> None:  # fmt: skip
    table, piece, length = pointer(first), np.empty(_PIECE, first.dtype), points.shape[1]
    width = lanes(splat(0.0))
    for row in range(sides.shape[1]):
        past, future, keys = splat(sides[0, row]), splat(sides[1, row]), points[sample[row]]
        origin = splat(keys[query[row]])
        for start in range(0, length, _PIECE):
            count = min(_PIECE, length - start)
            key = at(pointer(keys), start)
            for j in range(0, count, width):
                offset = load_first(key, j, count - j) - origin
                store_rounded(pointer(piece), j, _penalty(offset, past, future), count - j)
            move_rows(pointer(piece), 1, count, at(table, row * row_step + start * step), count, step, large)
    finish(large)


@entry(label="gradient of ALiBi slopes")
def _pull_pairs(points: np.ndarray, dscores: np.ndarray, sides: np.ndarray) -> None:
    samples, heads, n, _ = dscores.shape
    for h in range(heads):
        for b in range(samples):
            for i in range(n):
                for j in range(n):
                    offset = points[b, j] - points[b, i]
                    sides[0 if offset < 0.0 else 1, h] += float(dscores[b, h, i, j]) * abs(offset)


ENCODING = Encoding(
    summary="linear penalty on distance, one slope per head",
    formula=r"S_{ij} = s\, q_i \cdot k_j - \mathrm{slope}_h \left| j - i \right|",
    use_when="a causal model must read far beyond its training length and mostly needs recent tokens",
    also_called=("attention with linear biases",),
    not_to_be_confused={
        "hard_alibi": "windows of 1, 2, 3, ... keys in place of slopes",
        "fox": "slopes that depend on the content",
    },
    use="current",
    slots=("bias", "scores"),
    options={
        "slope": Option(None, "the same slope for all heads", float, minimum=0.0, optional=True),
        "alpha0": Option(None, "one slope alpha0 / train_length for all heads", float, minimum=0.0, optional=True),
        "factor": Option(1.0, "multiplies the slopes", float, minimum=0.0, samples=(96.0,)),
        "learned": Option(False, "whether the slopes are learned", bool),
        "form": Option("symmetric", "treatment of the two sides", str, ("symmetric", "one_sided", "nonsymmetric")),
        "schedule": Option(
            "constant", "how slopes shrink beyond the training length", str, ("constant", "linear", "log")
        ),
    },
    beyond="defined",
    moves=lambda *, schedule, **options: schedule != "constant",
    direction="no",
    source="Press, Smith and Lewis 2021, arXiv:2108.12409, section 3",
    reported=Reported(
        "holds",
        "Trained on 1024 tokens of WikiText-103: perplexity 18.66 there, 17.92 at 3024 and 17.98 at 16024 tokens.",
        "Press, Smith and Lewis 2021, arXiv:2108.12409, fig. 1 and table 3",
    ),
    ulp=lambda spec, **options: 2.0 + 2.0 * spec.heads,  # the reference multiplies rounded numbers to get the slopes
    shapes=shapes,
    column=_column,
    paper={"alpha0": 0.1},
)
