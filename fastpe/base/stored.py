"""Checks of the contents of files before use: parsers of JSON and TOML with limits, and *forms* of values.

A form is a function of a key and its value, and raises `Unfit` if the value is invalid. Some functions below are forms
(such as `text`), some return forms (such as `whole` and `number`), and `record` and `by_key` combine forms. The form of
a file is defined next to the code that writes it: `fastpe.training.forms` for run folders, `fastpe.model.model_file`
for model files, and `fastpe.base.files` for the header of both. All readers use `checked`, whose error names the file,
the key, the value and what was expected.
"""

import json
import math
import re
import reprlib
import tomllib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

MOST_BYTES = 2**22
"""Largest size of a JSON file, or of a header."""

_MOST_DEPTH, _LONGEST_REASON = 32, 400
_MOST_DIGITS = 40  # limit of the digits of a number, which Python parses in quadratic time
_CONTROL = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode categories of control characters and line breaks
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_BRACKETS = re.compile(r'"(?>[^"\\]+|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)  # also strings, as these may contain brackets

_MOST_PARTS = 8  # limit of the parts of a dotted TOML key; a study has at most four
_TOML_STRINGS = re.compile(  # also comments; an unclosed string extends to the end
    r"\"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|\"(?>[^\"\\\n]|\\.)*+\"?|'[^'\n]*+'?|#[^\n]*+", re.DOTALL
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{_MOST_PARTS}}}")

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60

Form = Callable[[str, Any], None]


class DamagedFileError(ValueError):
    """A file is truncated, was changed after it was written, or does not contain what its name says."""


class Unfit(ValueError):
    """The value of a key is invalid."""

    @classmethod
    def of(cls, key: str, value: Any, expected: str) -> Self:
        """Return the error that shows a key and its value, and says what was expected."""
        return cls(f"{key or 'it'} is {_short.repr(value)}, where {expected} was expected")


def damaged(path: Path, reason: object) -> DamagedFileError:
    r"""Return the error that names a file and says what is wrong with it.

    The reason may quote the file, so it is shortened, and control characters are escaped.

    >>> str(damaged(Path("x"), "no \x1b[2J"))
    'x is damaged: no \\x1b[2J'
    """
    said = printable(str(reason)[:_LONGEST_REASON])
    return DamagedFileError(f"{path} is damaged: {said}{'...' if len(str(reason)) > _LONGEST_REASON else ''}")


def printable(said: str) -> str:
    r"""Return the text as one line with control characters escaped, which is safe to store and to show.

    >>> printable("no \x1b[2J\nat all")
    'no \\x1b[2J at all'
    """
    if said.isprintable():
        return said
    return "".join(_spelled(c) for c in " ".join(said.splitlines()))


def _spelled(c: str) -> str:
    return c.encode("unicode_escape").decode() if unicodedata.category(c) in _CONTROL else c


def cut(said: str, most: int = 500) -> str:
    """Return a message about a file, shortened to `most` characters: files may hold names of any length.

    >>> cut("no such name: aaaaaaaa", 16)
    'no such name: aa ...'
    """
    return said if len(said) <= most else f"{said[:most]} ..."


def checked(path: Path, value: Any, form: Form, key: str = "") -> Any:
    """Return the value if it has this form. Otherwise raise a DamagedFileError that names the file."""
    try:
        form(key, value)
    except Unfit as error:
        raise damaged(path, error) from None
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Parsing


def parse(content: bytes) -> Any:
    """Return the value of a JSON text. Its size and depth are limited; numbers must be short and finite, keys unique.

    Raises
    ------
    ValueError
        If the text is invalid; the message says what is wrong.

    Examples
    --------
    >>> parse(b'{"epoch": 3}')
    {'epoch': 3}
    >>> parse(b'{"loss": NaN}')
    Traceback (most recent call last):
        ...
    ValueError: it holds NaN, which is not a JSON number
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not JSON: its bytes are not UTF-8") from None
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _MOST_DEPTH:
            raise ValueError(f"it is nested more than {_MOST_DEPTH} levels deep")
    hooks: dict[str, Any] = {"parse_int": _integer, "parse_float": _float, "parse_constant": _constant}
    try:
        value = json.loads(text, object_pairs_hook=_unique, **hooks)
        if _ESCAPED_HALF.search(text):  # half of a surrogate pair cannot be written without the other half
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} in line {error.lineno}") from None
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is not a character") from None
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text, whose depth is limited.

    Raises a ValueError that says what is wrong.

    >>> parse_toml("seeds = 3")
    {'seeds': 3}
    >>> parse_toml(".".join("a" * 1000) + " = 1")
    Traceback (most recent call last):
        ...
    ValueError: a key has more than 8 parts
    """
    bare = _TOML_STRINGS.sub(lambda found: "" if found[0].startswith("#") else "x", text)
    if _LONG_KEY.search(bare):  # tomllib takes quadratic time for such a key
        raise ValueError(f"a key has more than {_MOST_PARTS} parts")
    depth = 0
    for found in re.finditer(r"[][{}]", bare):
        depth += 1 if found[0] in "[{" else -1
        if depth > _MOST_DEPTH:
            raise ValueError(f"it is nested more than {_MOST_DEPTH} levels deep")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from None


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    if len(text) > _MOST_DIGITS or not math.isfinite(value := float(text)):
        raise ValueError(f"it holds a number beyond float64: {_short.repr(text)}")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"it holds {text}, which is not a JSON number")


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a key twice")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Forms


def anything(key: str, value: Any) -> None:
    """Form of any value, for values that are checked elsewhere."""


def exactly(expected: Any) -> Form:
    """Return the form of exactly this value and type: True is not 1."""

    def form(key: str, value: Any) -> None:
        if type(value) is not type(expected) or value != expected:
            raise Unfit.of(key, value, _short.repr(expected))

    return form


def whole(least: int, most: int) -> Form:
    """Return the form of an integer in a range."""

    def form(key: str, value: Any) -> None:
        if type(value) is not int or not least <= value <= most:
            raise Unfit.of(key, value, f"a whole number from {least} to {most}")

    return form


def number(least: float = -math.inf) -> Form:
    """Return the form of a finite number, optionally with a minimum."""

    def form(key: str, value: Any) -> None:
        finite = type(value) in (int, float) and math.isfinite(value)
        if not (finite and value >= least):
            raise Unfit.of(key, value, "a finite number" + (f" of at least {least:g}" if least > -math.inf else ""))

    return form


def text(key: str, value: Any) -> None:
    """Form of a string that `printable` does not change."""
    if type(value) is not str or value != printable(value):
        raise Unfit.of(key, value, "a text")


def truth(key: str, value: Any) -> None:
    """Form of true or false."""
    if not isinstance(value, bool):
        raise Unfit.of(key, value, "true or false")


def one_of(*words: str) -> Form:
    """Return the form of one of several words."""

    def form(key: str, value: Any) -> None:
        if type(value) is not str or value not in words:
            raise Unfit.of(key, value, " or ".join(words))

    return form


def sha256(key: str, value: Any) -> None:
    """Form of a SHA-256 digest in hexadecimal."""
    if type(value) is not str or not re.fullmatch("[0-9a-f]{64}", value):
        raise Unfit.of(key, value, "a SHA-256 of 64 hexadecimal digits")


def maybe(form: Form) -> Form:
    """Return the form of null or a value of this form."""

    def either(key: str, value: Any) -> None:
        if value is not None:
            form(key, value)

    return either


def each(form: Form, least: int = 0, most: int = 2**16) -> Form:
    """Return the form of a list of values of one form, with limits of its length."""

    def form_of_all(key: str, value: Any) -> None:
        if type(value) is not list or not least <= len(value) <= most:
            raise Unfit.of(key, value, f"a list of {least} to {most} values" if least < most else f"{most} values")
        for place, item in enumerate(value):
            form(f"{key}[{place}]", item)

    return form_of_all


def by_key(form: Form) -> Form:
    """Return the form of an object with any keys, whose values all have one form."""

    def form_of_all(key: str, value: Any) -> None:
        if type(value) is not dict:
            raise Unfit.of(key, value, "an object")
        for name, item in value.items():
            form(_joined(key, name), item)

    return form_of_all


def record(forms: Mapping[str, Form], optional: Mapping[str, Form] | None = None) -> Form:
    """Return the form of an object with exactly these keys, and possibly the optional ones."""
    known = {**forms, **(optional or {})}

    def form(key: str, value: Any) -> None:
        if type(value) is not dict:
            raise Unfit.of(key, value, "an object")
        for name, item in value.items():
            if name not in known:
                raise Unfit.of(_joined(key, name), item, "no such key")
            known[name](_joined(key, name), item)
        for name in forms:
            if name not in value:
                raise Unfit(f"{_joined(key, name)} is missing")

    return form


def _joined(key: str, name: str) -> str:
    name = name if name.replace("_", "").isalnum() and name.isascii() and len(name) < 60 else _short.repr(name)
    return f"{key}.{name}" if key else name
