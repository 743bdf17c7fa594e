"""What a training or a test tells whoever listens: small values, one per thing that happened."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastpe.training.config import TrainConfig


@dataclass(frozen=True)
class Started:
    """Training is about to begin; `step` updates of `config.steps` were done before. `run` is the folder, if any.

    finished: whether there is nothing left to train.
    """

    config: TrainConfig
    run: Path | None
    step: int
    finished: bool = False


@dataclass(frozen=True)
class Stepped:
    """An update was made; `loss` is that of its batch before the update, of `sequences` sequences."""

    epoch: int
    step: int
    loss: float
    sequences: int


@dataclass(frozen=True)
class EpochDone:
    """An epoch ended (and was saved); `loss` is the mean over its sequences, `seconds` its duration.

    validation: the loss, and of tokens the share of exact answers, on the sequences to validate on, if there are any.
    """

    epoch: int
    step: int
    loss: float
    seconds: float
    validation: dict[str, Any] | None = None


@dataclass(frozen=True)
class TestStarted:
    """The model is about to be tested at these lengths, in this order."""

    __test__ = False  # for pytest

    lengths: tuple[int | str, ...]


@dataclass(frozen=True)
class LengthTested:
    """The model was tested at `length`, or at lengths such as "51-100"."""

    length: int | str
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Noted:
    """Something that the user should know."""

    message: str


Event = Started | Stepped | EpochDone | TestStarted | LengthTested | Noted
Listener = Callable[[Event], None]
