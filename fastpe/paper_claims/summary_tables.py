"""Table 4 of Li (2025): the 24 cells that compare the new encodings with others."""

from fastpe.paper_claims import capacity_tables, claim
from fastpe.paper_claims.cell import Cell, On, Own, row
from fastpe.paper_claims.expressiveness_tables import NO_VALUES
from fastpe.paper_claims.rules import Holds, Needs, Values, high
from fastpe.paper_claims.setting import table
from fastpe.theory.tables import norms

COLUMNS = ("norm bound", "generalisation", "extrapolation", "cost")
_COSTS = claim("C120")


def _cost(*parts: str, shown: tuple[str, ...]) -> On:
    return On(_COSTS, parts, shown)


def _row_norms() -> Values:
    sizes = norms(table("wavelet", 400))
    return {"most": sizes["most"], "least": sizes["least"]}


CELLS: tuple[Cell, ...] = (
    *row(4, 1, "Wavelet (normalized)", COLUMNS, (
        ("B_x + 1", Own(
            Holds(lambda most: high(most) <= 1.0 + 1e-9),
            "Rows have the norm {most:.6g}. From position 256 on it is {least:.2g}, so the bound there is B_x",
            _row_norms, {"most": "1.000000", "least": "0 .. 0"}, ("least",),
        )),
        ("Comparable to sinusoidal", On(claim("C102"))),
        ("Exponential decay => strong", On(claim("C107"), (), ("at_53",))),
        ("O(d) to compute evals", _cost("wavelet O(d)", shown=("wavelet_64", "wavelet_128"))),
    )),
    *row(4, 2, "Legendre (tanh)", COLUMNS, (
        ("B_x + sqrt d", On(claim("C114"))),
        ("Comparable to sinusoidal", Own(
            capacity_tables.STABLE,
            "The nominal number at 200 is {legendre:.8g} for Legendre and {sinusoidal:.8g} for sinusoidal rows. It is "
            "smaller for Legendre rows but grows with the length",
            capacity_tables.comparable, {"legendre": "0.06520529", "sinusoidal": "0.06656854"},
        )),
        ("Moderate: dp <= O(N / d^2.5)", On(claim("C119"), (), ("claimed", "trivial"))),
        ("O(d^2) if naive; O(d) with recurrence", _cost(
            "Legendre, naive, O(d^2)", "Legendre, by recurrence, O(d)", shown=("naive_64", "naive_128", "legendre_64"),
        )),
    )),
    *row(4, 3, "ALiBi", COLUMNS, (
        ("B_x + alpha (N' - 1)", On(claim("C55"))),
        ("Slightly worse for large N'", On(claim("C54"))),
        ("Linear bias => good up to c N", Own(Needs(("c", "good")), "The paper gives no value of c")),
        ("O(1) per pair; minimal overhead", _cost("ALiBi O(1) per pair", shown=("alibi_64", "alibi_128"))),
    )),
    *row(4, 4, "Sinusoidal", COLUMNS, (
        ("B_x + sqrt d", On(claim("C42"))),
        ("Stable", On(claim("C44"))),
        ("Limited beyond min{10000, periods}", Own(
            Needs(("limited", "which period")),
            "The periods range from 6.28 to 47,117 positions, and no row repeats (C19, C63)",
        )),
        ("O(d)", _cost("sinusoidal O(d)", shown=("sinusoidal_64", "sinusoidal_128"))),
    )),
    *row(4, 5, "Learned", COLUMNS, (
        ("B_x + B_p", On(claim("C45"))),
        ("Requires regularization", capacity_tables.advice("regularisation")),
        ("None", NO_VALUES),
        ("O(d)", _cost("learned O(d)", shown=("learned_64", "learned_128"))),
    )),
    *row(4, 6, "Relative (Shaw)", COLUMNS, (
        ("B_x + B_r", On(claim("C56"))),
        ("Requires regularization", capacity_tables.advice("regularisation")),
        ("None for |i - j| > K", On(claim("C65"))),
        ("O(1)", _cost("Shaw O(1)", shown=("shaw_64", "shaw_128"))),
    )),
)  # fmt: skip
