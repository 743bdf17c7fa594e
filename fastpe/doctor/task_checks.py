"""All checks of one task. `fastpe check` runs them on tasks of users, and the tests on those of fastpe.

options     defaults are valid values, and invalid values are rejected; named tests have the same symbols
draws       equal streams give equal sequences, other streams give others; a long draw begins with a shorter one
sequences   at every length and with every option: shapes are right, tokens are in range, some targets count
frame       a batch of several lengths equals the sequences drawn separately, for causal and other models
answers     equal inputs have equal answers; the judge of a task with several right answers accepts the drawn ones
chance      the stated chance level equals the best result without the input, and shortcuts are at least as good; the
            stated mean squares are right
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fastpe.base.random import Stream
from fastpe.doctor.allowed_error import Difference
from fastpe.doctor.diagnosis import Check
from fastpe.doctor.encoding_checks import CheckFailed, option_differences
from fastpe.tasks import frame, sizes
from fastpe.tasks.registry import TASKS, choose
from fastpe.tasks.task import SUMMARY, Chosen

Array = np.ndarray[Any, Any]

_LONGEST = 60  # length of the longest inputs that are checked, if the task allows it
_OK = Difference(0.0, 0.0)


def checks(key: str) -> tuple[Check, ...]:
    """Return the checks of one task, in the order above."""
    runs = {"options": options, "draws": draws, "sequences": sequences, "frame": framed, "answers": answers}
    own = TASKS.get(key)
    if own.chance is not None or own.kind == "numbers":
        runs["chance"] = chance
    return tuple(Check(name, "", partial(run, key)) for name, run in runs.items())


def remarks(key: str) -> list[str]:
    """Return remarks on facts that a task does not state."""
    own, page = TASKS.get(key), TASKS.page(key)
    wanted = {"Source:": "its source"} | {f"`{option}`": f"option {option!r}" for option in own.options}
    if page:
        missing = [meaning for word, meaning in wanted.items() if word not in page]
    else:
        missing = ["anything, because it is empty"]
    found = [f"the page (the docstring) does not mention {meaning}" for meaning in missing]
    found += [f"TASK has no {name}" for name in ("summary", "source") if not getattr(own, name)]
    if len(own.summary) > SUMMARY:
        found.append(f"the summary has {len(own.summary)} characters, but lists have room for only {SUMMARY}")
    if own.chance is None and own.kind != "numbers":
        found.append("chance(length, **options) is not defined, so results cannot be compared with the chance level")
    return found


def variants(key: str) -> list[Chosen]:
    """Return a task with its default options, and with each option changed in turn."""
    found = [choose(key)]
    for name, option in TASKS.get(key).options.items():
        values: tuple[Any, ...] = option.samples or option.choices
        if not values and option.kind is bool:
            values = (not option.default,)
        if not values and option.kind is int:
            near = option.default + 1 if option.default < option.maximum else option.default - 1
            values = (near, option.minimum) if np.isfinite(option.minimum) else (near,)
        others = [int(value) if option.kind is int else value for value in values]
        found += [choose(key, {name: value}) for value in others if value != option.default]
    return found + [choose(key, options) for options in TASKS.get(key).tests.values()]


def _lengths(chosen: Chosen) -> list[int]:
    """Return the shortest lengths, and some longer ones."""
    within = chosen.lengths.within(1, max(_LONGEST, 2 * chosen.lengths.least)).tolist()
    if not within:
        raise CheckFailed(f"lengths {chosen.lengths} contain no length")
    return sorted({*within[:4], within[len(within) // 2], within[-1]})


def _middle(chosen: Chosen) -> int:
    return _lengths(chosen)[-2:][0]


def _first(drawn: frame.Drawn, count: int) -> frame.Drawn:
    """Return the first `count` sequences, with answers as wide as the longest answer among them."""
    answers = drawn.answers[:count]
    width = int((answers != frame.NONE).any(axis=0).nonzero()[0][-1]) + 1
    weights = None if drawn.weights is None else drawn.weights[:count, :width]
    return frame.Drawn(drawn.inputs[:count], answers[:, :width], weights)


def _equal(what: str, first: frame.Drawn, second: frame.Drawn) -> None:
    for name, a, b in zip(first._fields, first, second, strict=True):
        if not np.array_equal(np.asarray(a), np.asarray(b)):
            raise CheckFailed(f"{what}: {name} differ")


# ---------------------------------------------------------------------------------------------------------------------
# The checks


def options(key: str) -> Iterator[Difference]:
    """Check defaults, their conversion from text of the command line, and the rejection of invalid values."""
    yield from option_differences(TASKS.get(key).options)
    for name, changed in TASKS.get(key).tests.items():
        if (wanted := choose(key).symbols) != (found := choose(key, changed).symbols):
            raise CheckFailed(f"test {name!r} has {found} symbols, but a trained model knows {wanted}")
    yield _OK


def draws(key: str) -> Iterator[Difference]:
    """Check that draws depend on the stream only, and that a draw of twenty begins with a draw of ten."""
    for chosen in variants(key):
        length, stream = _middle(chosen), Stream(3, "check", 1)
        found = frame.draw(chosen, stream, 20, length)
        _equal(f"{_named(chosen)}, drawn twice from the same stream", found, frame.draw(chosen, stream, 20, length))
        few = frame.draw(chosen, stream, 10, length)
        _equal(f"{_named(chosen)}, ten sequences and the first ten of twenty", _first(found, 10), _first(few, 10))
        streams = Stream(4, "check", 1), Stream(3, "check", 2)
        others = [frame.draw(chosen, other, 20, length).inputs for other in streams]
        guess = chosen.chance(length)
        only = guess is not None and guess.exact == 1  # the only input of this length
        if not only and any(np.array_equal(found.inputs, other) for other in others):
            raise CheckFailed(f"{_named(chosen)}: another seed or step gives the same inputs: draw only from `draws`")
        yield _OK


def sequences(key: str) -> Iterator[Difference]:
    """Check sequences at many lengths as `fastpe.tasks.frame.draw` does, and the word for each symbol."""
    for chosen in variants(key):
        for symbol in range(min(chosen.symbols, _MOST_WORDS)):
            chosen.word(symbol)
        for length in _lengths(chosen):
            frame.draw(chosen, Stream(0, "check", length), 50, length)
            yield _OK


def framed(key: str) -> Iterator[Difference]:
    """Check that a batch of several lengths contains the same sequences as separate draws of each length."""
    chosen = choose(key)
    if chosen.task.kind == "numbers":
        yield _OK
        return
    lengths = np.array(_lengths(chosen))
    for causal in {True, chosen.task.causal}:
        found = frame.sequences(chosen, Stream(0, "check"), lengths, causal)
        most = sizes.positions(chosen, int(lengths.max()), causal)
        if found.x.shape[1] > most:
            raise CheckFailed(f"sequences have {found.x.shape[1]} positions, but answer_length allows only {most}")
        yield _OK


def answers(key: str) -> Iterator[Difference]:
    """Check that an input that is drawn twice has the same answer, and that answers are right and about places."""
    for chosen in variants(key):
        seen: dict[bytes, bytes] = {}
        length = _lengths(chosen)[0]
        drawn = frame.draw(chosen, Stream(0, "check", "answers"), 500, length)
        for x, y in zip(drawn.inputs, drawn.answers, strict=True):
            if seen.setdefault(x.tobytes(), y.tobytes()) != y.tobytes():
                raise CheckFailed(f"{_named(chosen)}: the input {x.tolist()} has two answers, one of them {y.tolist()}")
        if chosen.task.judge is not None and not chosen.judge(drawn.inputs, drawn.answers).all():
            raise CheckFailed(f"{_named(chosen)}: judge rejects an answer of sample")
        chosen.places(drawn.inputs, drawn.answers)
        yield _OK


def chance(key: str) -> Iterator[Difference]:
    """Compare the stated chance with the best constant answers, or the stated mean squares with those of draws."""
    for chosen in variants(key):
        for length in _lengths(chosen)[::2]:
            drawn = frame.draw(chosen, Stream(0, "check", "chance"), _COUNT, length)
            if chosen.task.kind == "numbers":
                yield from _square_differences(chosen, drawn.answers, length)
            else:
                yield from _chance_differences(chosen, drawn.answers, length)


_COUNT, _MOST_WORDS = 4000, 1000


def _square_differences(chosen: Chosen, found: Array, length: int) -> Iterator[Difference]:
    stated = chosen.squares(length)
    squares = found**2
    errors, bounds = np.abs(squares.mean(axis=0) - stated), 6 * squares.std(axis=0) / _COUNT**0.5 + 1e-9
    worst = int(np.argmax(errors / bounds))
    yield Difference(float(errors[worst]), float(bounds[worst]))


def _chance_differences(chosen: Chosen, found: Array, length: int) -> Iterator[Difference]:
    stated = chosen.chance(length)
    assert stated is not None
    for name, shortcut in chosen.shortcuts(length).items():
        if shortcut.token < stated.token - 1e-9:
            raise CheckFailed(f"{_named(chosen)}: shortcut {name!r} has {shortcut.token}, below chance {stated.token}")
    counts = found != frame.NONE
    likeliest = sum(np.bincount(column[column >= 0]).max() for column in found.T if (column >= 0).any())
    # in a sample, the most frequent of many symbols is more frequent than its probability
    by_luck = 4 * (min(chosen.symbols, _COUNT) / counts.sum()) ** 0.5 + 0.01
    yield Difference(max(0.0, stated.token - likeliest / counts.sum()), by_luck)
    if stated.exact is not None:
        most = Counter(row.tobytes() for row in found).most_common(1)[0][1] / _COUNT
        below = stated.exact - most if chosen.task.kind == "answer" or (counts == counts[0]).all() else 0.0
        yield Difference(max(below, most - stated.exact), 4 * (stated.exact / _COUNT) ** 0.5 + 0.01)


def _named(chosen: Chosen) -> str:
    changed = {name: value for name, value in chosen.options.items() if value != chosen.task.options[name].default}
    return ", ".join(f"{name}={value!r}" for name, value in changed.items()) or "with its defaults"
