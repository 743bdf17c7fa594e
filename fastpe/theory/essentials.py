"""The three most important theoretical numbers of an encoding, shown by `fastpe encodings KEY`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base.validation import whole
from fastpe.encodings.build import build, init
from fastpe.encodings.catalogue import suits_sequences
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.registry import get, resolve
from fastpe.theory.biases import effects, last_row, worst
from fastpe.theory.decay import head_parameters
from fastpe.theory.drift import covering
from fastpe.theory.pairs import Array
from fastpe.theory.reach import endless_window, reaches
from fastpe.theory.rotations import first_negative_lag, frequencies, turned, unseen
from fastpe.theory.tables import separation, tolerated_noise
from fastpe.theory.value import Value

SIZES: Mapping[str, int] = {"dim": 64, "heads": 1, "train_length": 50}
"""The sizes of the model of Li (2025)."""
ROUNDING = 2.0**-24
"""The share of the weight that a certified window may omit. float32 rounds this share away."""

_BIASES = ("bias", "index", "scores")


def essentials(
    name: str, *, dim: int = SIZES["dim"], heads: int = SIZES["heads"], train_length: int = SIZES["train_length"]
) -> dict[str, Value | None]:
    """Return the three most important numbers of an encoding with default options and the initial values of seed 0.

    Parameters
    ----------
    name : str
        Key of one encoding.
    dim, heads, train_length : int

    Returns
    -------
    dict
        A map from descriptions to numbers. A number is None if it is not known, or not defined, as beyond the end of a
        learned table or on a grid. The numbers depend on what the encoding fills, with N = `train_length`:

        - a table: the smallest distance between two of the first N rows; the noise at which 1 % of these rows are
          confused; the largest distance from one of the rows N .. 2N - 1 to its nearest row before N;
        - rotations: the number of channels that make a full turn within N; the number of channels with unseen angles at
          the length 2N; the first lag at which an equal query and key have a negative score;
        - biases: the number of keys used at equal content at the length 2N; the largest effect on a row of this length;
          the window that holds all but 2^-24 of the weight at any length (each for the head with the largest value);
        - none of these slots: the dict is empty.

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `fastpe.build`.

    Notes
    -----
    For biases and rotations the model is causal, unless the encoding is not made for plain sequences.

    Examples
    --------
    >>> {what: round(found.value, 3) for what, found in essentials("rope").items()}
    {'channels that turn, of 32': 8.0, 'channels with unseen angles at 100': 17.0, 'first lag of negative score': 725.0}
    >>> essentials("shaw")
    {}
    """
    encoding = get(resolve(name))
    slots = set(encoding.slots)
    if not slots & {"table", "qk_table", "angles", *_BIASES}:
        return {}
    on_a_line = suits_sequences(encoding)
    sizes: dict[str, Any] = {
        "dim": dim, "heads": heads, "train_length": whole("train_length", train_length, 1), "causal": on_a_line,
        "dtype": "float64",
    }  # fmt: skip
    trained: dict[str, Any] = build(name, train_length, **sizes, reference=True)
    try:
        longer: dict[str, Any] | None = build(name, 2 * train_length, **sizes, reference=True)
    except BeyondTrainingLength:
        longer = None
    if table := {"table", "qk_table"} & set(trained):
        slot = min(table)
        found = _of_table(trained[slot], None if longer is None else longer[slot], train_length)
    elif "angles" in trained:
        found = _of_rotations(trained, longer, train_length, on_a_line)
    else:
        params = init(name, **sizes) if longer is not None and on_a_line else {}
        found = _of_biases(name, longer, params, 2 * train_length, on_a_line)
    return found if any(found.values()) else {}


def _of_table(trained: Array, longer: Array | None, train_length: int) -> dict[str, Value | None]:
    farthest = None
    if longer is not None:
        rows = np.concatenate([trained, longer[train_length:]])
        farthest = covering(rows, train_length, (train_length, 2 * train_length))["radius"]
    return {
        "nearest two positions": separation(trained),
        "noise for 1 % confusion": tolerated_noise(trained),
        f"farthest from trained rows up to {2 * train_length}": farthest,
    }


def _of_rotations(
    trained: Mapping[str, Any], longer: Mapping[str, Any] | None, train_length: int, on_a_line: bool
) -> dict[str, Value | None]:
    angles = trained["angles"]
    omega = frequencies(angles) if on_a_line and train_length > 1 else None
    growth = trained.get("growth")
    decay = growth[1] - growth[0] if growth is not None and omega is not None else None
    return {
        f"channels that turn, of {angles.shape[0] * angles.shape[2]}": (
            None if omega is None else turned(omega, train_length)
        ),
        f"channels with unseen angles at {2 * train_length}": (
            None if longer is None else unseen(angles, longer["angles"], causal=on_a_line)["channels"]
        ),
        "first lag of negative score": None if omega is None else first_negative_lag(omega, decay=decay),
    }


def _of_biases(
    name: str, slots: Mapping[str, Any] | None, params: Mapping[str, Any], length: int, on_a_line: bool
) -> dict[str, Value | None]:
    used = window = effect = None
    if slots is not None:
        effect = worst(effects(slots, length, causal=on_a_line))
        if on_a_line:
            used = worst([head.perplexity for head in reaches(last_row(slots, length))])
            heads: list[dict[str, Any]] = [*head_parameters(name, slots, params)]
            found = [endless_window(name, ROUNDING, **each) for each in heads]
            known = [each for each in found if each is not None]
            window = worst(known) if len(known) == len(found) else None
    return {
        f"keys used of {length} at equal content": used,
        f"effect on a row of {length}, at most": effect,
        "window for all but 2^-24 of the weight": window,
    }
