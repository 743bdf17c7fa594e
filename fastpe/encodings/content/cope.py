"""CoPE, contextual positions: a query counts the keys that it asks for; each count has a vector.

    g_ij = sigmoid(s q_i . k_j),    p_ij = min(sum over j <= t <= i of g_it, P - 1)
    S_ij = s q_i . (k_j + (1 - w) e[floor p_ij] + w e[ceil p_ij]),    w = p_ij - floor p_ij

s = 1/sqrt(D). Where all gates are open p is the look-back and one more; where they open at sentences, it counts
sentences.

Source: Golovneva, Wang, Weston and Sukhbaatar 2024, "Contextual Position Encoding: Learning to Count What's Important"
(arXiv:2405.18719), section 4 and appendix B; facebookresearch/RAM, projects/cope, ContextPosSelfAttn.

**Slots**: `counts` (1, P, D), shared by all heads: e, times s where `divided`. **Learns**, separately in every layer:
`vectors` (P, D), which begin at 0.

**Options**
- `most`: P - 1, the largest count. The training length if none is given, 2^20 at most, as in the authors' code, whose
  table has a row more than a block has tokens; lucidrains' x-transformers has 15.
- `divided`: whether what is added is divided by sqrt(D) too, the authors' default. Their option `cope_nodiv`, the
  paper's listing and x-transformers leave it as it is.

**Past the training length**: clipped; more than P - 1 counted keys are P - 1. For causal models alone.

**Traps.** The two scalings differ by a factor of sqrt(D) in e, and a table that was trained for one is not for the
other. The gradient jumps where a count is a whole number. Keys that a mask hides must not be counted. Far in a text
counts are sums of many gates, which float32 does not keep; here they are sums in float64. With another encoding that
adds to products, as in "rope+cope", gates see it too.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.slots import Spec

_MOST = 2**20


def check(spec: Spec, **options: Any) -> None:
    """The model must be causal, its heads of one width."""
    _ = spec.head_dim
    if not spec.causal:
        raise ValueError("'cope' needs causal=True: it counts keys from the query back")


def _rows(spec: Spec, most: int | None) -> int:
    return 1 + (min(spec.train_length, _MOST) if most is None else most)


def _factor(spec: Spec, divided: bool) -> float:
    return spec.head_dim**-0.5 if divided else 1.0


def parameters(spec: Spec, *, most: int | None, divided: bool) -> dict[str, tuple[int, ...]]:
    """A vector for every count."""
    return {"vectors": (_rows(spec, most), spec.head_dim)}


def shapes(spec: Spec, *, most: int | None, divided: bool) -> dict[str, tuple[int, ...]]:
    """One table for all heads."""
    return {"counts": (1, _rows(spec, most), spec.head_dim)}


def init(spec: Spec, rng: Any, *, most: int | None, divided: bool) -> dict[str, Any]:
    """Zeros: attention that knows no positions."""
    import numpy as np

    return {name: np.zeros(shape) for name, shape in parameters(spec, most=most, divided=divided).items()}


def reference(spec: Spec, params: dict[str, Any], *, most: int | None, divided: bool) -> dict[str, Any]:
    """Golovneva et al. 2024, appendix B."""
    return {"counts": params["vectors"][None] * _factor(spec, divided)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, most: int | None, divided: bool) -> None:
    """The vectors, times what scores are multiplied by."""
    out["counts"][0] = params["vectors"] * _factor(spec, divided)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, most: int | None,
    divided: bool,
) -> None:  # fmt: skip
    """A slot is its vectors, but for the factor."""
    dparams["vectors"] += dslots["counts"][0] * _factor(spec, divided)


ENCODING = Encoding(
    summary="positions count the keys that content asks for",
    use="proposed",
    slots=("counts",),
    options={
        "most": Option(
            None, "the largest count; the training length if none", int, optional=True, minimum=1, maximum=_MOST
        ),
        "divided": Option(True, "whether what it adds is divided by sqrt(D)", bool),
    },
    per_layer=("vectors",),
    beyond="clipped",
    direction="causal",
    source="Golovneva et al. 2024, arXiv:2405.18719, section 4, and released code",
    ulp=1.0,
)
