"""Every encoding with its options changed one at a time, and the same sizes for all of them."""

from fastpe.base.option import Option
from fastpe.encodings import combined, registry
from fastpe.encodings.slots import make_spec

NAMES = registry.built_in()
ENCODINGS = {name: registry.get(name) for name in NAMES}
SIZES = {"dim": 24, "heads": 2}  # that every encoding takes: heads 12 wide


def is_causal(name: str) -> bool:
    """Whether the encoding is made for causal models alone."""
    return ENCODINGS[name].direction == "causal"


def variants(name: str) -> list[dict]:
    """The defaults, and with one option changed at a time: also with `learned`, where there is such a switch."""
    own = ENCODINGS[name].options
    found: list[dict] = []
    for base in ({}, {"learned": True}) if "learned" in own else ({},):
        changed = ({**base, key: value} for key, option in own.items() for value in _others(option))
        found += [options for options in (base, *changed) if options not in found]
    return found


def _others(option: Option) -> tuple:
    """Other values than the default, of all options but numbers that merely scale something."""
    if option.choices or option.kind is bool:
        return tuple(value for value in option.choices or (True, False) if value != option.default)
    if option.default is None and option.kind in (int, float):
        return (option.kind(max(option.minimum, option.above, 0) + 2),)
    return (option.default + 1,) if option.kind is int else option.samples[:1]


def learning(length: int) -> list[tuple[str, dict]]:
    """Encodings and options with which they learn something at this length."""
    found = []
    for name, own in ENCODINGS.items():
        for options in variants(name) if own.pull is not None else ():
            spec = make_spec(length, **SIZES, causal=is_causal(name))
            (part,) = registry.parse(name, options)
            try:
                part.encoding.check(spec, **part.options)
            except ValueError:  # an option that needs another one, or other sizes
                continue
            if combined.parameter_shapes((part,), spec):
                found.append((name, options))
    return found


def label(case: object) -> str:
    """What pytest calls a case."""
    return case if isinstance(case, str) else ",".join(f"{k}={v}" for k, v in case.items()) or "default"
