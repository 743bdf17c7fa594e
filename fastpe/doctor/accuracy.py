"""Errors of fills in units in the last place, for the histogram of `fastpe doctor --accuracy`.

A unit in the last place (ULP) of x is the distance between neighbouring numbers of its dtype in the binade of x. The
number nearest to an exact value is at most 0.5 ULP away.

The exact values are computed here from the printed formulas with Python's `decimal` at 60 digits. This shares no code
with the fills; only the order of the functions in the wavelet columns comes from the encoding. The error of the exact
values is below 1e-40, and at 64 degrees below 1e-35.

Near a zero of a Legendre polynomial, and in tiny wavelet entries, the unit shrinks with the value, so errors in ULPs
are not bounded. For these entries, the pages of the encodings bound the absolute error. Encodings without an exact
formula in this module are compared with their NumPy reference, in float32 only.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from fastpe.encodings import build, registry
from fastpe.encodings.input import wavelet
from fastpe.encodings.parts.daubechies import scaling_filter
from fastpe.encodings.slots import make_spec
from fastpe.kernels.fills.trig import PI

Array = np.ndarray[Any, Any]
Request = dict[str, Any]

EDGES = (0.5, 0.51, 1.0, 2.0, 4.0)
"""Upper ends of the columns of the histogram. One more column counts larger errors."""
LIMITS = (
    "next to zeros of Legendre polynomials and in tiny wavelet entries, errors in these units are not bounded: "
    "the absolute bounds of `fastpe encodings legendre` and `fastpe encodings wavelet` hold"
)
_DIGITS = 60
_NOTHING = Decimal("1e-45")  # smaller values of a wavelet are rounding errors of 0
_SEED = 20250

# ---------------------------------------------------------------------------------------------------------------------
# Exact values: a request of `fastpe.build` -> the slot's entries in C order


def _points(request: Request) -> list[Decimal]:
    positions = request.get("positions")
    base = range(request["length"]) if positions is None else [float(p) for p in positions]
    return [Decimal(p + request.get("start", 0)) for p in base]


def sine_and_cosine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Return sine and cosine to about 50 digits, for angles up to 2**27, at 60 digits of precision."""
    turns = (angle / (PI / 2)).to_integral_value()
    x = angle - turns * (PI / 2)
    term, sums, n = Decimal(1), [Decimal(1), Decimal(0)], 0
    while term and term.adjusted() > -55:
        n += 1
        term = term * x / n
        sums[n % 2] += term if n % 4 < 2 else -term
    c, s = sums
    return ((s, c), (c, -s), (-s, -c), (-c, s))[int(turns) % 4]


def _sinusoidal(request: Request) -> Iterator[Decimal]:
    dim = request["dim"]
    omega = [Decimal(request.get("base", 10000)) ** (Decimal(-2 * t) / dim) for t in range((dim + 1) // 2)]
    for p in _points(request):
        for c in range(0, dim, 2):
            yield from sine_and_cosine(p * omega[c // 2])[: dim - c]


def _legendre(request: Request) -> Iterator[Decimal]:
    n = request["train_length"]
    for p in _points(request):
        inside = min(max(p, Decimal(0)), Decimal(n))
        growth = (2 * Decimal(request.get("gamma", 1)) * p / n).exp()
        x = {
            "tanh": lambda growth=growth: (growth - 1) / (growth + 1),
            "linear": lambda p=p: 2 * p / n - 1,
            "clamp": lambda inside=inside: 2 * inside / n - 1,
            "log": lambda inside=inside: 2 * (1 + inside).ln() / Decimal(1 + n).ln() - 1,
        }[request.get("map", "tanh")]()
        older, newer = Decimal(0), Decimal(1)
        for degree in range(request["dim"]):
            yield newer
            older, newer = newer, ((2 * degree + 1) * x * newer - degree * older) / (degree + 1)


def _alibi(request: Request) -> Iterator[Decimal]:
    heads, n = request["heads"], request["length"]
    whole = 1 << (heads - 1).bit_length()
    slopes = [Decimal(2) ** (Decimal(-8 * (h + 1)) / whole) for h in range(whole)]
    ordered = slopes if whole == heads else (slopes[1::2] + slopes[0::2])[:heads]
    for slope in ordered:
        for offset in range(1 - n, n):
            yield -slope * abs(offset)


def _learned(request: Request) -> Iterator[Decimal]:
    table, points = request["params"]["table"].astype(float).tolist(), _points(request)
    last, farthest = len(table) - 1, max(points)
    for p in points:
        place = p * last / farthest if request.get("beyond") == "interp" and farthest > last else min(p, Decimal(last))
        low = int(place)
        share = place - low
        for one, other in zip(table[low], table[min(low + 1, last)], strict=True):
            yield (1 - share) * Decimal(one) + share * Decimal(other)


def _wavelet(request: Request) -> Iterator[Decimal]:
    (part,) = registry.parse("wavelet", {"wavelet": request.get("wavelet", "db4")})
    spec = make_spec(request["length"], dim=request["dim"], train_length=request["train_length"])
    chosen = wavelet.columns(spec, **part.options)
    low = _daubechies(part.options["wavelet"])
    high = [(-1) ** k * c for k, c in enumerate(reversed(low))]
    integers = _at_integers(low)
    for p in _points(request):
        row = []
        found: dict[int, list[list[Decimal]]] = {}
        for kind, level, shift in zip(*(column.tolist() for column in chosen), strict=True):
            argument = Fraction(p) / 2**level
            if level not in found:
                found[level] = _phi_and_psi(argument - math.floor(argument), low, high, integers)
            place = math.floor(argument) - shift
            inside = kind > 0 and 0 <= place < len(integers)
            row.append(found[level][kind - 1][place] / Decimal(2**level).sqrt() if inside else Decimal(0))
        row = [value if abs(value) > _NOTHING else Decimal(0) for value in row]
        norm = sum((value * value for value in row), Decimal(0)).sqrt()
        yield from (value / norm if norm else value for value in row)


def _solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """Solve linear equations by Gaussian elimination with pivoting. A row holds the coefficients and the right side."""
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(len(rows)):
            if r != i and rows[r][i]:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def _daubechies(name: str) -> list[Decimal]:
    """Return the 2 p taps `sqrt(2) * h` of the wavelet "db1", "db2", ... with p = 1, 2, ...

    Newton's iteration solves the 2 p equations: p vanishing moments and p orthogonality identities.
    """
    low = [Decimal(float(h)) * Decimal(2).sqrt() for h in scaling_filter(name)]
    taps = range(len(low))
    for _ in range(4):
        equations = []
        for m in range(len(low) // 2):
            moment = [Decimal((-1) ** k * k**m) for k in taps]
            equations.append([*moment, -sum((a * c for a, c in zip(moment, low, strict=True)), Decimal(0))])
            shifted = [low[k + 2 * m] if k + 2 * m < len(low) else Decimal(0) for k in taps]
            slope = [shifted[k] + (low[k - 2 * m] if k >= 2 * m else 0) for k in taps]
            missing = (2 if m == 0 else 0) - sum(a * c for a, c in zip(shifted, low, strict=True))
            equations.append([*slope, Decimal(missing)])
        low = [c + step for c, step in zip(low, _solve(equations), strict=True)]
    return low


def _refined(taps: list[Decimal], digit: int, values: list[Decimal]) -> list[Decimal]:
    places = range(len(values))
    return [
        sum((taps[2 * a - b + digit] * values[b] for b in places if 0 <= 2 * a - b + digit < len(taps)), Decimal(0))
        for a in places
    ]


def _at_integers(low: list[Decimal]) -> list[Decimal]:
    """Return phi(0), phi(1), ..., which refinement with the digit 0 does not change and whose sum is 1."""
    count = len(low) - 1
    columns = [_refined(low, 0, [Decimal(int(a == b)) for a in range(count)]) for b in range(count)]
    equations = [[columns[b][a] - int(a == b) for b in range(count)] + [Decimal(0)] for a in range(1, count)]
    return _solve([[Decimal(1)] * (count + 1), *equations])


def _phi_and_psi(
    fraction: Fraction, low: list[Decimal], high: list[Decimal], integers: list[Decimal]
) -> list[list[Decimal]]:
    digits = []
    while fraction:
        digit, fraction = divmod(2 * fraction, 1)
        digits.append(int(digit))
    values = integers
    for digit in reversed(digits[1:]):
        values = _refined(low, digit, values)
    first = digits[0] if digits else 0
    return [_refined(low, first, values), _refined(high, first, values)]


_ORACLES: dict[str, Callable[[Request], Iterator[Decimal]]] = {
    "sinusoidal": _sinusoidal,
    "legendre": _legendre,
    "alibi": _alibi,
    "learned": _learned,
    "wavelet": _wavelet,
}


def exact(name: str, request: Request) -> list[Decimal] | None:
    """Return the exact entries of the only slot that a request fills, in C order, or None without an exact formula.

    Parameters
    ----------
    name : str
        Key of an encoding.
    request : dict
        Keywords of `fastpe.build`. `dim`, `heads` and `train_length` are required if the encoding uses them.

    Examples
    --------
    >>> [round(float(value), 6) for value in exact("sinusoidal", {"length": 2, "dim": 2})]
    [0.0, 1.0, 0.841471, 0.540302]
    """
    if name not in _ORACLES:
        return None
    with localcontext() as context:
        context.prec = _DIGITS
        return list(_ORACLES[name](request))


# ---------------------------------------------------------------------------------------------------------------------
# Histograms


def ulps(values: Array, exact_values: list[Decimal]) -> Array:
    """Return the errors of `values` in units in the last place of the exact values in this dtype; float64, flat.

    >>> ulps(np.float32([1.0, 1.5]), [Decimal(1), Decimal("1.5") + Decimal(2) ** -24]).tolist()
    [0.0, 0.5]
    """
    digits, lowest = (23, -126) if values.dtype == np.float32 else (52, -1022)
    errors = []
    with localcontext() as context:
        context.prec = _DIGITS
        for value, right in zip(values.ravel().tolist(), exact_values, strict=True):
            exponent = max(math.frexp(float(right))[1] - 1, lowest) - digits
            errors.append(float(abs(Decimal(value) - right) * Decimal(2) ** -exponent))
    return np.array(errors)


@dataclass(frozen=True)
class Histogram:
    """The errors of the fill of an encoding in one dtype: the count in each column of `EDGES`, and the worst error."""

    name: str
    dtype: str
    oracle: str
    counts: tuple[int, ...]
    worst: float
    request: str
    place: tuple[int, int]

    @property
    def values(self) -> int:
        """Return the number of compared values."""
        return sum(self.counts)


def cases(name: str) -> Iterator[Request]:
    """Yield requests that are hard for a fill: far, fractional, negative and scattered positions, and long tables."""
    rng = np.random.default_rng(_SEED)
    far = 2**24
    if name == "sinusoidal":
        crossings = np.round(np.arange(1, 40) * 7919 * math.pi)  # integers next to zeros of the first sine
        scattered = [*rng.integers(-far, far, 60), *rng.uniform(-far, far, 30), *crossings, far, -far, 1e-9, 0.5]
        yield {"length": len(scattered), "dim": 64, "positions": np.array(scattered)}
        for start in (-70, 0, 32700, far - 192):
            yield {"length": 192, "dim": 64, "start": start}
    elif name == "legendre":
        for kind in ("tanh", "clamp", "linear", "log"):
            yield {"length": 40, "dim": 64, "train_length": 40, "map": kind}
    elif name == "wavelet":
        for family, length in (("db4", 50), ("db2", 128), ("db8", 64)):
            yield {"length": 90, "dim": 64, "train_length": length, "wavelet": family}
        yield {"length": 20, "dim": 64, "train_length": 50, "positions": rng.uniform(0, 60, 20).round(3)}
    elif name == "alibi":
        yield {"length": 300, "heads": 8}
        yield {"length": 300, "heads": 12}
    elif name == "learned":
        params = {"table": build.init("learned", dim=64, train_length=50)["table"]}
        yield {"length": 50, "dim": 64, "train_length": 50, "params": params}
        yield {"length": 130, "dim": 64, "train_length": 50, "params": params, "beyond": "interp"}
    else:
        causal = registry.get(name).direction == "causal"
        yield {"length": 50, "dim": 64, "heads": 4, "train_length": 50, "causal": causal}


def histograms(name: str) -> Iterator[Histogram]:
    """Yield a histogram for each dtype; none for an encoding that fills nothing."""
    asked = [(request, exact(name, request)) for request in cases(name)]
    for dtype in ("float32", "float64"):
        errors, places = [], []
        for request, right in asked:
            given = {**request}
            if "params" in given:
                given["params"] = {key: value.astype(dtype) for key, value in given["params"].items()}
            slots = build.build(name, **given, dtype=dtype)
            if right is None and dtype == "float64":
                continue
            reference = build.build(name, **given, dtype=dtype, reference=True) if right is None else {}
            for slot, values in slots.items():
                if not isinstance(values, np.ndarray):  # a plain value has no error
                    continue
                expected = right or [Decimal(value) for value in reference[slot].ravel().tolist()]
                errors.append(ulps(values, expected))
                places.append((request, values.shape))
        if errors:
            yield _histogram(name, dtype, "the reference" if asked[0][1] is None else "decimal", errors, places)


def _histogram(name: str, dtype: str, oracle: str, errors: list[Array], places: list[Any]) -> Histogram:
    everything = np.concatenate(errors)
    counts = np.histogram(everything, [0.0, *np.nextafter(EDGES, math.inf), math.inf])[0]
    worst = int(np.argmax([each.max() for each in errors]))
    request, shape = places[worst]
    row, column = np.unravel_index(int(errors[worst].argmax()), (math.prod(shape[:-1]), shape[-1]))
    text = ", ".join(f"{key}={value}" for key, value in request.items() if key not in ("params", "positions"))
    return Histogram(
        name, dtype, oracle, tuple(map(int, counts)), float(everything.max()), text, (int(row), int(column))
    )


# ---------------------------------------------------------------------------------------------------------------------
# The usual code of other libraries

FLOAT32_POSITIONS = (1000, 32767, 1000000, 2**24 - 1)


def float32_angles(position: int, dim: int = 64) -> tuple[float, float]:
    """Return the largest errors of two sinusoidal rows at a position: a row with float32 angles, and fastpe's.

    Most libraries compute frequencies and angles in float32, as in the first row; its sines and cosines are exact here.

    >>> float32_angles(32767)[0] > 5e-4 > 1e-7 > float32_angles(32767)[1]
    True
    """
    omega = np.exp(np.arange(0, dim, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / dim))
    angles = (np.float32(position) * omega).astype(np.float64)
    theirs = np.stack([np.sin(angles), np.cos(angles)], axis=1).ravel()
    request: Request = {"length": 1, "dim": dim, "start": position}
    right = np.array([float(value) for value in exact("sinusoidal", request) or []])
    ours = build.build("sinusoidal", **request)["table"][0]
    return float(np.abs(theirs - right).max()), float(np.abs(ours - right).max())
