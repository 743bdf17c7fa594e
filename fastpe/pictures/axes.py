"""The words on axes and the format of numbers, which are equal in figures, SVG, pages and on the terminal."""

import math

LENGTH = "sequence length"
POSITION = "position"
OFFSET = "key position - query position"
DISTANCE = "distance (positions)"
PAIR = "pair of channels"
ADDED = "added to the score"
LOSS = "loss (nats/token)"
BITS = "bits/character"
ERROR = "mean squared error"
EXACT = "exact answers (%)"
OF_METRIC = {"exact": EXACT, "mse": ERROR, "bits_per_byte": "loss (bits/byte)", "loss": "loss (nats/token)"}
"""The axis of each metric that tasks are judged by."""


def logarithmic(name: str) -> str:
    """Return the name of an axis whose scale is logarithmic.

    >>> logarithmic("loss (nats/token)"), logarithmic("epoch")
    ('loss (nats/token, log scale)', 'epoch (log scale)')
    """
    return f"{name[:-1]}, log scale)" if name.endswith(")") else f"{name} (log scale)"


def number(value: float) -> str:
    """Return a number with three significant digits; "-" if it is not finite.

    >>> number(0.123456), number(12345.6), number(-0.0), number(float("nan"))
    ('0.123', '12,346', '0', '-')
    """
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value + 0.0:.3g}"  # + 0.0 turns -0 into 0
