"""The tensors of a checkpoint in safetensors files, of one file or of shards, mapped into memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from fastpe.base import files, stored
from fastpe.base.stored import damaged
from fastpe.huggingface.values import ELSEWHERE, Values

Array = np.ndarray[Any, Any]

NAME, INDEX = "model.safetensors", "model.safetensors.index.json"
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}
_OTHERS = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "F64": 8, "I64": 8,
    "U64": 8,
}  # fmt: skip
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_MOST_SHARDS = 1000
_IGNORED = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")
"""Buffers that earlier versions of transformers stored, of any dtype. They follow from config.json."""


def write(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write float32 tensors; the metadata say that the names are those of PyTorch, which transformers requires."""
    files.write_file(path, save(dict(tensors), {"format": "pt"}))


class Checkpoint:
    """The tensors in a folder, but for buffers. Their headers are verified at once; `read` reads one tensor.

    Parameters
    ----------
    folder : pathlib.Path
        The folder.

    Attributes
    ----------
    shapes : dict of str to tuple of int

    Raises
    ------
    DamagedFileError
        If a header or the index is damaged, or does not match the files.
    ValueError
        If the weights are in files of another kind.
    OSError
        If a file cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        self._found: dict[str, tuple[Array, files.TensorPlace]] = {}
        index = self._index()
        for name in dict.fromkeys(index.values()) if index else (NAME,):
            self._open(folder / name)
        for name, shard in index.items():
            if self._files.get(name) != folder / shard:
                raise damaged(folder / INDEX, f"{shard} does not hold {name}")

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def path(self, name: str) -> Path:
        """The file that holds a tensor."""
        return self._files[name]

    def read(self, name: str) -> Array:
        """A tensor as finite float32.

        Raises
        ------
        DamagedFileError
            If a number is not finite.
        """
        raw, place = self._found[name]
        flat = raw[place.start : place.end]
        if place.dtype == "BF16":
            array = (flat.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.asarray(flat.view({"F32": "<f4", "F16": "<f2"}[place.dtype]), np.float32)
        if not np.isfinite(array).all():
            raise damaged(self.path(name), f"tensor {name} has numbers that are not finite")
        return array.reshape(place.shape)

    def _index(self) -> dict[str, str]:
        """The shard of every tensor; empty if there is one file."""
        path = self.folder / INDEX
        if (self.folder / NAME).exists():
            return {}
        if not path.exists():
            pickles = sorted(each.name for kind in _PICKLES for each in self.folder.glob(kind))
            if pickles:
                raise ValueError(
                    f"{self.folder}: {stored.cut(stored.printable(pickles[0]), 80)} is a pickle, which can run any "
                    "code, and is not read: save the model as safetensors, which save_pretrained does"
                )
            raise FileNotFoundError(2, "No such file or directory", str(self.folder / NAME))
        found: dict[str, str] = Values.read(path).required("weight_map", stored.by_key(stored.text))
        shards = set(found.values())
        for shard in shards:
            if Path(shard).name != shard or not shard.endswith(".safetensors"):
                raise damaged(path, f"{shard!r} is not the name of a safetensors file in the same folder")
        if not shards or len(shards) > _MOST_SHARDS:
            raise damaged(path, f"weight_map names {len(shards)} files, where 1 to {_MOST_SHARDS} were expected")
        return found

    def _open(self, path: Path) -> None:
        with files.open_file(path) as file:
            header = files.read_header(path, file)
            entries = stored.checked(path, files.parsed(path, header), stored.by_key(stored.anything), "its header")
            stored.checked(path, entries.pop("__metadata__", {}), stored.by_key(stored.anything), "__metadata__")
            places = files.tensor_places(path, entries, _SIZES | _OTHERS)
            start, end = 8 + len(header), max((place.end for place in places.values()), default=0)
            size = file.seek(0, 2)
            if size != start + end:
                raise damaged(path, f"it has {size} bytes where its header states {start + end}")
            raw = np.memmap(file, np.uint8, "r", start, (end,)) if end else np.zeros(0, np.uint8)
        for name, place in places.items():
            if name in self._files:
                raise damaged(path, f"tensor {name} is also in {self._files[name].name}")
            self._files[name] = path
            if name.endswith(_IGNORED):
                continue
            if place.dtype not in _SIZES:
                raise ValueError(
                    f"{path}: tensor {stored.cut(stored.printable(name), 80)} has the dtype {place.dtype}, and only "
                    f"{', '.join(_SIZES)} are read, not integers or quantised numbers; {ELSEWHERE}"
                )
            self._found[name], self.shapes[name] = (raw, place), place.shape
