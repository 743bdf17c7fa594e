"""The peers of attention: PyTorch in the fastest form that we know for each position term.

PyTorch is optional (`pip install -e '.[peers]'` from a clone of fastpe); the functions that use it import it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe.benchmarks.attention_cases import Calls, Problem

_PADDED = 68
"""Number of channels of q, k and v for FlashBias. It needs 66; the next multiple of 4 is fastest."""


def torch_calls(problem: Problem, threads: int, way: str) -> Calls:
    """The calls of PyTorch for a problem.

    `way` is one of:

    - ``sdpa``: PyTorch's function. For ALiBi, it gets a dense mask that is made beforehand. For a learned bias, each
      call gathers the mask. Otherwise there is no mask.
    - ``flashbias``, ``flex``.
    - ``fastpe``: fastpe's adapter.
    """
    import torch

    torch.set_num_threads(threads)
    if way == "flex":
        return _flex(problem)
    attend, learned = {"sdpa": _own_function, "flashbias": _low_rank, "fastpe": _adapter}[way](problem)
    q, k, v = (torch.tensor(x, requires_grad=True) for x in problem.inputs()[:3])
    leaves = {"q": q, "k": k, "v": v, **learned}

    def forward() -> Any:
        with torch.no_grad():
            return attend(q, k, v)

    def gradients(out: Any, dout: Any) -> dict[str, Any]:
        found = torch.autograd.grad(out, tuple(leaves.values()), torch.from_numpy(dout), retain_graph=True)
        return dict(zip(leaves, found, strict=True))

    def both(dout: Any) -> tuple[Any, Mapping[str, Any]]:
        out = attend(q, k, v)
        return out.detach(), gradients(out, dout)

    def prepared() -> Callable[[Any], Any]:
        out = attend(q, k, v)
        return lambda dout: gradients(out, dout)

    return Calls(forward, both, prepared)


def _own_function(problem: Problem) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Attention by `scaled_dot_product_attention`, and the parameters that it uses."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    if problem.term == "none":
        return lambda q, k, v: attend(q, k, v, is_causal=problem.causal), {}
    offsets = np.arange(problem.length)[None, :] - np.arange(problem.length)[:, None]
    gathered = torch.from_numpy(offsets + problem.length - 1)
    bias = torch.tensor(problem.slots()["bias"])
    if problem.term == "alibi":
        mask = bias[:, gathered]
        if problem.causal:
            mask = mask.masked_fill(torch.from_numpy(offsets > 0), -math.inf)
        mask = mask[None]
        return lambda q, k, v: attend(q, k, v, attn_mask=mask), {}
    bias.requires_grad_()
    return lambda q, k, v: attend(q, k, v, attn_mask=bias[:, gathered][None]), {"bias": bias}


def _adapter(problem: Problem) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Attention of tensors by fastpe."""
    import torch

    from fastpe.torch import attention

    slots = {name: torch.tensor(array) for name, array in problem.slots().items()}
    learned = {name: slots[name].requires_grad_() for name in problem.wanted() if name in slots}
    return lambda q, k, v: attention(q, k, v, causal=problem.causal, **slots), learned


def _low_rank(problem: Problem) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Causal ALiBi as two more channels with the product `slope * (j - i)`.

    This is FlashBias (Wu et al. 2025, arXiv:2505.12044).
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    n, d = problem.length, problem.width
    places = torch.arange(n, dtype=torch.float32)[:, None]
    slopes = torch.tensor(problem.slope_per_head() * math.sqrt(d), dtype=torch.float32)[:, None, None]
    ones, padding = torch.ones(n, 1), torch.zeros(problem.batch, problem.heads, n, _PADDED - d - 2)
    of_queries = torch.cat([slopes * ones, -slopes * places], -1).expand(problem.batch, -1, -1, -1)
    of_keys = torch.cat([places, ones], -1).expand(problem.batch, problem.heads, -1, -1)
    of_queries, of_keys = (torch.cat([x, padding], -1) for x in (of_queries, of_keys))
    of_values = torch.zeros_like(of_keys)

    def run(q: Any, k: Any, v: Any) -> Any:
        wide_q, wide_k, wide_v = (torch.cat(pair, -1) for pair in ((q, of_queries), (k, of_keys), (v, of_values)))
        return attend(wide_q, wide_k, wide_v, is_causal=True, scale=1 / math.sqrt(d))[..., :d]

    return run, {}


def _flex(problem: Problem) -> Calls:
    """Causal ALiBi with compiled FlexAttention, which has no backward pass on a CPU."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slopes = torch.tensor(problem.slope_per_head(), dtype=torch.float32)
    q, k, v = (torch.tensor(x) for x in problem.inputs()[:3])
    n = problem.length
    blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cpu")
    compiled = torch.compile(flex_attention)

    def with_bias(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + slopes[h] * (j - i)

    def forward() -> Any:
        with torch.no_grad():
            return compiled(q, k, v, score_mod=with_bias, block_mask=blocks)

    return Calls(forward)
