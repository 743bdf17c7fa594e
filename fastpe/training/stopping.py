"""When a training ends, and which epoch was the best, according to validation."""

from dataclasses import dataclass, replace

from fastpe.training.config import TrainConfig

RISING = 3  # successive epochs without a lower validation loss after which a note is printed


@dataclass(frozen=True)
class Progress:
    """Progress of a training: epochs, updates, mean loss of the last epoch, seconds.

    With validation, it also has the epoch with the lowest validation loss, that loss, and whether the model of the last
    epoch answered everything right.
    """

    epoch: int = 0
    step: int = 0
    loss: float | None = None
    seconds: float = 0.0
    best_epoch: int = 0
    best_loss: float | None = None
    solved: bool = False

    def validated(self, loss: float | None, exact: float | None) -> "Progress":
        """Return the progress after validation of the epoch's model. A loss that is not finite is given as None."""
        better = loss is not None and (self.best_loss is None or loss < self.best_loss)
        found = replace(self, best_epoch=self.epoch, best_loss=loss) if better else self
        return replace(found, solved=exact == 1.0)


def reason_to_end(config: TrainConfig, progress: Progress) -> str | None:
    """Return why the training ends now, or None if another epoch follows.

    >>> config = TrainConfig("nope", epochs=9, validation=10, patience=2)
    >>> reason_to_end(config, Progress(epoch=5, best_epoch=4)), reason_to_end(config, Progress(epoch=6, best_epoch=4))
    (None, 'validation')
    """
    if config.stop_solved and progress.solved:
        return "solved"
    if config.patience and progress.epoch - progress.best_epoch >= config.patience:
        return "validation"
    return "epochs" if progress.epoch >= config.epochs else None
