"""Progress of a command on standard error: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from fastpe.experiments.jobs import JobEvent, JobsStarted, RunEnded, RunStepped
from fastpe.training.events import Noted
from fastpe.training.progress import Bar, TrainingBar

Item = TypeVar("Item")


def counted(bar: Bar, items: Sequence[Item], label: Callable[[Item], str]) -> Iterator[Item]:
    """Yield items, with a bar that counts them and names the current one."""
    bar.open(len(items), 0, "")
    for item in items:
        bar.head(label(item))
        yield item
        bar.advance(1)
    bar.close()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show, on a terminal, that work is going on whose steps are not counted."""
    with Bar() as bar:
        bar.open(None, 0, what)
        yield


class Reporter(TrainingBar):
    """A listener for `fastpe.train` and `fastpe.evaluate` that also reports compiling."""

    def __enter__(self) -> Self:
        from fastpe.kernels.compile import cache

        def announce(what: str) -> None:
            problem = cache.problem
            why = f"in each process: no cache, {problem}" if problem else "once; kept in the cache"
            self.line(f"compiling {what} ({why})")

        cache.on_compile = announce
        return self

    def __exit__(self, *_: object) -> None:
        from fastpe.kernels.compile import cache

        cache.on_compile = None
        self.close()


class JobReporter(Bar):
    """A listener for `fastpe.compare` whose bar counts the updates of all runs."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: dict[str, int] = {}
        self._runs = self._ended = 0

    def __call__(self, event: JobEvent) -> None:
        """Show an event."""
        match event:
            case JobsStarted():
                self._start(event)
            case RunStepped(job, step):
                self._reach(job.path.name, step)
                self._show()
            case RunEnded():
                self._end(event)
            case Noted(message):
                self.line(message)

    def _start(self, event: JobsStarted) -> None:
        self._runs, self._ended = event.runs, event.reused
        reused = f", {event.reused} of them already finished" if event.reused else ""
        self.line(f"{event.runs} runs, {event.steps} updates{reused}")
        if event.reused < event.runs:
            self.open(event.steps, event.reused_steps, f"{self._count()} runs")

    def _reach(self, name: str, step: int) -> None:
        """Count the updates of a run. The run's first report includes the updates made before this command."""
        if name in self._steps:
            self.advance(step - self._steps[name])
        else:
            self.skip(step)
        self._steps[name] = step

    def _count(self) -> str:
        return f"{self._ended}/{self._runs}"

    def _show(self) -> None:
        self.show(f"{self._count()} runs", f"{self.pace():,.0f} updates/s")

    def _end(self, event: RunEnded) -> None:
        self._ended += 1
        self._reach(event.job.path.name, event.job.config.steps)
        outcome = event.outcome
        if "failed" in outcome:
            words = outcome["failed"]
        elif not outcome["test"] and "validation" in outcome:
            words = f"{_judged(outcome['validation'])} in validation"
        else:
            words = ", ".join(f"{_judged(metrics)} at {length}" for length, metrics in outcome["test"].items())
        self.line(f"[{self._count()}] {event.job.name}: {words}; {self.left()} left")
        self._show()


def _judged(metrics: Mapping[str, float | None]) -> str:
    """Return the main metric of a run at one length."""
    known = [value for key in ("mse", "exact", "bits_per_byte", "loss") if (value := metrics.get(key)) is not None]
    return f"{known[0]:.4g}" if known else "-"
