"""Claims of section 2 of Li (2025), C1 to C9: definitions of transformers and of earlier encodings."""

import mpmath
import numpy as np

import fastpe
from fastpe.paper_claims.locality import weight_ratio
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Holds, HoldsIf, Measured, Readings, Values, high, low
from fastpe.paper_claims.setting import TRAINED, WIDTH, falling, slots, table
from fastpe.theory import biases, symmetry
from fastpe.theory.tables import norms
from fastpe.theory.value import Value, exact

_ADDED, _NOT_ADDED = ("sinusoidal", "learned", "wavelet", "legendre"), ("alibi", "shaw", "rope")
_ARXIV = (
    ("Allen-Zhu and Li 2020", "1906.00587"), ("Bubeck and Sellke 2021", "2105.12806"), ("Chen 2021", "2107.00651"),
    ("Du 2021", "2105.00641"), ("Huang 2020", "2002.04745"), ("Ke 2020", "2006.15595"), ("Liu 2020", "2008.02496"),
    ("Neyshabur 2018", "1805.12076"), ("Press 2021", "2108.12409"), ("Raffel 2020", "1910.10683"),
    ("Shaw 2018", "1803.02155"), ("Su 2021", "2104.09864"), ("Tancik 2020", "2006.10739"), ("Tay 2020", "2009.06732"),
    ("Vaswani 2017", "1706.03762"), ("Xiong 2020", "2002.04745"), ("Yao 2018", "1812.01243"),
    ("Yun 2019a", "1912.10077"), ("Yun 2019b", "1910.05895"),
)  # fmt: skip


def _order() -> Values:
    found = symmetry.change_of_order("nope")
    return {"invariance": found["invariance"], "equivariance": found["equivariance"]}


def _filled() -> Values:
    def count(names: tuple[str, ...]) -> float:
        return float(sum("table" in slots(name) for name in names))

    return {
        "added": exact(count(_ADDED), "encodings that fill the slot `table`", encodings=_ADDED),
        "others": exact(count(_NOT_ADDED), "encodings that fill the slot `table`", encodings=_NOT_ADDED),
    }


def _formula() -> Values:
    """Return the largest error of sinusoidal rows in units in the last place, by comparison with mpmath."""
    rows, worst = table("sinusoidal"), 0.0
    with mpmath.workdps(40):
        for p in (1, 49, 199):
            for c in range(WIDTH):
                angle = p / mpmath.mpf(10000) ** (mpmath.mpf(c - c % 2) / WIDTH)
                true = mpmath.cos(angle) if c % 2 else mpmath.sin(angle)
                worst = max(worst, abs(float((mpmath.mpf(float(rows[p, c])) - true) / np.spacing(abs(rows[p, c])))))
    return {"error": exact(worst, "error in units in the last place, against mpmath at 40 digits", rows=3)}


def shifts() -> Values:
    """Return the sum of two rows, and the largest error if one rotation maps every row to the row k positions later."""
    rows, lag = table("sinusoidal"), 7
    sines, cosines = rows[:, ::2], rows[:, 1::2]
    turned = np.empty((60, WIDTH))
    turned[:, ::2] = sines[:60] * cosines[lag] + cosines[:60] * sines[lag]
    turned[:, 1::2] = cosines[:60] * cosines[lag] - sines[:60] * sines[lag]
    residual = float(np.abs(turned - rows[lag : lag + 60]).max())
    return {
        "sum": exact(float(np.linalg.norm(rows[0] + rows[1])), "|T[0] + T[1]|"),
        "row": norms(rows)["most"],
        "residual": exact(residual, "the largest |T[p + 7] - T[p] M| for p < 60, where M is computed from row 7 alone"),
    }


def _has_norm_of_a_row(sum: Value, row: Value) -> bool:
    return abs(sum.value - row.value) <= 1e-9


def _near_and_far() -> Values:
    loud = falling(TRAINED)
    loud[0], loud[-1] = loud[0] - 1.0, loud[-1] + 1.0
    return {
        "equal": weight_ratio(falling(TRAINED), 0, TRAINED - 1),
        "loud": weight_ratio(loud, 0, TRAINED - 1),
    }


def _defined_bias() -> Values:
    size = biases.worst(biases.largest_sizes(slots("alibi", 200), 200, causal=True))
    return {"size": size, "moved": biases.alibi_drift(0.1 / TRAINED, TRAINED, 200)}


def _fourier() -> Values:
    draws = [slots("fourier", 4, seed=seed, draw=seed)["table"] for seed in (0, 1)]
    between = fastpe.build("fourier", 2, dim=WIDTH, positions=[0.0, 0.5], dtype="float64")["table"]
    return {
        "drawn": exact(float(np.abs(draws[0] - draws[1]).max()), "the largest difference between entries of two draws"),
        "between": exact(float(np.linalg.norm(between[1] - between[0])), "|T[1/2] - T[0]|"),
    }


def _references() -> Values:
    numbers = [number for _, number in _ARXIV]
    twice = sum(numbers.count(number) > 1 for number in set(numbers))
    return {
        "twice": exact(
            float(twice), "number of arXiv numbers that the reference list gives to two papers", papers=len(_ARXIV)
        )
    }


CLAIMS = (
    Claim(
        "C1", "section 2.1", "The transformer is permutation-invariant: f(Px) = f(x).",
        Holds(lambda invariance: low(invariance) <= 0.0),
        "Without positions, the outputs are reordered together with the tokens: f(Px) = P f(x) up to "
        "{equivariance:.3g}. f(Px) differs from f(x) by {invariance:.6g} times the largest output, so the transformer "
        "is equivariant, not invariant",
        _order, {"invariance": "1.051381", "equivariance": "0 .. 1e-10"}, ("equivariance",),
    ),
    Claim(
        "C2", "section 2.1", "Positional encodings are added to the embeddings: Z0 = X + P.",
        Holds(lambda added: added.value == len(_ADDED)),
        "This is a definition. The {added:.0f} tables are added to the embeddings. Of ALiBi, Shaw and RoPE "
        "{others:.0f} are, but Table 2 treats them as if they were",
        _filled, {"added": "4", "others": "0"}, ("others",), "only encodings that are tables are meant",
    ),
    Claim(
        "C3", "equations (1), (2)", "The sinusoidal encoding consists of sines and cosines of pos / 10000^(2i/d).",
        Holds(lambda error: error.value <= 1.0),
        "This is a definition. The library's table differs from it by at most {error:.3g} units in the last place",
        _formula, {"error": "0 .. 1"},
    ),
    Claim(
        "C4", "section 2.2", "Any linear combination of two sinusoidal vectors encodes relative shifts.",
        Readings({
            "every combination is a row of a shifted position": Holds(_has_norm_of_a_row),
            "T[p + k] is a linear function of T[p], the same for all p": Holds(
                lambda residual: residual.value <= 1e-12
            ),
        }),
        "|T[0] + T[1]| = {sum:.10g}, but every row has norm {row:.10g}, so the sum is not a row. T[p + k] = T[p] M_k "
        "holds up to {residual:.2g}",
        shifts, {"sum": "11.21756049", "row": "5.656854249", "residual": "0 .. 1e-14"},
    ),
    Claim(
        "C5", "section 2.2", "Learned and sinusoidal encodings perform similarly.", Measured(),
        "Only training can decide this",
    ),
    Claim(
        "C6", "equation (3)", "The bias -alpha |i - j| makes the model attend more to nearby tokens.",
        HoldsIf(
            lambda loud: low(loud) > 0.0, lambda equal: low(equal) > 0.0, "all products of query and key are equal"
        ),
        "With equal products of query and key, ln(weight of the nearest key / weight of the farthest key) is "
        "{equal:.6g}. It is {loud:.6g} if the nearest score is 1 lower and the farthest score 1 higher",
        _near_and_far, {"equal": "0.09800000", "loud": "-1.902000"},
    ),
    Claim(
        "C7", "section 2.4", "ALiBi enables extrapolation because its formula applies to any distance.",
        Readings({
            "the bias is defined beyond the training length": Holds(lambda size: high(size) < float("inf")),
            "attention stays where it was in training, up to 1 %": Holds(lambda moved: high(moved) < 0.01),
        }),
        "At length 200 the bias is at most {size:.6g}. With equal content scores, {moved:.6g} of the weight of a row "
        "lies beyond the 50 trained distances",
        _defined_bias, {"size": "0.3980000", "moved": "0.711348595"},
    ),
    Claim(
        "C8", "section 2.5", "Fourier features are random, and take continuous positions.",
        Holds(lambda drawn, between: drawn.value > 0.0 and between.value > 0.0),
        "Two draws differ by up to {drawn:.6g}. Position 1/2 has its own row, at distance {between:.6g} from the row "
        "of position 0",
        _fourier, {"drawn": "1.992986", "between": "7.897897"},
    ),
    Claim(
        "C9", "references", "Every reference treats the topic that it is cited for.",
        Holds(lambda twice: twice.value == 0.0),
        "{twice:.0f} arXiv number, 2002.04745, is given to two papers. 'Efficient attention' is cited for relative "
        "encodings and 'Transformers without tears' for Lipschitz constants, but neither paper treats the topic that "
        "it is cited for. The citations of Shaw, T5 and ALiBi are right",
        _references, {"twice": "1"},
    ),
)  # fmt: skip
