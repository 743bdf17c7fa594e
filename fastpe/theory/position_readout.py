"""Readouts of the position from hidden states by least squares and by linear discriminant analysis."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CLIP = 1e-6  # the smallest probability that the classifier gives to a position
_RIDGE_LINEAR, _RIDGE = 1e-9, 1e-3  # ridge penalties for standardised channels
_CONSTANT = 1e-9  # a channel that varies by less than this share of its size counts as constant


class Moments:
    """Sums over the training sequences of a readout. The memory for them does not grow with the number of sequences."""

    def __init__(self, states: Array) -> None:
        self.shift = states.mean(axis=(0, 1))
        self.count, self.sums = 0, np.zeros(states.shape[1:])
        self.products = np.zeros((states.shape[2], states.shape[2]))

    def add(self, states: Array) -> None:
        """Add states of the shape (sequences, n, channels) to the sums."""
        moved = states - self.shift
        self.count += len(moved)
        self.sums += moved.sum(axis=0)
        flat = moved.reshape(-1, moved.shape[-1])
        self.products += flat.T @ flat


class Readout:
    """A linear readout of the position and a linear discriminant classifier, fitted to the moments of hidden states.

    Parameters
    ----------
    moments : Moments

    Attributes
    ----------
    scale : float
        The inverse temperature by which the scores of the classifier are multiplied. The caller sets this attribute.
    """

    def __init__(self, moments: Moments) -> None:
        n, channels = moments.sums.shape
        means = moments.sums / moments.count
        centre = means.mean(axis=0)
        second = moments.products / (moments.count * n)
        total = second - np.outer(centre, centre)
        spread = np.sqrt(np.maximum(np.diag(total), 0.0))
        sizes = np.sqrt(np.diag(second)) + np.abs(moments.shift)
        self._scale = np.where(spread > _CONSTANT * sizes, spread, np.inf)  # constant channels carry no information
        self._centre = moments.shift + centre
        means = (means - centre) / self._scale
        both = np.outer(self._scale, self._scale)
        within = total / both - means.T @ means / n
        identity = np.eye(channels)
        self._directions = np.linalg.solve(within + _RIDGE * identity, means.T)
        self._offsets = -0.5 * np.einsum("pc,cp->p", means, self._directions)
        places = np.arange(n) - (n - 1) / 2
        self._weights = np.linalg.solve(total / both + _RIDGE_LINEAR * identity, means.T @ places / n)
        self._middle, self.scale = (n - 1) / 2, 1.0

    def positions(self, states: Array) -> Array:
        """Return the positions that the linear readout predicts, (sequences, n)."""
        found: Array = self._middle + (states - self._centre) / self._scale @ self._weights
        return found

    def losses(self, states: Array, scales: Array) -> Array:
        """Return the mean cross entropy of each sequence for scores multiplied by each scale, (scales, sequences)."""
        scores = (states - self._centre) / self._scale @ self._directions + self._offsets
        scores -= scores.max(axis=-1, keepdims=True)
        n = scores.shape[-1]
        own = np.einsum("spp->sp", scores)
        found = np.empty((len(scales), len(scores)))
        for row, scale in zip(found, scales, strict=True):
            chances = np.exp(scale * own) / np.exp(scale * scores).sum(axis=-1)
            row[:] = -np.log((1.0 - n * CLIP) * chances + CLIP).mean(axis=1)
        return found


def plug_in(codes: Array, bins: int) -> tuple[Array, float]:
    """Return one number per sequence, whose mean is the plug-in estimate of I(position; code), and a bound on the bias.

    `codes`, (sequences, n), are bin numbers. The estimate is too high on average, by at most (bins - 1)(n - 1) / 2m for
    m = sequences * n codes (Miller 1955).
    """
    sequences, n = codes.shape
    counts = np.stack([np.bincount(column, minlength=bins) for column in codes.T])
    ratios = np.log(np.maximum(counts, 1) * n / np.maximum(counts.sum(axis=0), 1))
    each: Array = np.take_along_axis(ratios, codes.T, axis=1).mean(axis=0)
    return each, (bins - 1) * (n - 1) / (2 * sequences * n)
