"""The norms of a transformer's maps and slots by layer, from which Lipschitz constants are computed."""

import math
from dataclasses import dataclass

from fastpe.base.validation import at_least_zero, choice, truth, whole

EPSILON = 1e-5  # under the root of a norm
# largest slopes, rounded up: of the exact gelu Phi(t) + t phi(t) at t = sqrt 2
SLOPES = {"relu": 1.0, "gelu": 1.1289043, "gelu_tanh": 1.1289931, "swiglu": 1.0998394}


@dataclass(frozen=True)
class Head:
    """What the constant of one attention head depends on: norms of its maps and of the slots that meet them.

    A score is z_i A z_j^T plus terms linear in one token plus constants. Constant biases are not here: they change no
    constant of the token norm (proof P5).

    Attributes
    ----------
    score : float
        |A|, scale, `gain`, `rel_gain` and growth of xPos included; where channels are rotated |WQ| |WK| scale.
    value : float
        |WV|, spectral.
    query, key : float
        Largest norms of what the query's and the key's token meet beside each other: of `rel_key` |WQ| B_r scale; of
        `rel_query`, `key_bias` and a query map's bias likewise for the key.
    constant : float
        Bound of what a score has beside content and bias, such as a map's bias times a vector of the offset.
    shift : float
        Largest row of `qk_table`: added to the tokens that query and key see.
    added : float
        Largest vector of `rel_value`, B_v.
    """

    score: float
    value: float
    query: float = 0.0
    key: float = 0.0
    constant: float = 0.0
    shift: float = 0.0
    added: float = 0.0

    def largest_score(self, radius: float) -> float:
        """S: no score is farther than this from its bias, for tokens of at most that norm."""
        seen = radius + self.shift
        return self.score * seen * seen + (self.query + self.key) * seen + self.constant

    def slopes(self, radius: float) -> tuple[float, float, float]:
        """By the key's value, by its score and by the query's score, of which the head's constants are sums."""
        seen, spread = radius + self.shift, self.value * radius + self.added
        return self.value, spread * (self.score * seen + self.key), spread * (self.score * seen + self.query)


@dataclass(frozen=True)
class Norm:
    """A layer norm or RMS norm: largest gain, norm of its biases, width, and the least deviation it divides by."""

    gain: float
    bias: float
    width: int
    deviation: float = math.sqrt(EPSILON)

    def slope(self) -> float:
        """Its Lipschitz constant, max|g| / sqrt(var + eps); 316.2 at unit gain and any input.

        >>> round(Norm(1.0, 0.0, 64).slope(), 6)
        316.227766
        """
        return self.gain / self.deviation

    def radius(self) -> float:
        """The largest norm of what it returns, whatever it is given: sqrt(d) max|g| + |beta|."""
        return math.sqrt(self.width) * self.gain + self.bias


@dataclass(frozen=True)
class FeedForward:
    """Spectral norms of its maps and norms of their biases; `gate` is that of "swiglu"."""

    widen: float
    narrow: float
    widen_bias: float = 0.0
    narrow_bias: float = 0.0
    activation: str = "relu"
    gate: float = 0.0
    gate_bias: float = 0.0

    def __post_init__(self) -> None:
        choice("activation", self.activation, tuple(SLOPES))

    def slope(self, radius: float) -> float:
        """Its Lipschitz constant on tokens of at most that norm; but for "swiglu" it does not depend on it."""
        steepest = SLOPES[self.activation]
        if self.activation != "swiglu":
            return steepest * self.widen * self.narrow
        gates, hidden = self._sizes(radius)
        return self.narrow * (steepest * hidden * self.gate + gates * self.widen)

    def radius(self, radius: float) -> float:
        """The largest norm of what it returns."""
        gates, hidden = self._sizes(radius)
        return self.narrow * hidden * (gates if self.activation == "swiglu" else 1.0) + self.narrow_bias

    def _sizes(self, radius: float) -> tuple[float, float]:
        return self.gate * radius + self.gate_bias, self.widen * radius + self.widen_bias


@dataclass(frozen=True)
class Layer:
    """One layer: its heads, |WO|, the norm of what attention adds whatever the tokens, and what follows."""

    heads: tuple[Head, ...]
    out: float
    feedforward: FeedForward
    out_bias: float = 0.0
    residual: bool = True
    norm1: Norm | None = None
    norm2: Norm | None = None


def equal_layers(
    count: int, weight: float = 1.0, head_width: int = 64, heads: int = 1, residual: bool = True
) -> tuple[Layer, ...]:
    """Layers all of whose maps have the same spectral norm C_W, without biases or norms (Li 2025, section 4.2).

    Examples
    --------
    >>> equal_layers(1)[0].heads[0].score
    0.125
    """
    weight, width = at_least_zero("weight", weight), whole("head_width", head_width, 1)
    head = Head(weight * weight / math.sqrt(width), weight)
    residual = truth("residual", residual)
    layer = Layer((head,) * whole("heads", heads, 1), weight, FeedForward(weight, weight), residual=residual)
    return (layer,) * whole("count", count, 1)
