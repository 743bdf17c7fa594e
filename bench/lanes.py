"""Simulate how a training step scales to 64 threads: tasks are timed on one core, and the schedule is computed.

    python bench/lanes.py [SECONDS] [--markdown FILE]

    before  a thread ("lane") takes whole groups of sequences
    after   if there are more lanes than groups, a lane takes one pack of a group; lanes add to the gradients in turns

The order of tasks, the way in which lanes claim them, and their dependencies are those of `fastpe.kernels.model.batch`.
Each kind of task is timed separately; the fastest of many calls counts. A pack is timed as a whole, and its time is
divided by FLOPs.
"""

import argparse
import heapq
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from fastpe import Adam, ModelConfig, Transformer
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.model import batch as model_batch
from fastpe.kernels.model.fused_embedding_and_head import compose, decompose
from fastpe.kernels.simd import pointer, row
from fastpe.kernels.threads.team import run_exclusively
from fastpe.model import passes

LANES = (1, 2, 4, 8, 16, 32, 64)


def _nanogpt(layers: int, width: int, heads: int, length: int) -> ModelConfig:
    return ModelConfig(
        "sinusoidal", width=width, layers=layers, heads=heads, hidden=4 * width, train_length=length, vocabulary=65,
        causal=True, norm="layernorm", final_norm=True, activation="gelu",
    )  # fmt: skip


CASES = {
    "paper": (ModelConfig("sinusoidal"), 32),
    "4 x 128": (_nanogpt(4, 128, 4, 64), 12),
    "4 x 256": (_nanogpt(4, 256, 8, 256), 8),
    "6 x 384": (_nanogpt(6, 384, 6, 256), 4),
}


@dataclass(frozen=True)
class Task:
    """A unit of work. `turns`: seconds before and within each turn. The rest of the task follows the last turn."""

    seconds: float
    turns: tuple[tuple[float, float], ...] = ()
    after: int | None = None  # number of the task in the same phase whose turns come before those of this task
    first: float = 0.0  # additional seconds for the first task of a lane in the phase


def scheduled(phases: Sequence[Sequence[Task]], lanes: int) -> float:
    """Seconds of all phases. Free lanes claim tasks in order; a phase starts when the previous phase is done.

    Examples
    --------
    >>> scheduled([[Task(3.0), Task(2.0), Task(2.0)], [Task(1.0)]], lanes=2)
    5.0
    """
    free, done = [(0.0, lane) for lane in range(lanes)], 0.0
    for phase in phases:
        ends: list[list[float]] = []  # of each task's turns
        seen: set[int] = set()
        begin = done
        for task in phase:
            now, lane = heapq.heappop(free)
            now = max(now, begin) + (0.0 if lane in seen else task.first)
            seen.add(lane)
            before = ends[task.after] if task.after is not None else [0.0] * len(task.turns)
            own: list[float] = []
            for (apart, turn), earlier in zip(task.turns, before, strict=True):
                now = max(now + apart, earlier) + turn
                own.append(now)
            now += task.seconds - sum(map(sum, task.turns))
            ends.append(own)
            done = max(done, now)
            heapq.heappush(free, (now, lane))
    return done


# ---------------------------------------------------------------------------------------------------------------------
# Timing


@entry
def _compose(w, workspaces, position, sizes, o, a):
    compose(pointer(w), row(workspaces, 0), position, sizes, o, a)


@entry
def _decompose(end, w, wt, gradients, workspaces, position, sizes, o, t, a):
    groups, stride = gradients.shape
    decompose(
        end, pointer(w), pointer(wt), pointer(gradients), stride, groups, row(workspaces, 0), position, sizes, o, t, a
    )  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Seconds of the tasks of a step on one core, by kind, and of a whole step."""

    transposes: tuple[float, ...]
    compose: float
    first_pack: float  # of a group, with clearing
    next_pack: float
    ends: tuple[float, ...]
    updates: tuple[float, ...]
    starts: tuple[int, ...]  # of groups
    step: float


def measured(config: ModelConfig, batch: int, seconds: float) -> Measured:
    """Time all parts in turns for the given number of seconds."""
    adam, rng = Adam(Transformer(config)), np.random.default_rng(0)
    shape = batch, config.train_length
    x = rng.integers(0, config.vocabulary, shape) if config.vocabulary else rng.random(shape)
    given = _arguments(adam, x)
    nothing = {"panels": given["panels"][:0], "ranges": given["ranges"][:0], "starts": given["starts"][:1]}
    three = 3 * np.arange(2)

    def step(**changes: Any) -> Callable[[], None]:
        own = list({**given, **nothing, **changes}.values())
        return lambda: run_exclusively(1, model_batch.step, *own)

    names = "w", "wt", "gradients", "workspaces", "position", "sizes", "o", "t", "a"
    own, sizes = [given[name] for name in names], given["sizes"]
    calls = {
        "nothing": step(),
        "transposes": step(panels=given["panels"]),
        "updates": step(ranges=given["ranges"]),
        "one": step(starts=three // 3, gradients=given["gradients"][:1]),
        "three": step(starts=three, gradients=given["gradients"][:1]),
        "one end": lambda: _decompose(0, *_of_one_group(own)),
        "other end": lambda: _decompose(1, *_of_one_group(own)),
        "compose": lambda: _compose(own[0], *own[3:7], own[8]),
        "step": lambda: adam.step(x, x, threads=1),
    }
    numbers = [number for number, is_there in enumerate((sizes.fused_input, sizes.fused_output)) if is_there]
    for number in range(len(numbers)):
        calls[f"end {number}"] = lambda number=number: _decompose(number, *own)
    found = _fastest(calls, seconds)
    one_group = sum((found["one end"], found["other end"])[: len(numbers)])
    return Measured(
        _shares(found["transposes"] - found["nothing"], np.prod(given["panels"][:, 1:3], axis=1)), found["compose"],
        found["one"] - found["nothing"] - found["compose"] - one_group, (found["three"] - found["one"]) / 2,
        tuple(found[f"end {number}"] for number in range(len(numbers))),
        _shares(found["updates"] - found["nothing"], np.diff(given["ranges"][:, :2])[:, 0]),
        tuple(given["starts"].tolist()), found["step"],
    )  # fmt: skip


def _of_one_group(own: list[Any]) -> list[Any]:
    return [*own[:2], own[2][:1], *own[3:]]


def _arguments(adam: Adam, x: np.ndarray) -> dict[str, Any]:
    """The arguments of the kernel in a step on one lane, by name."""
    taken: list[Any] = []

    def take(threads: int, function: Any, *arguments: Any) -> None:
        taken.extend(arguments)
        run_exclusively(threads, function, *arguments)

    with patch.object(passes, "run_exclusively", take):
        adam.step(x, x, threads=1)
    names = [name for name in inspect.signature(model_batch.step).parameters if name not in ("team", "counters")]
    return dict(zip(names, taken, strict=True))


def _fastest(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    found = dict.fromkeys(calls, np.inf)
    end = None
    while end is None or time.perf_counter() < end:
        end = end or time.perf_counter() + seconds
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def _shares(seconds: float, sizes: np.ndarray) -> tuple[float, ...]:
    return tuple((seconds * sizes / sizes.sum()).tolist())


# ---------------------------------------------------------------------------------------------------------------------
# Scheduling


def turns(config: ModelConfig, composed: bool) -> tuple[tuple[float, float], ...]:
    """For each turn of a pack: the shares of its FLOPs before the turn and within it."""
    n, c, f, tokens = config.train_length, config.width, config.hidden, config.vocabulary or 0
    square, wide, scores = 2 * n * c * c, 2 * n * c * f, 2 * n * n * c // (1 + config.causal)
    norms, head, layers = config.norm != "none", 2 * n * c * tokens, config.layers
    forward = layers * (4 * square + 2 * wide + 2 * scores) + head
    if composed:
        forward -= 3 * square + wide
    found = [(forward, 0), (0, head)] + [(head, 0)] * config.final_norm
    rest = 0 if config.final_norm else head
    for layer in reversed(range(layers)):
        if not (composed and layer == layers - 1):
            found.append((rest, wide))
            rest = wide
        found += [(rest, wide)] + [(wide, 0)] * norms + [(0 if norms else wide, square)]
        rest = square + 4 * scores
        if not (composed and layer == 0):
            found += [(rest, 3 * square)] + [(3 * square, 0)] * norms
            rest = 0 if norms else 3 * square
    found.append((rest, 0))
    whole = sum(map(sum, found))
    return tuple((apart / whole, turn / whole) for apart, turn in found)


def phases(config: ModelConfig, found: Measured, *, side_by_side: bool) -> list[list[Task]]:
    """The tasks of a step, in their order."""
    sizes = np.diff(found.starts)
    first = Task(found.first_pack, first=found.compose)
    if not side_by_side:
        whole = [replace(first, seconds=found.first_pack + (size - 1) * found.next_pack) for size in sizes]
    else:
        parts, whole = np.array(turns(config, bool(found.ends))), []
        for number in range(max(sizes)):
            for size in sizes:
                seconds = (found.next_pack if number else found.first_pack) * (number < size)
                after = len(whole) - len(sizes) if number else None
                whole.append(replace(first, seconds=seconds, turns=tuple(map(tuple, seconds * parts)), after=after))
    apart = [[Task(seconds) for seconds in kind] for kind in (found.transposes, found.ends, found.updates)]
    return [apart[0], whole, *apart[1:]]


def compared(config: ModelConfig, batch: int, found: Measured) -> Iterator[tuple[int, float, float]]:
    """Yield the number of lanes, and the seconds before and after the change."""
    groups = len(found.starts) - 1
    whole, packs = (phases(config, found, side_by_side=each) for each in (False, True))
    for lanes in LANES:
        before = scheduled(whole, min(lanes, groups))
        yield lanes, before, scheduled(packs, min(lanes, batch)) if lanes > groups else before


def page(seconds: float) -> Iterator[str]:
    """Yield the lines of the table as soon as they are measured."""
    yield "| model | groups | lanes | before, ms | speed-up | efficiency | after, ms | speed-up | efficiency |"
    yield "|---|---|---|---|---|---|---|---|---|"
    steps = []
    for name, (config, batch) in CASES.items():
        found = measured(config, batch, seconds)
        rows = list(compared(config, batch, found))
        alone = rows[0][1]
        for lanes, *both in rows:
            cells = (f"{1e3 * t:.2f} | {alone / t:.1f} | {100 * alone / t / lanes:.0f} %" for t in both)
            yield f"| {name}, batch {batch} | {len(found.starts) - 1} | {lanes} | {' | '.join(cells)} |"
        steps.append(f"- {name}: tasks {1e3 * alone:.2f} ms, a whole step on one thread {1e3 * found.step:.2f} ms")
    yield ""
    yield "Sum of the tasks, compared with a whole step:"
    yield ""
    yield from steps


_HEAD = """# Scaling of a step to more cores than batch groups

Made by `python bench/lanes.py {seconds:g} --markdown bench/results/lanes.md`. **This is a simulation**: each task of a
step is timed on one core (the fastest of many calls, two cores of a shared Xeon). The schedule of the thread pool is
then computed for more threads ("lanes") than that machine has cores. `before`: each lane takes whole groups of
sequences. `after`: if there are more lanes than groups, lanes take packs of a group in parallel, and add to its
gradients in turns; otherwise nothing changes. Results are bitwise equal for any number of lanes. If there are more
lanes than sequences, some lanes stay idle.

The simulation ignores memory bandwidth and shared caches, the transfer of gradients between caches, clocks that fall
when many cores are busy, cores that share units, the time to wake threads, and other processes. All of these make a
real machine slower than this table, most of all where the efficiency is high on many lanes. Within a pack the time is
divided by FLOPs.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "seconds", nargs="?", type=float, default=20.0, help="seconds to measure each model (default: 20)"
    )
    parser.add_argument("--markdown", type=Path, help="file to which the page is written")
    chosen = parser.parse_args()
    lines = []
    for line in page(chosen.seconds):
        print(line, flush=True)
        lines.append(line)
    if chosen.markdown:
        chosen.markdown.write_text(_HEAD.format(seconds=chosen.seconds) + "\n" + "\n".join(lines) + "\n")
