"""A progress bar on standard error with the remaining time, and the listener of a training that uses it."""

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
    """Lines on standard error, with a progress bar below them on a terminal or in a notebook.

    It is a context manager that removes the bar at the end. The work is counted in any unit. The speed does not include
    units that were finished earlier (the `done` of `open`, and those of `skip`), nor the time before the first report,
    which may include compiling.
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
        """Print a line on standard error, above the bar if there is one; control characters are escaped."""
        text = printable(text)
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def open(self, total: int | None, done: int, before: str) -> None:
        """Start counting `total` units, with `done` already finished; `before` is the text left of the bar.

        Without a total, the bar only shows that work is going on.
        """
        self.close()
        self._total, self._done, self._counted, self._begin = total or 0, done, 0, None
        if not can_be_drawn():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.text import Text

        class Times(ProgressColumn):
            def render(self, task: Task) -> Text:
                remaining = "" if total is None else f", remaining {task.fields['left']}"
                return Text(f"elapsed {duration(task.elapsed or 0.0)}{remaining}")

        texts = (TextColumn(text, markup=False) for text in ("{task.fields[before]}", "{task.fields[after]}"))
        columns = (next(texts), BarColumn(), *texts, Times())
        # lines on a terminal are printed above the bar, and those for a file stay in the file
        above = sys.stdout is not None and sys.stdout.isatty()
        console = Console(stderr=True)
        self._progress = Progress(*columns, console=console, transient=True, redirect_stdout=above)
        self._progress.add_task("", total=total, completed=done, before=printable(before), after="", left="?")
        self._progress.start()

    def skip(self, units: int) -> None:
        """Count units that were finished earlier."""
        self._begin = self._begin or time.monotonic()
        self._done += units

    def advance(self, units: int) -> None:
        """Count units that were finished now."""
        self._done += units
        if self._begin is None:
            self._begin = time.monotonic()
        else:
            self._counted += units

    def show(self, before: str, after: str) -> None:
        """Draw the bar between two texts, if the speed is known and the last drawing is not too recent."""
        now = time.monotonic()
        if self._progress is not None and self._counted and now - self._shown >= _REFRESH:
            self._shown = now
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=self._done, before=printable(before), after=after, left=self.left())

    def head(self, before: str) -> None:
        """Change the text left of the bar at once."""
        if self._progress is not None:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=self._done, before=printable(before), left=self.left(), refresh=True)

    def pace(self) -> float:
        """Return the units per second; 0 as long as the speed is unknown."""
        seconds = 0.0 if self._begin is None else time.monotonic() - self._begin
        return self._counted / seconds if seconds else 0.0

    def left(self) -> str:
        """Return the remaining time as text."""
        pace = self.pace()
        if not pace:
            return "?"
        return duration((self._total - self._done) / pace)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def duration(seconds: float) -> str:
    """Return a time as text.

    >>> duration(6.2), duration(1000), duration(20_000)
    ('6 s', '17 min', '5.6 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def per_second(count: float, seconds: float, what: str = "sequences") -> str:
    """Return a number per second as text.

    >>> per_second(640, 0.5), per_second(640, 0.0)  # the second clock does not move
    ('1,280 sequences/s', '- sequences/s')
    """
    return f"{count / seconds:,.0f} {what}/s" if seconds else f"- {what}/s"


def unit(config: TrainConfig) -> tuple[int, str]:
    """Return how many units of progress a sequence has, and the name of the unit. For a text, the units are tokens.

    >>> unit(TrainConfig("nope"))
    (1, 'sequences')
    """
    return (1, "sequences") if config.symbols is None else (config.train_length, "tokens")


def can_be_drawn() -> bool:
    """Return whether a bar would be visible: on a terminal, or in a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console().is_jupyter


class TrainingBar(Bar):
    """A listener for `fastpe.train` and `fastpe.evaluate` whose bar counts sequences.

    Parameters
    ----------
    lines : bool
        Whether to print a line at the start and after each epoch; notes are always printed.

    Attributes
    ----------
    run : pathlib.Path or None
        The run folder, once training has started in one.
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
        """Show the length that is being tested, or remove the bar after the last one."""
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
        found = [f"validation {key.replace('_', ' ')} {value:.6g}" for key, value in validated if value is not None]
        told = "  ".join([f"loss {event.loss:<10.6g}", *found, rate])
        self._tell(f"epoch {event.epoch:{width}}/{self._epochs}  {told}")
        if event.epoch == self._epochs:
            self.close()
