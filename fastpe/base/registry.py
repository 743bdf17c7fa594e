"""Registries of encodings and tasks: those of fastpe, of installed packages, and of user-defined files.

Importing this module imports neither NumPy nor Numba, so that a command line lists names quickly.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic

from fastpe.base import guard, own, shielded
from fastpe.base.own import Kind, Own, Record, Source
from fastpe.base.validation import nearest, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import FrameType

_lock = guard.OneAtATime(nested=True)  # held while a file runs; nested, because the file may register others


@cache
def _module_of(path: Path) -> str:
    """Return the module name of a file of fastpe. Cached: every call needs it, and operations on paths are slow."""
    return ".".join(("fastpe", *path.relative_to(Path(__file__).parent.parent).with_suffix("").parts))


def is_path(name: str) -> bool:
    """Whether a name can only be a path: keys contain no dots and no slashes."""
    return "." in name or "/" in name


def _plain(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(filter(str.isalnum, name)).casefold()


class Registry(Generic[Record]):
    """All encodings, or all tasks, by key.

    Parameters
    ----------
    kind : Kind
        The kind of the records that the files define.
    package, folders : str, tuple of str
        A package of fastpe, and the folders in it whose files define one record each; "" is the package's own folder.
    beside : tuple of str
        Names, without ".py", of files in these folders that define no record.
    of_module : callable
        ``of_module(module)`` returns the record of a module, completed by the module's functions.
    others : callable, optional
        Returns other names of records -> their keys. They are not accepted, but the error names the key.
    """

    def __init__(
        self, kind: Kind[Record], package: str, folders: tuple[str, ...], beside: tuple[str, ...],
        of_module: Callable[[ModuleType], Record], others: Callable[[], Mapping[str, str]] = dict,
    ) -> None:  # fmt: skip
        self.kind, self.group = kind, package  # the entry-point group has the name of the package
        self._package, self._folders, self._beside, self._of_module = package, folders, beside, of_module
        self._others = others
        self._registered: dict[str, Own[Record]] = {}
        self._loading: dict[str, FrameType] = {}  # by key: the frame of the call that is loading it

    @cached_property
    def files(self) -> dict[str, Path]:
        """The records of fastpe: key -> the file that defines the record."""
        home = Path(__file__).parent.parent.joinpath(*self._package.split(".")[1:])
        files = [path for folder in self._folders for path in (home / folder).glob("*.py")]
        kept = [path for path in files if path.stem not in ("__init__", *self._beside)]
        return {path.stem: path for path in sorted(kept, key=lambda path: path.stem)}

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        """The records of installed packages: key -> entry point. Nothing is imported."""
        from importlib.metadata import entry_points  # importing it takes longer than importing this module

        return {each.name: each for each in entry_points(group=self.group) if each.name not in self.files}

    def names(self) -> tuple[str, ...]:
        """Return all keys, sorted: those of fastpe, of installed packages, and of registered files."""
        return tuple(sorted({*self.files, *self._offered, *self._registered}))

    def register(self, module_or_path: Any) -> str:
        """Register a user-defined file, so that its record can be used like those of fastpe. Return its key."""
        if isinstance(module_or_path, str) and module_or_path in self.names():
            raise ValueError(
                f"{self.kind.word} {module_or_path!r} {self._whose(module_or_path)}: register takes a module, or the "
                "path of a file that ends in .py"
            )
        found = own.source(self.kind, module_or_path)
        with _lock:
            return self._register(found)

    def _register(self, found: Source) -> str:
        if found.key in self._registered:
            known = self._registered[found.key]
            if known.sha256 != found.sha256:
                raise ValueError(
                    f"{found.name}: {self.kind.word} {found.key!r} was registered from {known.file} before, with "
                    "different content: a key cannot change its meaning within a process"
                )
            return found.key
        if found.key in self.names():
            raise ValueError(
                f"{found.name}: {self.kind.one} {found.key!r} {self._whose(found.key)}: give the file another name"
            )
        self._registered[found.key] = self._once(found.key, found.file.name, lambda: own.load(self.kind, found))
        return found.key

    def _whose(self, key: str) -> str:
        if key in self._registered:
            return "is registered"
        return "comes with fastpe" if key in self.files else "is offered by an installed package"

    def _once(self, key: str, name: str, load: Callable[[], Own[Record]]) -> Own[Record]:
        """Return the result of `load`. Raise ValueError if the file uses its own record while it is being loaded."""
        if key in self._loading and guard.runs(get_ident(), self._loading[key]):
            raise ValueError(f"{name}: {self.kind.word} {key!r} registers or uses itself while its file is loaded")
        try:
            self._loading[key] = sys._getframe()
            return load()
        finally:
            self._loading.pop(key, None)

    def own(self, key: str) -> Own[Record] | None:
        """Return a user-defined record with its file, loading it if needed. Return None for a record of fastpe."""
        if key in self.files:
            return None
        if key not in self._registered:
            with _lock:
                if key not in self._registered:
                    self._registered[key] = self._of_package(key, self._offered[key])
        return self._registered[key]

    def _of_package(self, key: str, offer: EntryPoint) -> Own[Record]:
        package = offer.dist.name if offer.dist is not None else "a package"
        try:
            if offer.attr:
                raise ValueError("the entry point must be a module")
            return self._once(
                key, offer.value, lambda: own.load(self.kind, own.source(self.kind, offer.load(), key=key))
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # importing another package may raise anything
            why = f"{type(error).__name__}: {error}"
            raise ValueError(f"{self.kind.word} {key!r} of {package} ({offer.value}) cannot be used: {why}") from error

    def resolve(self, name: str) -> str:
        """Return the key for a name that the user gave. If the name is the path of a file, register the file.

        Use this only for arguments of Python calls and of the command line. Names that were read from a file must go to
        `known`, which accepts only keys, so that no file can make fastpe run another file.

        Raises ValueError if the name is a path that does not end in .py, and the errors of `register`.
        """
        if not isinstance(name, str) or not is_path(name):
            return name
        if not name.endswith(".py"):
            raise ValueError(f"{name}: the file of {self.kind.one} must end in .py")
        return self.register(name)

    def known(self, name: str) -> str:
        """Return the name if it is a key. Nothing is registered, and no file runs.

        Raises ValueError if it is not a key; the message lists the nearest keys.
        """
        if not isinstance(name, str):
            raise TypeError(f"{self.kind.word} must be a name, not {shown(name)}")
        if name in self.files or name in self._registered or name in self._offered:
            return name
        if is_path(name):
            raise ValueError(f"{self.kind.word} must be a key here, not the path of a file: {name!r}")
        raise ValueError(f"{self.kind.word} {name!r} is unknown; {self._nearest(name)}")

    def _nearest(self, name: str) -> str:
        meant = {_plain(other): key for other, key in self._others().items()} | {_plain(key): key for key in self.files}
        if _plain(name) in meant:
            return f"did you mean {meant[_plain(name)]!r}?"
        return nearest(name, self.names(), f"'fastpe {self.kind.word}s' lists them")

    def file_of(self, name: str) -> Path:
        """Return the file that defines the record. Raises the errors of `known`."""
        found = self.own(key := self.known(name))
        return self.files[key] if found is None else found.file

    def get(self, name: str) -> Record:
        """Return the record. Raises the errors of `known`."""
        found = self.own(key := self.known(name))
        if found is not None:
            return found.record
        return self._of_module(shielded.load(_module_of(self.files[key])))

    def page(self, name: str) -> str:
        """Return the docstring of the file. Files of fastpe are not imported. Raises the errors of `known`."""
        found = self.own(key := self.known(name))
        return (
            found.page if found is not None else ast.get_docstring(ast.parse(self.files[key].read_text("utf-8"))) or ""
        )

    def load_all(self) -> tuple[dict[str, Record], dict[str, str]]:
        """Return all records, by key, and the errors of records of installed packages that cannot be loaded, by key."""
        found, broken = {}, {}
        for key in self.names():
            try:
                found[key] = self.get(key)
            except ValueError as error:
                broken[key] = str(error)
        return found, broken

    def own_files(self, keys: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the name and SHA-256 of the file of each user-defined record among the keys, by key."""
        loaded = {key: self.own(key) for key in keys}
        return {key: {"file": found.file.name, "sha256": found.sha256} for key, found in loaded.items() if found}

    def ways(self) -> dict[str, dict[str, str]]:
        """Return the argument for `register_ways` in another process: key -> how to register the record, and digest."""
        return {key: {"way": found.way, "sha256": found.sha256} for key, found in self._registered.items()}

    def register_ways(self, found: Mapping[str, Mapping[str, str]]) -> None:
        """Register the records of another process of the same user. Raise ValueError if a file has changed since that
        process registered it."""
        for key, each in found.items():
            way, changed = each["way"], f"{self.kind.word} {key!r}: {each['way']} has changed since it was registered"
            if key not in self._offered and key not in self._registered:
                if own.digest_of(way) != each["sha256"]:  # checked before the file runs
                    raise ValueError(changed)
                self.register(way if way.endswith(".py") else import_module(way))
            known = self.own(key)
            if known is None or known.sha256 != each["sha256"]:
                raise ValueError(changed)
