"""Every encoding with its options changed one at a time, and the same sizes for all of them."""

from collections.abc import Iterator

import fastpe
from fastpe import encoding, sums

NAMES = fastpe.list_encodings()
ENCODINGS = {name: encoding.get(name) for name in NAMES}
SIZES = {"dim": 24, "heads": 2}  # that every encoding takes: heads 12 wide


def is_causal(name: str) -> bool:
    """Whether the encoding is made for causal models alone."""
    return ENCODINGS[name].direction == "causal"


def variants(name: str, **base: object) -> Iterator[dict]:
    """`base` as it is, then with one switch turned, or one other choice made, at a time."""
    yield base
    for key, option in ENCODINGS[name].options.items():
        now = base.get(key, option.default)
        values = option.choices or ((True, False) if option.kind is bool else ())
        yield from ({**base, key: value} for value in values if value != now)


def learning(length: int) -> list[tuple[str, dict]]:
    """Encodings with the options, one changed at a time, with which they learn something at this length."""
    found = []
    for name, own in ENCODINGS.items():
        if own.pull is None:
            continue
        base = {"learned": True} if "learned" in own.options else {}
        for options in variants(name, **base):
            spec = encoding.make_spec(length, **SIZES, causal=is_causal(name))
            (part,) = encoding.parse(name, options)
            try:
                part.encoding.check(spec, **part.options)
            except ValueError:  # a switch that another one needs
                continue
            if sums.parameter_shapes((part,), spec):
                found.append((name, options))
    return found


def label(case: object) -> str:
    """What pytest calls a case."""
    return case if isinstance(case, str) else ",".join(f"{k}={v}" for k, v in case.items()) or "default"
