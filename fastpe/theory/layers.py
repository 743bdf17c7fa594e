"""The norms of the linear maps and slots of each layer of a transformer, for Lipschitz constants."""

import math
from dataclasses import dataclass

from fastpe.base.validation import at_least_zero, choice, truth, whole

EPSILON = 1e-5  # added to the variance under the square root of a norm layer
# largest slopes, rounded up; that of the exact gelu is the value of Phi(t) + t phi(t) at t = sqrt 2
SLOPES = {"relu": 1.0, "gelu": 1.1289043, "gelu_tanh": 1.1289931, "swiglu": 1.0998394}


@dataclass(frozen=True)
class Head:
    """Norms of the maps and slots of one attention head, which determine its Lipschitz constant.

    A score is z_i A z_j^T, plus terms that are linear in one of the two tokens, plus terms that do not depend on the
    tokens. Biases on scores are left out, as they do not change the Lipschitz constant in the token norm (P5).

    Attributes
    ----------
    score : float
        |A|, including the scale, `gain`, `rel_gain` and the growth of xPos. If channels are rotated, |WQ| * |WK| takes
        the place of |WQ WK^T|.
    value : float
        The spectral norm |WV|.
    query, key : float
        A term that is linear in one token is the product of this token and a vector. `query` is the largest norm of the
        vectors that multiply the query's token, and `key` that of the vectors that multiply the key's token. The slot
        `rel_key` adds |WQ| * B_r * scale to `query`, where B_r is the largest norm of its vectors. `rel_query`,
        `key_bias` and the bias of the query map add to `key` in the same way.
    constant : float
        Bound of the terms of a score that do not depend on the tokens, such as the product of the bias of a map and a
        vector of the offset.
    shift : float
        Largest norm of a row of `qk_table`, which is added to the tokens that query and key see.
    added : float
        B_v, the largest norm of a vector of `rel_value`.
    """

    score: float
    value: float
    query: float = 0.0
    key: float = 0.0
    constant: float = 0.0
    shift: float = 0.0
    added: float = 0.0

    def largest_score(self, radius: float) -> float:
        """Return S, the largest size of a score without its bias, for tokens of norm at most `radius`."""
        seen = radius + self.shift
        return self.score * seen * seen + (self.query + self.key) * seen + self.constant

    def slopes(self, radius: float) -> tuple[float, float, float]:
        """Return three slopes. Lipschitz constants are sums of these slopes.

        They say how much the output of the head changes if the key's token changes, through its value and through its
        score, and if the query's token changes, through its scores.
        """
        seen, spread = radius + self.shift, self.value * radius + self.added
        return self.value, spread * (self.score * seen + self.key), spread * (self.score * seen + self.query)


@dataclass(frozen=True)
class Norm:
    """A layer norm or RMS norm: its largest gain, the norm of its biases, its width, and its smallest divisor."""

    gain: float
    bias: float
    width: int
    deviation: float = math.sqrt(EPSILON)

    def slope(self) -> float:
        """Return the Lipschitz constant max|g| / sqrt(eps), which is 316.2 for unit gain.

        >>> round(Norm(1.0, 0.0, 64).slope(), 6)
        316.227766
        """
        return self.gain / self.deviation

    def radius(self) -> float:
        """Return the largest norm of an output for any input: sqrt(d) max|g| + |beta|."""
        return math.sqrt(self.width) * self.gain + self.bias


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward layer: spectral norms of its maps and norms of their biases; only "swiglu" has a `gate`."""

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
        """Return the Lipschitz constant on tokens of norm at most `radius`. The radius matters only for "swiglu"."""
        steepest = SLOPES[self.activation]
        if self.activation != "swiglu":
            return steepest * self.widen * self.narrow
        gates, hidden = self._sizes(radius)
        return self.narrow * (steepest * hidden * self.gate + gates * self.widen)

    def radius(self, radius: float) -> float:
        """Return a bound on the norm of an output for tokens of norm at most `radius`."""
        gates, hidden = self._sizes(radius)
        return self.narrow * hidden * (gates if self.activation == "swiglu" else 1.0) + self.narrow_bias

    def _sizes(self, radius: float) -> tuple[float, float]:
        return self.gate * radius + self.gate_bias, self.widen * radius + self.widen_bias


@dataclass(frozen=True)
class Layer:
    """One layer: its heads, and its parts after attention.

    `out` is |WO|, and `out_bias` is the norm of the constant that attention adds.
    """

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
    """Return layers without biases or norms in which all maps have the spectral norm C_W (Li 2025, section 4.2).

    Parameters
    ----------
    count : int
        Number of layers.
    weight : float
        C_W, the spectral norm of all maps.
    head_width : int
        Channels of a head; scores are divided by its square root.
    heads : int
        Number of heads of a layer.
    residual : bool
        Whether the layers have residual connections.

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
