"""Shows on standard error how a training goes: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from fastpe.events import EpochDone, Event, Noted, Started, Stepped

if TYPE_CHECKING:
    from rich.progress import Progress

_REFRESH = 0.2  # seconds


class Reporter:
    """A listener for `fastpe.train` and `fastpe.evaluation.evaluate`; a context manager.

    Attributes
    ----------
    run : pathlib.Path or None
        The run folder, once training has begun in one.
    """

    def __init__(self) -> None:
        self.run: Path | None = None
        self._bar: Progress | None = None
        self._samples = self._epochs = 0
        self._fresh = 0  # sequences since the bar was last drawn, at `_refreshed`
        self._refreshed = 0.0

    def __enter__(self) -> Self:
        from fastpe.kernels import _jit

        def announce(what: str) -> None:
            problem = _jit.cache_problem
            why = f"every time: no cache, {problem}" if problem else "once; kept in the cache"
            self.line(f"compiling {what} ({why})")

        _jit.on_compile = announce
        return self

    def __exit__(self, *_: object) -> None:
        from fastpe.kernels import _jit

        _jit.on_compile = None
        self._close()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Started():
                self._start(event)
            case Stepped():
                self._step(event)
            case EpochDone():
                self._epoch(event)
            case Noted(message):
                self.line(message)

    def line(self, text: str) -> None:
        """Print a line on standard error, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(text, err=True)

    def _start(self, event: Started) -> None:
        config, self.run = event.config, event.run
        self._samples, self._epochs, self._refreshed = config.samples, config.epochs, time.monotonic()
        if event.step == config.steps:
            self.line(f"{event.run} is finished: nothing to train")
            return
        epochs = event.step // config.steps_per_epoch
        where = f" in {event.run}" if event.run is not None else ""
        what = f"resuming after epoch {epochs}" if epochs else "training"
        self.line(f"{what}: {config.encoding}, {config.samples} sequences of {config.train_length}{where}")
        if sys.stderr is not None and sys.stderr.isatty():
            self._open(epochs * config.samples)

    def _open(self, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[rate]} sequences/s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        total = self._epochs * self._samples
        self._bar.add_task("", total=total, completed=done, epoch="", loss="-", rate="-")
        self._bar.start()

    def _step(self, event: Stepped) -> None:
        now = time.monotonic()
        self._fresh += event.sequences
        if self._bar is None or now - self._refreshed < _REFRESH:
            return
        rate = f"{self._fresh / (now - self._refreshed):,.0f}"
        epoch = f"{event.epoch}/{self._epochs}"
        self._bar.update(self._bar.task_ids[0], advance=self._fresh, epoch=epoch, loss=f"{event.loss:.4g}", rate=rate)
        self._refreshed, self._fresh = now, 0

    def _epoch(self, event: EpochDone) -> None:
        rate = self._samples / event.seconds
        width = len(str(self._epochs))
        self.line(f"epoch {event.epoch:{width}}/{self._epochs}  loss {event.loss:<10.6g}  {rate:,.0f} sequences/s")
        if event.epoch == self._epochs:
            self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
