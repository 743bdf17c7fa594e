"""Find encodings and their options by name; a name may be a sum, or a pattern over the layers of a model.

Importing this module does not import NumPy or Numba, so the command line lists encodings quickly.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from os.path import isfile
from pathlib import Path
from types import ModuleType
from typing import Any

from fastpe.base.own import Kind
from fastpe.base.patterns import check_length, expanded, shortest
from fastpe.base.registry import Registry, is_path
from fastpe.base.validation import nearest, shown
from fastpe.encodings import as_written
from fastpe.encodings.encoding import Encoding, Part, of_module

FOLDERS = ("input", "rotation", "relative", "bias", "content")
"""The folders of `fastpe/encodings/`, in the order in which encodings act. Each file in them defines one encoding."""


def _completed(module: ModuleType, path: Path) -> Encoding:
    from fastpe.encodings import own  # this imports NumPy

    return own.completed(ENCODINGS.kind, module, path)


def _other_names() -> dict[str, str]:
    """Return other names of fastpe's encodings -> their keys."""
    called = {key: as_written.record(file).get("also_called", ()) for key, file in ENCODINGS.files.items()}
    return {name: key for key, names in called.items() for name in names}


ENCODINGS: Registry[Encoding] = Registry(
    Kind(
        "encoding", "ENCODING", "fastpe.Encoding", _completed,
        how="by --encoding on the command line or fastpe.register in Python",
    ),
    "fastpe.encodings", FOLDERS, (), of_module, _other_names,
)  # fmt: skip

_LABELLED = re.compile(r"(.+)(@[A-Za-z_][A-Za-z_0-9]*)")


def built_in() -> tuple[str, ...]:
    """Return the keys of the encodings that come with fastpe, sorted."""
    return tuple(ENCODINGS.files)


def list_encodings() -> tuple[str, ...]:
    """Return the sorted keys of all encodings: those of fastpe, those of installed packages, and registered ones.

    >>> {"alibi", "learned", "legendre"} <= set(list_encodings())
    True
    """
    return ENCODINGS.names()


def register(module_or_path: Any) -> str:
    """Register a user-defined encoding. It can then be used like those of fastpe: by its key, in sums, and in training.

    The docstring of the file is the page of the encoding. The file defines `ENCODING` and the functions that
    `fastpe.Encoding` lists; only `reference` is required. ``fastpe check --template`` prints a template of such a
    file, and ``fastpe check FILE`` tests a file.

    Parameters
    ----------
    module_or_path : module, str or pathlib.Path
        A module, or the path of a Python file. The file is executed.

    Returns
    -------
    str
        The key of the encoding: the name of the module, or of the file without ".py".

    Raises
    ------
    ValueError
        If the key is taken, or the file does not define an encoding; the message names the file, and the line if it is
        known.

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
    return ENCODINGS.register(module_or_path)


def resolve(name: str) -> str:
    """Register the files named in `name`, and return the name with a key in place of every path.

    Use this only for arguments of Python calls and of the command line, see `fastpe.base.registry.Registry.resolve`.
    The name may be a sum or a pattern over layers, such as "./mine.py@far+alibi". The other functions of this module
    take only keys.
    """
    if not isinstance(name, str) or not is_path(name):
        return name
    if _is_pattern(name) and not isfile(name):
        return shortest([_resolved_sum(own) for own in expanded("encoding", name)])
    return _resolved_sum(name)


def _resolved_sum(name: str) -> str:
    parts = [part.strip() for part in name.split("+")]
    folder = name.rpartition("/")[0]
    cut = any("/" in part and not _labelled(part)[0].endswith(".py") for part in parts)
    if len(parts) > 1 and (cut or ("+" in folder and isfile(name))):
        raise ValueError(
            f"{name}: a path with '+' cannot be part of a sum: pass it to fastpe.register, and use the key it returns"
        )
    return "+".join(ENCODINGS.resolve(scheme) + label for scheme, label in map(_labelled, parts))


def _labelled(part: str) -> tuple[str, str]:
    """Split "rope@far" into the term "rope" and the label "@far"; the label of a file's path is ""."""
    found = None if is_path(part) and isfile(part) else _LABELLED.fullmatch(part)
    return (found[1], found[2]) if found else (part, "")


def _known(name: str) -> tuple[str, str]:
    """Return the key of one term of a name, and its label, "" if it has none.

    A label, as in "rope@far", distinguishes terms of the same encoding that have different options.
    """
    if isinstance(name, str) and "+" in name:
        raise ValueError(f"encoding must be a single encoding, not the sum {name!r}")
    found = _LABELLED.fullmatch(name) if isinstance(name, str) else None
    scheme, label = found.groups() if found else (name, "")
    return ENCODINGS.known(scheme), label


def file_of(scheme: str) -> Path:
    """Return the file that defines the encoding of this key. Raises ValueError, with the nearest names, if there is
    none."""
    return ENCODINGS.file_of(_known(scheme)[0])


def get(scheme: str) -> Encoding:
    """Return the encoding of this key. Raises ValueError as `file_of` does."""
    return ENCODINGS.get(_known(scheme)[0])


def page(scheme: str) -> str:
    """Return the page of an encoding: its formula, source, options and traps.

    Parameters
    ----------
    scheme : str
        Key of an encoding (`list_encodings`).

    Returns
    -------
    str
        The docstring of the encoding's file. If the encoding comes with fastpe, its file is read without being
        imported.

    Raises
    ------
    ValueError, TypeError
        If no encoding has this key. The message names the nearest keys.

    Examples
    --------
    >>> print(page("rope").splitlines()[0])
    RoPE: each pair of channels of query and key is rotated by an angle proportional to the position.
    """
    return ENCODINGS.page(_known(resolve(scheme))[0])


def split(name: str) -> tuple[str, ...]:
    """Return the keys of the terms of a sum such as "wavelet+alibi"."""
    if not isinstance(name, str):
        raise TypeError(f"encoding must be a name, not {shown(name)}")
    check_length("encoding", name)
    if _is_pattern(name):
        raise ValueError(
            f"{name!r} is a pattern over the layers of a model, but one encoding or a sum is expected here"
        )
    schemes = tuple("".join(_known(part.strip())) for part in name.split("+"))
    if len(set(schemes)) < len(schemes):
        raise ValueError(
            f"encoding {name!r} names the same encoding twice: add labels to tell them apart, as in 'rope@a+rope@b'"
        )
    return schemes


def _is_pattern(name: str) -> bool:
    return "," in name or "*" in name


def layers(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the keys of the encodings that each layer of a model adds up.

    A name is either one sum for all layers, or a pattern over layers such as "rope*3,nope". If the model has more
    layers than the pattern, the pattern repeats.

    >>> layers("rope*2,alibi+nope"), layers("wavelet")
    ((('rope',), ('rope',), ('alibi', 'nope')), (('wavelet',),))
    """
    if not (isinstance(name, str) and _is_pattern(name)):
        return (split(name),)
    items = expanded("encoding", name)
    schemes = {item: split(item) for item in dict.fromkeys(items)}  # thousands of layers may have the same sum
    return tuple(schemes[item] for item in items)


def canonical(name: str, names: Mapping[str, str] | None = None) -> str:
    """Return the shortest form of a sum or of a pattern over layers.

    names: key -> name to write in its place.

    >>> canonical("rope, rope,nope"), canonical("rope*3", {"rope": "./mine.py"})
    ('rope*2,nope', './mine.py')
    """
    known = {term: _known(term) for term in all_terms(name)}
    written = {term: (names or {}).get(key, key) + label for term, (key, label) in known.items()}
    return shortest(["+".join(written[term] for term in own) for own in layers(name)])


def all_keys(name: str) -> tuple[str, ...]:
    """Return the keys of all layers, each once and without labels.

    >>> all_keys("rope@near*5,rope@far+alibi")
    ('rope', 'alibi')
    """
    return tuple(dict.fromkeys(_known(term)[0] for term in all_terms(name)))


def all_terms(name: str) -> tuple[str, ...]:
    """Return the terms of all layers, keys with their labels, each once."""
    return tuple(dict.fromkeys(term for own in layers(name) for term in own))


def own_files(name: str) -> dict[str, dict[str, str]]:
    """Return key -> name and SHA-256 of the file, for the encodings of a name that do not come with fastpe."""
    return ENCODINGS.own_files(all_keys(name))


def _option(schemes: Sequence[str], key: str, others: Collection[str] = ()) -> tuple[str, str]:
    """Return the encoding and option of an option key ("scale", or "wavelet.scale" in a sum).

    others: other arguments of the public function. The error for an unknown option may suggest them.
    """
    scheme, dot, option = key.partition(".")
    if not dot and len(schemes) == 1:
        scheme, option = schemes[0], key
    if scheme in schemes and (option == "on" or option in get(scheme).options):
        return scheme, option
    alone = len(schemes) == 1
    keys = [one if alone else f"{each}.{one}" for each in schemes for one in get(each).options]
    raise ValueError(f"option {key!r} of encoding {'+'.join(schemes)!r} is unknown; {nearest(key, keys, also=others)}")


def parse(name: str, options: Mapping[str, Any] | None = None, others: Collection[str] = ()) -> tuple[Part, ...]:
    """Validate a name, which may be a sum, and its options. Missing options get their defaults.

    others: other arguments of the public function. The error for an unknown option may suggest them.

    >>> parse("alibi", {"alpha0": 0.1})[0].options["learned"]
    False
    """
    return _parsed(split(name), options, others)


def parse_all(name: str, options: Mapping[str, Any] | None = None, others: Collection[str] = ()) -> tuple[Part, ...]:
    """Return the parts of all layers, each once, for a name that may be a pattern over layers. See `parse`.

    >>> [part.scheme for part in parse_all("rope*2,alibi+rope", {"rope.base": 100})]
    ['rope', 'alibi']
    """
    return _parsed(all_terms(name), options, others)


def parse_layers(name: str, options: Mapping[str, Any] | None = None) -> tuple[tuple[Part, ...], ...]:
    """Return the parts that each layer of a model adds up, in the order of `layers`."""
    parts = {part.scheme: part for part in parse_all(name, options)}
    return tuple(tuple(parts[key] for key in own) for own in layers(name))


def _parsed(
    schemes: Sequence[str], options: Mapping[str, Any] | None, others: Collection[str] = ()
) -> tuple[Part, ...]:
    encodings = [(scheme, get(scheme)) for scheme in schemes]
    parts = [Part(s, own, {k: o.default for k, o in own.options.items()}) for s, own in encodings]
    for key, value in (options or {}).items():
        scheme, option = _option(schemes, key, others)
        number = schemes.index(scheme)
        part = parts[number]
        if option == "on" and option not in part.encoding.options:
            from fastpe.encodings.some_heads import ON, on_heads  # few calls need it

            if ON.validate(key, value) is None:
                continue
            part = parts[number] = part._replace(encoding=on_heads(part.encoding))
        part.options[option] = part.encoding.options[option].validate(key, value)
    return tuple(parts)


def parse_option(name: str, key: str, text: str) -> Any:
    """Convert the text of an option from the command line to its typed value.

    >>> parse_option("wavelet+alibi", "wavelet.scale", "2")
    2.0
    """
    scheme, option = _option(all_terms(name), key)
    if option == "on" and option not in get(scheme).options:
        from fastpe.encodings.some_heads import ON

        return ON.parse(key, text)
    return get(scheme).options[option].parse(key, text)


def option_values(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all options of a name, including defaults, with the keys that `build` takes. Runs record them.

    >>> option_values("nope+learned", {"learned.scale": 2})
    {'learned.beyond': 'error', 'learned.scale': 2.0}
    """
    parts = parse_all(name, options)
    return {
        key if len(parts) == 1 else f"{part.scheme}.{key}": list(value) if isinstance(value, tuple) else value
        for part in parts
        for key, value in part.options.items()
    }
