"""Sums of e^bias over all distances, in closed form, for biases that fall fast enough for a finite sum."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from fastpe.base.validation import real, whole
from fastpe.encodings.catalogue import entry
from fastpe.encodings.registry import resolve, split

_MP = mpmath.MPContext()  # a separate context: other users of mpmath cannot change its precision
_MP.dps = 30
_SUMMED = 1024  # number of terms that are added one by one; an integral approximates the others
_LEAST = 0.01  # the authors of KERPLE raise smaller parameters to this value

_BOUNDED = {
    "beit_bias": "a finite table of numbers",
    "crossformer_bias": "a network whose last units are normalised",
    "fire": "a network of a normalised distance in [0, 1]",
    "geodesic": "no two points of a sphere are farther apart than half its circumference",
    "graphormer": "a finite table of numbers",
    "irpe": "a finite table of numbers",
    "li_eq5": "all distances beyond the clipping distance share one number",
    "moirai": "one number for the series of the query, and one for all others",
    "rbf_distance": "a network of Gaussians, which vanish far away",
    "rrwp": "a map of probabilities",
    "sandwich": "a sum of dbar/2 cosines",
    "swin_bias": "a finite table of numbers",
    "swinv2_cpb": "16 times a sigmoid",
    "t5": "all distances of at least max_distance share one number",
    "tener": "a vector times sinusoids",
    "transformer_xl": "a vector times a map of sinusoids",
    "tupe": "a finite table of numbers",
}


@dataclass(frozen=True)
class Decay:
    """The sum over all distances of e^bias, for a bias that is 0 at distance 0.

    Attributes
    ----------
    total : mpf
        The sum.
    moment : mpf
        The sum of -bias * e^bias.
    tail : function
        Maps a distance to the sum over this distance and all larger ones.
    """

    total: Any
    moment: Any
    tail: Callable[[int], Any]

    def both_sides(self) -> "Decay":
        """Return the sums for a query with keys before and after it, if the bias is the same on both sides.

        The tail of a distance is the sum over the keys at this distance or farther, on both sides.

        >>> float(decay_of("alibi", slope=math.log(2.0))[0].both_sides().total)
        3.0
        """
        return Decay(2 * self.total - 1, 2 * self.moment, lambda far: 2 * self.tail(far) - (far == 0))

    def perplexity(self) -> float:
        """Return exp of the entropy of the weights e^bias / total.

        >>> decay_of("alibi", slope=0.5)[0].perplexity().__round__(6)
        5.493135
        """
        return float(self.total * _MP.exp(self.moment / self.total))

    def least(self, small: Callable[[Any], bool]) -> int | float:
        """Return the smallest distance whose tail is accepted by `small`, or infinity if the distance exceeds 2^1000.

        >>> decay_of("alibi", slope=0.5)[0].least(lambda tail: tail < 1.0)
        2
        """
        if small(self.tail(0)):
            return 0
        low, high = 0, 1
        while not small(self.tail(high)):
            low, high = high, 2 * high
            if high > 2**1000:
                return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if small(self.tail(middle)) else (middle, high)
        return high


def decay_of(scheme: str, **parameters: Any) -> tuple[Decay | None, str | None]:
    """Return the sum of e^bias over all distances for one head, and why it is finite or infinite.

    Parameters
    ----------
    scheme : str
        Key of an encoding, or several keys joined by "+".
    **parameters : float
        Parameters of one head:

        - alibi: `slope` and, if it is not "constant", `schedule`;
        - hard_alibi: `seen`, the number of keys in the window, which may be infinite;
        - kerple_log: `r1` and `r2`;
        - kerple_power: `a` and `p`.

        Other encodings need no parameters, since their biases are bounded for any learned values.

    Returns
    -------
    decay : Decay or None
        None if the sum is infinite or not known.
    why : str or None
        The reason, or None if it is not known whether the sum is finite. This is not known for

        - registered encodings that fill a bias;
        - `dynamic_bias`, whose network may fall or grow without bound;
        - several added biases if at least one of them falls without bound, although the sum is finite if it is finite
          for one of them.

    Raises
    ------
    TypeError, ValueError
        If a parameter is missing, unknown or not a number.

    Source: Q7. Let osc be the largest bias minus the smallest. If osc is bounded, each of n keys has a weight between
    e^-osc / n and e^osc / n, so the weight of every key tends to 0 as n grows.

    Examples
    --------
    >>> decay, why = decay_of("kerple_log", r1=2.0, r2=1.0)
    >>> float(decay.total).__round__(6), why
    (1.644934, 'finite: (1 + r2 D)^-r1 sums to a Hurwitz zeta function for r1 > 1')
    >>> decay_of("nope")
    (None, 'infinite: no bias, so equal weights')
    """
    parts = [part for part in split(resolve(scheme)) if {"bias", "scores", "index"} & set(entry(part).slots)]
    falling = [part for part in parts if part in FALLING]
    wanted = FALLING[falling[0]][0] if len(falling) == 1 else ()
    if len(falling) == 1 and (set(parameters) - {"schedule"} != set(wanted)):
        raise ValueError(f"{scheme!r} needs the parameters {list(wanted)} of one head, not {sorted(parameters)}")
    if not falling and parameters:
        raise ValueError(f"{scheme!r} takes no parameters here, not {sorted(parameters)}")
    if not parts:
        return None, "infinite: no bias, so equal weights"
    if not falling and set(parts) <= set(_BOUNDED):
        return None, f"infinite: {' and '.join(_BOUNDED[part] for part in parts)}"
    if len(parts) == 1 and falling:
        return FALLING[falling[0]][1](**parameters)
    return None, None


def _alibi(slope: float, schedule: str = "constant") -> tuple[Decay | None, str]:
    if schedule != "constant":
        return None, "infinite: the slope falls to 0 as the text grows"
    if real("slope", slope) <= 0.0:
        return None, "infinite: with a slope of 0 or below the bias does not fall"
    alpha = _MP.mpf(slope)
    rest = -_MP.expm1(-alpha)
    total = 1 / rest
    moment = alpha * _MP.exp(-alpha) / rest**2
    return Decay(total, moment, lambda far: _MP.exp(-alpha * far) / rest), "finite: e^(-slope D) is a geometric series"


def _hard_alibi(seen: float) -> tuple[Decay | None, str]:
    if seen == math.inf:
        return None, "infinite: a head without a window has no bias"
    count = _MP.mpf(whole("seen", seen, 1))
    return Decay(count, _MP.mpf(0), lambda far: max(count - far, _MP.mpf(0))), "finite: no key beyond the window"


def _kerple_log(r1: float, r2: float) -> tuple[Decay | None, str]:
    power, rate = (_MP.mpf(max(_LEAST, real(name, value))) for name, value in (("r1", r1), ("r2", r2)))
    if power <= 1:
        return None, "infinite: (1 + r2 D)^-r1 has no finite sum for r1 <= 1"
    first, factor = 1 / rate, rate**-power

    def tail(far: int) -> Any:
        return factor * _MP.zeta(power, first + far)

    moment = power * (_MP.log(rate) * tail(0) - factor * _MP.zeta(power, first, 1))
    return Decay(tail(0), moment, tail), "finite: (1 + r2 D)^-r1 sums to a Hurwitz zeta function for r1 > 1"


def _kerple_power(a: float, p: float) -> tuple[Decay | None, str]:
    size, power = max(_LEAST, real("a", a)), min(2.0, max(_LEAST, real("p", p)))
    tail = functools.partial(_power_sum, size, power, 0)
    return Decay(tail(0), _power_sum(size, power, 1, 0), tail), "finite: e^(-a D^p) has a finite sum for p > 0"


def _power_sum(size: float, power: float, moment: int, far: int) -> Any:
    """Sum (a D^p)^moment e^(-a D^p) over D >= far.

    The first terms are added one by one. The Euler-Maclaurin formula gives the sum of the others.
    """
    a, p = _MP.mpf(size), _MP.mpf(power)
    summed = _SUMMED if far < 2**40 else 0  # beyond 2^40 neighbouring terms are so close that the formula is enough
    exponents = size * np.arange(far, far + summed, dtype=np.float64) ** power
    found = _MP.mpf(math.fsum(exponents**moment * np.exp(-exponents)))

    def term(distance: Any) -> Any:
        return (a * distance**p) ** moment * _MP.exp(-a * distance**p)

    last = _MP.mpf(far + summed)
    integral = _MP.gammainc(moment + 1 / p, a * last**p) / (p * a ** (1 / p))
    return found + integral + term(last) / 2 - _MP.diff(term, last) / 12 + _MP.diff(term, last, 3) / 720


FALLING: Mapping[str, tuple[tuple[str, ...], Callable[..., tuple[Decay | None, str]]]] = {
    "alibi": (("slope",), _alibi),
    "hard_alibi": (("seen",), _hard_alibi),
    "kerple_log": (("r1", "r2"), _kerple_log),
    "kerple_power": (("a", "p"), _kerple_power),
}
"""For each encoding whose sum depends on parameters of a head: their names, and the function that computes the sum."""


def head_parameters(scheme: str, slots: Mapping[str, Any], params: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return the arguments of `decay_of` for each head, from the slot `bias` or, for KERPLE, from `params`.

    Parameters
    ----------
    scheme : str
        Key of one encoding.
    slots : dict
        The slots that `fastpe.build` returns for 2 positions or more. For hard_alibi, the number of positions must be
        larger than the window. Otherwise the head is taken for one without a window.
    params : dict
        Parameters as `fastpe.init` or a trained model returns them.

    Returns
    -------
    list of dict
        One dict for each head, or a single empty dict if `decay_of` needs no arguments.

    Examples
    --------
    >>> import fastpe
    >>> head_parameters("alibi", fastpe.build("alibi", 9, heads=2), {})
    [{'slope': 0.0625}, {'slope': 0.00390625}]
    """
    if scheme not in FALLING:
        return [{}]
    names = FALLING[scheme][0]
    if scheme not in ("alibi", "hard_alibi"):
        heads = zip(*(params[name] for name in names), strict=True)
        return [dict(zip(names, map(float, each), strict=True)) for each in heads]
    bias = np.asarray(slots["bias"], np.float64)
    if scheme == "hard_alibi":
        past = bias[:, : bias.shape[1] // 2 + 1] == 0.0
        return [{"seen": math.inf if row.all() else int(row.sum())} for row in past]
    if (far := bias.shape[1] // 2) < 1:
        raise ValueError("slots['bias'] must be built for at least 2 positions, because the slope is a difference")
    return [{"slope": float(slope)} for slope in bias[:, far] - bias[:, far - 1]]
