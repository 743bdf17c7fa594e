"""The receptive field of a trained model, measured by the gradient of its last loss with respect to all inputs.

The measure is the norm of the gradient with respect to the embedding of each token of a block, divided by the sum of
the norms and accumulated from the last token backwards (Chi et al. 2023, "Dissecting transformer length
extrapolation", arXiv:2212.10356, section 4).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.model.transformer import Transformer
from fastpe.training.evaluation import check_length
from fastpe.training.length_curve import read_for

Array = np.ndarray[Any, Any]

SHARE = 0.99
BLOCKS = 32
_NEVER = -1e30  # logit of tokens that the model does not have


@dataclass(frozen=True)
class ReceptiveField:
    """The gradient of the last token's loss with respect to the inputs, as shares by distance.

    Attributes
    ----------
    length : int
        Number of tokens in a block.
    shares : array (length,)
        Share of the gradients by distance from the last token (0 first), mean over the blocks.
    distance : int
        Smallest distance that contains 99 % of the gradients.
    blocks : int
        Number of blocks.
    """

    length: int
    shares: Array
    distance: int
    blocks: int

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        return {"length": self.length, "distance": self.distance, "share": SHARE, "blocks": self.blocks,
                "shares": self.shares.tolist()}  # fmt: skip


@validation.named_arguments
def receptive_field(
    model_or_run: Transformer | str | Path, tokens: Any = None, length: int | None = None, *, blocks: int = BLOCKS,
    threads: int | None = None, progress: Callable[[int], None] | None = None,
) -> ReceptiveField:  # fmt: skip
    """Measure the receptive field of a model in blocks of a text.

    For each block, the gradient of the last token's loss with respect to every input embedding is computed. The result
    contains the norms of these gradients, as shares of their sum.

    Parameters
    ----------
    model_or_run, tokens
        As for `fastpe.length_curve`.
    length : int, optional
        Number of tokens in a block. By default twice the training length, but at most T - 1 for a text of T tokens.
    blocks : int
        Number of blocks, evenly spaced over the text.
    threads : int, optional
        Number of threads; does not change the result. Default: all cores.
    progress : callable, optional
        Called as ``progress(done)`` after each block, with the number of finished blocks.

    Returns
    -------
    ReceptiveField

    Raises
    ------
    ValueError, TypeError, OSError
        For the same reasons as `fastpe.length_curve`; also if the encoding is undefined at this length, or the model's
        `positions` are not "usual".

    Examples
    --------
    >>> import fastpe
    >>> model = fastpe.Transformer(fastpe.ModelConfig("alibi", width=16, causal=True, vocabulary=9, train_length=8))
    >>> field = receptive_field(model, np.arange(200) % 9, 16)
    >>> field.shares.shape, round(float(field.shares.sum()), 6)
    ((16,), 1.0)
    """
    model, text, _, _ = read_for(model_or_run, tokens)
    most = len(text) - 1
    length = validation.whole("length", min(2 * model.config.train_length, most) if length is None else length, 1)
    if length > most:
        raise ValueError(f"length must be below the {most + 1} tokens of the text, not {length}")
    count = min(validation.whole("blocks", blocks, 1), most - length + 1)
    if model.config.positions != "usual":
        raise ValueError(
            f"model must have positions='usual', not {model.config.positions!r}: its gradients use the positions of a "
            "training step"
        )
    check_length(model.config, length)
    twin = _twin(model, length)
    shares = np.zeros(length)
    for done, start in enumerate(np.linspace(0, most - length, count).astype(np.int64), 1):
        sizes = _gradient_sizes(model, twin, text[start : start + length + 1].astype(np.int64), threads)
        if not (np.isfinite(sizes).all() and sizes.sum() > 0):
            raise ArithmeticError("the gradients of the model are not finite, or all 0")
        shares += sizes[::-1] / sizes.sum() / count
        if progress is not None:
            progress(done)
    distance = int(np.searchsorted(np.cumsum(shares), SHARE * shares.sum()))
    return ReceptiveField(length, shares, min(distance, length - 1), count)


def _twin(model: Transformer, length: int) -> Transformer:
    """Return a copy of the model with `length` additional tokens, one for each position of a block.

    Each of these tokens occurs once. So the gradient of its row of the embedding table is the gradient with respect to
    the input at its position. The copy always has biases, which are 0 if the model has none: the bias of the head gives
    the additional tokens the logit `_NEVER`.
    """
    own = model.config
    vocabulary = (own.vocabulary or 0) + length
    twin = Transformer(replace(own, vocabulary=vocabulary, tied=False, bias=True, dropout=0.0))
    head = model.parameters["embed.weight"].T if own.tied else model.parameters["head.weight"]
    for name, array in twin.parameters.items():
        if name in ("embed.weight", "head.weight", "head.bias"):
            array[...] = _NEVER if name == "head.bias" else 0.0
        else:
            array[...] = model.parameters.get(name, 0.0)
    twin.parameters["head.weight"][:, : own.vocabulary] = head
    twin.parameters["head.bias"][: own.vocabulary] = model.parameters.get("head.bias", 0.0)
    return twin


def _gradient_sizes(model: Transformer, twin: Transformer, block: Array, threads: int | None) -> Array:
    """Return the norms of the gradients of the last loss with respect to the embeddings of a block, (length,)."""
    length, first = len(block) - 1, model.config.vocabulary or 0
    twin.parameters["embed.weight"][first:] = model.parameters["embed.weight"][block[:-1]]
    weights = np.zeros(length)
    weights[-1] = 1.0
    y = np.append(np.zeros(length - 1, np.int64), block[-1])
    _, gradients = twin.loss_and_grads(np.arange(first, first + length), y, weights=weights, threads=threads)
    sizes: Array = np.linalg.norm(gradients["embed.weight"][first:].astype(np.float64), axis=1)
    return sizes
