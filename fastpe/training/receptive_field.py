"""How far back a trained model looks: the gradient of its last loss by every input.

The norms of the gradients by the embeddings of a block's tokens, shares of their sum, added up from the last token
backwards (Chi et al. 2023, "Dissecting transformer length extrapolation", arXiv:2212.10356, section 4).
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
_NEVER = -1e30  # logit of what is no token of the model


@dataclass(frozen=True)
class ReceptiveField:
    """Where the gradient of the last loss comes from.

    Attributes
    ----------
    length : int
        Tokens of a block.
    shares : array (length,)
        By distance from the last token, 0 at first: its share of all gradients, a mean over blocks.
    distance : int
        The least distance within which 99 % of it lies.
    blocks : int
        How many blocks were looked at.
    """

    length: int
    shares: Array
    distance: int
    blocks: int

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"length": self.length, "distance": self.distance, "share": SHARE, "blocks": self.blocks,
                "shares": self.shares.tolist()}  # fmt: skip


@validation.named_arguments
def receptive_field(
    model_or_run: Transformer | str | Path, tokens: Any = None, length: int | None = None, *, blocks: int = BLOCKS,
    threads: int | None = None, progress: Callable[[int], None] | None = None,
) -> ReceptiveField:  # fmt: skip
    """How far back a model looks in blocks of a text.

    Parameters
    ----------
    model_or_run, tokens
        As for `fastpe.length_curve`.
    length : int, optional
        Tokens of a block. By default twice as many as in training, or as the text has.
    blocks : int
        How many, as far from each other as the text allows.
    threads : int, optional
    progress : callable, optional
        Called as ``progress(done)`` after each block, with how many are done.

    Returns
    -------
    ReceptiveField

    Raises
    ------
    ValueError, TypeError, OSError
        As `fastpe.length_curve` does, and where the encoding is undefined at this length.

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
            f"model must have its usual positions: gradients with positions={model.config.positions!r} are those of a "
            "training step's draw"
        )
    check_length(model.config, length)
    twin = _twin(model, length)
    shares = np.zeros(length)
    for done, start in enumerate(np.linspace(0, most - length, count).astype(np.int64), 1):
        sizes = _gradient_sizes(model, twin, text[start : start + length + 1].astype(np.int64), threads)
        if not (np.isfinite(sizes).all() and sizes.sum() > 0):
            raise ArithmeticError("the gradients of the model are not finite, or all 0: it looks nowhere")
        shares += sizes[::-1] / sizes.sum() / count
        if progress is not None:
            progress(done)
    distance = int(np.searchsorted(np.cumsum(shares), SHARE * shares.sum()))
    return ReceptiveField(length, shares, min(distance, length - 1), count)


def _twin(model: Transformer, length: int) -> Transformer:
    """The same model, with a token of its own for every place of a block: gradients of its table are those by inputs.

    It has biases, which are 0 where the model has none, so that the logits of these tokens can be out of reach.
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
    """Norms of the gradients of the last loss by the embeddings of a block, (length,)."""
    length, first = len(block) - 1, model.config.vocabulary or 0
    twin.parameters["embed.weight"][first:] = model.parameters["embed.weight"][block[:-1]]
    weights = np.zeros(length)
    weights[-1] = 1.0
    y = np.append(np.zeros(length - 1, np.int64), block[-1])
    _, gradients = twin.loss_and_grads(np.arange(first, first + length), y, weights=weights, threads=threads)
    sizes: Array = np.linalg.norm(gradients["embed.weight"][first:].astype(np.float64), axis=1)
    return sizes
