"""Certified Lipschitz constants of transformers, and the decay of the influence of far tokens (P5, P8)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.base.validation import at_least_zero, positive, whole
from fastpe.theory.layers import Head, Layer
from fastpe.theory.value import Value, certified, exact

NORMS = ("token", "frobenius")
_MOST_EXPONENT = 700.0


@dataclass(frozen=True)
class Bounds:
    """Certified Lipschitz constants of single layers and of the whole stack.

    Attributes
    ----------
    norm : str
        How changes of the tokens are measured. "token": by the norm of the change of one token, the largest of all.
        "frobenius": by the Frobenius norm of the changes of all tokens.
    layers : tuple of Value
        The constant of each layer.
    product : Value
        The constant of all layers together.
    radii : tuple of float
        For each layer, a bound of the norms of the tokens that enter it. The last number is a bound for the tokens that
        leave the last layer.
    """

    norm: str
    layers: tuple[Value, ...]
    product: Value
    radii: tuple[float, ...]


def largest_column_sum(scores: float, colmax: float, length: int) -> Value:
    """Return kappa of proof P5, a bound on the largest column sum of the attention weights: min(N, e^{2S} colmax).

    Parameters
    ----------
    scores : float
        S, a bound of all scores without their bias.
    colmax : float
        The largest column sum of the softmax of the bias, without content.
    length : int
        Number N of keys.

    Returns
    -------
    Value
        Certified from above.

    Examples
    --------
    >>> largest_column_sum(0.0, 1.034686, 50).value, largest_column_sum(9.0, 1.034686, 50).value
    (1.034686, 50.0)
    """
    scores, colmax = at_least_zero("scores", scores), at_least_zero("colmax", colmax)
    high = min(float(whole("length", length, 1)), _exp(2.0 * scores) * colmax)
    return certified("min(N, e^{2S} colmax(P0)), P5", high=high, scores=scores, colmax=colmax, length=length)


def stack_bounds(
    layers: Sequence[Layer], radius: float | Sequence[float], *, colmax: float | None = None, length: int | None = None
) -> Bounds:
    """Return Lipschitz constants of layers on tokens of bounded norm (proof P5).

    On tokens of unbounded norm no constant exists (see the example of `attention_jacobian`, and Kim, Papamakarios, Mnih
    2021, arXiv:2006.04710). In the token norm the constants depend neither on the bias nor on the number of tokens.

    Parameters
    ----------
    layers : sequence of Layer
    radius : float or sequence of float
        If it is a number: a bound of the norms of the tokens that enter the first layer, from which the bounds for the
        next layers follow. If it is a sequence: one measured norm for each layer. In this case the constants hold only
        for derivatives at the measured tokens.
    colmax : float, optional
        The largest column sum, over heads, of the softmax of the bias, without content. If it is given, the constants
        are those of the Frobenius norm.
    length : int, optional
        Number of tokens; needed with `colmax`.

    Returns
    -------
    Bounds

    Raises
    ------
    ValueError, TypeError
        If a size is negative or not finite, or one of `colmax` and `length` is given without the other.

    Examples
    --------
    >>> from fastpe.theory.layers import equal_layers
    >>> stack_bounds(equal_layers(2), 9.0).product.high
    29014.0
    >>> stack_bounds(equal_layers(2, residual=False), 9.0).product.high
    451.5625
    """
    layers = _checked(layers)
    if (colmax is None) != (length is None):
        raise ValueError(f"colmax and length must be given together, not colmax={colmax} and length={length}")
    given = _radii(radius, len(layers))
    values, radii, entering = list[Value](), list[float](), given[0]
    for layer, measured in zip(layers, given, strict=True):
        entering = entering if measured is None else measured
        high, leaving = _layer(layer, entering, colmax, length)
        values.append(certified("P5: attention followed by the feed-forward layer", high=high, radius=entering))
        radii.append(entering)
        entering = leaving
    product = certified(
        "product of the constants of all layers, P5",
        high=math.prod(each.value for each in values),
        layers=len(values),
        radius=radii[0],
    )
    return Bounds(NORMS[colmax is not None], tuple(values), product, (*radii, entering))


def _radii(radius: Any, count: int) -> list[Any]:
    if not isinstance(radius, Sequence | np.ndarray):
        return [at_least_zero("radius", radius), *[None] * (count - 1)]
    if len(radius) != count:
        raise ValueError(f"radius must be one number, or {count} numbers, one for each layer, not {len(radius)}")
    return [at_least_zero("radius", float(each)) for each in radius]


def _layer(layer: Layer, radius: float, colmax: float | None, length: int | None) -> tuple[float, float]:
    """Return the constant of the layer, and a bound of the norms of its outputs."""
    seen = radius if layer.norm1 is None else layer.norm1.radius()
    attention = layer.out * math.hypot(*(_head(head, seen, colmax, length) for head in layer.heads))
    attention *= 1.0 if layer.norm1 is None else layer.norm1.slope()
    feedforward, leaving = _after(layer, radius)
    return (float(layer.residual) + attention) * feedforward, leaving


def _after(layer: Layer, radius: float) -> tuple[float, float]:
    """Return the constant of the parts after attention, and a bound of the norms of their outputs."""
    steps = float(layer.residual)
    seen = radius if layer.norm1 is None else layer.norm1.radius()
    mixed = layer.out * math.hypot(*(head.value * seen + head.added for head in layer.heads)) + layer.out_bias
    radius = steps * radius + mixed
    seen = radius if layer.norm2 is None else layer.norm2.radius()
    slope = layer.feedforward.slope(seen) * (1.0 if layer.norm2 is None else layer.norm2.slope())
    return steps + slope, steps * radius + layer.feedforward.radius(seen)


def _head(head: Head, radius: float, colmax: float | None, length: int | None) -> float:
    """Return the constant of a head in the Frobenius norm, or without `colmax` in the token norm.

    In the token norm 1 takes the place of kappa, as each row of weights sums to 1.
    """
    of_columns = 1.0
    if colmax is not None and length is not None:
        of_columns = math.sqrt(largest_column_sum(head.largest_score(radius), colmax, length).value)
    of_value, of_key, of_query = head.slopes(radius)
    return of_columns * (of_value + of_key) + of_query


def influence_constant(layers: Sequence[Layer], radius: float) -> Value:
    """Return c of proof P8: the product over layers of the largest effect of one token, without decay by distance.

    Parameters
    ----------
    layers : sequence of Layer
        The layers of a causal model.
    radius : float
        Bound of the norms of the tokens that enter the first layer.

    Returns
    -------
    Value
        Certified from above.

    Examples
    --------
    >>> from fastpe.theory.layers import equal_layers
    >>> round(influence_constant(equal_layers(2), 1.0).value, 9)
    2593.412126574
    """
    return certified(
        "the constant c of P8", high=_exp(_log_constant(layers, radius)), layers=len(layers), radius=radius
    )


def influence_bound(layers: Sequence[Layer], radius: float, slope: float, length: int) -> Value:
    """Bound the influence of a token on the token `length` - 1 positions later in a causal model with a linear bias.

    The bound is c * binom(n + L - 2, L - 1) * exp(-slope * (n - 1)), where n is the length and L the number of layers
    (proof P8). Consider the task of copying the first number, +1 or -1, to the last position. If embedding and head
    have norm 1, the error is at least 1 minus this bound. So no network solves this task at every length.

    Parameters
    ----------
    layers, radius
        The same as for `influence_constant`.
    slope : float
        The smallest slope of the heads, above 0.
    length : int
        Number n of tokens.

    Returns
    -------
    Value
        Certified from above.

    Examples
    --------
    >>> from fastpe.theory.layers import equal_layers
    >>> round(influence_bound(equal_layers(2), 1.0, 0.5, 25).value, 9)
    0.398361871
    """
    slope, length = positive("slope", slope), whole("length", length, 1)
    high = _exp(_log_influence(_log_constant(layers, radius), len(layers), slope, length))
    return certified("c binom(n + L - 2, L - 1) exp(-slope (n - 1)), P8", high=high, slope=slope, length=length)


def influence_length(layers: Sequence[Layer], radius: float, slope: float, below: float = 0.5) -> Value:
    """Return the smallest length from which on `influence_bound` is less than `below`.

    Parameters
    ----------
    layers, radius, slope
        The same as for `influence_bound`.
    below : float
        The limit, above 0.

    Returns
    -------
    Value
        Exact: at the length before this one the bound is at least `below`, and from this length on it only falls.

    Examples
    --------
    >>> from fastpe.theory.layers import equal_layers
    >>> [influence_length(equal_layers(2), 1.0, slope).value for slope in (0.5, 2**-8, 0.002)]
    [25.0, 4335.0, 8821.0]
    """
    slope, limit = positive("slope", slope), math.log(positive("below", below))
    constant, count = _log_constant(layers, radius), len(layers)

    def reached(length: int) -> bool:
        return _log_influence(constant, count, slope, length) < limit

    peak = 1 + math.floor((count - 1) / math.expm1(min(slope, _MOST_EXPONENT)))
    low, high = peak, peak + 1
    while not reached(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    found = 1 if reached(peak) else high
    return exact(float(found), "from the length of its maximum on, the bound of P8 decreases", slope=slope, below=below)


def _log_constant(layers: Sequence[Layer], radius: float) -> float:
    """Return ln c. The factor of a layer is the larger of two effects of a token: on itself, and on a later token.

    The effect on a later token is taken without decay by distance.
    """
    layers, total = _checked(layers), 0.0
    for layer, entering in zip(layers, stack_bounds(layers, radius).radii, strict=False):
        seen = entering if layer.norm1 is None else layer.norm1.radius()
        slope = layer.out * (1.0 if layer.norm1 is None else layer.norm1.slope())
        near, far = list[float](), list[float]()
        for head in layer.heads:
            of_value, of_key, of_query = head.slopes(seen)
            near.append(of_value + 2.0 * of_key + of_query)
            far.append(_log(of_value + 2.0 * of_key) + 2.0 * head.largest_score(seen))
        top = max(far)
        of_far = (
            _log(slope) + top + 0.5 * _log(sum(math.exp(2.0 * (each - top)) for each in far))
            if top > -math.inf
            else top
        )
        of_near = _log(float(layer.residual) + slope * math.hypot(*near))
        total += max(of_near, of_far) + _log(_after(layer, entering)[0])
    return total


def _log_influence(constant: float, layers: int, slope: float, length: int) -> float:
    paths = math.lgamma(length + layers - 1) - math.lgamma(layers) - math.lgamma(length)
    return constant + paths - slope * (length - 1)


def _checked(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    if not layers or not all(isinstance(layer, Layer) for layer in layers):
        raise ValueError(f"layers must be a sequence of at least one Layer, such as equal_layers(2), not {layers!r}")
    return tuple(layers)


def _log(number: float) -> float:
    return math.log(number) if number > 0.0 else -math.inf


def _exp(power: float) -> float:
    return math.exp(power) if power < _MOST_EXPONENT else math.inf
