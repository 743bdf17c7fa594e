"""Trains a small transformer on a task, and tests it at other lengths. This module prints nothing.

Everything random is a pure function of the seed: the data (stream ``train``), the order of each epoch (``order``), the
initial weights (``init``), the test sequences (``test``) and random positions (``positions``). So an interrupted run
continues from the checkpoint of the last epoch, and ends with the same bits as an uninterrupted run.
"""

import html
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpe.base import files, validation
from fastpe.base.frames import frame
from fastpe.base.shielded import load
from fastpe.encodings import combined, registry
from fastpe.kernels.threads.team import threads_for
from fastpe.model import precision
from fastpe.model.adam import Adam
from fastpe.model.transformer import Transformer
from fastpe.tasks.frame import Sequences
from fastpe.training import logging, starting_weights, text_metrics
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import check_target
from fastpe.training.data import TrainingData, check_data, counts, training_data
from fastpe.training.evaluation import evaluate
from fastpe.training.events import EpochDone, Listener, Noted, Started, Stepped
from fastpe.training.forms import METRICS, NAMES, SCHEMA, summary
from fastpe.training.progress import TrainingBar, can_be_drawn
from fastpe.training.run_folder import Run
from fastpe.training.schedule import rate
from fastpe.training.stopping import RISING, Progress, reason_to_end
from fastpe.training.text_data import TextData, predicted_bytes, text_parts
from fastpe.training.validation import TextValidation, Validation, validation_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RunMaker = Callable[[TrainConfig, dict[str, Any]], Run]


class TrainingDiverged(ArithmeticError):
    """The loss or a parameter became infinite or NaN; the last checkpoint remains."""

    def __init__(self, what: str, epoch: int, step: int) -> None:
        super().__init__(f"{what} became infinite or NaN in epoch {epoch}, step {step}; try a smaller learning rate")
        self.epoch, self.step = epoch, step


@dataclass
class TrainResult:
    """Result of `train`.

    Attributes
    ----------
    config : TrainConfig
        The settings of the run.
    model : Transformer
        The trained model.
    history : list of dict
        One entry per epoch: ``epoch``, ``step``, ``loss``, ``seconds``.
    result : dict
        The content of ``result.json``: ``schema``, ``task``, ``encoding``, ``seed``, ``train``, ``test``.
    run : pathlib.Path or None
        The run folder; None if nothing was written.
    """

    config: TrainConfig
    model: Transformer
    history: list[dict[str, Any]]
    result: dict[str, Any]
    run: Path | None = None

    def __repr__(self) -> str:
        done = self.result["train"]
        key = summary(self.config)
        errors = [f"{length}: {_figure(test[key])}" for length, test in self.result["test"].items()]
        where = f" run folder {self.run}" if self.run is not None else " no run folder"
        return (
            f"<TrainResult: {self.config.encoding}, task {self.config.task}, seed {self.config.seed}\n"
            f" {done['steps']:,} steps in {done['seconds']:.1f} s, loss {_figure(done['loss'])}\n"
            f" {NAMES[key]} at length {', '.join(errors) or '-'}\n{where}>"
        )

    def _repr_html_(self) -> str:
        """A notebook shows the settings in a line and the test results as a table."""
        done, key = self.result["train"], summary(self.config)
        said = (
            f"{self.config.encoding} on {self.config.task}, seed {self.config.seed}: {done['steps']:,} updates in "
            f"{done['seconds']:.1f} s, training loss {_figure(done['loss'])}"
        )
        heads = "".join(f"<th>{html.escape(length)}</th>" for length in self.result["test"])
        values = [test[key] for test in self.result["test"].values()]
        shown = [f"{100 * each:.3g} %" if key == "exact" and each is not None else _figure(each) for each in values]
        cells = "".join(f"<td>{each}</td>" for each in shown)
        table = f"<tr><th>test length</th>{heads}</tr><tr><th>{NAMES[key]}</th>{cells}</tr>"
        return f"<p>{html.escape(said)}</p>" + (f"<table>{table}</table>" if heads else "")

    def frame(self) -> Any:
        """Return the losses of the training and the results of the tests as a data frame.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            A row for each value, with the columns ``task``, ``encoding``, ``seed``, ``part`` ("train", "validation" or
            "test"), ``epoch``, ``length``, ``metric`` and ``value``. It is a frame of polars if pandas is missing.

        Raises
        ------
        ModuleNotFoundError
            If neither pandas nor polars is installed.

        Examples
        --------
        >>> from fastpe.training.config import TrainConfig
        >>> small = TrainConfig("nope", width=8, hidden=8, samples=16, epochs=1, test_sequences=4)
        >>> result = train(small, progress=False)
        >>> table = result.frame()  # doctest: +SKIP
        >>> table[table.part == "test"]  # doctest: +SKIP
        """
        own = {"task": self.config.task, "encoding": self.config.encoding, "seed": self.config.seed}
        rows: list[dict[str, Any]] = []
        for line in self.history:
            at = {**own, "epoch": line["epoch"]}
            rows.append({**at, "part": "train", "metric": "loss", "value": line["loss"]})
            validated = (line.get("validation") or {}).items()
            rows += [{**at, "part": "validation", "metric": key, "value": value} for key, value in validated]
        for length, test in self.result["test"].items():
            values = [(key, value) for key, value in test.items() if key in METRICS[self.config.chosen.task.kind]]
            at = {**own, "part": "test", "length": length}
            rows += [{**at, "metric": key, "value": value} for key, value in values]
        return frame(("task", "encoding", "seed", "part", "epoch", "length", "metric", "value"), rows)

    def plot(self) -> "Figure":
        """Draw the losses by epoch, and the test results by length.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.

        Examples
        --------
        >>> from fastpe.training.config import TrainConfig
        >>> small = TrainConfig("nope", width=8, hidden=8, samples=16, epochs=1, test_sequences=4)
        >>> result = train(small, progress=False)
        >>> result.plot().savefig("run.png")  # doctest: +SKIP
        """
        # by name, because figures use results, and this is only their shorter spelling
        figure: Figure = load("fastpe.pictures.run_figure").drawn(self)
        return figure


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4g}"


@dataclass
class _State:
    model: Transformer
    adam: Adam
    progress: Progress = field(default_factory=Progress)
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, np.ndarray] = field(default_factory=dict)  # parameters after the best epoch
    ended: str | None = None


@validation.named_arguments
def train(
    config: TrainConfig,
    *,
    out: str | Path | RunMaker | None = None,
    resume: bool = False,
    threads: int | None = None,
    progress: Listener | Sequence[Listener] | bool | None = None,
) -> TrainResult:
    """Train and test a model, and write a run folder.

    Parameters
    ----------
    config : TrainConfig
        The settings; the defaults are the protocol of the source paper (Li 2025). In tests beyond the training length,
        the encoding `learned` uses the last row of its table, unless its options say otherwise (see
        `TrainConfig.tested`).
    out : str or pathlib.Path, optional
        The run folder to create, or a function that creates one when called with `config` and the options of the
        encoding. By default nothing is written.
    resume : bool
        Whether to continue the run in `out`, which must have the same settings. If the run is finished, its result is
        read and returned. `epochs` may differ if the learning rate does not decay: with more epochs, a finished run is
        trained further. Its result then has the same bits as that of a new run with the larger number of epochs. To
        change other settings, start a new run from the weights of the old one with `TrainConfig.starting_from`.
    threads : int, optional
        Number of threads; the result has the same bits for any number. Default: all cores.
    progress : callable, list of callables or False, optional
        Called with `Started`, then with `Stepped` and `EpochDone` during training, then with `TestStarted` and
        `LengthTested`, and with `Noted` at any time (see `fastpe.training.events`). By default a progress bar is shown
        on a terminal and in a notebook. False: nothing is shown. `CsvLog` and `TensorBoardLog` write logs; with
        ``[fastpe.training.progress.TrainingBar(), fastpe.CsvLog()]``, the bar is shown as well.

    Returns
    -------
    TrainResult

    Raises
    ------
    TypeError
        If `config` is not a `TrainConfig`.
    ValueError
        If a setting does not fit the encoding, or if the run folder cannot be used (`RunError`). Nothing is written.
    TrainingDiverged
        If the loss becomes infinite or NaN; the last checkpoint remains.
    OSError
        If a file cannot be written; existing files stay valid.

    Examples
    --------
    >>> from fastpe import TrainConfig
    >>> config = TrainConfig(encoding="sinusoidal", width=8, hidden=8, train_length=5, samples=64, epochs=2,
    ...                      test_lengths=(5, 10), test_sequences=10)
    >>> sorted(train(config).result["test"]["10"])
    ['mse', 'mse_beyond', 'mse_last', 'nmse', 'sequences']
    """
    validation.instance("config", config, TrainConfig, "train(TrainConfig('wavelet'))")
    threads_for(threads)
    listener = logging.joined(progress)
    if listener is None and can_be_drawn():
        with TrainingBar(lines=False) as bar:
            return _train(config, out, resume, threads, bar)
    return _train(config, out, resume, threads, listener or (lambda event: None))


def _train(
    config: TrainConfig, out: str | Path | RunMaker | None, resume: bool, threads: int | None, notify: Listener
) -> TrainResult:
    config = config.tested()
    if not resume:  # with `resume`, the check follows below, because a finished run draws no data
        check_data(config)
        config = config.with_tokenizer()
    if out is not None and not callable(out):
        config = check_target(validation.path("out", out), config, resume)
    options = registry.option_values(config.encoding, config.options)
    begin = starting_weights.start(config) if config.start_from is not None and not resume else None
    model = Transformer(config.model)
    model.vocabulary = config.symbols
    if out is not None:
        each = 4 if config.validation else 3  # a checkpoint: parameters, two moments, the best epoch's parameters
        files.check_header(model.parameters, each=each)
    state = _State(model, optimiser(config, model))
    with _open_run(config, out, resume, options) as run:
        result = _restore(run, state)
        if resume:
            if result is None:
                check_data(config)
            config = config.with_tokenizer()
            model.vocabulary = config.symbols
            if run is not None:
                run.keep_tokenizer(config.tokenizer_content)
        lacking = (
            _start(config, run, model, begin) if config.start_from is not None and state.progress.step == 0 else []
        )
        if run is not None and run.new_epochs and state.ended in ("solved", "validation"):
            done = f"training had ended after epoch {state.progress.epoch}: in validation {_why(state.ended)}"
            run.notes.append(f"{done}. More epochs change nothing")
        notes = run.notes if run is not None else []
        told = len(notes)
        for note in [*notes, *lacking, *_remarks(config)]:
            notify(Noted(note))
        path = run.path if run is not None else None
        notify(Started(config, path, state.progress.step, finished=state.ended is not None))
        if state.ended is None:
            _run_epochs(config, training_data(config), state, run, threads, notify)
        if config.keep == "best" and state.best:
            model.parameters = state.best
        if run is not None and (result is None or not run.holds_model()):
            run.save_model(model)
        if result is None:
            result = _result(config, state, threads, notify)
            if run is not None:
                run.save_result(result)
        for note in notes[told:]:  # new notes
            notify(Noted(note))
    return TrainResult(config, model, state.history, result, path)


def _remarks(config: TrainConfig) -> tuple[str, ...]:
    parts = registry.parse_all(config.encoding, config.options)
    most, told = config.position_range, []
    if most is not None:
        told.append(f"positions are drawn from 0 .. {most - 1} at each step, and in tests")
    if config.symbols is not None:
        training, validation = map(len, text_parts(config))
        text = config.read_text()
        told.append(f"{text.name}: {training:,} training tokens, {validation:,} validation tokens")
        told += [f"{text.name}: {text.changed}"] if text.changed else []
    told += config.met_needs()
    return (*told, *precision.remarks(config), *combined.remarks(parts, config.model.spec(config.model.train_length)))


def _open_run(
    config: TrainConfig, out: str | Path | RunMaker | None, resume: bool, options: dict[str, Any]
) -> AbstractContextManager[Run | None]:
    if out is None:
        if resume:
            raise ValueError("resume needs out, the run folder to continue")
        return nullcontext()
    if callable(out):
        return out(config, options)
    return Run.resume(out, config, options) if resume else Run.create(out, config, options)


def _start(config: TrainConfig, run: Run | None, model: Transformer, start: starting_weights.Start | None) -> list[str]:
    """Load the weights that the training starts with, from the run folder or else from the origin.

    Returns what could not be carried over, as notes.
    """
    if run is not None and run.restore_start(model):
        return []
    start = starting_weights.start(config) if start is None else start
    for name, array in start.weights.items():
        model.parameters[name][...] = array
    if run is not None:
        run.save_start(model, start.left_out, start.initial)
    return [told] if (told := start.told(str(config.start_from))) else []


def _restore(run: Run | None, state: _State) -> dict[str, Any] | None:
    """Load the run's checkpoint into `state`; return the result if the run is finished."""
    if run is None:
        return None
    finished = run.restore_finished(state.model)
    state.progress = finished or run.restore(state.model, state.adam, state.best)
    state.history = run.cut_metrics(state.progress.epoch)
    ended = reason_to_end(run.config, state.progress)
    result = run.read_result() if finished or ended else None
    state.ended = result["train"].get("ended", "epochs") if finished and result else ended
    return result


def optimiser(config: TrainConfig, model: Transformer) -> Adam:
    """Return the optimizer at the start of a training."""
    clip = math.inf if config.clip is None else config.clip
    moments = {"beta1": config.beta1, "beta2": config.beta2, "eps": config.eps}
    return Adam(model, lr=config.lr, **moments, weight_decay=config.weight_decay, clip=clip)


def _run_epochs(
    config: TrainConfig,
    data: TrainingData | TextData,
    state: _State,
    run: Run | None,
    threads: int | None,
    notify: Listener,
) -> None:
    # one step of a temporary model, so that compiling does not count as training time
    step(optimiser(config, Transformer(config.model)), data.one(), threads)
    validation = validation_of(config) if config.validation else None
    while state.ended is None:
        epoch, begin = state.progress.epoch + 1, time.perf_counter()
        loss = _run_epoch(config, state.adam, data, epoch, threads, notify)
        seconds = time.perf_counter() - begin
        before, steps = state.progress, state.adam.steps
        state.progress = replace(before, epoch=epoch, step=steps, loss=loss, seconds=before.seconds + seconds)
        state.history.append({"epoch": epoch, "step": steps, "loss": loss, "seconds": seconds})
        if validation is not None:
            _validate(validation, state, threads, notify)
        if run is not None:
            # the checkpoint is written last: surplus metrics are cut, missing metrics would be lost
            run.save_metrics(state.history)
            run.save_checkpoint(state.adam, state.progress, state.best)
        notify(EpochDone(epoch, steps, loss, seconds, state.history[-1].get("validation")))
        state.ended = reason_to_end(config, state.progress)
    if state.ended != "epochs":
        done = f"epoch {state.progress.epoch} of {config.epochs}"
        notify(Noted(f"training ended after {done}: in validation {_why(state.ended)}", of_training=True))


def _why(ended: str | None) -> str:
    return "all answers are right" if ended == "solved" else "the loss no longer falls"


def _validate(validation: Validation | TextValidation, state: _State, threads: int | None, notify: Listener) -> None:
    found = validation.metrics(state.model, threads)
    state.history[-1]["validation"] = found
    state.progress = state.progress.validated(found["loss"], found.get("exact"))
    epoch, best = state.progress.epoch, state.progress.best_epoch
    if best == epoch:
        state.best = state.model.copies()
    elif best and epoch - best == RISING:
        least = f"{state.progress.best_loss:.4g} after epoch {best}"
        said = f"the validation loss has not fallen for {RISING} epochs; its minimum was {least}"
        notify(Noted(said, of_training=True))


def step(adam: Adam, batch: Sequences, threads: int | None) -> float:
    """Update a model with one batch; return the loss of the batch."""
    x, y, weights, lengths = batch
    return adam.step(x, y, weights=weights, lengths=lengths, threads=threads)


def _run_epoch(
    config: TrainConfig, adam: Adam, data: TrainingData | TextData, epoch: int, threads: int | None, notify: Listener
) -> float:
    """Train for one epoch; return the mean loss of the targets."""
    total = counted = 0.0
    for batch in data.batches(epoch):
        adam.lr = rate(config, adam.steps)
        loss, count = step(adam, batch, threads), counts(batch)
        if not math.isfinite(loss):
            raise TrainingDiverged("the loss", epoch, adam.steps)
        total, counted = total + loss * count, counted + count
        notify(Stepped(epoch, adam.steps, loss, len(batch.x)))
    if not all(np.isfinite(tensor).all() for tensor in adam.model.parameters.values()):
        raise TrainingDiverged("a parameter", epoch, adam.steps)
    return total / counted


def _result(config: TrainConfig, state: _State, threads: int | None, notify: Listener) -> dict[str, Any]:
    done = state.progress
    best = {"best_epoch": done.best_epoch, "ended": state.ended} if config.validation else {}
    return {
        "schema": SCHEMA,
        "task": config.task,
        "encoding": config.encoding,
        "seed": config.seed,
        "train": {"steps": done.step, "loss": done.loss, "seconds": done.seconds, **best},
        **_tested(config, state.model, threads, notify),
    }


def _tested(config: TrainConfig, model: Transformer, threads: int | None, notify: Listener) -> dict[str, Any]:
    """Return `test` and `validation`. For a text, `validation` uses the complete validation part."""
    if config.symbols is not None:
        tokens, size = text_parts(config)[1], predicted_bytes(config)
        lengths = [int(length) for length in config.test_lengths]
        whole = text_metrics.text_metrics(model, tokens, min(config.train_length, len(tokens) - 1), size, threads)
        return {"test": text_metrics.test_text(model, tokens, lengths, size, threads, notify), "validation": whole}
    test = evaluate(
        model,
        config.test_lengths,
        config.test_sequences,
        seed=config.seed,
        task=config.task,
        task_options=config.task_options,
        target_scale=config.target_scale,
        threads=threads,
        progress=notify,
    )
    return {
        "test": test,
        **({"validation": validation_of(config).metrics(model, threads)} if config.validation else {}),
    }
