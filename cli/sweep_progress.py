"""Shows on standard error how many runs go at once: a bar over all of them on a terminal, plain lines elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Self

import click

from fastpe.experiments.sweep import RunEnded, RunStepped, SweepEvent, SweepNoted, SweepStarted

if TYPE_CHECKING:
    from rich.progress import Progress


class SweepReporter:
    """A listener for `fastpe.experiments.sweep.run`; a context manager."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._steps: dict[str, int] = {}
        self._runs = self._ended = 0
        self._total = self._there = self._fresh = 0
        self._begin: float | None = None  # of the first run: what is compiled before tells nothing of the pace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: SweepEvent) -> None:
        """Show an event."""
        match event:
            case SweepStarted():
                self._start(event)
            case RunStepped(job, step):
                self._begin = self._begin or time.monotonic()
                # the first report of a run tells what was done before this command
                before = self._steps.get(job.path.name)
                self._steps[job.path.name] = step
                if before is not None:
                    self._fresh += step - before
                self._show()
            case RunEnded():
                self._end(event)
            case SweepNoted(message):
                self.line(message)

    def line(self, text: str) -> None:
        """Print a line on standard error, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(text, err=True)

    def _start(self, event: SweepStarted) -> None:
        self._runs, self._ended, self._total, self._there = event.runs, event.reused, event.steps, event.reused_steps
        reused = f", {event.reused} of them done before" if event.reused else ""
        self.line(f"{event.runs} runs, {event.steps} updates{reused}")
        if sys.stderr is not None and sys.stderr.isatty() and event.reused < event.runs:
            self._open()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.fields[runs]} runs"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %  left"),
            TextColumn("{task.fields[left]}"),
            TextColumn(" gone"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task("", total=self._total, completed=self._done(), runs=self._count(), left="-")
        self._bar.start()

    def _count(self) -> str:
        return f"{self._ended}/{self._runs}"

    def _done(self) -> int:
        return self._there + sum(self._steps.values())

    def _show(self) -> None:
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=self._done(), runs=self._count(), left=self._left())

    def _left(self) -> str:
        """Time left, by the pace of the updates that this command has seen."""
        if not self._fresh or self._begin is None:
            return "?"
        seconds = (time.monotonic() - self._begin) / self._fresh * (self._total - self._done())
        return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

    def _end(self, event: RunEnded) -> None:
        self._ended += 1
        name = event.job.path.name
        self._fresh += event.job.config.steps - self._steps.get(name, event.job.config.steps)
        self._steps[name] = event.job.config.steps
        outcome = event.outcome
        if "failed" in outcome:
            words = outcome["failed"]
        else:
            words = ", ".join(f"{metrics['mse']:.4g} at {length}" for length, metrics in outcome["test"].items())
        self.line(f"[{self._count()}] {event.job.name}: {words}; {self._left()} left")
        self._show()
