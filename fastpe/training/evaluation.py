"""Tests a model at lengths up to and beyond those of its training. This module prints nothing."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.base.stored import printable
from fastpe.encodings import combined, registry
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.kernels.threads.team import threads_for
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer
from fastpe.tasks import frame, sizes, targets
from fastpe.tasks.registry import TASKS, choose
from fastpe.tasks.task import Chosen
from fastpe.training.events import LengthTested, Listener, Noted, TestStarted
from fastpe.training.lengths import checked_lengths, ends, positions_of

_CHUNK = 1024  # sequences per call of the model, which bounds the memory of outputs and errors
BYTES_DRAWN = 48  # memory for each number of the sequences while they are drawn
_LOGITS = 2**24  # logits per call of the model, for tokens
_IN_CACHE = 2**16  # logits whose cross entropy is computed at a time
_PER_DRAW = 32  # sequences that share random positions, like a batch in training


@validation.named_arguments
def evaluate(
    model: Transformer,
    lengths: Iterable[int | str],
    sequences: int = 1000,
    *,
    seed: int = 0,
    task: str = "running_sum",
    task_options: Mapping[str, Any] | None = None,
    target_scale: str = "one",
    by_place: bool = False,
    threads: int | None = None,
    progress: Listener | None = None,
) -> dict[str, dict[str, Any]]:
    """Test a model on new sequences of each length.

    If the model has random positions, they are drawn again for every 32 sequences, or for fewer if outputs are large.

    Parameters
    ----------
    model : Transformer
    lengths : iterable of int or str
        Lengths of the inputs. For a task of tokens, a range such as "51-100" is also possible: each sequence then has a
        random length in this range.
    sequences : int
        Number of sequences for each length. As in `TrainConfig`, 1000 by default.
    seed : int
        Seed of the test sequences, if the task is one of numbers. For a task of tokens, the test sequences are the same
        for all seeds.
    task : str
        Key of the task.
    task_options : dict, optional
        Options of the task. They may differ from those of the training if the number of symbols is the same.
    target_scale : str
        The factor that multiplies the targets (see `TrainConfig`). Pass the value with which the model was trained.
        Errors are measured on the scaled targets.
    by_place : bool
        Whether to count right tokens separately for each place in the input, for a task of tokens. The task says which
        place of the input an answer token is about.
    threads : int, optional
        Number of threads; does not change the result. Default: all cores.
    progress : callable, optional
        Called with `TestStarted` before the first length, with `LengthTested` after each length, and with `Noted` for
        remarks.

    Returns
    -------
    dict
        Length, as a string -> dict of the metrics at this length. The dict also has the number of ``sequences``. A
        metric is None if the encoding is undefined at this length, or if the metric is not finite; ``reason`` then says
        why. If the encoding has remarks on the length, they are in ``note``.

        Metrics for a task of tokens:

        - ``exact``: share of sequences whose answer is completely right, including the token that ends it. If the task
          has several right answers (`Task.judge`), it is the share of generated answers that are right;
        - ``token``: share of right tokens in answers, without the tokens that end them;
        - ``loss``: mean cross entropy in nats;
        - ``places``, if `by_place`: a dict of two lists with an item for each place, the number of ``right`` tokens and
          the number of all tokens (``asked``).

        Metrics for a task of numbers:

        - ``mse``: mean squared error over all targets, with the weights that the task gives them;
        - ``nmse``: the mse divided by the mse of a model that always answers zero;
        - ``mse_last``: mean squared error at the last position;
        - ``mse_beyond``: mean squared error at positions beyond the training length; None if there are none.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or of the wrong type.

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> model = Transformer(ModelConfig("alibi", width=8, hidden=8, train_length=4))
    >>> found = evaluate(model, [4, 8], 10)
    >>> found["4"]["mse_beyond"], found["8"]["mse_beyond"] > 0
    (None, True)
    """
    validation.instance("model", model, Transformer, "evaluate(fastpe.load('runs/wavelet-0'), [50], 1000)")
    chosen = choose(TASKS.resolve(task), task_options)
    if chosen.task.kind == "text":
        raise ValueError("task 'text' is tested on a text, not on drawn sequences: use fastpe.length_curve")
    if (wanted := sizes.vocabulary(chosen)) != model.config.vocabulary:
        needs, has = (_kind(each) for each in (wanted, model.config.vocabulary))
        raise ValueError(f"model must take {needs} for task {task!r}, not {has}")
    if chosen.task.causal and not model.config.causal:
        raise ValueError(f"model must be causal for task {task!r}: other models see the answers")
    Stream(seed, "test")  # checks the seed
    validation.choice("target_scale", target_scale, targets.SCALES)
    if validation.truth("by_place", by_place) and chosen.task.kind == "numbers":
        raise ValueError(f"by_place needs a task of tokens, and {task!r} has numbers")
    lengths, sequences = checked_lengths("lengths", lengths, chosen), validation.whole("sequences", sequences, 1)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of one event, not {validation.shown(progress)}")
    threads_for(threads)
    notify: Listener = progress or (lambda event: None)
    check_room(lengths, sequences, chosen)
    results = {}
    notify(TestStarted(tuple(lengths)))
    for length in lengths:
        if chosen.task.kind == "numbers":
            assert isinstance(length, int)
            metrics = _of_numbers(model, length, sequences, seed, chosen, target_scale, threads)
        else:
            metrics = _of_tokens(model, length, sequences, chosen, threads, by_place)
        if told := remarks(model.config, positions_of(chosen, length, model.config.causal)):
            metrics["note"] = printable(" ".join(told))
            notify(Noted(f"length {length}: {metrics['note']}"))
        results[str(length)] = metrics
        notify(LengthTested(length, metrics))
    return results


def check_room(lengths: Iterable[int | str], sequences: int, chosen: Chosen) -> None:
    """Raise ValueError if the test sequences of a length need more memory than this machine has."""
    for length in lengths:
        size = sequences * positions_of(chosen, length, causal=False) * BYTES_DRAWN
        validation.room(f"{sequences} test sequences of length {length}", size, "need")


def _kind(vocabulary: int | None) -> str:
    return "numbers" if vocabulary is None else f"{vocabulary} tokens"


def _of_tokens(
    model: Transformer, length: int | str, sequences: int, chosen: Chosen, threads: int | None, by_place: bool
) -> dict[str, Any]:
    """Return the metrics of tokens, on sequences that are the same for all models and seeds."""
    within, name = chosen.lengths.within(*ends(length)), str(length)
    drawn = within[Draws(Stream(0, "test lengths", name)).integers(len(within), (sequences,))]
    width = positions_of(chosen, length, model.config.causal)
    data = frame.sequences(chosen, Stream(0, "test", name), drawn, model.config.causal, model.config.dtype, width)
    try:
        check_length(model.config, width)
        return token_metrics(model, data, chosen, threads, by_place)
    except BeyondTrainingLength as error:
        return {**dict.fromkeys(("exact", "token", "loss")), "sequences": sequences, "reason": printable(str(error))}


def token_metrics(
    model: Transformer, data: frame.Sequences, chosen: Chosen, threads: int | None, by_place: bool = False
) -> dict[str, Any]:
    """Return the metrics of `evaluate` for the given sequences of tokens."""
    assert data.weights is not None
    sequences, width = data.x.shape
    end = chosen.symbols + sizes.FRAME.index("end")
    size = max(1, _LOGITS // (width * (chosen.symbols + len(sizes.FRAME))))
    size = size if model.config.position_range is None else min(size, _PER_DRAW)
    right, tokens, loss = 0, 0, 0.0
    all_wrong = np.zeros((sequences, width), bool)
    for number, start in enumerate(range(0, sequences, size)):
        some = slice(start, start + size)
        y, weights = data.y[some], data.weights[some]
        lengths = None if data.lengths is None else data.lengths[some]
        counts = weights > 0
        nats, agrees = answers(model, data.x[some], y, counts, lengths, threads, number)
        all_wrong[some][counts] = ~agrees
        asked = y[counts] != end
        right, tokens = right + int((agrees & asked).sum()), tokens + int(asked.sum())
        loss += float(np.sum(nats * weights[counts]))
    failed: np.ndarray = np.any(all_wrong, axis=1)
    if chosen.task.judge is not None and failed.any():
        failed[failed] = ~_judged(getattr(model, "unrecorded", model), _rows(data, failed), chosen, threads, size)
    exact = sequences - int(failed.sum())
    mean = loss / float(data.weights.sum())
    finite = {} if math.isfinite(mean) else {"reason": "the outputs are not finite"}
    found = {"exact": exact / sequences, "token": right / tokens, "loss": mean if math.isfinite(mean) else None}
    places = {"places": _by_place(model, data, chosen, all_wrong)} if by_place else {}
    return {**found, **places, "sequences": sequences, **finite}


def _rows(data: frame.Sequences, rows: np.ndarray) -> frame.Sequences:
    return frame.Sequences(*(None if each is None else each[rows] for each in data))  # type: ignore[arg-type] # two may be None


def _by_place(model: Transformer, data: frame.Sequences, chosen: Chosen, wrong: np.ndarray) -> dict[str, list[int]]:
    """Return, for each place in the input, the number of right answer tokens about it, and the number of
    all of them.
    """
    right, asked = (np.zeros(0, np.int64) for _ in range(2))
    for part in frame.unframed(chosen, data, model.config.causal):
        has = part.answers != frame.NONE
        places = chosen.places(part.inputs, part.answers)[has]
        agrees = ~wrong[part.rows, part.first : part.first + has.shape[1]][has]
        most = max(len(asked), places.max() + 1)
        right, asked = (np.pad(each, (0, most - len(each))) for each in (right, asked))
        right += np.bincount(places[agrees], minlength=most)
        asked += np.bincount(places, minlength=most)
    return {"right": right.tolist(), "asked": asked.tolist()}


def _judged(model: Transformer, data: frame.Sequences, chosen: Chosen, threads: int | None, size: int) -> np.ndarray:
    """Return whether the answers that the model generates, always with its likeliest token, are right."""
    accepted, end = np.zeros(len(data.x), bool), chosen.symbols + sizes.FRAME.index("end")
    for part in frame.unframed(chosen, data, model.config.causal):
        own = None if model.config.causal or data.lengths is None else data.lengths[part.rows]
        width = part.answers.shape[1] if own is None else int(own[0]) - part.first  # all rows have the same length
        for start in range(0, len(part.rows), size):
            some = slice(start, start + size)
            rows = part.rows[some]
            given = _generated(model, data.x[rows], part.first, width, end, None if own is None else own[some], threads)
            ended = (given == end).any(axis=1)
            after = np.cumsum(given == end, axis=1) > 0
            whole = ended & ((given < chosen.symbols) | after).all(axis=1) & ~after[:, 0]
            if whole.any():
                answers = np.where(after, frame.NONE, given)[whole]
                accepted[rows[whole]] = chosen.judge(part.inputs[some][whole], answers)
    return accepted


def _generated(
    model: Transformer, x: np.ndarray, first: int, width: int, end: int, lengths: np.ndarray | None, threads: int | None
) -> np.ndarray:
    """Return the likeliest token at each of `width` positions from `first` on. A causal model generates the tokens one
    after the other.
    """
    x, found = x.copy(), np.full((len(x), width), end)
    for place in range(width):
        wanted = np.zeros(x.shape, bool)
        wanted[:, first + place if model.config.causal else slice(first, first + width)] = True
        likeliest = np.empty(int(wanted.sum()), np.int64)

        def use(rows: slice, logits: np.ndarray, likeliest: np.ndarray = likeliest) -> None:
            likeliest[rows] = logits.argmax(axis=-1)

        model.logits_by_rows(x, wanted, use, lengths=lengths, threads=threads)
        if not model.config.causal:
            return likeliest.reshape(len(x), width)
        found[:, place] = likeliest
        if (found[:, : place + 1] == end).any(axis=1).all():
            break
        if first + place + 1 < x.shape[1]:
            x[:, first + place + 1] = likeliest
    return found


def answers(
    model: Transformer, x: np.ndarray, y: np.ndarray, counts: np.ndarray, lengths: np.ndarray | None = None,
    threads: int | None = None, draw: int = 0,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the cross entropy in nats, float64, of each target that counts, and whether its token is the likeliest.

    The targets y (B, N) that count are those where `counts` is True. Their logits are computed by rows.
    """
    targets = y[counts]
    nats, likeliest = np.empty(len(targets)), np.empty(len(targets), np.int64)

    def use(rows: slice, logits: np.ndarray) -> None:
        nats[rows], likeliest[rows] = surprise(logits, targets[rows]), logits.argmax(axis=-1)

    model.logits_by_rows(x, counts, use, lengths=lengths, threads=threads, draw=draw)
    return nats, likeliest == targets


def surprise(logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the cross entropy of each row in nats, float64."""
    found, some = np.empty(len(logits)), max(1, _IN_CACHE // logits.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(logits), some):
            shifted, own = logits[first : first + some].astype(np.float64), tokens[first : first + some, None]
            shifted -= shifted.max(axis=-1, keepdims=True)
            at_token = np.take_along_axis(shifted, own, axis=-1)[:, 0]
            found[first : first + some] = np.log(np.exp(shifted, out=shifted).sum(axis=-1)) - at_token
    return found


def _of_numbers(
    model: Transformer, length: int, sequences: int, seed: int, chosen: Chosen, target_scale: str, threads: int | None
) -> dict[str, Any]:
    dtype = np.dtype(model.config.dtype)
    x, y, weights = frame.draw(chosen, Stream(seed, "test", length), sequences, length, dtype)
    x, y = x.astype(dtype), y.astype(dtype)
    weights = np.broadcast_to(1.0 if weights is None else weights, y.shape)
    factors = targets.factors(length, target_scale, model.config.train_length)
    beyond = slice(model.config.train_length, None)
    sums = np.zeros(3)
    counts = [weights.sum(), weights[:, -1].sum(), weights[:, beyond].sum()]
    try:
        check_length(model.config, length)
        size = _CHUNK if model.config.position_range is None else min(_CHUNK, _PER_DRAW)
        for number, start in enumerate(range(0, sequences, size)):
            chunk = slice(start, start + size)
            errors = model(x[chunk], threads=threads, draw=number).astype(np.float64) - y[chunk] * factors
            with np.errstate(over="ignore", invalid="ignore"):
                errors = np.where(weights[chunk] > 0, np.square(errors) * weights[chunk], 0)
                sums += errors.sum(), errors[:, -1].sum(), errors[:, beyond].sum()
    except BeyondTrainingLength as error:
        nothing = dict.fromkeys(("mse", "nmse", "mse_last", "mse_beyond"))
        return {**nothing, "sequences": sequences, "reason": printable(str(error))}
    mse, last, after = (total / count if count else math.nan for total, count in zip(sums, counts, strict=True))
    found = {
        "mse": mse,
        "nmse": mse / targets.zero_error(chosen, length, factors),
        "mse_last": last,
        "mse_beyond": after,
    }
    finite = {key: float(value) if math.isfinite(value) else None for key, value in found.items()}
    why = "the outputs are not finite" if counts[0] else "no target counts"
    reason = {} if math.isfinite(mse) else {"reason": why}
    return {**finite, "sequences": sequences, **reason}


def check_length(config: ModelConfig, length: int) -> None:
    """Raise BeyondTrainingLength if the encoding refuses this length, for example because of the size of its grid.

    Everything that does not depend on the length was checked when the model was made.
    """
    for part in registry.parse_all(config.encoding, config.options):
        try:
            part.encoding.check(config.spec_of(part, length), **part.options)
        except ValueError as error:
            raise BeyondTrainingLength(str(error)) from error


def remarks(config: ModelConfig, length: int) -> list[str]:
    """Return the remarks of the encoding that apply to `length` but not to the training length."""
    try:
        check_length(config, length)
    except BeyondTrainingLength:
        return []
    parts = registry.parse_all(config.encoding, config.options)

    def told(at: int) -> list[str]:
        return [text for part in parts for text in combined.remarks((part,), config.spec_of(part, at))]

    known = told(config.train_length)
    return [text for text in told(length) if text not in known]
