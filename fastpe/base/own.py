"""User-defined encodings and tasks: functions that load a file or a module, with errors that say what is wrong in it.

A file runs only if the user named it: see `Registry.resolve`. Names that were read from files must be keys.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from importlib import util
from importlib.abc import SourceLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from fastpe.base.validation import path as checked_path
from fastpe.base.validation import shown

Record = TypeVar("Record")
_KEY = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Kind(Generic[Record]):
    """A kind of user-defined file: encoding or task.

    Parameters
    ----------
    word : str
        "encoding" or "task", used in messages.
    attribute : str
        The name to which a file assigns its record.
    record : str
        The class of the record, as users write it, such as "fastpe.Encoding".
    completed : callable
        ``completed(module, path)`` returns the record, completed by the module's functions and checked. It raises a
        ValueError that names the file.
    how : str
        How a user names such a file, used in messages: "by --task on the command line or ...".
    """

    word: str
    attribute: str
    record: str
    completed: Callable[[ModuleType, Path], Record]
    how: str

    @property
    def one(self) -> str:
        """The word with its indefinite article."""
        return f"{'an' if self.word[0] in 'aeiou' else 'a'} {self.word}"


class Source(NamedTuple):
    """A file or module that a user named and that has not run yet.

    `way` is how another process registers this source: the path of the file, or the name of the module. `package` is
    the package that contains the module.
    """

    name: str
    key: str
    file: Path
    content: bytes
    way: str
    package: str = ""

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Own(Generic[Record]):
    """A user-defined encoding or task: its file, the file's SHA-256, its page, its `Source.way`, and its record."""

    file: Path
    sha256: str
    page: str
    way: str
    record: Record


def source(kind: Kind[Any], value: Any, key: str | None = None) -> Source:
    """Return the source that a user names by a module or a path. If `key` is given, it replaces the key that follows
    from the name of the source.

    Raises
    ------
    ValueError, TypeError
        If the value is not a module or a file that ends in .py, cannot be read, or has a name that is not a valid key.
    """
    if isinstance(value, ModuleType):
        file = getattr(value, "__file__", None)
        if not file or not file.endswith(".py"):
            raise ValueError(
                f"module {value.__name__!r} has no source file that ends in .py, which fastpe needs for its digest"
            )
        if not hasattr(value, kind.attribute):  # checked here, before the file is run again
            wanted = f"{kind.attribute}, a {kind.record}"
            raise ValueError(f"module {value.__name__!r} must define {wanted}: there is none")
        key = _key_of(kind, key or value.__name__.rpartition(".")[2], value.__name__)
        return Source(
            file, key, Path(file).absolute(), _read(Path(file), file), value.__name__, value.__package__ or ""
        )
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"module_or_path must be a module or the path of a file that ends in .py, not {shown(value)}")
    if value == "":
        raise ValueError("module_or_path must be a module or the path of a file that ends in .py, not ''")
    try:
        path = checked_path("module_or_path", value).expanduser().absolute()
    except RuntimeError as error:  # "~" of a user without a home folder
        raise ValueError(f"{value} cannot be read: {error}") from error
    if path.suffix != ".py":
        raise ValueError(f"{value}: the file of {kind.one} must end in .py")
    return Source(str(value), _key_of(kind, path.stem, str(value)), path, _read(path, str(value)), str(path))


def digest_of(way: str) -> str:
    """Return the SHA-256 of the file of a `Source.way`. To find the file of a module, only the packages that contain
    the module are imported.

    Raises ValueError if the file cannot be read.
    """
    if way.endswith(".py"):
        return hashlib.sha256(_read(Path(way), way)).hexdigest()
    spec = util.find_spec(way)
    if spec is None or spec.origin is None:
        raise ValueError(f"module {way!r} has no source file")
    return hashlib.sha256(_read(Path(spec.origin), way)).hexdigest()


def load(kind: Kind[Record], found: Source) -> Own[Record]:
    """Run a source under a private module name, and return the record that it defines.

    The file of a module is run again: it may have changed since its import, and the digest must be that of the code
    that runs.

    Raises
    ------
    ValueError
        If it cannot be run or is invalid. The message names the file and, if known, the line.
    """
    name = f"fastpe_own_{kind.word}_{found.key}"
    if found.package:  # relative imports in the file start from this package
        name = f"{found.package}.{name}"
    spec = util.spec_from_loader(name, _Loader(found), origin=str(found.file))
    assert spec is not None
    spec.has_location = True
    module = util.module_from_spec(spec)
    sys.modules[name] = module  # as an import does; dataclasses look up their module
    try:
        _run(module, found.file)
        record = kind.completed(module, found.file)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return Own(found.file, found.sha256, inspect.cleandoc(module.__doc__ or ""), found.way, record)


def declared(kind: Kind[Any], module: ModuleType, path: Path, of: type) -> Any:
    """Return a module's record, not yet completed. Raise ValueError if it is missing or of another class."""
    own = vars(module).get(kind.attribute)
    if not isinstance(own, of):
        found = "there is none" if own is None else f"not {type(own).__name__}"
        raise ValueError(f"{path.name} must define {kind.attribute}, a {kind.record}: {found}")
    return own


def of_module(module: ModuleType, attribute: str, functions: tuple[str, ...]) -> Any:
    """Return a module's record, completed by functions of the module. Fields that the record sets are kept."""
    record = getattr(module, attribute)
    unsaid = {each.name for each in fields(record) if getattr(record, each.name) is each.default}
    found: dict[str, Any] = {name: vars(module).get(name) for name in functions if name in unsaid}
    own = {name: each for name, each in found.items() if getattr(each, "__module__", None) == module.__name__}
    return replace(record, **own)


def told(
    function: Callable[..., Any], path: Path, passed_on: type[BaseException] = KeyboardInterrupt
) -> Callable[..., Any]:
    """Return the function, changed so that its errors name the line of the file. Errors of class `passed_on` are
    unchanged."""

    @wraps(function)  # keeps the signature, which others inspect
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except (MemoryError, KeyboardInterrupt, passed_on):
            raise
        except BaseException as error:  # SystemExit too: a user-defined file must not end the program
            line = line_in(error, path)
            where = path.name if line is None else f"{path.name}, line {line}"  # None: the call did not enter the file
            raise ValueError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error

    return call


def defines(path: Path, attribute: str) -> bool:
    """Whether a Python file assigns this name at its top level. The file is not run. False if it cannot be read."""
    try:
        statements = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    targets = [target for each in statements if isinstance(each, ast.Assign) for target in each.targets]
    targets += [each.target for each in statements if isinstance(each, ast.AnnAssign)]
    return any(isinstance(target, ast.Name) and target.id == attribute for target in targets)


def line_in(error: BaseException, path: Path) -> int | None:
    """Return the line of a file that raised an error, or that called the code that raised it; None if unknown."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None


def _run(module: ModuleType, path: Path) -> None:
    """Run the file of a module. Its output goes to stderr, because it is not the result of a command."""
    assert module.__spec__ is not None
    assert module.__spec__.loader is not None
    printed_to = sys.stdout
    try:
        sys.stdout = sys.stderr  # not redirect_stdout: an interrupt within it would leave stdout redirected
        module.__spec__.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a user-defined file must not end the program
        raise ValueError(_why(error, path)) from error
    finally:
        sys.stdout = printed_to


def _key_of(kind: Kind[Any], stem: str, name: str) -> str:
    if not _KEY.fullmatch(stem):
        raise ValueError(
            f"{name}: {kind.one}'s key is the name of its file, which must start with a lower-case letter and have "
            f"only lower-case letters, digits and underscores, not {stem!r}"
        )
    return stem


def _read(path: Path, name: str) -> bytes:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # opening a pipe would wait for a writer
            raise ValueError(f"{name} is not a regular file")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from error


class _Loader(SourceLoader):
    """Runs exactly the bytes whose digest was taken, and writes no compiled file."""

    def __init__(self, found: Source) -> None:
        self._found = found

    def get_filename(self, fullname: str) -> str:
        """The path of the source."""
        return str(self._found.file)

    def get_data(self, path: Any) -> bytes:
        """The source."""
        return self._found.content


def _why(error: BaseException, path: Path) -> str:
    """Return the file, the line and the message of an error that was raised while the file was run."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path.name}, line {error.lineno}: this is not Python: {error.msg}"
    line = line_in(error, path)
    if line is None:  # the file did not run: its bytes are not text, or contain NUL
        return f"{path.name}: this is not Python: {error}"
    return f"{path.name}, line {line}: {type(error).__name__}: {error}"
