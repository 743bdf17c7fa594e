"""`fastpe.show`: the figure of an encoding, of a model or of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastpe.encodings import registry
from fastpe.model.transformer import Transformer
from fastpe.pictures import canvas, figure
from fastpe.pictures.look import look, look_at, look_at_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def show(
    what: str | Path | Transformer, length: int | None = None, *, layer: int | None = None, theory: bool = False,
    **request: Any,
) -> Figure:  # fmt: skip
    """Draw an encoding: before training, or with the parameters that a model or a run has learned.

    What is drawn depends on the arrays that the encoding gives to a model:

    - a table: the table as a map, and the dot products and cosines between positions;
    - rotations: the wavelengths, and the decay of the score with the distance;
    - biases, gains and vectors for each offset: their values as functions of the offset.

    With `theory`, the curves of `fastpe.theory` are drawn instead. The training length is marked. A notebook displays
    the figure. No file is written, and the figure is not registered with pyplot.

    Parameters
    ----------
    what : str, pathlib.Path or Transformer
        The name of an encoding or of a sum such as "wavelet+alibi"; a model; or the path of a run folder or model file,
        as for `fastpe.load`.
    length : int, optional
        Number of positions to show. The default is twice the training length (four times with `theory`), or the
        training length if the encoding is undefined beyond it.
    layer : int, optional
        The layer to show, if layers of the model or run have separate parameters of the encoding. The default is 0, the
        first layer.
    theory : bool
        Draw the curves of `fastpe.theory`:

        - for a table: the distance of each row from the nearest trained row, the singular values, the mean dot product
          of two rows as a function of their distance, and how much information a row contains about its position when
          noise is added to the row;
        - for rotations: the number of turns within the training length, the angles not seen in training, and the score
          of equal query and key as a function of their distance;
        - for biases, as functions of the length: the effective number of keys, the distance within which keys have 99 %
          of the weight, the largest change of a query's weights by the bias, and the change of the weights when a text
          is longer than in training.
    **request
        If `what` is the name of an encoding: `dim`, `heads`, `train_length`, `causal` and `seed` (by default those of
        `TrainConfig`), and options of the encoding, all as for `fastpe.build`. For a model or a run, which has
        these settings already, they raise an error.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig(path)``.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    ValueError, TypeError
        For the same reasons as `fastpe.build` and `fastpe.load`, or if there is nothing to draw.
    FileNotFoundError
        For the same reasons as `fastpe.load`.

    Examples
    --------
    >>> figure = show("alibi", heads=4, causal=True)
    >>> [axes.get_title("left") for axes in figure.axes]
    ['bias']
    >>> import fastpe
    >>> model = fastpe.Transformer(fastpe.ModelConfig("learned", width=16, train_length=8))
    >>> show(model).axes[0].get_title("left")
    'table'
    >>> show(model, theory=True).axes[0].get_title("left")
    'spectrum'
    """
    canvas.need()
    if isinstance(what, str) and not _is_file(what):
        if layer is not None:
            raise ValueError(f"layer={layer!r} needs a model or a run, not the name of an encoding, {what!r}")
        return figure.drawn(look(what, length, theory=theory, **request))
    if not isinstance(what, str | Path | Transformer):
        raise TypeError(f"what must be the name of an encoding, a model or the path of a run, not {what!r}")
    if request:
        raise ValueError(f"a model or a run has its own sizes and options: leave out {', '.join(request)}")
    if isinstance(what, Transformer):
        return figure.drawn(look_at(what, length, layer=layer or 0, theory=theory))
    return figure.drawn(look_at_path(what, length, layer=layer or 0, theory=theory))


def _is_file(name: str) -> bool:
    """Whether this is the path of a run or model file: not the name or the file of an encoding."""
    try:
        registry.split(registry.resolve(name))
    except ValueError:
        own = any(part.strip().endswith(".py") for part in name.split("+"))
        return Path(name).exists() or (len(Path(name).parts) > 1 and not own)
    return False
