"""Lower bounds, from held-out data, on the information about the position in the layers of a model, in nats."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.random import Stream
from fastpe.model.transformer import Transformer
from fastpe.tasks import frame
from fastpe.theory.hidden_states import HiddenStates
from fastpe.theory.position_readout import Moments, Readout, plug_in
from fastpe.theory.value import Value, certified, estimate, exact
from fastpe.training import config_file, run_folder, text_data
from fastpe.training.config import TrainConfig

Array = np.ndarray[Any, Any]
States = Callable[[Array], list[Array]]  # maps sequence numbers to the hidden states of these sequences in every layer

LEAST_SEQUENCES = 30
MOST_BIAS = 0.05  # largest bias of a plug-in estimate in nats
_BLOCK = 2**21  # number of entries of an array for a block of sequences
_SCALES = np.concatenate([[0.0], 2.0 ** np.arange(-6.0, 6.25, 0.25)])  # the inverse temperatures that are tried


@dataclass(frozen=True)
class LayerProbe:
    """I(position; hidden state) of one layer, see `probe_states`.

    Attributes
    ----------
    layer : int
        0 is the input of the first layer.
    linear : Value
        A lower bound from a linear readout of the position (P13). Its inputs hold `mse` and `r2`.
    classifier : Value
        A lower bound from linear discriminant analysis.
    upper : Value
        A certified upper bound: ln n, or 0 if the states cannot depend on the position.
    binned : Value or None
        The plug-in estimate of the information that the linear readout, divided into bins, contains. None without
        `bins`.
    """

    layer: int
    linear: Value
    classifier: Value
    upper: Value
    binned: Value | None = None


def probe_run(
    run: str | Path, length: int | None = None, *, sequences: int = 1200, seed: int = 0, bins: int | None = None
) -> list[LayerProbe]:
    """Probe the trained model of a run folder on new sequences of the task of the run.

    Parameters
    ----------
    run : str or pathlib.Path
        The folder of a finished run.
    length : int, optional
        Length of the inputs. The default is the training length. The probed positions are all positions of the model,
        including those that the task adds to the input.
    sequences : int
        Number of sequences. For a text it is the largest number of disjoint blocks of the validation part.
    seed, bins
        The same as for `probe_model`. The seed also draws the sequences.

    Returns
    -------
    list of LayerProbe

    Raises
    ------
    ValueError, OSError
        If there is no run in the folder, or the task cannot draw sequences of this length.
    fastpe.BeyondTrainingLength
        If the encoding is undefined at this length.

    Examples
    --------
    >>> probe_run("runs/none")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no run folder or model file runs/none
    """
    sequences = validation.whole("sequences", sequences, LEAST_SEQUENCES)
    model = run_folder.load(run)
    config = config_file.read_config(validation.path("run", run)) if Path(run).is_dir() else None
    if config is None:
        raise ValueError(f"run must be a run folder, because only a folder names the task, not the file {run}")
    length = config.train_length if length is None else validation.whole("length", length, 1)
    chosen = config.chosen
    alike = chosen.task.kind == "numbers" and not chosen.task.file  # built-in tasks draw N(0, 1) at every position
    return probe_model(model, _drawn(config, length, sequences, seed), alike=alike, seed=seed, bins=bins)


def _drawn(config: TrainConfig, length: int, sequences: int, seed: int) -> Array:
    if config.chosen.task.kind == "text":
        tokens = text_data.text_parts(config)[1]
        blocks = len(tokens) // length
        if blocks < LEAST_SEQUENCES:
            raise ValueError(
                f"length must leave at least {LEAST_SEQUENCES} validation blocks, but {length} leaves {blocks}"
            )
        starts = length * Stream(seed, "probe", length).choice(blocks, min(sequences, blocks))
        return tokens[starts[:, None] + np.arange(length)]
    lengths = np.full(sequences, length)
    stream = Stream(seed, "probe", length)
    drawn = frame.sequences(config.chosen, stream, lengths, config.causal, config.dtype)
    if drawn.lengths is not None and len(np.unique(drawn.lengths)) > 1:
        raise ValueError(
            f"task {config.task!r} has sequences of different lengths, but a probe needs uniform positions"
        )
    return drawn.x


def probe_model(
    model: Transformer, x: Any, *, alike: bool = False, seed: int = 0, bins: int | None = None
) -> list[LayerProbe]:
    """Probe the hidden states of a model before its first layer and after each layer.

    Parameters
    ----------
    model : Transformer
    x : array_like (sequences, N)
        Inputs that the model was not trained on: numbers or tokens.
    alike : bool
        Whether the input has the same distribution at every position. If so, and if the encoding adds nothing to the
        input, the information in layer 0 is exactly 0.
    seed, bins
        The same as for `probe_states`.

    Returns
    -------
    list of LayerProbe
        Layers 0, 1, ....

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `probe_states`.
    ArithmeticError
        If the outputs computed from the states in float64 differ from the outputs of the model.

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, layers=1, causal=True, train_length=4))
    >>> found = probe_model(model, np.random.default_rng(0).normal(size=(300, 4)), alike=True)
    >>> found[0].classifier.kind, found[0].classifier.value, found[1].classifier.value > 0
    ('exact', 0.0, True)
    """
    validation.instance("model", model, Transformer, "probe_model(fastpe.load('runs/nope-0'), x)")
    inputs = validation.array("x", x)
    if inputs.ndim != 2 or not inputs.size:
        raise ValueError(f"x must have the shape (sequences, positions), not {inputs.shape}")
    alike, config = validation.truth("alike", alike), model.config
    parts = _parts(len(inputs), seed)
    _check_bins(bins, len(parts[2]), inputs.shape[1])
    n, widest = inputs.shape[1], max(config.width, config.hidden)
    own = HiddenStates(model, n)
    block = _block(n, widest, config.heads)
    found = _probe(lambda some: own(inputs[some]), parts, block, bins)
    return [_nothing(n) if each.layer == 0 and alike and own.silent else each for each in found]


def probe_states(states: Any, *, seed: int = 0, bins: int | None = None) -> LayerProbe:
    """Compute held-out lower bounds on I(position; state) for a uniform position on 0 .. n - 1.

    The sequences are split in three parts, so that no bound is computed on data that was used for fitting. The readouts
    are fitted to the first part. The temperature of the classifier and the edges of the bins are set with the second
    part. The third part gives the bounds and their 95 % intervals over sequences.

    Parameters
    ----------
    states : array_like (sequences, n, channels)
        At least 30 sequences.
    seed : int
        Seed of the split.
    bins : int, optional
        Number of bins. If it is given, the output of the linear readout is divided into so many bins, and the
        information in the bin number is estimated.

    Returns
    -------
    LayerProbe
        Its `layer` is 0.

    Raises
    ------
    ValueError
        If there are fewer than 30 sequences. With `bins`, also if there are so few sequences that the bias of the
        plug-in estimate may exceed 0.05 nats. The bias is at most (bins - 1)(n - 1) / 2m for m test positions (Miller
        1955).

    Notes
    -----
    - linear: ln n - (1/2) ln(2 pi e (MSE + 1/12)). The position plus a uniform number in [0, 1) has entropy ln n. The
      residual of this sum has at most the entropy of a normal distribution with the same variance (P13).
    - classifier: ln n - cross entropy (Barber and Agakov 2003). The probability of every position is (1 - 1e-6 n) times
      that of the classifier, plus 1e-6. So the probabilities still sum to 1, and no loss is above -ln 1e-6.

    Both bounds may be far below the information. The information may also grow from layer to layer, since attention
    brings in other positions.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(600, 2, 1))
    >>> found = probe_states(noise + [[-1.0], [1.0]])
    >>> found.classifier.low < 0.337 < found.classifier.high  # of two points with noise it is 0.3368
    True
    """
    array = validation.array("states", states)
    if array.ndim != 3 or not array.size:
        raise ValueError(f"states must have the shape (sequences, positions, channels), not {array.shape}")
    parts = _parts(len(array), seed)
    _check_bins(bins, len(parts[2]), array.shape[1])
    block = _block(array.shape[1], array.shape[2])
    return _probe(lambda some: [array[some].astype(np.float64)], parts, block, bins)[0]


def _parts(sequences: int, seed: int) -> tuple[Array, Array, Array]:
    if sequences < LEAST_SEQUENCES:
        raise ValueError(
            f"a probe needs at least {LEAST_SEQUENCES} sequences for fitting, calibration and test, not {sequences}"
        )
    order = Stream(seed, "probe parts").permutation(sequences)
    first, second, third = (np.sort(order[part::3]) for part in range(3))
    return first, second, third


def _check_bins(bins: int | None, tested: int, n: int) -> None:
    if bins is None:
        return
    bias = (validation.whole("bins", bins, 2) - 1) * (n - 1) / (2 * tested * n)
    if bias > MOST_BIAS:
        needed = 3 * math.ceil((bins - 1) * (n - 1) / (2 * n * MOST_BIAS))
        raise ValueError(
            f"bins={bins} needs {needed} sequences: with {tested} test sequences its bias is up to {bias:.2g} nats, "
            f"above the limit of {MOST_BIAS}"
        )


def _block(n: int, channels: int, heads: int = 1) -> int:
    return max(1, _BLOCK // (n * (channels + heads * n)))


def _nothing(n: int) -> LayerProbe:
    nothing = exact(
        0.0, "I5: inputs have the same distribution at all positions, and the encoding adds nothing to them", length=n
    )
    return LayerProbe(0, nothing, nothing, nothing)


def _probe(states: States, parts: tuple[Array, Array, Array], block: int, bins: int | None) -> list[LayerProbe]:
    fit, calibrate, test = ([part[i : i + block] for i in range(0, len(part), block)] for part in parts)
    moments: list[Moments] = []
    for layers in _finite(states, fit):
        moments = moments or [Moments(found) for found in layers]
        for sums, found in zip(moments, layers, strict=True):
            sums.add(found)
    readouts = [Readout(sums) for sums in moments]
    edges = _calibrate(readouts, _finite(states, calibrate), bins)
    squares, losses, codes = ([list[Array]() for _ in readouts] for _ in range(3))
    for layers in _finite(states, test):
        for layer, (own, found) in enumerate(zip(readouts, layers, strict=True)):
            places = own.positions(found)
            squares[layer].append(np.mean((places - np.arange(places.shape[1])) ** 2, axis=1))
            losses[layer].append(own.losses(found, np.array([own.scale]))[0])
            codes[layer].append(np.searchsorted(edges[layer], places))
    n = moments[0].sums.shape[0]
    return [
        LayerProbe(
            layer, _linear(np.concatenate(squares[layer]), n), _classified(np.concatenate(losses[layer]), n),
            certified("I5: ln n, the entropy of a uniform position", high=math.log(n), length=n),
            None if bins is None else _binned(np.concatenate(codes[layer]), bins),
        )
        for layer in range(len(readouts))
    ]  # fmt: skip


def _finite(states: States, blocks: list[Array]) -> Iterator[list[Array]]:
    for layers in map(states, blocks):
        for layer, found in enumerate(layers):
            if not np.isfinite(found).all():
                raise ValueError(f"states of layer {layer} must be finite, but some are not")
        yield layers


def _calibrate(readouts: list[Readout], blocks: Iterator[list[Array]], bins: int | None) -> list[Array]:
    """Set the temperatures of the readouts, and return the edges of bins with equal counts for each layer."""
    losses = [np.zeros(len(_SCALES)) for _ in readouts]
    places = [list[Array]() for _ in readouts]
    for layers in blocks:
        for layer, (own, found) in enumerate(zip(readouts, layers, strict=True)):
            losses[layer] += own.losses(found, _SCALES).sum(axis=1)
            if bins is not None:
                places[layer].append(own.positions(found).ravel())
    for own, each in zip(readouts, losses, strict=True):
        own.scale = float(_SCALES[each.argmin()])
    if bins is None:
        return [np.zeros(0)] * len(readouts)
    return [np.quantile(np.concatenate(each), np.arange(1, bins) / bins) for each in places]


def _interval(each: Array) -> tuple[float, float, float]:
    """Return the mean over sequences and the ends of its t interval."""
    from scipy import stats

    mean, half = float(each.mean()), float(each.std(ddof=1)) / math.sqrt(len(each))
    half *= float(stats.t.ppf(0.975, len(each) - 1))
    return mean, mean - half, mean + half


def _bounded(value: float, low: float, high: float, n: int, why: str, **inputs: Any) -> Value:
    """Clip a bound to [0, ln n], the range of the information."""
    value, low, high = (min(max(each, 0.0), math.log(n)) for each in (value, low, high))
    return estimate(value, low, high, why, length=n, **inputs)


def _linear(squares: Array, n: int) -> Value:
    def bound(mse: float) -> float:
        return math.log(n) - 0.5 * math.log(2.0 * math.pi * math.e * (max(mse, 0.0) + 1.0 / 12.0))

    mse, low, high = _interval(squares)
    r2 = 1.0 - 12.0 * mse / (n * n - 1.0) if n > 1 else 0.0
    why = "P13: a lower bound, from the held-out error of a linear readout"
    return _bounded(bound(mse), bound(high), bound(low), n, why, mse=mse, r2=r2, sequences=len(squares))


def _classified(losses: Array, n: int) -> Value:
    mean, low, high = _interval(losses)
    most = math.log(n)
    why = "Barber-Agakov: a lower bound, from the held-out cross entropy of linear discriminant analysis"
    return _bounded(most - mean, most - high, most - low, n, why, cross_entropy=mean, sequences=len(losses))


def _binned(codes: Array, bins: int) -> Value:
    each, bias = plug_in(codes, bins)
    mean, low, high = _interval(each)
    why = (
        "plug-in estimate for the binned linear readout minus its largest bias; its interval covers every smaller bias"
    )
    return _bounded(mean - bias, low - bias, high, codes.shape[1], why, bins=bins, bias=bias, sequences=len(codes))
