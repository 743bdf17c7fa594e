"""The loss of a model on a text by sequence length, and by the position of a token in the sequence.

There are two measures, which differ:

- *Blocks*: the text is cut into blocks that do not overlap, and each block is read separately. The first tokens of a
  block are predicted from few others, and longer blocks have fewer such tokens. So the loss falls with the length even
  for a model that does not use distant tokens.
- *Sliding*: a window moves by `stride` tokens, and only its new tokens count. Each of them sees nearly as many tokens
  as the window has, so differences show the effect of the length itself (Press et al. 2022, arXiv:2108.12409,
  appendix B; there the stride is 1).
"""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.stored import printable
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.kernels.threads.team import threads_for
from fastpe.model.transformer import Transformer
from fastpe.training import run_folder
from fastpe.training.config_file import read_config
from fastpe.training.evaluation import check_length
from fastpe.training.text_data import predicted_bytes, text_parts
from fastpe.training.text_metrics import Read, bits_per_byte, block_losses, losses

Array = np.ndarray[Any, Any]

OVERLAP = 4  # the default stride is the length divided by this
LEVEL = 0.95
_MOST_LENGTHS = 100
_WINDOWS = 2**21  # tokens of the windows that are gathered together


@dataclass(frozen=True)
class Point:
    """The loss at one length.

    Attributes
    ----------
    length : int
    loss, low, high : float or None
        Mean over all tokens in nats, and its 95 % t interval over the parts of the text. Parts are documents, or blocks
        of this length. All three are None if the model is undefined at this length. The interval is also None if there
        is only one part.
    bits_per_byte : float or None
        None if the vocabulary is unknown.
    tokens, parts : int
        Number of predicted tokens, and of parts of the text.
    reason : str
        Why there is no loss; "" if there is one.
    """

    length: int
    loss: float | None
    low: float | None = None
    high: float | None = None
    bits_per_byte: float | None = None
    tokens: int = 0
    parts: int = 0
    reason: str = ""


@dataclass(frozen=True)
class LengthCurve:
    """Losses by length.

    Attributes
    ----------
    sliding : bool
        Whether the losses were measured with a sliding window instead of blocks.
    points : tuple of Point
        One for each length, ascending.
    by_position : dict of int to array
        For blocks: the mean loss at each position in a block, (length,), by length. Empty for a sliding window.
    """

    sliding: bool
    points: tuple[Point, ...]
    by_position: dict[int, Array] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain JSON values; losses by position are means over the bins of `positions_binned`."""
        positions = {str(length): positions_binned(found) for length, found in self.by_position.items()}
        return {"sliding": self.sliding, "points": [asdict(each) for each in self.points], "by_position": positions}


def positions_binned(by_position: Array) -> list[dict[str, Any]]:
    """Return the mean losses over positions 1, 2, 3-4, 5-8 and so on.

    Each item has `first` and `last`, the positions counted from 1, and `loss`.

    >>> [(each["first"], each["last"]) for each in positions_binned(np.zeros(6))]
    [(1, 1), (2, 2), (3, 4), (5, 6)]
    """
    found, first = [], 1
    while first <= len(by_position):
        last = min(len(by_position), max(1, 2 * (first - 1)))
        found.append({"first": first, "last": last, "loss": float(np.mean(by_position[first - 1 : last]))})
        first = last + 1
    return found


@validation.named_arguments
def length_curve(
    model_or_run: Transformer | str | Path,
    tokens: Any = None,
    lengths: Iterable[int] | None = None,
    *,
    sliding: bool = False,
    stride: int | None = None,
    documents: Any = None,
    size: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LengthCurve:
    """Measure the loss on a text at several lengths, with one pass over the text for each length.

    Parameters
    ----------
    model_or_run : Transformer, str or pathlib.Path
        A causal model of tokens, or the path of its run folder or model file.
    tokens : str or array_like (T,) of int, optional
        The text. It may be a string if the model's `vocabulary` is known. For a run folder, the default is the
        validation part of the text of the run.
    lengths : iterable of int, optional
        Sequence lengths, at most T - 1. By default those of L, 2 L, 4 L, 8 L and 16 L that are below T, where L is the
        training length.
    sliding : bool
        Whether to use a sliding window instead of blocks.
    stride : int, optional
        Step of the sliding window in tokens, at most the shortest length. By default a quarter of each length.
    documents : array_like (D + 1,) of int, optional
        Start index of each document, followed by T. If given, documents are the samples of the confidence intervals;
        otherwise blocks are. For a run folder, the default is the documents of its text, if there are several.
    Number of bytes of the text without its first token, for bits per byte. By default, it is the sum of the bytes that
    the tokens stand for, if the model has a vocabulary.
    threads : int, optional
        Number of threads; does not change the result. Default: all cores.
    progress : callable, optional
        Called as ``progress(length, count)``, where count is the number of tokens that the model has read since the
        last call. Before a length is tested, count is 0. The counts of a length add up to the return value of
        `tokens_read`.

    Returns
    -------
    LengthCurve

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or of the wrong type, or the text of a run has changed.
    OSError
        If the text cannot be read.

    Examples
    --------
    >>> import fastpe
    >>> model = fastpe.Transformer(fastpe.ModelConfig("alibi", width=16, causal=True, vocabulary=9, train_length=8))
    >>> curve = length_curve(model, np.arange(200) % 9, (8, 16))
    >>> [(point.length, point.tokens, point.parts) for point in curve.points], curve.by_position[16].shape
    ([(8, 199, 25), (16, 199, 13)], (16,))
    """
    model, text, own, known = read_for(model_or_run, tokens)
    size = known if size is None else validation.whole("size", size, 1)
    threads_for(threads)
    wanted = checked_lengths(lengths, model.config.train_length, len(text))
    edges = _documents(own if documents is None else documents, len(text))
    sliding = validation.truth("sliding", sliding)
    if stride is not None:
        if not sliding:
            raise ValueError("stride needs sliding=True")
        stride = validation.whole("stride", stride, 1)
        if stride > min(wanted):
            raise ValueError(f"stride must be at most the shortest length, {min(wanted)}, not {stride}")
    tell = progress or (lambda length, tokens: None)
    points, by_position = [], {}
    for length in wanted:
        read = functools.partial(tell, length)
        read(0)
        try:
            check_length(model.config, length)
            if sliding:
                nats = sliding_losses(model, text, length, stride or max(1, length // OVERLAP), threads, read)
            else:
                placed = block_losses(model, text, length, threads, read)
                by_position[length] = np.nanmean(placed, axis=0)
                nats = placed.ravel()[: len(text) - 1]
        except BeyondTrainingLength as error:
            points.append(Point(length, None, reason=printable(str(error))))
            read(tokens_read(len(text), length, sliding=sliding, stride=stride))
            continue
        points.append(_point(nats, length, edges, size))
    return LengthCurve(sliding, tuple(points), by_position)


def tokens_read(total: int, length: int, *, sliding: bool, stride: int | None = None) -> int:
    """Return how many tokens a model reads, including padding, to test a text of `total` tokens at one length.

    >>> tokens_read(201, 8, sliding=False), tokens_read(201, 8, sliding=True)
    (200, 776)
    """
    if not sliding:
        return -(-(total - 1) // length) * length
    step = stride or max(1, length // OVERLAP)
    return length * (1 + -(-(total - 1 - length) // step))


def sliding_losses(
    model: Transformer, tokens: Array, length: int, stride: int, threads: int | None = None, read: Read | None = None
) -> Array:
    """Return the loss of each token but the first, (T - 1,), in windows that move by the stride.

    All tokens of the first window count. In all other windows only the last `stride` tokens count; each of them sees
    at least length - stride other tokens. The last window ends with the text.
    """
    total = len(tokens) - 1
    found = losses(model, tokens[None, :length].astype(np.int64), tokens[None, 1 : length + 1].astype(np.int64),
                   threads=threads, read=read).ravel()  # fmt: skip
    ends = np.minimum(np.arange(length + stride, total + stride, stride), total)
    parts = [found]
    some = max(1, _WINDOWS // length)
    for first in range(0, len(ends), some):
        own = ends[first : first + some]
        places = own[:, None] - length + np.arange(length)
        x, y = tokens[places].astype(np.int64), tokens[places + 1].astype(np.int64)
        nats = losses(model, x, y, threads=threads, read=read)
        before = np.concatenate([[length], ends])[first : first + len(own)]
        parts += [row[length - (end - start) :] for row, end, start in zip(nats, own, before, strict=True)]
    return np.concatenate(parts)


def read_for(
    model_or_run: Transformer | str | Path, tokens: Any
) -> tuple[Transformer, Array, Array | None, int | None]:
    """Return the model, the text, the starts of its documents, and the bytes of the text without its first token, if
    known.
    """
    own = size = None
    if isinstance(model_or_run, Transformer):
        model = model_or_run
    elif isinstance(model_or_run, str | Path):
        model = run_folder.load(model_or_run)
        if tokens is None and Path(model_or_run).is_dir():
            config = read_config(model_or_run)
            if config is not None and config.symbols is not None:
                tokens, own = text_parts(config)[1], validation_documents(config)
                size = predicted_bytes(config)
    else:
        raise TypeError(f"model_or_run must be a Transformer or a run folder, not {validation.shown(model_or_run)}")
    if model.config.vocabulary is None or not model.config.causal:
        raise ValueError("model must be causal and have a vocabulary: others do not predict the next token of a text")
    if tokens is None:
        raise ValueError("tokens must be given, unless model_or_run is the folder of a run on a text")
    if isinstance(tokens, str):
        text, tokens = tokens, model.encoded("tokens", tokens)
        if model.vocabulary is not None and model.vocabulary.kind == "tokenizer":
            size = int(model.vocabulary.subwords.measured(text)[1][1:].sum())
    array = validation.integer_array("tokens", tokens, "tokens")
    if array.ndim != 1 or len(array) < 2:
        raise ValueError(f"tokens must have the shape (T,) with T at least 2, not {array.shape}")
    if array.min() < 0 or array.max() >= model.config.vocabulary:
        raise ValueError(f"tokens must lie in [0, {model.config.vocabulary}), not {array.min()} .. {array.max()}")
    if size is None and model.vocabulary is not None:
        size = model.vocabulary.bytes_in(array[1:])
    return model, array, own, size


def validation_documents(config: Any) -> Array | None:
    """Return the starts of the documents in the validation part of a run's text, followed by the length of this part.

    The result is None if the part is one document.
    """
    corpus, (training, part) = config.read_text(), text_parts(config)
    starts = corpus.documents - len(training)
    starts = starts[(starts >= 0) & (starts < len(part))]
    edges = np.unique(np.concatenate([[0], starts, [len(part)]]))
    return edges if len(edges) > 2 else None


def checked_lengths(lengths: Iterable[int] | None, usual: int, total: int) -> list[int]:
    """Return the lengths, ascending; raises ValueError or TypeError if a text of `total` tokens has no such lengths."""
    if lengths is None:
        return [length for length in (usual << k for k in range(5)) if length < total] or [total - 1]
    if isinstance(lengths, str) or not isinstance(lengths, Iterable):
        raise TypeError(f"lengths must be a sequence of integers, not {validation.shown(lengths)}")
    if validation.count(lengths) > _MOST_LENGTHS:
        raise ValueError(f"lengths must be 1 to {_MOST_LENGTHS} distinct integers, not {validation.count(lengths)}")
    found = [validation.whole("lengths", length, 1) for length in lengths]
    if not found or len(found) > _MOST_LENGTHS or len(set(found)) < len(found):
        raise ValueError(f"lengths must be 1 to {_MOST_LENGTHS} distinct integers, not {found[:_MOST_LENGTHS]}")
    if max(found) >= total:
        raise ValueError(f"lengths must be below the {total} tokens of the text, not {max(found)}")
    return sorted(found)


def _documents(documents: Any, total: int) -> Array | None:
    if documents is None:
        return None
    edges = validation.integers("documents", documents, 0, total)
    if edges.ndim != 1 or len(edges) < 2 or edges[0] != 0 or edges[-1] != total or (np.diff(edges) < 1).any():
        raise ValueError(f"documents must be ascending from 0 to the number of tokens, {total}, not {edges}")
    return edges


def _point(nats: Array, length: int, edges: Array | None, size: int | None) -> Point:
    total = float(nats.mean())
    if not math.isfinite(total):
        return Point(length, None, tokens=len(nats), reason="the outputs are not finite")
    # the loss at index i is that of token i + 1
    starts = np.arange(0, len(nats), length) if edges is None else np.maximum(edges[:-1] - 1, 0)
    starts = np.unique(starts[starts < len(nats)])
    low, high = interval(nats, starts)
    return Point(length, total, low, high, bits_per_byte(nats, size), len(nats), len(starts))


def interval(nats: Array, starts: Array) -> tuple[float | None, float | None]:
    """Return the t interval of the mean loss of a text. Its parts, which start at `starts`, may differ in size.

    The mean is a ratio of two sums over the parts; its variance is linearised (Cochran 1977, "Sampling techniques",
    eq. 6.10).
    """
    count = len(starts)
    if count < 2:
        return None, None
    from scipy import stats

    sizes, sums = np.diff(np.append(starts, len(nats))), np.add.reduceat(nats, starts)
    mean = sums.sum() / sizes.sum()
    spread = math.sqrt(float(np.square(sums - mean * sizes).sum()) * count / (count - 1)) / float(sizes.sum())
    half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * spread
    return float(mean - half), float(mean + half)
