"""Atomic writes that do not follow links, and tensor files with checksums.

Tensors are stored in the safetensors format. Its metadata map has no fixed order, so fastpe uses one key, which holds a
JSON text: equal tensors and facts then always give equal bytes.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from safetensors.numpy import save

from fastpe.base import stored
from fastpe.base.stored import damaged

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_KEY = "fastpe"
_UNSET = "0" * 64
_LENGTH_BYTES = 8
_MAX_HEADER, _OF_ENTRY = stored.MOST_BYTES, 120  # bytes of a tensor's header entry without its name
_DTYPES: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_LARGEST, _PIECE = 2**62, 2**20
_OF_METADATA = stored.record({_KEY: stored.text})
# names of files that are being written; killed processes leave them behind
_TEMPORARY_NAME = re.compile(r"\.fastpe-[0-9a-f]{16}\.tmp")
_NAMES_TRIED = 100


def write_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write `content` to `path` atomically: a crash at any moment leaves the old file or the new one, never a part.

    If `content` is an iterable, it may yield more bytes than fit into memory.

    Links are not followed: a link at `path` is replaced by the file, and the link's target is unchanged.

    Raises
    ------
    OSError
        If the file cannot be written, or if `path` is a folder, a pipe or a device. In these cases nothing has changed.
    """
    check_place(path)
    temporary = _free_name(path)
    try:
        # "x" creates a new file or fails: it neither follows links nor modifies existing files
        with open(temporary, "xb") as file:
            _set_mode(path, file)
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        with contextlib.suppress(
            PermissionError
        ):  # a user may have the right to write into a folder, but not to read it
            sync_folder(path.parent)
    except BaseException as error:
        if not isinstance(error, FileExistsError):  # after this error, the file belongs to another process
            with contextlib.suppress(OSError):
                temporary.unlink()
        # the error of a full disk has no file name; an exception from a signal handler has no error number
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def check_place(path: Path) -> None:
    """Raise OSError if `path`, or the target of a link at `path`, exists and is not a regular file."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # it does not exist, or is a dangling link; other errors occur again when writing
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))


def _free_name(path: Path) -> Path:
    """Return an unused, unpredictable name in the same folder."""
    for _ in range(_NAMES_TRIED):
        temporary = path.with_name(f".fastpe-{secrets.token_hex(8)}.tmp")
        if not os.path.lexists(temporary):
            return temporary
    raise FileExistsError(errno.EEXIST, "there is no free name in its folder", str(path))


def _set_mode(path: Path, file: BinaryIO) -> None:
    """Give a new file the permissions of the file that it replaces. The owner can read the new file, whatever the
    umask."""
    if not hasattr(os, "fchmod"):
        return
    mode = os.fstat(file.fileno()).st_mode | 0o600
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if stat.S_ISREG(before := path.lstat().st_mode):
            mode = before if before & 0o400 else before | 0o600
    with contextlib.suppress(PermissionError):
        os.fchmod(file.fileno(), stat.S_IMODE(mode) & 0o777)


def make_folder(path: Path, *, exist_ok: bool = False, mode: int = 0o777) -> None:
    """Make a folder and its missing parents. The owner can always use the new folders, whatever the umask.

    `mode` applies to all new folders, as far as the umask permits. Raises OSError if the folder cannot be made, or if
    it exists and `exist_ok` is false.
    """
    try:
        path.mkdir(mode)
    except FileNotFoundError:
        make_folder(path.parent, exist_ok=True, mode=mode)
        make_folder(path, exist_ok=exist_ok, mode=mode)
        return
    except FileExistsError:
        if exist_ok and path.is_dir():
            return
        raise
    if (made := stat.S_IMODE(path.stat().st_mode)) & 0o700 != 0o700:
        path.chmod(made | 0o700)


def is_leftover(name: str) -> bool:
    """Whether a name is that of a partial file of a killed process, from this version of fastpe or an earlier one."""
    return name.startswith(".") and name.endswith(".tmp")


def remove_leftovers(folder: Path) -> None:
    """Delete partial files of killed processes in a folder that the caller has locked. Links and folders are kept."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file, or a link to one, for reading.

    Raises
    ------
    DamagedFileError
        If it is not a regular file: reading a pipe or a device could block.
    OSError
        If it cannot be opened.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise damaged(path, f"it is {what}, where a file was expected")
    return open(path, "rb")


def read_file(path: Path, most: int = stored.MOST_BYTES) -> bytes:
    """Return the bytes of a file. Raise DamagedFileError if there are more than `most` bytes, and the errors of
    `open_file`."""
    with open_file(path) as file:
        content = bytearray()
        while piece := file.read(_PIECE):  # memory is not allocated for the whole size at once
            content += piece
            if len(content) > most:
                raise damaged(path, f"it is larger than {most} bytes")
        return bytes(content)


def pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, at most as many bytes as it has when it is opened, because some files never
    end.

    Raises the errors of `open_file`.
    """
    with open_file(path) as file:
        left = os.fstat(file.fileno()).st_size
        while left and (piece := file.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power failure, if the system can open folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """A lock on a folder by this process, until `close` or until the object is deleted."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        """Release the folder."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:  # an interrupt may occur before the caller can call `close`
        self.close()


def lock_folder(folder: Path) -> Lock | None:
    """Lock `folder` itself, without a lock file. Return None if another process holds the lock.

    If the system or the file system has no locks, the returned object does not exclude other processes.
    """
    if fcntl is None:
        return Lock(None)
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    lock = Lock(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            lock.close()
            return None
    return lock


def dump_json(value: Any) -> bytes:
    """Return `value` as an indented JSON text that ends in a newline. Numbers must be finite."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """Return the value in a JSON file, of any form: callers check it with `stored.checked`.

    Raises
    ------
    DamagedFileError
        If it is not a file, or not JSON that `stored.parse` accepts.
    OSError
        If it cannot be read.
    """
    return parsed(path, read_file(path))


def parsed(path: Path, content: bytes) -> Any:
    """Return the value of a JSON text from a file. Errors name the file."""
    try:
        return stored.parse(content)
    except ValueError as error:
        raise damaged(path, error) from None


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write float32 or float64 arrays, and `facts` (JSON values), as a safetensors file with digests.

    The stored facts also have ``"sha256"``, the digest of the tensor bytes, and ``"header_sha256"``, the digest of the
    header in which 64 zeros stand in place of this digest. Raises ValueError, before a file is written, if the header
    would be too long to be read again.
    """
    arrays = {name: np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("<")) for name, tensor in tensors.items()}
    # the library chooses the order of tensors: the first call returns their bytes, the second call also has the digest
    _, data = _split(save(arrays, {_KEY: ""}))
    stated = {**facts, "sha256": hashlib.sha256(data).hexdigest(), "header_sha256": _UNSET}
    header, data = _split(save(arrays, {_KEY: json.dumps(stated, sort_keys=True)}))
    if len(header) > _MAX_HEADER:
        raise ValueError(
            f"{len(arrays)} tensors have a header of {len(header)} bytes; at most {_MAX_HEADER} can be read"
        )
    sealed = header.replace(_UNSET.encode(), hashlib.sha256(header).hexdigest().encode(), 1)
    write_file(path, len(header).to_bytes(_LENGTH_BYTES, "little") + sealed + data)


def check_header(names: Collection[str], each: int) -> None:
    """Raise ValueError if `each` tensors for each of these names would need a header that is too long to be read."""
    size = each * sum(len(name) + _OF_ENTRY for name in names)
    if size > _MAX_HEADER:
        raise ValueError(
            f"{each * len(names)} tensors cannot be stored: a header of {size} bytes is too long to be read"
        )


def _split(content: bytes) -> tuple[bytes, bytes]:
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    return content[_LENGTH_BYTES:end], content[end:]


class TensorPlace(NamedTuple):
    """Where a safetensors file holds a tensor: name of its dtype, shape, first byte and end, after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(path: Path, file: BinaryIO) -> bytes:
    """Return the header of a safetensors file, a JSON text, whose size is limited."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if not 2 <= length <= _MAX_HEADER:
        raise damaged(path, f"it states a header of {length} bytes")
    header = file.read(length)
    if len(header) < length:
        raise damaged(path, "it ends inside its header")
    return header


def tensor_places(path: Path, entries: Any, sizes: Mapping[str, int]) -> dict[str, TensorPlace]:
    """Return the places of the tensors that a header states, in their order in the file. They must leave no gaps.

    `sizes` has the bytes of an element for each dtype that is allowed. `entries` is the header without its metadata.
    """
    form = stored.record(
        {
            "dtype": stored.one_of(*sizes),
            "shape": stored.each(stored.whole(0, _LARGEST), most=32),
            "data_offsets": stored.each(stored.whole(0, _LARGEST), least=2, most=2),
        }
    )
    stored.checked(path, entries, stored.by_key(form))
    places, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        shape = tuple(entry["shape"])
        size = math.prod(shape) * sizes[entry["dtype"]]
        stored.checked(path, entry["data_offsets"], stored.exactly([end, end + size]), f"{name}.data_offsets")
        places[name] = TensorPlace(entry["dtype"], shape, end, end + size)
        end += size
    return places


class TensorFile:
    """A file of `write_tensors`, opened for reading. Its header is verified at once; `read` reads its tensors.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    facts : dict
        The facts stored with the tensors.
    shapes : dict of str to tuple of int
        Shape of every tensor, by name.
    dtypes : dict of str to numpy.dtype
        Dtype of every tensor, by name.

    Raises
    ------
    DamagedFileError
        If the header differs from the one that was written, or if the file's size differs from the size in the header.
    OSError
        If the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # kept open while this object lives, because another file may take its place at this path
        self._file = open_file(path)
        weakref.finalize(self, self._file.close)
        try:
            self._open()
        except BaseException:
            self._file.close()  # now, because the error may keep this object alive for long
            raise

    def _open(self) -> None:
        path, size = self.path, os.fstat(self._file.fileno()).st_size
        header = read_header(path, self._file)
        self._start = _LENGTH_BYTES + len(header)
        self._take(parsed(path, header))
        unsealed = header.replace(self.facts["header_sha256"].encode(), _UNSET.encode(), 1)
        if hashlib.sha256(unsealed).hexdigest() != self.facts["header_sha256"]:
            raise damaged(path, "its header does not match its checksum")
        if size != self._start + self._bytes:
            raise damaged(path, f"it has {size} bytes where its header states {self._start + self._bytes}")

    def read(self) -> dict[str, np.ndarray]:
        """Return the tensors by name, after verifying their digest.

        Raises
        ------
        DamagedFileError
            If any byte differs from what was written.
        """
        self._file.seek(self._start)
        data = self._file.read(self._bytes)
        if hashlib.sha256(data).hexdigest() != self.facts["sha256"]:
            self._file.close()
            raise damaged(self.path, "its tensors do not match their checksum")
        tensors = {}
        for name, offset in self._offsets.items():
            count = math.prod(self.shapes[name])
            flat = np.frombuffer(data, self.dtypes[name], count, offset)
            tensors[name] = flat.reshape(self.shapes[name])
        return tensors

    def _take(self, entries: Any) -> None:
        """Store the contents of the header, after checking that it has the form that `write_tensors` gives it."""
        stored.checked(self.path, entries, stored.by_key(stored.anything), "its header")
        metadata = stored.checked(self.path, entries.pop("__metadata__", None), _OF_METADATA, "__metadata__")
        self.facts: dict[str, Any] = parsed(self.path, metadata[_KEY].encode(errors="surrogatepass"))
        self.check_facts(stored.by_key(stored.anything))
        for key in ("sha256", "header_sha256"):
            stored.checked(self.path, self.facts.get(key), stored.sha256, key)
        places = tensor_places(self.path, entries, {name: dtype.itemsize for name, dtype in _DTYPES.items()})
        self.shapes = {name: place.shape for name, place in places.items()}
        self.dtypes = {name: _DTYPES[place.dtype] for name, place in places.items()}
        self._offsets = {name: place.start for name, place in places.items()}
        self._bytes = max((place.end for place in places.values()), default=0)

    def check_facts(self, form: stored.Form) -> None:
        """Raise DamagedFileError unless the facts, which include the digests, have this form."""
        stored.checked(self.path, self.facts, form, "")
