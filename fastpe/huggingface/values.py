"""The values of a config.json that others wrote, checked as they are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from fastpe.base import files, stored
from fastpe.base.stored import Form, damaged

ELSEWHERE = "fastpe.torch.register_transformers() runs such models in PyTorch"

SIZE = stored.whole(1, 2**27)
FACTOR = stored.number(1e-30)


class NoEqual(ValueError):
    """No `ModelConfig` describes a model, although its folder is not damaged."""


class Values:
    """The settings in a config.json.

    A key that is missing or null has its default, which is the one of transformers.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    found : dict
        Its content.
    """

    def __init__(self, path: Path, found: dict[str, Any]) -> None:
        self.path, self.found = path, found

    @classmethod
    def read(cls, path: Path) -> "Values":
        """Read a file. Raises DamagedFileError if it contains no JSON object."""
        found = stored.checked(path, files.read_json(path), stored.by_key(stored.anything))
        return cls(path, found)

    def get(self, key: str, form: Form, default: Any = None) -> Any:
        """Return the value of a key, which may be nested, as in "attn_config.alibi". It must have this form."""
        value: Any = self.found
        for name in key.split("."):
            if value is not None:
                stored.checked(self.path, value, stored.by_key(stored.anything), key.rpartition(".")[0])
                value = value.get(name)
        return default if value is None else stored.checked(self.path, value, form, key)

    def required(self, key: str, form: Form) -> Any:
        """Return the value of a key that must be there."""
        value = self.get(key, form)
        if value is None:
            raise damaged(self.path, f"{key} is missing")
        return value

    def one_of(self, key: str, words: Sequence[str], default: Any = None) -> str:
        """Return the value of a key that must be one of these words; another word is refused, as it is not damage."""
        value: str = self.get(key, stored.text, default)
        if value not in words:
            self.refuse(f"{key} {value!r} is not supported, only {', '.join(map(repr, words))}")
        return value

    def refuse(self, reason: str, error: type[ValueError] = NoEqual) -> NoReturn:
        """Raise the error for a valid checkpoint that has no equal in fastpe."""
        raise error(f"{self.path}: {stored.cut(stored.printable(reason))}; {ELSEWHERE}")
