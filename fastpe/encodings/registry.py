"""How encodings and their options are found by name.

Importing this module imports neither NumPy nor Numba, so that a command line can list encodings in no time.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from fastpe.base import guard, shielded
from fastpe.base.validation import nearest
from fastpe.encodings.encoding import Encoding, Part, of_module

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import FrameType

    from fastpe.encodings.own import Own, Source

FOLDERS = ("input", "rotation", "relative", "bias")
"""Of `fastpe/encodings/`, in the order in which encodings act: one file there is one encoding."""


ENTRY_POINTS = "fastpe.encodings"
"""The group of entry points by which packages offer encodings: the name is the key, the value a module."""

_registered: dict[str, Own] = {}
_lock = guard.OneAtATime(nested=True)  # held while a file runs: it may register others
_loading: dict[str, FrameType] = {}  # by key, the call that loads it


@cache
def _files() -> dict[str, Path]:
    """Key -> the file that defines the encoding, of those that come with fastpe."""
    files = [path for folder in FOLDERS for path in (Path(__file__).parent / folder).glob("*.py")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem) if path.stem != "__init__"}


@cache
def _offered() -> dict[str, EntryPoint]:
    """Key -> what installed packages offer; nothing is imported."""
    from importlib.metadata import entry_points  # takes longer to import than all of this

    return {each.name: each for each in entry_points(group=ENTRY_POINTS) if each.name not in _files()}


def built_in() -> tuple[str, ...]:
    """The keys of the encodings that come with fastpe, sorted."""
    return tuple(_files())


def list_encodings() -> tuple[str, ...]:
    """The keys of all encodings, sorted: fastpe's, those of installed packages, and those registered.

    >>> {"alibi", "learned", "legendre"} <= set(list_encodings())
    True
    """
    return tuple(sorted({*_files(), *_offered(), *_registered}))


def register(module_or_path: Any) -> str:
    """Make an encoding of one's own known, as if it came with fastpe: by its key, in sums, in training.

    The file's docstring is its page; it defines `ENCODING` and the functions that `fastpe.Encoding` lists, of which
    `reference` is enough. ``fastpe check --template`` prints one to start from, and ``fastpe check FILE`` tests one.

    Parameters
    ----------
    module_or_path : module, str or pathlib.Path
        A module, or the path of a Python file, which is run.

    Returns
    -------
    str
        Its key: the module's or the file's own name.

    Raises
    ------
    ValueError
        If the key is taken, or the file is no encoding; the message names the file, and the line where there is one.

    Examples
    --------
    >>> import tempfile
    >>> text = '''
    ... import numpy as np
    ... import fastpe
    ...
    ... def reference(spec, params):
    ...     offsets = np.arange(1 - spec.length, spec.length)
    ...     return {"bias": np.tile(-np.sqrt(abs(offsets)), (spec.heads, 1))}
    ...
    ... ENCODING = fastpe.Encoding(slots=("bias",), summary="falls with the root of the distance")
    ... '''
    >>> from fastpe import build
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "root.py")
    ...     _ = path.write_text(text)
    ...     key = register(path)
    >>> build(key, 3, dtype="float64")["bias"].round(3).tolist()
    [[-1.414, -1.0, -0.0, -1.0, -1.414]]
    """
    from fastpe.encodings import own

    if isinstance(module_or_path, str) and module_or_path in list_encodings():
        raise ValueError(
            f"encoding {module_or_path!r} {_whose(module_or_path)}: register takes a module, or the path of a file "
            "that ends in .py"
        )
    found = own.source(module_or_path)
    with _lock:
        return _register(found)


def _register(found: Source) -> str:
    from fastpe.encodings import own

    if found.key in _registered:
        known = _registered[found.key]
        if known.sha256 != found.sha256:
            raise ValueError(
                f"{found.name}: encoding {found.key!r} was registered from {known.file} before, with another "
                "content: a key keeps its meaning as long as a process lives"
            )
        return found.key
    if found.key in list_encodings():
        raise ValueError(f"{found.name}: an encoding {found.key!r} {_whose(found.key)}: give the file another name")
    _registered[found.key] = _once(found.key, found.file.name, lambda: own.load(found))
    return found.key


def _whose(key: str) -> str:
    if key in _registered:
        return "is registered"
    return "comes with fastpe" if key in _files() else "is offered by an installed package"


def _once(key: str, name: str, load: Callable[[], Own]) -> Own:
    """What `load` returns; its own file cannot use an encoding yet."""
    if key in _loading and guard.runs(get_ident(), _loading[key]):
        raise ValueError(f"{name}: encoding {key!r} registers or uses itself while its file is loaded")
    try:
        _loading[key] = sys._getframe()
        return load()
    finally:
        _loading.pop(key, None)


def _own(scheme: str) -> Own | None:
    """An encoding that did not come with fastpe, loaded; None of one that did."""
    if scheme in _files():
        return None
    if scheme not in _registered:
        with _lock:
            if scheme not in _registered:
                _registered[scheme] = _of_package(scheme, _offered()[scheme])
    return _registered[scheme]


def _of_package(scheme: str, offer: EntryPoint) -> Own:
    """The encoding that an installed package offers."""
    from fastpe.encodings import own

    package = offer.dist.name if offer.dist is not None else "a package"
    try:
        if offer.attr:
            raise ValueError("the entry point must be a module")
        return _once(scheme, offer.value, lambda: own.load(own.source(offer.load(), key=scheme)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever another package does when it is imported
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"encoding {scheme!r} of {package} ({offer.value}) cannot be used: {why}") from error


def _known(scheme: str) -> str:
    """The key that a part of a name stands for: itself, or that of the file that it is the path of."""
    if not isinstance(scheme, str):
        raise TypeError(f"encoding must be a name, not {scheme!r}")
    if scheme in _files() or scheme in _registered:
        return scheme
    if "+" in scheme and not Path(scheme).is_file():
        raise ValueError(f"one encoding is wanted here, not the sum {scheme!r}")
    if scheme.endswith(".py"):
        return register(scheme)
    if Path(scheme).suffix or "/" in scheme:  # no key has either
        raise ValueError(f"{scheme}: the file of an encoding must end in .py")
    if scheme not in _offered():
        raise ValueError(f"encoding {scheme!r} is unknown; {nearest(scheme, list_encodings())}")
    return scheme


def file_of(scheme: str) -> Path:
    """The file that defines the encoding of this key. Raises ValueError, with the nearest names, where none does."""
    own = _own(scheme := _known(scheme))
    return _files()[scheme] if own is None else own.file


def get(scheme: str) -> Encoding:
    """The encoding of this key. Raises ValueError as `file_of` does."""
    own = _own(scheme := _known(scheme))
    if own is not None:
        return own.encoding
    return of_module(shielded.load(f"fastpe.encodings.{_files()[scheme].parent.name}.{scheme}"))


def page(scheme: str) -> str:
    """The page of an encoding: its formula, source, options and traps.

    Parameters
    ----------
    scheme : str
        Key of an encoding (`list_encodings`).

    Returns
    -------
    str
        The docstring of the encoding's file; of those that come with fastpe, none is imported.

    Raises
    ------
    ValueError, TypeError
        If no encoding has this key; the message names the nearest.

    Examples
    --------
    >>> print(page("rope").splitlines()[0])
    RoPE: query and key are rotated, pair of channels by pair, by angles in proportion to the position.
    """
    own = _own(scheme := _known(scheme))
    return own.page if own is not None else ast.get_docstring(ast.parse(_files()[scheme].read_text("utf-8"))) or ""


def load_all() -> tuple[dict[str, Encoding], dict[str, str]]:
    """Every encoding by its key, and of those that installed packages offer but cannot be loaded, why."""
    found, broken = {}, {}
    for key in list_encodings():
        try:
            found[key] = get(key)
        except ValueError as error:
            broken[key] = str(error)
    return found, broken


def split(name: str) -> tuple[str, ...]:
    """The keys that a name such as "wavelet+alibi" adds up.

    A part that ends in ".py", such as "./mine.py" in "./mine.py+alibi", is the path of a file that is registered.
    """
    if not isinstance(name, str):
        raise TypeError(f"encoding must be a name, not {name!r}")
    parts = [part.strip() for part in name.split("+")]
    folder = name.rpartition("/")[0]
    cut = any("/" in part and not part.endswith(".py") for part in parts) or ("+" in folder and Path(name).is_file())
    if len(parts) > 1 and cut:
        raise ValueError(
            f"{name}: a path with '+' cannot be part of a sum: fastpe.register takes it, and returns its key"
        )
    schemes = tuple(map(_known, parts))
    if len(set(schemes)) < len(schemes):
        raise ValueError(f"encoding {name!r} names the same encoding twice")
    return schemes


def refuse_paths(name: Any) -> None:
    """Raise ValueError if a name out of a file is the path of a file: what others wrote must never be run."""
    if isinstance(name, str) and any(part.strip().endswith(".py") for part in name.split("+")):
        raise ValueError(f"the encoding of a stored configuration must be a key, not the path of a file: {name!r}")


def own_files(name: str) -> dict[str, dict[str, str]]:
    """Of the parts of a name that did not come with fastpe: key -> name and SHA-256 of the file."""
    loaded = {scheme: _own(scheme) for scheme in split(name)}
    return {key: {"file": own.file.name, "sha256": own.sha256} for key, own in loaded.items() if own is not None}


def ways() -> dict[str, dict[str, str]]:
    """What `register_ways` takes in another process: key -> how it is registered there, and its digest."""
    return {key: {"way": own.way, "sha256": own.sha256} for key, own in _registered.items()}


def register_ways(found: Mapping[str, Mapping[str, str]]) -> None:
    """Register what another process of the same user has; raises ValueError where a file has changed meanwhile."""
    for key, each in found.items():
        if key in _offered() or key in _registered:
            own = _own(key)
        else:
            way = each["way"]
            register(way if way.endswith(".py") else import_module(way))
            own = _own(key)
        if own is None or own.sha256 != each["sha256"]:
            raise ValueError(f"encoding {key!r}: {each['way']} has changed since it was registered")


def _option(schemes: Sequence[str], key: str) -> tuple[str, str]:
    """The scheme and option that a key ("scale", or "wavelet.scale" in a sum) stands for."""
    scheme, dot, option = key.partition(".")
    if not dot and len(schemes) == 1:
        scheme, option = schemes[0], key
    if scheme in schemes and option in get(scheme).options:
        return scheme, option
    alone = len(schemes) == 1
    keys = [one if alone else f"{each}.{one}" for each in schemes for one in get(each).options]
    raise ValueError(f"option {key!r} of encoding {'+'.join(schemes)!r} is unknown; {nearest(key, keys)}")


def parse(name: str, options: Mapping[str, Any] | None = None) -> tuple[Part, ...]:
    """Validate a name, which may be a sum, and its options; options that are not given have their defaults.

    >>> parse("alibi", {"alpha0": 0.1})[0].options["learned"]
    False
    """
    schemes = split(name)
    parts = tuple(Part(s, get(s), {k: o.default for k, o in get(s).options.items()}) for s in schemes)
    for key, value in (options or {}).items():
        scheme, option = _option(schemes, key)
        part = parts[schemes.index(scheme)]
        part.options[option] = part.encoding.options[option].validate(key, value)
    return parts


def parse_option(name: str, key: str, text: str) -> Any:
    """The typed value of an option that a command line gives as text.

    >>> parse_option("wavelet+alibi", "wavelet.scale", "2")
    2.0
    """
    scheme, option = _option(split(name), key)
    return get(scheme).options[option].parse(key, text)


def option_values(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All options of a name, defaults included, keyed as `build` takes them: what a run should record.

    >>> option_values("nope+learned", {"learned.scale": 2})
    {'learned.beyond': 'error', 'learned.scale': 2.0}
    """
    parts = parse(name, options)
    return {
        key if len(parts) == 1 else f"{part.scheme}.{key}": list(value) if isinstance(value, tuple) else value
        for part in parts
        for key, value in part.options.items()
    }
