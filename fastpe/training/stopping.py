"""When a training ends, and which of its epochs was the best, by the sequences that it is validated on."""

from dataclasses import dataclass, replace

from fastpe.training.config import TrainConfig

RISING = 3  # epochs in a row without a lower loss, after which the user is told


@dataclass(frozen=True)
class Progress:
    """How far a training has come: epochs done, updates done, the last epoch's mean loss, seconds spent.

    With validation also the epoch whose loss there was the least, that loss, and whether the last epoch's model got
    everything right.
    """

    epoch: int = 0
    step: int = 0
    loss: float | None = None
    seconds: float = 0.0
    best_epoch: int = 0
    best_loss: float | None = None
    solved: bool = False

    def validated(self, loss: float | None, exact: float | None) -> "Progress":
        """This, after the model of its epoch was validated; a loss that is not finite is None."""
        better = loss is not None and (self.best_loss is None or loss < self.best_loss)
        found = replace(self, best_epoch=self.epoch, best_loss=loss) if better else self
        return replace(found, solved=exact == 1.0)


def reason_to_end(config: TrainConfig, progress: Progress) -> str | None:
    """Why there is no further epoch, or None where there is one.

    >>> config = TrainConfig("nope", epochs=9, validation=10, patience=2)
    >>> reason_to_end(config, Progress(epoch=5, best_epoch=4)), reason_to_end(config, Progress(epoch=6, best_epoch=4))
    (None, 'validation')
    """
    if config.stop_solved and progress.solved:
        return "solved"
    if config.patience and progress.epoch - progress.best_epoch >= config.patience:
        return "validation"
    return "epochs" if progress.epoch >= config.epochs else None
