"""A bar on standard error that says how far some work is and how long it still takes; the listener of a training."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fastpe.base.stored import printable
from fastpe.training.config import TrainConfig
from fastpe.training.events import EpochDone, Event, LengthTested, Noted, Started, Stepped, TestStarted

if TYPE_CHECKING:
    from rich.progress import Progress

_REFRESH = 0.2  # seconds


class Bar:
    """Lines on standard error, with a bar below them on a terminal or in a notebook.

    A context manager that takes the bar away. The work is counted in units of any kind; those that `open` and `skip`
    are told of were done before, and tell nothing of the pace. Its clock starts with the first report, as what comes
    before that, such as compiling, tells nothing of it either.
    """

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._total = self._done = self._counted = 0
        self._begin: float | None = None
        self._shown = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def line(self, text: str) -> None:
        """Print a line on standard error, above the bar if there is one; control characters are spelled out."""
        text = printable(text)
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def open(self, total: int, done: int, before: str) -> None:
        """Begin to count, so many units of which so many are done; `before` stands to the left of the bar."""
        self.close()
        self._total, self._done, self._counted, self._begin = total, done, 0, None
        if not can_be_drawn():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        texts = ("{task.fields[before]}", "{task.fields[after]}  left {task.fields[left]}  gone")
        first, second = (TextColumn(text, markup=False) for text in texts)
        columns = (first, BarColumn(), second, TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._progress.add_task("", total=total, completed=done, before=before, after="", left="?")
        self._progress.start()

    def skip(self, units: int) -> None:
        """These were done before."""
        self._begin = self._begin or time.monotonic()
        self._done += units

    def advance(self, units: int) -> None:
        """These were done just now."""
        self._done += units
        if self._begin is None:
            self._begin = time.monotonic()
        else:
            self._counted += units

    def show(self, before: str, after: str) -> None:
        """Draw the bar anew between two texts, if there is a pace, and the last time was a while ago."""
        now = time.monotonic()
        if self._progress is not None and self._counted and now - self._shown >= _REFRESH:
            self._shown = now
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=self._done, before=printable(before), after=after, left=self.left())

    def head(self, before: str) -> None:
        """Change the text to the left of the bar at once."""
        if self._progress is not None:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=self._done, before=printable(before), left=self.left(), refresh=True)

    def pace(self) -> float:
        """Units in a second; 0 as long as it is not known."""
        seconds = 0.0 if self._begin is None else time.monotonic() - self._begin
        return self._counted / seconds if seconds else 0.0

    def left(self) -> str:
        """Time left at this pace, in words."""
        pace = self.pace()
        if not pace:
            return "?"
        seconds = (self._total - self._done) / pace
        return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def per_second(count: float, seconds: float, what: str = "sequences") -> str:
    """So many in a second, in words.

    >>> per_second(640, 0.5), per_second(640, 0.0)  # the second clock does not move
    ('1,280 sequences/s', '- sequences/s')
    """
    return f"{count / seconds:,.0f} {what}/s" if seconds else f"- {what}/s"


def unit(config: TrainConfig) -> tuple[int, str]:
    """What a sequence is told as: of a text as its tokens.

    >>> unit(TrainConfig("nope"))
    (1, 'sequences')
    """
    return (1, "sequences") if config.symbols is None else (config.train_length, "tokens")


def can_be_drawn() -> bool:
    """Whether somebody would see a bar: on a terminal, or in a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console().is_jupyter


class TrainingBar(Bar):
    """A listener for `fastpe.train` and `fastpe.evaluate`, with a bar that counts sequences.

    Parameters
    ----------
    lines : bool
        Whether a line tells of the beginning and of every epoch; notes are always told.

    Attributes
    ----------
    run : pathlib.Path or None
        The run folder, once training has begun in one.
    """

    def __init__(self, *, lines: bool = True) -> None:
        super().__init__()
        self.run: Path | None = None
        self._tell = self.line if lines else lambda text: None
        self._samples = self._epochs = 0
        self._unit = 1, "sequences"
        self._lengths: list[int | str] = []

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Started():
                self._start(event)
            case Stepped():
                self.advance(event.sequences)
                each, what = self._unit
                after = f"loss {event.loss:.4g}  {self.pace() * each:,.0f} {what}/s"
                self.show(f"epoch {event.epoch}/{self._epochs}", after)
            case EpochDone():
                self._epoch(event)
            case TestStarted(lengths):
                self._lengths = list(lengths)
                self.open(len(lengths), 0, "")
                self._next_length()
            case LengthTested():
                self.advance(1)
                self._next_length()
            case Noted(message):
                self.line(message)

    def _next_length(self) -> None:
        """Name the length that is being tested, or take the bar away after the last one."""
        if self._lengths:
            self.head(f"testing at length {self._lengths.pop(0)}")
        else:
            self.close()

    def _start(self, event: Started) -> None:
        config, self.run, self._unit = event.config, event.run, unit(event.config)
        self._samples, self._epochs = config.samples, config.epochs
        if event.finished:
            self._tell(f"{event.run} is finished: nothing to train")
            return
        epochs = event.step // config.steps_per_epoch
        where = f" in {event.run}" if event.run is not None else ""
        what = f"resuming after epoch {epochs}" if epochs else "training"
        self._tell(f"{what}: {config.encoding}, {config.samples} sequences of {config.train_length}{where}")
        total, done = self._epochs * self._samples, epochs * self._samples
        self.open(total, done, f"epoch {epochs + 1}/{self._epochs}")

    def _epoch(self, event: EpochDone) -> None:
        each, what = self._unit
        rate, width = per_second(self._samples * each, event.seconds, what), len(str(self._epochs))
        validated = (event.validation or {}).items()
        found = [f"validation {key} {value:.6g}" for key, value in validated if value is not None]
        told = "  ".join([f"loss {event.loss:<10.6g}", *found, rate])
        self._tell(f"epoch {event.epoch:{width}}/{self._epochs}  {told}")
        if event.epoch == self._epochs:
            self.close()
