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
    """Draw what an encoding looks like, before training by its name, or with what a model or a run has learned.

    What is drawn follows from the slots that it fills: tables as maps, with dot products and cosines between positions;
    rotations with wavelengths and decay; biases and gains over the offset; vectors over offsets; or the curves that
    theory has of them. The training length is marked. A notebook displays the figure; nothing is written, and pyplot
    knows nothing of it.

    Parameters
    ----------
    what : str, pathlib.Path or Transformer
        Name of an encoding, or of a sum such as "wavelet+alibi"; a model; or what `fastpe.load` takes: a run folder or
        a model's file.
    length : int, optional
        Positions to show; where not given, twice the training length, with `theory` four times, or, if the encoding is
        undefined there, the training length.
    layer : int, optional
        Of a model or a run: the layer that is shown, where every layer has parameters of its own; the first, 0, where
        not given.
    theory : bool
        Draw the curves of `fastpe.theory`: of a table the drift of rows from trained ones, the spectrum, the kernel by
        lag and the information about the position over noise; of rotations turns, unseen angles and similarity; of
        biases the reach, the effect and what a longer text moves, over the length.
    **request
        With a name: `dim`, `heads`, `train_length`, `causal` and `seed`, by default those of `TrainConfig`, and the
        encoding's own options, all as for `fastpe.build`. A model has its own.

    Returns
    -------
    matplotlib.figure.Figure
        To be written by its `savefig`.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    ValueError, TypeError
        As `fastpe.build` and `fastpe.load` do, or if there is nothing to draw.
    FileNotFoundError
        As `fastpe.load` does.

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
    """Whether this is no encoding's name or file, and a path: there is something, or it has folders."""
    try:
        registry.split(registry.resolve(name))
    except ValueError:
        own = any(part.strip().endswith(".py") for part in name.split("+"))
        return Path(name).exists() or (len(Path(name).parts) > 1 and not own)
    return False
