"""How well a model predicts a text: the loss of every token, in nats, and of all in bits per byte."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fastpe.base.stored import printable
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.model.transformer import Transformer
from fastpe.text.vocabulary import Vocabulary
from fastpe.training.evaluation import check_length, remarks, surprise
from fastpe.training.events import LengthTested, Listener, Noted, TestStarted

Array = np.ndarray[Any, Any]

_LOGITS = 2**24  # that go through the model at a time, so that they need bounded memory


Read = Callable[[int], None]
"""A listener that is called with the number of tokens that a model has read since the last call."""


def losses(
    model: Transformer, x: Array, y: Array, lengths: Array | None = None, threads: int | None = None,
    read: Read | None = None,
) -> Array:  # fmt: skip
    """The loss of every target in nats, (B, N) float64; past the end of a sequence NaN.

    Parameters
    ----------
    x, y : (B, N) integers
        Tokens, and the next ones.
    lengths : (B,) integers, optional
        Of the sequences.
    """
    found = np.full(x.shape, np.nan)
    size = max(1, _LOGITS // (x.shape[1] * (model.config.vocabulary or 1)))
    for start in range(0, len(x), size):
        some = slice(start, start + size)
        own = None if lengths is None else lengths[some]
        logits, targets = model(x[some], lengths=own, threads=threads), y[some]
        counts = np.ones(targets.shape, bool) if own is None else np.arange(x.shape[1]) < own[:, None]
        found[some][counts] = surprise(logits[counts], targets[counts])
        if read is not None:
            read(targets.size)
    return found


def block_losses(
    model: Transformer, tokens: Array, length: int, threads: int | None = None, read: Read | None = None
) -> Array:
    """The loss of every token but the first, by block and place there, (blocks, length); NaN past the end.

    The text is cut into blocks that do not overlap; the first token of each is predicted from nothing but the last of
    the block before, the next one from two tokens, and so on.
    """
    total = len(tokens) - 1
    count = -(-total // length)
    places = np.minimum(np.arange(count * length).reshape(count, length), total - 1)
    ends = np.full(count, length)
    ends[-1] = total - (count - 1) * length
    ragged = ends if ends[-1] < length else None
    return losses(model, tokens[places].astype(np.int64), tokens[places + 1].astype(np.int64), ragged, threads, read)


def summed(nats: Array, targets: Array, symbols: Vocabulary) -> dict[str, Any]:
    """`loss` in nats, `bits_per_byte`, `tokens`: of losses and the tokens that they are of, in one order.

    Where a loss is not finite both are None, and `reason` says why.
    """
    mean = float(nats.mean())
    if not math.isfinite(mean):
        return {"loss": None, "bits_per_byte": None, "tokens": len(nats), "reason": "the outputs are not finite"}
    size = int(symbols.widths[targets].sum())
    return {"loss": mean, "bits_per_byte": float(nats.sum()) / math.log(2) / size, "tokens": len(nats)}


def text_metrics(
    model: Transformer, tokens: Array, length: int, symbols: Vocabulary, threads: int | None = None
) -> dict[str, Any]:
    """What a model makes of a text in blocks of one length, see `summed`; None and `reason` where it cannot read them.

    A text of fewer tokens than a block is none of that length.
    """
    nothing = {"loss": None, "bits_per_byte": None, "tokens": 0}
    if len(tokens) <= length:
        return {**nothing, "reason": f"the text to validate with has {len(tokens)} tokens"}
    try:
        check_length(model.config, length)
        found = block_losses(model, tokens, length, threads)
    except BeyondTrainingLength as error:
        return {**nothing, "reason": printable(str(error))}
    return summed(found.ravel()[: len(tokens) - 1], tokens[1:], symbols)


def test_text(
    model: Transformer, tokens: Array, lengths: Iterable[int], symbols: Vocabulary, threads: int | None,
    notify: Listener,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """`text_metrics` at every length, by the length as a string, with what the encoding remarks on it."""
    lengths, results = tuple(lengths), {}
    notify(TestStarted(lengths))
    for length in lengths:
        metrics = text_metrics(model, tokens, length, symbols, threads)
        if told := remarks(model.config, length):
            metrics["note"] = printable(" ".join(told))
            notify(Noted(f"length {length}: {metrics['note']}"))
        results[str(length)] = metrics
        notify(LengthTested(length, metrics))
    return results
