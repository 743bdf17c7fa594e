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
    """Draw an encoding, either before training or with the learned parameters of a model or run.

    The drawing depends on the slots that the encoding fills:

    - tables: a map, with dot products and cosines between positions;
    - rotations: wavelengths and decay;
    - biases and gains: curves over the offset;
    - vectors by offset: the vectors over offsets.

    With `theory` the curves of `fastpe.theory` are drawn instead. The training length is marked. A notebook displays
    the returned figure. No file is written, and the figure is not registered with pyplot.

    Parameters
    ----------
    what : str, pathlib.Path or Transformer
        Name of an encoding, or of a sum such as "wavelet+alibi"; a model; or a path that `fastpe.load` takes, a run
        folder or a model file.
    length : int, optional
        Number of positions to show. The default is twice the training length (four times with `theory`), or the
        training length if the encoding is undefined beyond it.
    layer : int, optional
        The layer of a model or run to show, if every layer has separate parameters. The default is the first layer, 0.
    theory : bool
        Whether to draw the curves of `fastpe.theory`. For a table: the drift of rows from trained rows, the spectrum,
        the kernel by lag, and the information about the position over noise. For rotations: turns, unseen angles and
        similarity. For biases, over the length: the reach, the effect, and the change by a longer text.
    **request
        Only with a name: `dim`, `heads`, `train_length`, `causal` and `seed`, with the defaults of `TrainConfig`, and
        options of the encoding, all as for `fastpe.build`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Its `savefig` writes it to a file.

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
    >>> [axes.get_title() for axes in figure.axes]
    ['bias']
    >>> import fastpe
    >>> model = fastpe.Transformer(fastpe.ModelConfig("learned", width=16, train_length=8))
    >>> show(model).axes[0].get_title()
    'table'
    >>> show(model, theory=True).axes[0].get_title()
    'spectrum'
    """
    if not canvas.available():
        raise ModuleNotFoundError(canvas.MISSING)
    if isinstance(what, str) and not _is_file(what):
        if layer is not None:
            raise ValueError("layer is that of a model or a run, not of an encoding")
        return figure.drawn(look(what, length, theory=theory, **request))
    if not isinstance(what, str | Path | Transformer):
        raise TypeError(f"what must be the name of an encoding, a model or the path of a run, not {what!r}")
    if request:
        raise ValueError(f"a model or a run has its own sizes and options: {', '.join(request)} cannot be given")
    if isinstance(what, Transformer):
        return figure.drawn(look_at(what, length, layer=layer or 0, theory=theory))
    return figure.drawn(look_at_path(what, length, layer=layer or 0, theory=theory))


def _is_file(name: str) -> bool:
    """Return whether this is a path and not an encoding: the path exists, or it contains folders."""
    try:
        registry.split(registry.resolve(name))
    except ValueError:
        own = any(part.strip().endswith(".py") for part in name.split("+"))
        return Path(name).exists() or (len(Path(name).parts) > 1 and not own)
    return False
