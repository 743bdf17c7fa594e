"""The value that belongs to a key, hidden in a long filler: needles in a haystack, in tokens.

**Sequence**: begin, filler `. , ; :` in turn with needles `# key value` at uniform places, the question `?` and its
keys, separator, the values of these keys, end. Keys and values are uniform.
**Variants**: "single": one needle. "multikey": needles with different keys, of which one is asked. "multivalue": all
needles have the same key, and all values are asked; any order is right. "multiquery": needles with different keys, of
which several are asked.
**Metric**: share of exactly correct answers; share of correct tokens, with `--by-place` by the depth of the needle.
**Chance**: 1/V for a token, where V is the number of values.
**Shortcut**: the value of any needle.
**Without positions**: two layers can solve the task: the first attends to the previous token, and the second to an
equal key. A causal model needs no encoding for it. A bias that decays with the distance loses the early needles.

**Options**
- `variant`: single, multikey, multivalue or multiquery.
- `needles`: the number of needles, unless there is a single one; 0: as many as fit, which is the hardest background.
- `queries`: the number of keys that "multiquery" asks for.
- `keys`, `values`: the numbers of different keys and values.
- `digits`: the number of tokens of a value. With a single needle, this is the passkey task.

Source: Hsieh et al. 2024, "RULER: what's the real context size of your long-context language models?" (there with 4
needles in text, and order-free scores); Mohtashami and Jaggi 2023, "Landmark attention", for the passkey.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks import filler
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1
_MARKER, _QUESTION, _FILLER = 0, 1, 2
_KEYS = _FILLER + len(filler.SYMBOLS)  # the first key; values follow the last


def sample(draws: Draws, length: int, count: int, **options: Any) -> tuple[Array, Array]:
    keys, values, digits = (options[name] for name in ("keys", "values", "digits"))
    asked = _asked(options)
    body = length - 1 - asked
    number = _number(body, options)
    blocks = np.full((count, number, 2 + digits), _MARKER)
    if options["variant"] == "multivalue":
        blocks[:, :, 1] = _KEYS + draws.integers(keys, (count, 1))
    else:
        blocks[:, :, 1] = _KEYS + draws.subsets(keys, number, count)
    blocks[:, :, 2:] = _KEYS + keys + draws.integers(values, (count, number, digits))
    inputs = np.full((count, length), _QUESTION)
    inputs[:, :body], _ = filler.scattered(draws, blocks, body, _FILLER)
    inputs[:, body + 1 :] = np.take_along_axis(blocks[:, :, 1], draws.subsets(number, asked, count), axis=1)
    begins = _begins(inputs, options)
    return inputs, _read(inputs, begins, digits)


def _asked(options: dict[str, Any]) -> int:
    return int(options["queries"]) if options["variant"] == "multiquery" else 1


def _number(body: int, options: dict[str, Any]) -> int:
    """The number of needles in a body of this length."""
    if options["variant"] == "single":
        return 1
    return int(options["needles"]) or body // (2 + options["digits"])


def _begins(inputs: Array, options: dict[str, Any]) -> Array:
    """Where the needles begin that are asked, in the order of the answer."""
    count, asked = len(inputs), _asked(options)
    markers = np.nonzero(inputs == _MARKER)[1].reshape(count, -1)
    if options["variant"] == "multivalue":
        return markers
    same = np.take_along_axis(inputs, markers + 1, axis=1)[:, None, :] == inputs[:, -asked:, None]
    return np.take_along_axis(markers, np.argmax(same, axis=2), axis=1)


def _read(inputs: Array, begins: Array, digits: int) -> Array:
    places = begins[:, :, None] + 2 + np.arange(digits)
    return np.take_along_axis(inputs, places.reshape(len(inputs), -1), axis=1)


def judge(inputs: Array, given: Array, **options: Any) -> Array:
    digits = options["digits"]
    right = _read(inputs, _begins(inputs, options), digits)
    if given.shape[1] < right.shape[1]:
        return np.zeros(len(inputs), bool)
    found = given[:, : right.shape[1]]
    same = (given[:, right.shape[1] :] == _NONE).all(axis=1)
    if options["variant"] == "multivalue":
        found, right = (_sorted_values(each, digits) for each in (found, right))
    return np.asarray(same & (found == right).all(axis=1))


def _sorted_values(answers: Array, digits: int) -> Array:
    values = answers.reshape(len(answers), -1, digits)
    order = np.lexsort(values.transpose(2, 0, 1), axis=-1)
    return np.take_along_axis(values, order[:, :, None], axis=1).reshape(answers.shape)


def places(inputs: Array, answers: Array, **options: Any) -> Array:
    begins = np.repeat(_begins(inputs, options), options["digits"], axis=1)
    found = np.zeros(answers.shape, np.int64)
    found[:, : begins.shape[1]] = begins[:, : answers.shape[1]]
    return found


def symbols(**options: Any) -> int:
    different = options["variant"] in ("multikey", "multiquery")
    least = options["queries"] if options["variant"] == "multiquery" else 1
    if different and not (options["needles"] <= options["keys"] >= least):
        wanted = max(options["needles"], least)
        raise ValueError(f"option 'keys' must be at least {wanted}, one for each needle, not {options['keys']}")
    if 0 < options["needles"] < least:
        raise ValueError(f"option 'needles' must be 0 or at least 'queries', {least}, not {options['needles']}")
    return int(_KEYS + options["keys"] + options["values"])


def lengths(**options: Any) -> Lengths:
    asked, width = _asked(options), 2 + options["digits"]
    least = width * max(_number(0, options), asked) + 1 + asked
    if options["variant"] in ("multikey", "multiquery") and not options["needles"]:
        return Lengths(least=least, most=width * (options["keys"] + 1) + asked)
    return Lengths(least=least)


def answer_length(length: int, **options: Any) -> int:
    asked = _asked(options)
    values = _number(length - 1 - asked, options) if options["variant"] == "multivalue" else asked
    return int(values * options["digits"])


def word(symbol: int, **options: Any) -> str:
    if symbol < _KEYS:
        return f"#?{filler.SYMBOLS}"[symbol]
    symbol -= _KEYS
    if symbol >= options["keys"]:
        return str(symbol - options["keys"])
    return "abcdefghijklmnopqrstuvwxyz"[symbol] if options["keys"] <= 26 else f"k{symbol}"


def chance(length: int, **options: Any) -> Chance:
    count = answer_length(length, **options)
    exact = -count * math.log(options["values"])
    if options["variant"] == "multivalue":  # in any order: the best answer has all values about equally often
        number = count // options["digits"]
        each, more = divmod(number, different := options["values"] ** options["digits"])
        exact += math.lgamma(number + 1) - (different - more) * math.lgamma(each + 1) - more * math.lgamma(each + 2)
    return Chance(1 / options["values"], math.exp(exact))


def shortcuts(length: int, **options: Any) -> dict[str, Chance]:
    asked = _asked(options)
    number = _number(length - 1 - asked, options)
    if options["variant"] not in ("multikey", "multiquery") or number == 1:
        return {}
    hit, guess = 1 / number, 1 / options["values"]
    exact = hit + (1 - hit) * guess ** options["digits"]
    return {"the value of any needle": Chance(hit + (1 - hit) * guess, exact if asked == 1 else None)}


TASK = Task(
    kind="answer",
    summary="the value of a key that is hidden in filler",
    symbols=symbols,
    options={
        "variant": Option(
            "multikey", "what is hidden and asked", str, choices=("single", "multikey", "multivalue", "multiquery")
        ),
        "needles": Option(4, "number of needles; 0: as many as fit", int, minimum=0, maximum=2**16),
        "queries": Option(2, "number of keys asked by multiquery", int, minimum=1, maximum=2**16),
        "keys": Option(8, "number of keys", int, minimum=1, maximum=2**16, samples=(30,)),
        "values": Option(8, "number of values", int, minimum=2, maximum=2**16),
        "digits": Option(1, "number of tokens of a value", int, minimum=1, maximum=2**10),
    },
    source="Hsieh et al. 2024, RULER: what's the real context size of your long-context language models?",
)
