"""`head_scores` and `frequency_use` of Hugging Face models."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from fastpe import heads
from fastpe.functional.rotation import rotate
from fastpe.torch.layer import Part, observed
from fastpe.torch.operators import HALVES, array
from fastpe.torch.rotary import attending, check_model, is_rotated, rotated
from fastpe.torch.transformers import register_transformers

_BYTES = 2**25
"""The size of the largest array of attention weights."""
_KNOWN = {"causal", "mask", "scale", "softcap", "dropout", "sinks", "bands", "theta", "pairs"}


def head_scores(
    model: torch.nn.Module, tokens: torch.Tensor, *, start: int = 1, sink: int = 1
) -> dict[str, torch.Tensor]:
    """Return which tokens the heads of a Hugging Face model attend to, as means over queries and samples.

    The scores are ``previous``, ``duplicate``, ``induction``, ``sink``, ``distance`` and ``entropy``, as
    `fastpe.heads.head_scores` defines them. Attention weights are computed for a block of queries at a time, so that
    their memory grows in proportion to the number of tokens. (For layers with a sliding window, transformers itself
    makes a mask of N x N booleans.) Inside a ``with`` block of `rotated`, the weights are those with the positions that
    `rotated` sets.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model of transformers 5 that attends through the interface of `register_transformers`. No
        dropout is applied to attention weights. To switch off all other dropout, call ``model.eval()`` first.
    tokens : (B, N) int tensor
        The tokens, without padding. To find induction heads, take T random tokens twice:
        ``torch.randint(V, (1, T)).repeat(1, 2)``.
    start : int
        The first query of the means. With ``start=T``, the means are over the second copy of T tokens.
    sink : int
        The number of first keys whose weight is ``sink``.

    Returns
    -------
    dict of (layers, heads) float64 tensors
        The layers are those that compute attention, in the order of the forward pass.

    Raises
    ------
    ImportError
        If transformers 5 is not installed.
    TypeError, ValueError
        If an argument is wrong, or if the model attends in another way, for example to the output of an encoder.

    See Also
    --------
    fastpe.heads.head_scores : The definitions, for arrays of weights.

    Examples
    --------
    >>> tokens = torch.randint(1000, (1, 100)).repeat(1, 2)  # doctest: +SKIP
    >>> head_scores(model, tokens, start=100)["induction"].max()  # doctest: +SKIP
    """

    def scores_of(part: Part) -> dict[str, np.ndarray[Any, Any]]:
        return heads.head_scores(_weights(part), array(tokens), start=start, sink=sink)

    layers = _layers(model, tokens, "head_scores", lambda part: torch.from_numpy(np.stack([*scores_of(part).values()])))
    return dict(zip(heads.SCORES, torch.stack(layers, dim=1), strict=True))


def frequency_use(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return how much each pair of rotated channels of a Hugging Face model can contribute to the score.

    See `fastpe.heads.frequency_use` for the definition. The model must be one that `rotated` supports.

    Parameters
    ----------
    model, tokens
        As for `head_scores`.

    Returns
    -------
    (layers, heads, R/2) float64 tensor
        Pairs in the order of the frequencies, usually from the fastest to the slowest. NaN in layers without rotary
        positions.

    Raises
    ------
    ImportError, TypeError, ValueError
        As `head_scores` and `rotated` do.

    Examples
    --------
    >>> use = frequency_use(model, tokens)  # doctest: +SKIP
    >>> use.mean((0, 1)).argmax()  # the pair of channels with the largest bound  # doctest: +SKIP
    """

    def use_of(part: Part) -> torch.Tensor:
        theta = part.given.get("theta")
        if theta is None:
            return torch.full((1, part.q.shape[1]), torch.nan, dtype=torch.float64)
        q, k = (array(x.float() if x.dtype in HALVES else x) for x in (part.q, part.k))
        options = {"pairs": part.given["pairs"], "scale": part.given["scale"], "rotated": 2 * len(theta)}
        return torch.from_numpy(heads.frequency_use(q, k, **options).T.copy())

    with nullcontext() if is_rotated(model) else rotated(model):
        layers = _layers(model, tokens, "frequency_use", use_of)
    most = max(layers, key=len)
    return torch.stack([each.expand_as(most) for each in layers]).transpose(1, 2)


def _layers(
    model: Any, tokens: torch.Tensor, caller: str, numbers: Callable[[Part], torch.Tensor]
) -> list[torch.Tensor]:
    """Return numbers (..., H) of each layer that attends in a forward pass of the model. The function `numbers` returns
    those of the heads of a part."""
    register_transformers()
    check_model(model, caller)
    if not isinstance(tokens, torch.Tensor) or tokens.ndim != 2 or tokens.is_floating_point():
        shape = tuple(tokens.shape) if isinstance(tokens, torch.Tensor) else type(tokens).__name__
        raise TypeError(f"tokens must be a tensor (B, N) of integers, not {shape}")
    if not tokens.numel():
        raise ValueError(f"tokens must not be empty, but have the shape {tuple(tokens.shape)}")
    own, found = set(model.modules()), []

    def observer(module: torch.nn.Module, parts: Sequence[Part]) -> None:
        if module not in own:
            return
        for part in parts:
            if not _is_causal(part, tokens.shape[1]):
                raise ValueError(
                    f"model must be a causal language model without position biases: {type(module).__name__} attends "
                    f"in another way, which {caller} does not support"
                )
        order = [part.heads for part in parts if part.heads is not None]
        joined = torch.cat([numbers(part) for part in parts], dim=-1)
        found.append(joined[..., torch.cat(order).argsort()] if order else joined)

    implementation = nullcontext() if is_rotated(model) else attending(model, "fastpe")
    with implementation, observed(observer), torch.no_grad():
        model.base_model(tokens, use_cache=False)
    if not found or len({each.shape[-1] for each in found}) > 1:
        raise ValueError(f"{caller} needs layers with the same number of heads, not {[len(each.T) for each in found]}")
    return found


def _is_causal(part: Part, length: int) -> bool:
    """Whether the queries are those of all tokens, see no later keys, and have no other terms than `_KNOWN`."""
    if (part.q.shape[2], part.k.shape[2]) != (length, length) or not part.given.keys() <= _KNOWN:
        return False
    mask = part.given["mask"]
    if mask is None:
        return bool(part.given["causal"]) or length == 1
    later = mask[..., 0, 1:]  # of the first query
    return not bool((later if mask.dtype == torch.bool else later > torch.finfo(mask.dtype).min / 2).any())


def _weights(part: Part) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the attention weights of blocks of queries, (B, H, n, M), where M is the number of keys up to the last
    query."""
    given, mask, sinks = part.given, part.given["mask"], part.given["sinks"]
    q, k = (x.float() if x.dtype in HALVES else x for x in (part.q, part.k))
    samples, count, length, width = q.shape
    scale = width**-0.5 if given["scale"] is None else given["scale"]
    rotations = list(_rotations(q.unflatten(1, (k.shape[1], -1)), k[:, :, None], given))
    places = torch.arange(length)
    step = max(1, _BYTES // (samples * count * length * q.element_size()))
    for first in range(0, length, step):
        rows, seen = slice(first, min(first + step, length)), slice(0, min(first + step, length))
        scores: Any = -torch.inf
        for queries, keys, spans in rotations:
            own = scale * (queries[..., rows, :] @ keys[..., seen, :].mT).flatten(1, 2)
            near = (spans[:, rows, :1] <= places[seen]) & (places[seen] < spans[:, rows, 1:])
            scores = torch.where(near[:, None], own, scores)
        if given["softcap"] is not None:
            scores = given["softcap"] * torch.tanh(scores / given["softcap"])
        hidden = places[seen] > places[rows, None]
        if mask is not None:
            own_mask = mask[..., rows, seen]
            hidden = hidden | ~own_mask if mask.dtype == torch.bool else hidden
            scores = scores if mask.dtype == torch.bool else scores + own_mask
        scores = scores.masked_fill(hidden, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks[:, None, None].expand(samples, -1, rows.stop - first, 1)], dim=-1)
        yield array(torch.softmax(scores, dim=-1)[..., seen])


def _rotations(
    q: torch.Tensor, k: torch.Tensor, given: dict[str, Any]
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield queries and keys as they enter the product, and for each query the range of keys, for each band."""
    if given.get("bands") is None:
        yield q, k, torch.tensor([0, k.shape[-2]]).expand(1, q.shape[-2], 2)
        return

    def turned(x: torch.Tensor, places: np.ndarray[Any, Any]) -> torch.Tensor:
        angles = places.reshape(-1, 1, 1, x.shape[-2], 1) * given["theta"]
        return torch.from_numpy(rotate(array(x), angles, pairs=given["pairs"]))

    for band in given["bands"]:
        yield turned(q, band.queries), turned(k, band.keys), torch.from_numpy(band.spans)
