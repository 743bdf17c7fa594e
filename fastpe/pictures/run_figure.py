"""The figure of a training run: its losses by epoch, and its test results by length."""

from typing import TYPE_CHECKING

from fastpe.pictures import axes, plots
from fastpe.pictures.svg import Line, Plot
from fastpe.training.forms import summary
from fastpe.training.lengths import ends
from fastpe.training.loop import TrainResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawn(result: TrainResult) -> "Figure":
    """Draw a run as a matplotlib figure.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    """
    return plots.drawn(run_plots(result))


def run_plots(result: TrainResult) -> list[Plot]:
    """The plots of a run: training and validation losses by epoch, and results by length if the model was tested.

    Examples
    --------
    >>> from fastpe.training.config import TrainConfig
    >>> from fastpe.training.loop import train
    >>> small = TrainConfig("nope", width=8, hidden=8, samples=16, epochs=1, test_lengths=(8, 16), test_sequences=4)
    >>> [plot.y_name for plot in run_plots(train(small, progress=False))]
    ['loss', 'mean squared error']
    """
    config, name = result.config, result.config.encoding
    metric = summary(result.config)
    validated = [(line["epoch"], line["validation"]["loss"]) for line in result.history if line.get("validation")]
    lines = [Line("training", [(line["epoch"], line["loss"]) for line in result.history], encoding=name)]
    if validated := [(epoch, loss) for epoch, loss in validated if loss is not None]:
        lines.append(Line("validation", validated, encoding=name))
    found = [Plot(lines, "epoch", "loss", title=f"{name} on {config.task}", log_x=False, log_y=True)]
    tests = [(ends(int(n) if n.isdigit() else n), test[metric]) for n, test in result.result["test"].items()]
    points = [(end, value) for span, value in tests if value is not None for end in dict.fromkeys(span)]
    if points:
        exact = metric == "exact"
        found.append(
            Plot([Line("test", points, encoding=name)], axes.LENGTH, axes.OF_METRIC[metric], title="tests", log_x=False,
                 log_y=metric == "mse", marked=config.train_length, top=1.0 if exact else None,
                 floor=0.0 if exact else None, percent=exact)
        )  # fmt: skip
    return found
