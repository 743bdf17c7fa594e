"""CoPE, contextual positions: a query counts the keys that match it, and each count has a learned vector.

    g_ij = sigmoid(s q_i . k_j),    p_ij = min(sum over j <= t <= i of g_it, P - 1)
    S_ij = s q_i . (k_j + (1 - w) e[floor p_ij] + w e[ceil p_ij]),    w = p_ij - floor p_ij

s = 1/sqrt(D); g are the gates, and e[c] is the learned vector of the count c, 0 .. P - 1. If all gates are open (g =
1), p is the look-back plus one. If gates open only at the starts of sentences, p counts sentences.

Source: Golovneva, Wang, Weston and Sukhbaatar 2024, "Contextual Position Encoding: Learning to Count What's Important"
(arXiv:2405.18719), section 4 and appendix B; facebookresearch/RAM, projects/cope, ContextPosSelfAttn.

**Slots**: `counts` (1, P, D), which all heads share. It holds e, multiplied by s if `divided` is set. **Learns**,
separately in every layer: `vectors` (P, D), initially 0.

**Options**
- `most`: P - 1, the largest count, at most 2^20. Default: the training length, as in the authors' code, whose table has
  one row more than a block has tokens. In lucidrains' x-transformers, the default is 15.
- `divided`: whether the added term is also divided by sqrt(D), as in the authors' code by default. The term is not
  divided in the paper's listing, in x-transformers, and in the authors' code with the option `cope_nodiv`.

**Past the training length**: clipped: counts above P - 1 become P - 1. For causal models only.

**Traps.** With and without `divided`, e differs by a factor of sqrt(D), so a table trained with one setting does not
work with the other. The gradient jumps where a count is an integer. Keys hidden by a mask must not be counted. Far into
a text a count is a sum of many gates, for which float32 is not exact enough; here the sums are in float64. The gates
use the products of queries and keys after the changes by other encodings, for example after rotations in "rope+cope".
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.slots import Spec

_MOST = 2**20


def check(spec: Spec, **options: Any) -> None:
    """Require a causal model, and a width that is a multiple of the number of heads."""
    _ = spec.head_dim
    if not spec.causal:
        raise ValueError("'cope' needs causal=True: it counts the keys from the query backwards")


def _rows(spec: Spec, most: int | None) -> int:
    return 1 + (min(spec.train_length, _MOST) if most is None else most)


def _factor(spec: Spec, divided: bool) -> float:
    return spec.head_dim**-0.5 if divided else 1.0


def parameters(spec: Spec, *, most: int | None, divided: bool) -> dict[str, tuple[int, ...]]:
    """A vector for each count."""
    return {"vectors": (_rows(spec, most), spec.head_dim)}


def shapes(spec: Spec, *, most: int | None, divided: bool) -> dict[str, tuple[int, ...]]:
    """One table, shared by all heads."""
    return {"counts": (1, _rows(spec, most), spec.head_dim)}


def init(spec: Spec, rng: Any, *, most: int | None, divided: bool) -> dict[str, Any]:
    """Zeros, so that attention initially ignores positions."""
    import numpy as np

    return {name: np.zeros(shape) for name, shape in parameters(spec, most=most, divided=divided).items()}


def reference(spec: Spec, params: dict[str, Any], *, most: int | None, divided: bool) -> dict[str, Any]:
    """Golovneva et al. 2024, appendix B."""
    return {"counts": params["vectors"][None] * _factor(spec, divided)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, most: int | None, divided: bool) -> None:
    """Fill `counts`: the vectors, times the factor of the scores if `divided`."""
    out["counts"][0] = params["vectors"] * _factor(spec, divided)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, most: int | None,
    divided: bool,
) -> None:  # fmt: skip
    """dvectors = dcounts times the same factor as in `fill`."""
    dparams["vectors"] += dslots["counts"][0] * _factor(spec, divided)


ENCODING = Encoding(
    summary="positions are counts of keys that match a query",
    formula=r"""
        g_{ij} &= \mathrm{sigmoid}(s\, q_i \cdot k_j),
            \quad p_{ij} = \min\left(\sum_{j \le t \le i} g_{it},\ P - 1\right) \\
        S_{ij} &= s\, q_i \cdot \left(k_j + (1 - w)\, e[\lfloor p_{ij} \rfloor] + w\, e[\lceil p_{ij} \rceil]\right),
            \quad w = p_{ij} - \lfloor p_{ij} \rfloor
    """,
    use_when="a causal model must count tokens of some kind, such as ends of sentences, not positions",
    also_called=("contextual position encoding",),
    not_to_be_confused={"rope_clipped": "clipped RoPE (also CoPE), whose slowest pairs are slowed down to a stop"},
    use="proposed",
    slots=("counts",),
    options={
        "most": Option(
            None, "the largest count; none: the training length", int, optional=True, minimum=1, maximum=_MOST
        ),
        "divided": Option(True, "whether the added term is divided by sqrt(D)", bool),
    },
    per_layer=("vectors",),
    beyond="clipped",
    direction="causal",
    source="Golovneva et al. 2024, arXiv:2405.18719, section 4, and released code",
    ulp=1.0,
)
