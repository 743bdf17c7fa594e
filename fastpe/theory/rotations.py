"""Rotations of query and key: turns of each channel, angles not seen in training, and similarity over lags."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpe.base.validation import array, at_least_zero, finite, positive, whole
from fastpe.theory.value import Value, exact

Array = np.ndarray[Any, Any]

TURN = 2.0 * math.pi
SEEN = 0.1  # the chord up to which an angle counts as seen in training
MOST_LAGS = 2**18  # default number of lags that are searched for a negative similarity

_BLOCK = 2**20  # number of cosines that are computed at once


def frequencies(angles: Array, positions: Sequence[float] | None = None) -> Array | None:
    """Return the frequency of every channel in radians per position, if the angles are linear in the position.

    Angles are known only up to full turns. If a channel turns by more than pi radians between the first two positions,
    the result is a slower frequency with the same angles. To avoid this, build the slot at positions that are closer
    together.

    Parameters
    ----------
    angles : (H or 1, N, R/2)
        The slot `angles` of `fastpe.build`; N >= 2.
    positions : (N,), optional
        The positions at which the slot was built. The default is 0, 1, ..., N-1.

    Returns
    -------
    (H or 1, R/2) or None
        None if the angles are not linear in the position, for example on grids or if some tokens are not rotated.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong shape or is not finite, or there are fewer than two positions.

    Examples
    --------
    >>> import fastpe
    >>> frequencies(fastpe.build("rope", 8, dim=4)["angles"]).tolist()
    [[1.0, 0.01]]
    >>> frequencies(fastpe.build("rope_2d", 16, dim=8)["angles"]) is None
    True
    """
    angles = _angles("angles", angles)
    count = angles.shape[1]
    if count < 2:
        raise ValueError(f"angles must hold at least 2 positions, to compute a frequency, not shape {angles.shape}")
    places = np.arange(float(count)) if positions is None else finite("positions", array("positions", positions), float)
    if places.shape != (count,) or places[0] == places[1]:
        raise ValueError(
            f"positions must have shape ({count},) and start with two different numbers, not {places.tolist()[:3]}"
        )
    found: Array = _wrapped(angles[:, 1] - angles[:, 0]) / (places[1] - places[0])
    apart = places - places[0]
    tolerance = 1e-12 * (1.0 + float(np.abs(apart).max()))
    for first in range(0, count, step := _rows(angles)):
        part = slice(first, first + step)
        left = angles[:, part] - angles[:, :1] - found[:, None] * apart[part, None]
        if np.abs(_wrapped(left)).max() > tolerance:
            return None
    return found


def turns(omega: Array, length: int) -> Array:
    """Return the number of turns of each channel over the lags 0 .. N - 1: |w| (N - 1) / 2 pi, in the shape of `omega`.

    Parameters
    ----------
    omega : array
        Frequencies in radians per position, of any shape.
    length : int
        Number of positions N.

    >>> turns(np.array([[1.0, 0.01]]), 50).round(3).tolist()
    [[7.799, 0.078]]
    """
    found: Array = np.abs(np.asarray(omega, np.float64)) * (whole("length", length, 1) - 1) / TURN
    return found


def turned(omega: Array, length: int) -> Value:
    """Count the channels of all heads that make at least one full turn over the lags 0 .. N - 1 of a length N.

    Parameters
    ----------
    omega : (H or 1, R/2)
        Frequencies, as `frequencies` returns them.
    length : int
        Training length.

    Examples
    --------
    >>> turned(10000.0 ** -(np.arange(32.0) / 32)[None], 50).value
    8.0
    """
    found = turns(omega, length)
    return exact(
        float(np.count_nonzero(found >= 1.0)),
        "number of channels with |w| (N - 1) >= 2 pi",
        length=length,
        channels=found.size,
    )


def critical_channel(omega: Array, length: int) -> Value | None:
    """Return the fractional channel index at which a channel turns once in `length` positions, w N = 2 pi.

    The method NTK by parts changes all frequencies from this channel on. For frequencies base^(-2t/R) the index is
    (R/2) ln(N / 2 pi) / ln base. A fractional index is found by interpolation in ln w between two channels.

    Parameters
    ----------
    omega : (R/2,)
        Frequencies of one head, in descending order.
    length : int
        Training length.

    Returns
    -------
    Value or None
        None if the frequencies are not descending, or if all channels or no channels make a full turn.

    Source: Peng et al. 2023, arXiv:2309.00071, section 3.2; Q12.

    Examples
    --------
    >>> round(critical_channel(10000.0 ** -(np.arange(32.0) / 32), 50).value, 3)
    7.206
    """
    omega = np.abs(finite("omega", array("omega", omega), np.float64))
    length = whole("length", length, 1)
    if omega.ndim != 1:
        raise ValueError(f"omega must have shape (R/2,), of one head, not {omega.shape}")
    if omega.min() <= 0.0 or (np.diff(omega) >= 0.0).any() or not omega[-1] < TURN / length <= omega[0]:
        return None
    place = float(np.interp(-math.log(TURN / length), -np.log(omega), np.arange(float(len(omega)))))
    return exact(
        place,
        "the channel with w N = 2 pi, with ln w interpolated between channels",
        length=length,
        channels=len(omega),
    )


def aliasing(omega: Array, scale: float = 1.0) -> dict[str, Value]:
    """Count the channels with aliasing. They turn by more than pi radians per position, and look like slower channels.

    Parameters
    ----------
    omega : (...)
        The true frequencies, not those computed from angles at integer positions.
    scale : float
        The factor by which integer positions are multiplied, above 0.

    Returns
    -------
    dict
        - "aliased": the number of channels with scale |w| > pi;
        - "from_scale": the scale above which there is such a channel, infinite if no channel turns.

    Source: Q12.

    Examples
    --------
    >>> found = aliasing(np.array([1.0, 0.01]), scale=4.0)
    >>> found["aliased"].value, round(found["from_scale"].value, 6)
    (1.0, 3.141593)
    """
    speeds = np.abs(finite("omega", array("omega", omega), np.float64))
    fastest = float(speeds.max(initial=0.0))
    count = float(np.count_nonzero(positive("scale", scale) * speeds > math.pi))
    return {
        "aliased": exact(count, "number of channels with scale |w| > pi", scale=scale, channels=speeds.size),
        "from_scale": exact(math.pi / fastest if fastest else math.inf, "pi / max |w|", channels=speeds.size),
    }


def unseen_chords(trained: Array, tested: Array, *, causal: bool = True) -> Array:
    """Return, for each channel, the largest distance of an angle in the test from the nearest angle in training.

    The distance of two angles is the chord between their points on the unit circle, at most 2. Angles are taken
    relative to the first token. So if angles are linear in the position, the angles of the lags 0 .. N-1 are used. On a
    grid, the angles between the first cell and every other cell are used.

    Parameters
    ----------
    trained, tested : (H or 1, N, R/2), (H or 1, N', R/2)
        The slot `angles` at both lengths.
    causal : bool
        Whether the model has a causal mask. Without a mask, training also sees every angle with the opposite sign.

    Returns
    -------
    (H or 1, R/2)

    Examples
    --------
    >>> import fastpe
    >>> short, long = (fastpe.build("rope", n, dim=4)["angles"] for n in (50, 100))
    >>> unseen_chords(short, long).round(3).tolist()
    [[0.035, 0.495]]
    """
    trained, tested = _angles("trained", trained), _angles("tested", tested)
    heads, _, channels = trained.shape
    if tested.shape[::2] != (heads, channels):
        raise ValueError(
            f"tested must have the heads and channels of trained, {trained.shape}, but has shape {tested.shape}"
        )
    found = np.empty((heads, channels))
    for head, channel in np.ndindex(heads, channels):
        seen, asked = (_wrapped(each[head, :, channel] - each[head, 0, channel]) for each in (trained, tested))
        found[head, channel] = _farthest(seen if causal else np.concatenate([seen, -seen]), asked)
    return found


def _farthest(seen: Array, asked: Array) -> float:
    """Return the largest chord from a tested angle to the nearest angle seen in training."""
    ordered = np.sort(seen)
    round_about = np.concatenate([ordered[-1:] - TURN, ordered, ordered[:1] + TURN])
    after = np.searchsorted(round_about, asked).clip(1, len(round_about) - 1)
    apart = np.minimum(np.abs(asked - round_about[after - 1]), np.abs(round_about[after] - asked))
    return float(2.0 * np.sin(np.minimum(apart, math.pi) / 2.0).max())


def unseen(trained: Array, tested: Array, *, causal: bool = True, seen: float = SEEN) -> dict[str, Value]:
    """Count the channels with angles in a longer text that training never saw.

    The other arguments are those of `unseen_chords`.

    Parameters
    ----------
    seen : float
        The chord up to which an angle counts as seen.

    Returns
    -------
    dict
        - "channels": the number of channels with a chord larger than `seen`;
        - "largest" and "rms": the largest chord and the root mean square of the chords over all channels.

    Source: Q12.

    Examples
    --------
    >>> import fastpe
    >>> short, long = (fastpe.build("rope", n, dim=64)["angles"] for n in (50, 100))
    >>> {name: round(value.value, 6) for name, value in unseen(short, long).items()}
    {'channels': 17.0, 'largest': 1.739006, 'rms': 0.620308}
    """
    at_least_zero("seen", seen)
    chords = unseen_chords(trained, tested, causal=causal)
    inputs = {"train_length": np.shape(trained)[1], "length": np.shape(tested)[1], "causal": causal}
    return {
        "channels": exact(
            float(np.count_nonzero(chords > seen)), f"number of channels with a chord above {seen:g}", **inputs,
            channels=chords.size,
        ),
        "largest": exact(float(chords.max()), "the largest chord over all channels", **inputs),
        "rms": exact(float(np.sqrt(np.mean(chords**2))), "root mean square of the chords over all channels", **inputs),
    }  # fmt: skip


def similarity(angles: Array, growth: Array | None = None) -> Array:
    """Return, for each lag, the score of a query and an equal key at the first position, divided by that at lag 0.

    Parameters
    ----------
    angles : (H or 1, N, R/2)
    growth : (N, R/2), optional
        The slot `growth` of xPos.

    Returns
    -------
    (H or 1, N)
        The mean over channels of cos(angle), times the factors of `growth`; 1 at the first token.

    Examples
    --------
    >>> import fastpe
    >>> similarity(fastpe.build("rope", 50, dim=64)["angles"]).min().round(6)
    np.float64(0.453664)
    """
    angles = _angles("angles", angles)
    found = np.empty(angles.shape[:2])
    for first in range(0, angles.shape[1], step := _rows(angles)):
        part = slice(first, first + step)
        waves = np.cos(angles[:, part] - angles[:, :1])
        if growth is not None:
            waves *= np.exp(growth[part] - growth[0])
        found[:, part] = waves.mean(axis=-1)
    return found


def least_similarity(angles: Array, growth: Array | None = None) -> Value:
    """Return the least value of `similarity` over all tokens and heads.

    Parameters
    ----------
    angles, growth
        The same as for `similarity`.

    Examples
    --------
    >>> import fastpe
    >>> round(least_similarity(fastpe.build("rope", 50, dim=64)["angles"]).value, 6)
    0.453664
    """
    found = similarity(angles, growth)
    return exact(
        float(found.min()), "the smallest mean of cos(angle) over channels", length=found.shape[1], heads=found.shape[0]
    )


def first_negative_lag(omega: Array, *, decay: Array | None = None, limit: int = MOST_LAGS) -> Value | None:
    """Return the first lag at which an equal query and key have a negative score, sum_t cos(w_t k) < 0, in any head.

    Xu et al. (2024) use this lag as an estimate of the length up to which a model works. This is a heuristic, not a
    theorem.

    Parameters
    ----------
    omega : (H or 1, R/2)
        Frequencies, as `frequencies` returns them.
    decay : (R/2,), optional
        Natural logarithm of the factor per lag for each channel. For xPos it is growth[1] - growth[0].
    limit : int
        The last lag to try.

    Returns
    -------
    Value or None
        None if no lag up to the limit has a negative score.

    Source: Q12.

    Examples
    --------
    >>> first_negative_lag(10000.0 ** -(np.arange(32.0) / 32)[None]).value
    725.0
    """
    omega = np.atleast_2d(finite("omega", array("omega", omega), np.float64))
    limit = whole("limit", limit, 1)
    step = max(1, _BLOCK // omega.size)
    for first in range(1, limit + 1, step):
        lags = np.arange(first, min(first + step, limit + 1), dtype=np.float64)
        waves = np.cos(omega[:, None] * lags[:, None])
        sums = (waves if decay is None else waves * np.exp(decay * lags[:, None])).sum(axis=-1).min(axis=0)
        if (sums < 0.0).any():
            place = int(np.argmax(sums < 0.0))
            return exact(
                float(lags[place]), "all smaller lags were tried; a heuristic for the usable length", limit=limit,
                sum=float(sums[place]), channels=omega.shape[1],
            )  # fmt: skip
    return None


def _angles(name: str, angles: Array) -> Array:
    found = finite(name, array(name, angles), np.float64)
    if found.ndim != 3 or not found.size:
        raise ValueError(f"{name} must have shape (heads or 1, positions, channels), of one sample, not {found.shape}")
    return found


def _rows(angles: Array) -> int:
    """Return the number of positions in a block of angles."""
    return max(1, _BLOCK // (angles.shape[0] * angles.shape[2]))


def _wrapped(angles: Array) -> Array:
    """Return the same angles in [-pi, pi]."""
    found: Array = angles - TURN * np.round(angles / TURN)
    return found
