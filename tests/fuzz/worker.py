"""The process in which random cases run: it says the number of each on standard output, then what came of it."""

import argparse
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from run import BATCH

Kinds = Mapping[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]]  # what is drawn, and what judges it


def work(kinds: Kinds, arguments: list[str] | None = None) -> None:
    """Judge the cases from a number on, or that one alone, until somebody ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("first", type=int)
    parser.add_argument("--alone", action="store_true")
    asked = parser.parse_args(arguments)
    drawn = st.sampled_from(list(kinds)).flatmap(lambda kind: st.tuples(st.just(kind), kinds[kind][0]))
    first = asked.first
    while not asked.alone or first == asked.first:
        batch = range(first // BATCH * BATCH, (first // BATCH + 1) * BATCH)
        _run(kinds, drawn, asked.seed, batch, range(first, first + 1 if asked.alone else batch.stop))
        first = batch.stop
    _say("end .")


def _run(kinds: Kinds, drawn: st.SearchStrategy[Any], chosen: int, batch: range, wanted: range) -> None:
    """Draw a whole batch, as each case depends on those before it, and judge those wanted."""
    numbers = iter(batch)

    @seed(chosen * 2**32 + batch.start)
    @settings(
        max_examples=BATCH, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(drawn)
    def each(one: tuple[str, Any]) -> None:
        kind, case = one
        if (number := next(numbers)) in wanted:
            _say(f"begin {number}")
            text = found(kinds[kind][1], case)
            _say(f"held {number}" if text is None else f"found {kind} {case!r}: {text}")

    each()


def found(judge: Callable[[Any], None], case: Any) -> str | None:
    """What is wrong with what the case came to; None if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            judge(case)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
    return None


def _say(line: str) -> None:
    sys.stdout.write(line.replace("\n", "\\n") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from attention_apart import NETWORKS, REFLECTIONS
    from attention_calls import ATTENTION
    from builds import BUILDS
    from damaged_runs import DAMAGE

    apart = {"network": NETWORKS, "reflections": REFLECTIONS}
    work({"build": BUILDS, "attention": ATTENTION, **apart, "files": DAMAGE})
