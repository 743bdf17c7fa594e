"""The page of an encoding: a dict of all its records."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastpe.encodings import registry
from fastpe.model.transformer import Transformer
from fastpe.theory.pages import of_bias, of_model, of_relative, of_rotation, of_run, of_table
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject, of_encoding
from fastpe.theory.pages.subject import of_run as subject_of_run

PARTS: dict[str, Callable[[Subject], Iterator[Record]]] = {
    "tables": of_table.records,
    "biases": of_bias.records,
    "rotations": of_rotation.records,
    "vectors of offsets": of_relative.records,
    "models": of_model.records,
    "trained weights": of_run.records,
}
"""The parts of a page in order, by the name that the progress bar shows."""


def page(
    name: str | None = None, *, length: int | Sequence[int] | None = None, train_length: int = 50, dim: int = 64,
    heads: int = 1, causal: bool = False, run: str | Path | Transformer | None = None, **options: Any,
) -> dict[str, Record]:  # fmt: skip
    """Compute all quantities of the theory for an encoding, or for the encoding of a trained model.

    Parameters
    ----------
    name : str
        Key of an encoding, or a sum such as "sinusoidal+alibi". With `run` it may be left out.
    length : int or sequence of int, optional
        Lengths to examine in addition to the training length, at most 16,384. By default, these are twice and four
        times the training length. If the encoding adds a table of positions to the input, its quantities at a length
        are those of the positions between the previous length and this length.
    train_length : int
        N, the length that the encoding is made for.
    dim, heads : int
        Width of the model, at most 4,096, and its number of attention heads.
    causal : bool
        Whether the model has a causal mask. It always has one if the encoding is made only for causal models.
    run : str, pathlib.Path or Transformer, optional
        A run folder, a file that `Transformer.save` wrote, or a model. The encoding, sizes and options are those of the
        model, and the page also has the norms and Lipschitz constants of its weights.
    **options
        Options of the encoding. For a sum, write them as ``{"wavelet.scale": 2.0}``.

    Returns
    -------
    dict of str to Record
        The keys are names of quantities, such as "toeplitz". A quantity that depends on the length has a key such as
        "nearest@100". Quantities that have no meaning for the encoding are missing. The attributes of a record are:

        - `id`: the identifier of the quantity, Q1 to Q20 or I1 to I8;
        - `value`, and its bounds `low` and `high`;
        - `kind`: "exact", "certified" (the bounds are proved) or "estimate";
        - `inputs`: the sizes and options of the computation;
        - `why`: what the number decides for a user;
        - `how`: how the number is computed.

    Raises
    ------
    ValueError, TypeError
        If the encoding or an option is unknown, or a size is out of range. The message names the argument.
    OSError, fastpe.training.config_file.RunError
        If a run cannot be read.

    Examples
    --------
    >>> found = page("alibi", causal=True, alpha0=0.1)
    >>> round(found["perplexity.most@200"].value, 2), found["window.2^-24.0"].value
    (198.68, 8317.0)
    >>> "nearest@50" in found, round(page("sinusoidal")["nearest@50"].value, 5)
    (False, 1.47185)
    """
    subject = subject_of(
        name, length=length, train_length=train_length, dim=dim, heads=heads, causal=causal, run=run, **options
    )
    return records(subject)


def subject_of(
    name: str | None, *, length: Any = None, train_length: int = 50, dim: int = 64, heads: int = 1,
    causal: bool = False, run: str | Path | Transformer | None = None, **options: Any,
) -> Subject:  # fmt: skip
    """Check the arguments of `page` and return the subject that they describe."""
    if run is None:
        if name is None:
            raise ValueError("name must be the key of an encoding if no run is given")
        # the error for an unknown option offers the keywords of `page` too
        registry.parse_all(registry.resolve(name), options, page.__kwdefaults__ or ())
        return of_encoding(name, length, train_length, dim, heads, causal, options)
    found = subject_of_run(run, length)
    if options:
        raise ValueError(f"run has its own options: leave out {', '.join(options)}")
    if name is not None and name != found.name:
        raise ValueError(f"name must be that of the run, {found.name!r}, or be left out, not {name!r}")
    return found


def records(subject: Subject, listen: Callable[[str], None] = lambda part: None) -> dict[str, Record]:
    """Compute all records of a subject. `listen` is called with the name of each part before it is computed."""
    found: dict[str, Record] = {}
    for part, of_part in PARTS.items():
        listen(part)
        for record in of_part(subject):
            found[record.name] = record
    return found
