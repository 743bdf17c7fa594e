"""Fast, exact position encodings for transformers on a CPU.

Importing this package imports neither NumPy nor Numba: every public name is loaded when it is first used.

>>> import fastpe
>>> "wavelet" in fastpe.list_encodings()
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fastpe import reference as reference
    from fastpe._attention import attention, attention_vjp
    from fastpe.config import ModelConfig, TrainConfig
    from fastpe.encoding import build, init, list_encodings, pull
    from fastpe.runs import load
    from fastpe.training import train
    from fastpe.transformer import Transformer

# public name -> the module that defines it ("" = the name is itself a module)
_HOME = {
    "attention": "fastpe._attention",
    "attention_vjp": "fastpe._attention",
    "build": "fastpe.encoding",
    "init": "fastpe.encoding",
    "list_encodings": "fastpe.encoding",
    "pull": "fastpe.encoding",
    "ModelConfig": "fastpe.config",
    "TrainConfig": "fastpe.config",
    "Transformer": "fastpe.transformer",
    "train": "fastpe.training",
    "load": "fastpe.runs",
    "reference": "",
}
_ADAPTERS = ("jax", "torch")  # modules that need the framework they are named after

__all__ = [  # noqa: RUF022 - in the order a reader meets them
    "list_encodings",
    "build",
    "init",
    "pull",
    "attention",
    "attention_vjp",
    "ModelConfig",
    "Transformer",
    "TrainConfig",
    "train",
    "load",
    "reference",
]


def __getattr__(name: str) -> Any:
    if name in _ADAPTERS:
        return import_module(f"fastpe.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fastpe' has no attribute {name!r}")
    home = _HOME[name]
    value = getattr(import_module(home), name) if home else import_module(f"fastpe.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
