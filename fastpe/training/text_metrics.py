"""The loss of a model on a text: of each token in nats, and of the text in bits per byte."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fastpe.base.stored import printable
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.kernels.threads.team import threads_for
from fastpe.model.transformer import Transformer
from fastpe.training.evaluation import answers, check_length, remarks
from fastpe.training.events import LengthTested, Listener, Noted, TestStarted

Array = np.ndarray[Any, Any]

_LOGITS = 2**24  # logits per call of the model, unless there are more threads than sequences


Read = Callable[[int], None]
"""Called with the number of tokens that the model has read since the last call."""


def losses(
    model: Transformer, x: Array, y: Array, lengths: Array | None = None, threads: int | None = None,
    read: Read | None = None,
) -> Array:  # fmt: skip
    """Return the loss of each target in nats, (B, N) float64; NaN past the end of a sequence.

    Parameters
    ----------
    x, y : (B, N) integers
        Tokens, and the next tokens.
    lengths : (B,) integers, optional
        Lengths of the sequences.
    """
    found = np.full(x.shape, np.nan)
    size = max(threads_for(threads), _LOGITS // (x.shape[1] * (model.config.vocabulary or 1)))
    for start in range(0, len(x), size):
        some = slice(start, start + size)
        own = None if lengths is None else lengths[some]
        counts = np.ones(x[some].shape, bool) if own is None else np.arange(x.shape[1]) < own[:, None]
        found[some][counts], _ = answers(model, x[some], y[some], counts, own, threads)
        if read is not None:
            read(counts.size)
    return found


def block_losses(
    model: Transformer, tokens: Array, length: int, threads: int | None = None, read: Read | None = None
) -> Array:
    """Return the loss of each token but the first, by block and position: (blocks, length), NaN past the end of the
    text.

    The text is cut into blocks that do not overlap. The first token of a block is predicted only from the last token of
    the previous block, the second from two tokens, and so on.
    """
    total = len(tokens) - 1
    count = -(-total // length)
    places = np.minimum(np.arange(count * length).reshape(count, length), total - 1)
    ends = np.full(count, length)
    ends[-1] = total - (count - 1) * length
    ragged = ends if ends[-1] < length else None
    return losses(model, tokens[places].astype(np.int64), tokens[places + 1].astype(np.int64), ragged, threads, read)


def summed(nats: Array, size: int | None) -> dict[str, Any]:
    """Return `loss` (mean, in nats), `bits_per_byte` and `tokens`, from the losses `nats` of tokens of `size` bytes of
    text.

    `bits_per_byte` is None if the text is unknown. If a loss is not finite, both are None, and `reason` says why.
    """
    mean = float(nats.mean())
    if not math.isfinite(mean):
        return {"loss": None, "bits_per_byte": None, "tokens": len(nats), "reason": "the outputs are not finite"}
    return {"loss": mean, "bits_per_byte": bits_per_byte(nats, size), "tokens": len(nats)}


def bits_per_byte(nats: Array, size: int | None) -> float | None:
    """Return the bits for each byte of a text, for the losses of its tokens; None if its number of bytes is unknown.

    >>> bits_per_byte(np.log([2.0, 8.0]), 8)
    0.5
    """
    return float(nats.sum()) / math.log(2) / size if size else None


def text_metrics(
    model: Transformer, tokens: Array, length: int, size: int | None, threads: int | None = None
) -> dict[str, Any]:
    """Return the metrics of a text in blocks of one length (see `summed`); None with `reason` if they are undefined.

    They are undefined if the model cannot read this length, or if the text has fewer tokens than a block. size: number
    of bytes of the text without its first token.
    """
    nothing = {"loss": None, "bits_per_byte": None, "tokens": 0}
    if len(tokens) <= length:
        return {**nothing, "reason": f"the validation text has only {len(tokens)} tokens"}
    try:
        check_length(model.config, length)
        found = block_losses(model, tokens, length, threads)
    except BeyondTrainingLength as error:
        return {**nothing, "reason": printable(str(error))}
    return summed(found.ravel()[: len(tokens) - 1], size)


def test_text(
    model: Transformer, tokens: Array, lengths: Iterable[int], size: int | None, threads: int | None,
    notify: Listener,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Return `text_metrics` by length (a string), with remarks of the encoding."""
    lengths, results = tuple(lengths), {}
    notify(TestStarted(lengths))
    for length in lengths:
        metrics = text_metrics(model, tokens, length, size, threads)
        if told := remarks(model.config, length):
            metrics["note"] = printable(" ".join(told))
            notify(Noted(f"length {length}: {metrics['note']}"))
        results[str(length)] = metrics
        notify(LengthTested(length, metrics))
    return results
