"""What the heads of a trained model attend to, what positions contribute to it, and what changes when they are changed.

`inspect` reads sequences with a model and measures its heads by the definitions of `fastpe.heads`. Then it changes the
model (`fastpe.model.changed`), and tests the changed models at several lengths.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fastpe import heads
from fastpe.base import files, validation
from fastpe.base.random import Stream
from fastpe.functional.attention import attention
from fastpe.huggingface.loading import load_hf
from fastpe.kernels.attention.slots import SLOTS
from fastpe.model import changed
from fastpe.model.by_layer import MOST
from fastpe.model.changed import Changed, Means
from fastpe.model.transformer import Transformer
from fastpe.reference import attention_scores, rotate
from fastpe.tasks import frame, sizes
from fastpe.tasks.registry import TASKS, choose
from fastpe.tasks.task import Chosen
from fastpe.training import config_file, length_curve, run_folder
from fastpe.training.config import TrainConfig
from fastpe.training.evaluation import evaluate
from fastpe.training.lengths import checked_lengths, usual_lengths
from fastpe.training.text_metrics import text_metrics

Array = np.ndarray[Any, Any]
Progress = Callable[[str], None]

_CELLS = 2**22  # scores that are computed at a time
_READ = 512  # the longest sequences that are read, unless a length is given
_SINK = 0.3  # mean weight of the first key above which it is a sink (Gu et al. 2025)
_SHOWN = ("duplicate", "induction")


class Call(NamedTuple):
    """A call of attention: the layer, queries, keys, values, and the options of `fastpe.attention`."""

    layer: int
    q: Array
    k: Array
    v: Array
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """The test results of a model with one change, by length.

    Attributes
    ----------
    change : str
        The change, as in `inspect`; "" for the model as it is.
    control : str
        If this is a control, the change that it is the control of: the same change of a random head, or of random
        pairs. Otherwise "".
    test : dict
        Metrics by length (str), as `fastpe.evaluate` or, for a text, `loss` in nats, and `reason` if there are none.
    """

    change: str
    control: str
    test: Mapping[str, Mapping[str, Any]]

    def values(self, metric: str) -> dict[str, float | None]:
        """Return a metric by length; None where it is undefined."""
        return {length: metrics.get(metric) for length, metrics in self.test.items()}


@dataclass(frozen=True)
class Inspection:
    """Measurements of a trained model. Heads are in arrays (layers, heads), NaN where a score is undefined.

    Attributes
    ----------
    encoding : str
    train_length : int
        Positions of the training length.
    repeated : dict of str to (layers, heads)
        Scores of `fastpe.heads.head_scores` on random tokens that are repeated once, as means over the second copy.
        Empty for models of numbers.
    own : dict of str to (layers, heads)
        The same scores on sequences of the task or text. Empty without a task or text.
    equal : dict of str to float
        The scores of a head that gives all keys equal weights, on the same sequences as `scores`. With few different
        tokens, many keys are copies, so that `duplicate` and `induction` of any head are large.
    sink_rate : float
        The share of sequences and heads in which the mean weight of the first key is above 0.3.
    output : (layers, heads)
        The mean norm of what a head adds to the residual stream. A head with large weights on a token may add little.
    position : (layers, heads)
        The share of the variance of scores that the distance explains, on sequences whose tokens are shuffled.
    frequency_use, frequency_share : (layers, heads, R/2) or None
        As defined by `fastpe.heads`; None without rotations.
    wavelengths : (R/2,) or None
        The number of positions of a turn of each pair, in the first layer that rotates.
    maps : (layers, heads, n, n)
        The attention weights of the first n tokens of one sequence.
    words : tuple of str
        These tokens.
    by_distance : (layers, heads, N)
        The mean weight at each distance.
    metric : str
        The metric of the curves that is shown: "exact", "loss" or "mse".
    curves : tuple of Curve
        The model as it is, and each change, followed by its control.
    notes : tuple of str
        What was left out, and why.
    """

    encoding: str
    train_length: int
    repeated: dict[str, Array]
    own: dict[str, Array]
    equal: dict[str, float]
    sink_rate: float
    output: Array
    position: Array
    frequency_use: Array | None
    frequency_share: Array | None
    wavelengths: Array | None
    maps: Array
    words: tuple[str, ...]
    by_distance: Array
    metric: str
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]

    @property
    def scores(self) -> dict[str, Array]:
        """The scores that tables show: those of copies on repeated tokens, the others on the model's own sequences."""
        own, repeated = self.own or self.repeated, self.repeated or self.own
        return {name: (repeated if name in _SHOWN else own)[name] for name in heads.SCORES}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; NaN and infinity become None."""
        return {
            "encoding": self.encoding, "train_length": self.train_length, "repeated": _plain(self.repeated),
            "own": _plain(self.own), "equal": _plain(self.equal), "sink_rate": _plain(self.sink_rate),
            "output": _plain(self.output), "position": _plain(self.position),
            "frequency_use": _plain(self.frequency_use), "frequency_share": _plain(self.frequency_share),
            "wavelengths": _plain(self.wavelengths), "tokens": list(self.words), "maps": _plain(self.maps, 4),
            "by_distance": _plain(self.by_distance, 6), "metric": self.metric,
            "curves": [{"change": each.change, "control": each.control, "test": each.test} for each in self.curves],
            "notes": list(self.notes),
        }  # fmt: skip


def _plain(value: Any, digits: int = 17) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each, digits) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(each, digits) for each in (value.tolist() if value.ndim == 1 else value)]
    if isinstance(value, float):
        return round(value, digits) if np.isfinite(value) else None
    return value


class Material(Protocol):
    """The sequences that a model is read and tested on."""

    @property
    def metric(self) -> str:
        """The metric that is shown."""

    @property
    def lengths(self) -> tuple[int | str, ...]:
        """The test lengths by default."""

    def checked(self, lengths: Any) -> Sequence[int | str]:
        """Return the given test lengths; raise ValueError or TypeError if one is not possible."""

    def sequences(self, count: int, length: int) -> Array:
        """Return sequences (count, n) of at most this many positions, without padding."""

    def test(self, model: Transformer, lengths: Sequence[int | str], threads: int | None) -> dict[str, dict[str, Any]]:
        """Return metrics by length."""

    def word(self, token: Any) -> str:
        """Return a token as text."""


@dataclass(frozen=True)
class OfTask:
    """Sequences of a task."""

    config: TrainConfig
    count: int
    seed: int

    @property
    def chosen(self) -> Chosen:
        """The task with its options."""
        return self.config.chosen

    @property
    def metric(self) -> str:
        """The metric that is shown."""
        return "mse" if self.chosen.task.kind == "numbers" else "exact"

    @property
    def lengths(self) -> tuple[int | str, ...]:
        """The test lengths of the run."""
        return self.config.test_lengths

    def checked(self, lengths: Any) -> Sequence[int | str]:
        """Return the given test lengths, which must be lengths of the task."""
        return checked_lengths("lengths", lengths, self.chosen)

    def sequences(self, count: int, length: int) -> Array:
        """Return sequences of the largest training length of the task that has this many positions."""
        chosen, causal = self.chosen, self.config.causal
        within = [int(each) for each in chosen.lengths.within(1, self.config.train_length)]
        fits = [each for each in within if sizes.positions(chosen, each, causal) <= length] or within[:1]
        stream = Stream(self.seed, "inspect")
        found = frame.sequences(chosen, stream, [fits[-1]] * count, causal, self.config.dtype)
        return found.x if found.lengths is None else found.x[:, : found.lengths.min()]

    def test(self, model: Transformer, lengths: Sequence[int | str], threads: int | None) -> dict[str, dict[str, Any]]:
        """Return the metrics of `evaluate`."""
        config = self.config
        return evaluate(
            model, lengths, self.count, seed=config.seed, task=config.task, task_options=config.task_options,
            target_scale=config.target_scale, threads=threads,
        )  # fmt: skip

    def word(self, token: Any) -> str:
        """Return a symbol, the name of a token of the frame, or a number."""
        if self.metric == "mse":
            return f"{token:.2g}"
        symbols = self.chosen.symbols
        return self.chosen.word(int(token)) if token < symbols else sizes.FRAME[int(token) - symbols]


@dataclass(frozen=True)
class OfText:
    """Blocks of a text."""

    model: Transformer
    tokens: Array
    size: int | None
    count: int
    metric: str = "loss"

    @property
    def lengths(self) -> tuple[int | str, ...]:
        """Once, twice and four times the training length, as far as the text reaches."""
        usual = [factor * self.model.config.train_length for factor in (1, 2, 4)]
        return tuple(each for each in usual if each < len(self.tokens)) or (len(self.tokens) - 1,)

    def checked(self, lengths: Any) -> Sequence[int | str]:
        """Return the given test lengths, which must be integers from 1."""
        if isinstance(lengths, str) or not isinstance(lengths, Iterable):
            raise TypeError(f"lengths must be a sequence of integers, not {validation.shown(lengths)}")
        return [validation.whole("lengths", each, 1) for each in lengths]

    def sequences(self, count: int, length: int) -> Array:
        """Return blocks from places that are equally far apart."""
        length = min(length, len(self.tokens))
        starts = np.linspace(0, len(self.tokens) - length, count).astype(int)
        return self.tokens[np.unique(starts)[:, None] + np.arange(length)].astype(np.int64)

    def test(self, model: Transformer, lengths: Sequence[int | str], threads: int | None) -> dict[str, dict[str, Any]]:
        """Return the loss in blocks of each length, of equally many tokens."""
        most = max(int(length) for length in lengths)
        text = self.tokens[: max(most, self.count * int(lengths[0])) + 1]
        size = None if len(text) < len(self.tokens) else self.size
        return {str(length): text_metrics(model, text, int(length), size, threads) for length in lengths}

    def word(self, token: Any) -> str:
        """Return what the token stands for."""
        return _word(self.model, token)


def _word(model: Transformer, token: Any) -> str:
    """Return what a token stands for, if it is known."""
    if model.config.vocabulary is None:
        return f"{token:.2g}"
    return str(int(token)) if model.vocabulary is None else model.vocabulary.decode([int(token)])


@validation.named_arguments
def inspect(
    model_or_run: Transformer | str | Path,
    tokens: Any = None,
    *,
    task: str | None = None,
    task_options: Mapping[str, Any] | None = None,
    changes: Iterable[str] | None = None,
    greedy: int = 0,
    lengths: Iterable[int | str] | None = None,
    length: int | None = None,
    samples: int = 16,
    sequences: int = 128,
    shown: int = 32,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Measure what the heads of a trained causal model attend to, and how the model depends on its positions.

    The scores of heads are those of `fastpe.heads`. They are computed from the weights of all layers in NumPy, for a
    block of queries at a time.

    Parameters
    ----------
    model_or_run : Transformer, str or pathlib.Path
        A model, or the path of a run folder, a model file, or a folder in the format of Hugging Face's transformers.
    tokens : str or array_like (T,) of int, optional
        A text to read and to test on. For the run folder of a text, the default is the validation part of its text.
    task : str, optional
        Key of a task to read and to test on, for a model without a run folder.
    task_options : dict, optional
        Options of the task.
    changes : iterable of str, optional
        Changes of the model to test. By default some that suit the encoding.

        =========================== ============================================================================
        ``drop``                    no encoding: no rotation, no bias; tables become their mean row
        ``swap:KEY``                another encoding that fills the same slots, with default options
        ``shift:S``                 all positions are larger by S
        ``near:D``                  keys farther than D are hidden
        ``head:LAYER.HEAD``         the output of a head becomes its mean at each place over the test sequences
        ``head:LAYER.HEAD=zero``    the output of a head becomes 0
        ``pair:P``                  the part of a pair of rotated channels is left out of the scores, in all heads
        ``pair:P=still``            the pair is not rotated
        ``pair:P=FACTOR``           the frequency of the pair is multiplied
        ``slower:W``, ``faster:W``  as ``pair``, for all pairs with a longer or shorter wavelength than W positions
        =========================== ============================================================================

        Several heads or pairs are separated by commas: ``head:0.1,1.3``. Each change of heads or pairs is followed by a
        control, the same change of as many random ones, if at most half of them are changed.
    greedy : int
        The number of heads to leave out one after the other, each time the one that increases the loss least at the
        first of `lengths`.
    lengths : iterable of int or str, optional
        Test lengths. By default those of the run; for a text 1, 2 and 4 times the training length.
    length : int, optional
        Positions of the sequences that scores are measured on: by default the training length, at most 512.
    samples : int
        The number of these sequences.
    sequences : int
        The number of test sequences for each length; for a text, of blocks of the first length.
    shown : int
        The number of tokens in `maps`.
    seed : int
        Seed of the random tokens, and of the random heads and pairs.
    threads : int, optional
        Number of threads; does not change the result. Default: all cores.
    progress : callable, optional
        Called with a text before each part of the work.

    Returns
    -------
    Inspection

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or of the wrong type, or the model is not supported.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import fastpe
    >>> model = fastpe.Transformer(fastpe.ModelConfig("rope", width=16, heads=2, causal=True, vocabulary=9))
    >>> found = inspect(model, np.arange(200) % 9, changes=["drop"], lengths=[8, 16])
    >>> found.scores["induction"].shape, found.frequency_use.shape, [curve.change for curve in found.curves]
    ((2, 2), (2, 2, 4), ['', 'drop'])
    """
    tell = progress or (lambda text: None)
    model, material = _material(model_or_run, tokens, task, task_options, sequences, seed)
    plain = Changed(model)  # raises the errors of unsupported models now
    count = model.config.train_length
    length = validation.whole("length", min(count, _READ) if length is None else length, 4)
    samples, shown = validation.whole("samples", samples, 1), validation.whole("shown", shown, 1)
    greedy, wanted = validation.whole("greedy", greedy, 0), None if changes is None else changed.checked(changes)
    for change in wanted or ():
        Changed(model, change)
    if material is None and (wanted or greedy or lengths is not None):
        raise ValueError("changes need test sequences: give tokens, or a task, or the folder of a run")
    tested: tuple[int | str, ...] = () if material is None else material.lengths
    if material is not None and lengths is not None:
        tested = tuple(material.checked(lengths))
        if not tested:
            raise ValueError("lengths must have at least one length, not none")
    notes = [] if material is not None else ["There are no curves, because neither a task nor a text is known."]
    read = _Reading(plain, samples, length, seed, threads)
    tell("reading sequences")
    found = read.all(material, shown)
    curves: list[Curve] = []
    if material is not None:
        test = _Tests(model, material, tested, seed, threads, tell)
        chosen = _usual(model, found) if wanted is None else wanted
        curves = test.curves(chosen, greedy, notes if wanted is None else None)
    metric = "loss" if material is None else material.metric
    return Inspection(model.config.encoding, count, **found, metric=metric, curves=tuple(curves), notes=tuple(notes))


def is_checkpoint(path: str | Path) -> bool:
    """Whether a path is a folder in the format of Hugging Face's transformers, and no run folder."""
    file = Path(path) / config_file.NAME
    if not file.is_file():
        return False
    found = files.read_json(file)
    return isinstance(found, dict) and "model_type" in found


def _material(
    model_or_run: Any, tokens: Any, task: str | None, options: Mapping[str, Any] | None, count: int, seed: int
) -> tuple[Transformer, Material | None]:
    """Return the model, and what it is read and tested on; None if nothing is known."""
    count = validation.whole("sequences", count, 1)
    stored = None
    if isinstance(model_or_run, Transformer):
        model = model_or_run
    elif isinstance(model_or_run, str | Path):
        path = validation.path("model_or_run", model_or_run)
        if is_checkpoint(path):
            model = load_hf(path)
        else:
            model = run_folder.load(path)
            stored = config_file.read_config(path) if path.is_dir() else None
    else:
        shown = validation.shown(model_or_run)
        raise TypeError(f"model_or_run must be a Transformer, a run folder or a model file, not {shown}")
    if options and task is None:
        raise ValueError(f"task_options need task, but are {validation.shown(options)} without one")
    if tokens is not None or (stored is not None and stored.symbols is not None and task is None):
        if task is not None:
            raise ValueError("task cannot be combined with tokens: give one of them")
        given = model_or_run if tokens is None else model
        _, text, _, size = length_curve.read_for(given, tokens)
        return model, OfText(model, text, size, count)
    if stored is not None and task in (None, stored.task):
        stored = replace(stored, task_options={**stored.task_options, **(options or {})})
        if (kept := sizes.vocabulary(stored.chosen)) != model.config.vocabulary:
            raise ValueError(f"task_options must keep the model's {model.config.vocabulary} tokens, not {kept}")
        return model, OfTask(stored, count, seed)
    if task is None:
        return model, None
    return model, OfTask(_as_run(model, task, options), count, seed)


def _as_run(model: Transformer, task: str, options: Mapping[str, Any] | None) -> TrainConfig:
    """Return the settings of a run on a task whose training length has as many positions as the model's."""
    chosen = choose(TASKS.resolve(task), options)
    if chosen.task.kind == "text":
        raise ValueError("task cannot be 'text': give the text as tokens")
    if (wanted := sizes.vocabulary(chosen)) != model.config.vocabulary:
        raise ValueError(f"task must be one of the model's {model.config.vocabulary} tokens, not {wanted} ({task!r})")
    most = model.config.train_length
    fits = [int(n) for n in chosen.lengths.within(1, most) if sizes.positions(chosen, int(n), True) <= most]
    if not fits:
        raise ValueError(f"task {task!r} has no input of at most {most} positions, the model's training length")
    kept = {each.name for each in fields(model.config)} - {"vocabulary", "train_length"}
    return TrainConfig(
        **{name: getattr(model.config, name) for name in kept},
        train_length=fits[-1],
        task=task,
        task_options=dict(options or {}),
        test_lengths=usual_lengths(chosen, fits[-1]),
    )


class _Reading:
    """Passes over sequences in which every layer's attention is measured."""

    def __init__(self, model: Changed, samples: int, length: int, seed: int, threads: int | None) -> None:
        self._model, self._samples, self._length, self._seed, self._threads = model, samples, length, seed, threads

    def all(self, material: Material | None, shown: int) -> dict[str, Any]:
        """Return the fields of `Inspection` that are measured on the model as it is."""
        repeated, own, equal = dict[str, Array](), dict[str, Array](), dict[str, float]()
        x = None if material is None else material.sequences(self._samples, self._length)
        if self._model.config.vocabulary is not None:
            copies, first = self._copies(material)
            repeated, equal = self._scores(copies, first), _equal(copies, first)
            x = copies if x is None else x
        elif x is None:
            x = Stream(self._seed, "inspect").normal(self._samples * self._length).reshape(self._samples, -1)
        read, some = self._pass(x, lambda call, ids: self._measured(call, ids, shown), _ids(x)), x[0, :shown]
        if material is not None or not repeated:
            own, of_own = _named([_mean([each["scores"] for each in parts]) for parts in read]), _equal(x)
            equal = {name: (equal or of_own if name in _SHOWN else of_own)[name] for name in heads.SCORES}
        use, share = _turning([[each["frequencies"] for each in parts] for parts in read])
        shuffled = self._pass(self._shuffled(x), lambda call: heads.position_share(blocks(call, "masked")))
        word = (lambda token: _word(self._model, token)) if material is None else material.word
        return {
            "repeated": repeated, "own": own, "equal": equal,
            "sink_rate": float(np.mean([np.mean(each["sinks"] > _SINK) for parts in read for each in parts])),
            "output": np.stack([_mean([each["output"] for each in parts]) for parts in read]),
            "position": np.stack([_mean(parts) for parts in shuffled]),
            "frequency_use": use, "frequency_share": share, "wavelengths": self._wavelengths(),
            "maps": np.stack([parts[0]["map"] for parts in read]), "words": tuple(word(token) for token in some),
            "by_distance": np.stack([_mean([each["by_distance"] for each in parts]) for parts in read]),
        }  # fmt: skip

    def _measured(self, call: Call, ids: Array, shown: int) -> dict[str, Any]:
        """Return all measures of a layer on some sequences."""
        found = heads.head_scores(blocks(call, "weights"), ids)
        return {
            "scores": np.stack([found[name] for name in heads.SCORES]), "frequencies": _frequencies_of(call),
            "output": self._output_of(call), **_of_weights(call, shown),
        }  # fmt: skip

    def _copies(self, material: Material | None) -> tuple[Array, int]:
        """Return random tokens twice, after the begin token of a task, and the place of the second copy."""
        vocabulary, begin = self._model.config.vocabulary or 0, 0
        if isinstance(material, OfTask):
            vocabulary, begin = material.chosen.symbols, 1
        count = max(2, min(25, (min(self._length, self._model.config.train_length) - begin) // 2))
        stream = [Stream(self._seed, "repeated", number) for number in range(self._samples)]
        drawn = [np.concatenate([each.permutation(vocabulary)] * -(-count // vocabulary))[:count] for each in stream]
        rows = np.stack(drawn).astype(np.int64)
        first = np.full((len(rows), begin), vocabulary + sizes.FRAME.index("begin"))
        return np.concatenate([first, rows, rows], axis=1), begin + count

    def _shuffled(self, x: Array) -> Array:
        """Return the sequences with all tokens but the first in a random order."""
        order = [Stream(self._seed, "shuffled", number).permutation(x.shape[1] - 1) for number in range(len(x))]
        return np.concatenate([x[:, :1], np.take_along_axis(x[:, 1:], np.stack(order), axis=1)], axis=1)

    def _scores(self, x: Array, start: int) -> dict[str, Array]:
        """Return the scores of heads on sequences, (layers, heads) by name."""

        def of(call: Call, ids: Array) -> Array:
            found = heads.head_scores(blocks(call, "weights"), ids, start=start)
            return np.stack([found[name] for name in heads.SCORES])

        return _named([_mean(parts) for parts in self._pass(x, of, x)])

    def _pass(self, x: Array, measure: Callable[..., Any], ids: Array | None = None) -> list[list[Any]]:
        """Read sequences, and return a measure of the attention of each layer.

        There is one measure for each part of the sequences that is read together.
        """
        found: list[list[Any]] = [[] for _ in range(self._model.config.layers)]
        values = max(self._model.config.vocabulary or 1, 4 * self._model.config.hidden)
        some = max(1, MOST // (x.shape[1] * values))  # as `ByLayer` cuts a batch, so that each layer is read once
        for first in range(0, len(x), some):
            own = () if ids is None else (ids[first : first + some],)

            def watch(*call: Any, own: Any = own) -> None:
                found[call[0]].append(measure(Call(*call), *own))

            self._model.watched(x[first : first + some], watch, self._threads)
        return found

    def _output_of(self, call: Call) -> Array:
        """Return the mean norm of what each head adds to the residual stream, (H,), before a norm of outputs."""
        mixed = attention(call.q, call.k, call.v, **call.options)
        weight = self._model.parameters[f"layers.{call.layer}.attention.out.weight"]
        added = mixed @ weight.reshape(mixed.shape[1], mixed.shape[3], -1)
        return np.asarray(np.linalg.norm(added, axis=-1).mean(axis=(0, 2), dtype=np.float64))

    def _wavelengths(self) -> Array | None:
        """Return the wavelengths of all rotated pairs, if they are constant and equal in all heads and layers."""
        found: Array | None = None
        for own in self._model.slots_of_layers(max(2, min(self._length, self._model.config.train_length))):
            if np.any(own.get("angles", 0)) and "polar" not in own:
                try:
                    waves = changed.wavelengths(own["angles"])
                except ValueError:
                    return None
                found = waves[0] if found is None else found
                if waves.shape[-1:] != found.shape or not np.allclose(waves, found, rtol=1e-3):
                    return None
        return found


def _ids(x: Array) -> Array:
    """Return the tokens, or different ones in place of numbers."""
    return x if x.dtype.kind == "i" else np.broadcast_to(np.arange(x.shape[1]), x.shape)


def _equal(x: Array, start: int = 1) -> dict[str, float]:
    """Return the scores of a head with equal weights of all keys."""
    ids, length = _ids(x), x.shape[1]
    rows = (np.broadcast_to(1 / (i + 1), (len(x), 1, 1, i + 1)) for i in range(length))
    found = heads.head_scores(rows, ids, start=min(start, length - 1))
    return {name: float(value[0]) for name, value in found.items()}


def _named(layers: Sequence[Array]) -> dict[str, Array]:
    """Scores (layers, heads) by name, from those of each layer (scores, heads)."""
    return {name: np.stack([each[place] for each in layers]) for place, name in enumerate(heads.SCORES)}


def _turning(layers: Sequence[Sequence[Array | None]]) -> tuple[Array | None, Array | None]:
    """Return use and share of frequencies (layers, heads, R/2), NaN in layers without rotations; None without any."""
    found = [_mean([each for each in parts if each is not None]) if parts[0] is not None else None for parts in layers]
    known = next((each for each in found if each is not None), None)
    if known is None:
        return None, None
    use, share = np.moveaxis(np.stack([np.full_like(known, np.nan) if each is None else each for each in found]), 1, 0)
    return use, share


def _mean(parts: Sequence[Array]) -> Array:
    """Return the mean over parts, without those that are NaN."""
    known = np.stack([~np.isnan(each) for each in parts])
    total = np.sum(np.stack([np.nan_to_num(each) for each in parts]), axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / known.sum(axis=0))


def blocks(call: Call, stage: str) -> Iterator[Array]:
    """Yield a stage of `fastpe.attention_scores` for blocks of queries and the keys up to the last query of the block.

    Slots are cut accordingly, so memory grows in proportion to the number of tokens, unless a slot is larger.
    """
    q, k = call.q, call.k
    samples, count, length = q.shape[:3]
    step = max(1, _CELLS // (samples * count * length))
    given = {name: value for name, value in call.options.items() if name not in ("lengths", "rel_value")}
    for first in range(0, length, step):
        rows, seen = slice(first, min(first + step, length)), slice(0, min(first + step, length))
        own = {name: _cut(name, value, rows, seen) for name, value in given.items()}
        yield attention_scores(q[:, :, rows], k[:, :, seen], stage=stage, **own)


def _cut(name: str, value: Any, rows: slice, seen: slice) -> Any:
    """Return the part of an argument of attention for some queries and the first keys."""
    if name == "spans":
        return np.asarray(value)[:, rows]
    if name not in SLOTS or not isinstance(value, np.ndarray):
        return value
    axes = {"N": rows, "M": seen, "L": seen, "L1": seen}
    index: tuple[Any, ...] = (..., *(axes.get(each, slice(None)) for each in SLOTS[name].axes))
    return value[index]


def _frequencies_of(call: Call) -> Array | None:
    """Return use and share of each frequency, (2, H, R/2), or None without rotations."""
    (_, q, k, _, options), scores = call, blocks(call, "masked")
    angles = options.get("angles")
    if angles is None or not np.any(angles) or "polar" in options:  # layers of a pattern have angles of 0
        return None
    pairs, scale = options.get("pairs", "interleaved"), options.get("scale", q.shape[-1] ** -0.5)
    own = {"rotated": 2 * angles.shape[-1], "pairs": pairs, "scale": 1.0}
    q = q * np.reshape(scale, (-1, 1, 1))  # one scale, or one for each head
    q = q * np.asarray(options["row_scale"])[..., None] if "row_scale" in options else q
    use = heads.frequency_use(q, k, **own)
    turned_q, turned_k = (rotate(x, angles, pairs=pairs) for x in (q, k.repeat(q.shape[1] // k.shape[1], axis=1)))
    return np.stack([use, heads.frequency_share(turned_q, turned_k, scores, **own)])


def _of_weights(call: Call, shown: int) -> dict[str, Array]:
    """Return the mean weight of the first key by sequence (B, H), the mean weight at each distance (H, N),
    and the weights of the first tokens of the first sequence.
    """
    samples, count, length = call.q.shape[:3]
    sums, sinks, first = np.zeros((count, length)), np.zeros((samples, count)), 0
    shown = min(shown, length)
    drawn = np.zeros((count, shown, shown))
    for block in blocks(call, "weights"):
        rows, keys = block.shape[2:]
        distances = first + np.arange(rows)[:, None] - np.arange(keys)
        seen, by_pair = distances >= 0, block.sum(axis=0)
        for head in range(count):
            sums[head] += np.bincount(distances[seen], by_pair[head][seen], length)
        sinks += block[..., 0].sum(axis=2)
        if first < shown:
            few = block[0, :, : shown - first, :shown]
            drawn[:, first : first + few.shape[1], : few.shape[2]] = few
        first += rows
    return {"sinks": sinks / length, "by_distance": sums / (samples * np.arange(length, 0, -1)), "map": drawn}


def _usual(model: Transformer, found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the changes that are tested by default."""
    length = model.config.train_length
    own, repeated = found["own"] or found["repeated"], found["repeated"]
    strongest = [repeated[name] for name in ("induction",) if repeated] + [own[name] for name in ("previous", "sink")]
    places = [np.unravel_index(int(np.nan_to_num(each).argmax()), each.shape) for each in strongest]
    chosen = dict.fromkeys(f"head:{layer}.{head}" for layer, head in places)
    waves = found["wavelengths"]
    turning = () if waves is None else (f"slower:{length}", f"slower:{length}=still") if (waves > length).any() else ()
    return ("drop", f"shift:{length}", f"near:{max(length - 1, 1)}", *chosen, *turning)


class _Tests:
    """Tests of changed models on the same sequences."""

    def __init__(
        self, model: Transformer, material: Material, lengths: Sequence[int | str], seed: int, threads: int | None,
        tell: Progress,
    ) -> None:  # fmt: skip
        self._model, self._material, self._lengths = model, material, lengths
        self._seed, self._threads, self._tell, self._means = seed, threads, tell, Means()

    def curves(self, changes: Sequence[str], greedy: int, refused: list[str] | None) -> list[Curve]:
        """Return the model as it is, and all changes with their controls.

        Changes that are refused are added to `refused`. If that is None, the error is raised.
        """
        self._tell("testing the model as it is")
        found = [Curve("", "", self._test(Changed(self._model, record=self._means), self._lengths))]
        for change in changes:
            try:
                found.append(self._curve(change))
            except ValueError as error:
                if refused is None:
                    raise
                refused.append(f"{change}: {error}")
                continue
            if (control := self._control(change)) is not None:
                found.append(self._curve(control, change))
        removed: list[str] = []
        for _ in range(greedy):
            others = [each for each in self._every_head() if each not in removed]
            if not others:
                break
            losses = {each: self._loss(removed, each) for each in others}
            removed.append(min(losses, key=lambda each: losses[each]))
            found.append(self._curve(f"head:{','.join(removed)}", "greedy"))
        return found

    def _every_head(self) -> list[str]:
        config = self._model.config
        return [f"{layer}.{head}" for layer in range(config.layers) for head in range(config.heads)]

    def _loss(self, removed: Sequence[str], head: str) -> float:
        change = f"head:{','.join([*removed, head])}"
        self._tell(change)
        (test,) = self._test(self._changed(change), self._lengths[:1]).values()
        value = test.get("loss", test.get("mse"))
        return float("inf") if value is None else float(value)

    def _changed(self, change: str) -> Changed:
        return Changed(self._model, change, means=self._means)

    def _curve(self, change: str, control: str = "") -> Curve:
        self._tell(f"testing {change}")
        return Curve(change, control, self._test(self._changed(change), self._lengths))

    def _test(self, model: Transformer, lengths: Sequence[int | str]) -> dict[str, dict[str, Any]]:
        return self._material.test(model, lengths, self._threads)

    def _control(self, change: str) -> str | None:
        """Return the same change of as many random heads, or random pairs; None if there are no others."""
        own = changed.Change.parse(change)
        how = f"={own.how}" if own.how else ""
        if own.kind == "head":
            every, used = self._every_head(), {f"{layer}.{head}" for layer, head in own.what}
        elif own.kind in ("pair", "slower", "faster"):
            marked = self._changed(change).marked()
            every = [str(pair) for pair in range(len(marked))]
            used = {str(pair) for pair in np.flatnonzero(marked)}
        else:
            return None
        others = [each for each in every if each not in used]
        if not used or len(others) < len(used):
            return None
        order = Stream(self._seed, "control", change).permutation(len(others))[: len(used)]
        return f"{'head' if own.kind == 'head' else 'pair'}:{','.join(others[place] for place in sorted(order))}{how}"
