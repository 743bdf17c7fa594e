"""Norms of queries and keys, before they are rotated: each head by itself, as in Qwen 3, or all heads together, as in
OLMo 2.

    y = weight x / sqrt(mean(x^2) + eps),    the mean over the D channels of a head, or over the channels of all heads

All heads of queries have one weight (D,), and so do all heads of keys; if heads are normalised together, the weight has
an entry for every channel. The rows in `qkv` are overwritten; `raw` keeps them for the backward pass.
"""

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.embedding_and_head import copy
from fastpe.kernels.model.pack import pass_on, take_turn
from fastpe.kernels.rows.norm import norm_backward, norm_forward
from fastpe.kernels.simd import at

BY_HEAD, TOGETHER = np.int64(1), np.int64(2)
"""Values of `Sizes.qk_norm`; 0: queries and keys are not normalised."""
NONE = np.int64(0)


@inner
def _parts(which, sizes):
    """For queries (`which` is 0) or keys (1), return the number of parts of a row that are normalised separately, and
    the size of a part.
    """
    heads, width = (sizes.key_heads, sizes.key_width) if which else (sizes.heads, sizes.query_width)
    count = heads if sizes.qk_norm == BY_HEAD else np.int64(1)
    return count, width // count


@inner
def _raw_and_stats(which, i, act, sizes, a):
    """Return the memory of a row's queries or keys before the norm, and that of their stats."""
    raw = i * (sizes.query_width + sizes.key_width) + which * sizes.query_width
    return at(act, a.raw + raw), at(act, a.raw_stats + 2 * (i * (sizes.heads + sizes.key_heads) + which * sizes.heads))


@inner
def normalise_heads(w, cache, act, pack, sizes, o, a):
    """Normalise the queries and keys of a pack's new rows. cache, act: as in `layer.layer_forward`."""
    if not sizes.qk_norm:
        return
    for which in range(2):
        (count, size), weight = _parts(which, sizes), at(w, o.key_norm if which else o.query_norm)
        for i in range(pack.rows):
            x = at(cache, a.qkv + (pack.before + i) * sizes.projected + which * sizes.query_width)
            raw, stats = _raw_and_stats(which, i, act, sizes, a)
            copy(x, raw, count * size)
            norm_forward(raw, weight, weight, x, stats, count, size, sizes.norm_eps, NONE, NONE)


@inner
def normalise_heads_backward(w, g, act, workspace, pack, sizes, o, a):
    """`dqkv` holds the gradients of the normalised queries and keys. Overwrite them with the gradients before the norm,
    and add to the gradients of the weights, in the turn of the pack.
    """
    if not sizes.qk_norm:
        return
    take_turn(pack)
    for which in range(2):
        place = o.key_norm if which else o.query_norm
        (count, size), weight, dweight = _parts(which, sizes), at(w, place), at(g, place)
        for i in range(pack.rows):
            d = at(workspace, a.dqkv + i * sizes.projected + which * sizes.query_width)
            raw, stats = _raw_and_stats(which, i, act, sizes, a)
            norm_backward(d, raw, weight, stats, d, dweight, dweight, count, size, NONE, NONE, NONE)
    pass_on(pack)
