"""The events that a training or a test reports to its listener."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastpe.training.config import TrainConfig


@dataclass(frozen=True)
class Started:
    """Training starts or continues; `step` of `config.steps` updates are done. `run`: the run folder, if there is one.

    `finished` says that nothing is left to train.
    """

    config: TrainConfig
    run: Path | None
    step: int
    finished: bool = False


@dataclass(frozen=True)
class Stepped:
    """An update was made; `loss` is the loss of its batch of `sequences` sequences before the update."""

    epoch: int
    step: int
    loss: float
    sequences: int


@dataclass(frozen=True)
class EpochDone:
    """An epoch ended (and was saved); `loss` is the mean over its sequences, `seconds` its duration.

    `validation` contains the validation loss, and for tokens the share of exact answers, if there is validation.
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
    """The model was tested at `length`, which may be a range such as "51-100"."""

    length: int | str
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Noted:
    """A message for the user.

    of_training: it is about how the training of this run went. Studies, which have many runs, do not show it.
    """

    message: str
    of_training: bool = False


Event = Started | Stepped | EpochDone | TestStarted | LengthTested | Noted
Listener = Callable[[Event], None]
