"""Table 2 of Li (2025): the 15 cells on generalisation. Nominal numbers are for B_x = 1, L_trans = 1, m = 10,000."""

from fastpe.paper_claims import claim, complexity, generalisation
from fastpe.paper_claims.cell import Cell, On, Own, row
from fastpe.paper_claims.nominal import nominal_complexity, token_norms
from fastpe.paper_claims.rules import Holds, Needs, Values, low
from fastpe.paper_claims.setting import TRAINED, learned_numbers, slots
from fastpe.theory.value import Value, exact

COLUMNS = ("bound of |z_i|", "scaling of R_m", "regularisation")


def nominal(name: str, length: int = TRAINED, which: str = "exact") -> Value:
    """Return `L * B / sqrt(m)` of an encoding at a length. `which` selects the norm bound B: "exact" or "paper"."""
    return nominal_complexity(token_norms(name, slots(name, length))[which].value, complexity.SAMPLES)


def proposed_norms() -> Values:
    """Return the largest token norms of the new encodings, for B_x = 1."""
    found = {"wavelet": token_norms("wavelet", slots("wavelet", 200))["exact"]}
    return found | {f"legendre_{n}": token_norms("legendre", slots("legendre", n))["exact"] for n in (50, 100, 200)}


def _with_nominal() -> Values:
    return {
        **complexity.factors(), "paper": nominal("sinusoidal", which="paper"), "exact": nominal("sinusoidal"),
    }  # fmt: skip


def _proposed_scaling() -> Values:
    return {
        "wavelet": nominal("wavelet"), "legendre_50": nominal("legendre"), "legendre_200": nominal("legendre", 200),
    }  # fmt: skip


def _alibi_scaling() -> Values:
    return {
        **generalisation.lipschitz_at_lengths(),
        "nominal_paper": nominal("alibi", 200, "paper"), "nominal_exact": nominal("alibi", 200),
    }  # fmt: skip


def _learned_scaling() -> Values:
    return {**generalisation.linear_class(), "nominal": nominal("learned")}


def advice(of: str) -> Own:
    """Return a cell that gives advice without a claim about its effect."""
    return Own(Needs((f"what {of} is to achieve",)), "This cell gives advice, which is neither true nor false")


_LINEAR, _ALIBI = claim("C46"), claim("C54")

CELLS: tuple[Cell, ...] = (
    *row(2, 1, "Sinusoidal", COLUMNS, (
        ("B_x + sqrt d", On(claim("C42"))),
        ("O(L_trans (B_x + sqrt d) / sqrt m)", Own(
            complexity.AT_THE_RATE,
            "The complexity of one bounded linear map exceeds this rate by the factor {d_4:.7g} (d = 4) and "
            "{d_64:.5g} (d = 64) (C43). The nominal number is {paper:.6g} with the norm bound of the paper and "
            "{exact:.8g} with the exact one",
            _with_nominal, complexity.FACTORS | {"paper": "0.0900000", "exact": "0.06656854"},
            ("d_2", "d_3", "limit", "paper", "exact"),
        )),
        ("N/A", On(claim("C44"))),
    )),
    *row(2, 2, "Learned", COLUMNS, (
        ("B_x + B_p", On(claim("C45"))),
        ("O(L_trans (B_x + B_p) / sqrt m)", Own(
            _LINEAR.rule,
            "The bound is not derived (C46). Linear functions have the complexity {linear:.4g} and the bound "
            "{claimed:.6g} at m = 50. For one bounded linear map the complexity exceeds the rate by the factor "
            "{d_4:.7g} (d = 4) and {d_64:.5g} (d = 64). The nominal number for the initial table is {nominal:.8g}",
            _learned_scaling, {**_LINEAR.expected, "nominal": "0.01181666"}, (*_LINEAR.not_deciding, "nominal"),
        )),
        ("Weight decay on B_p", advice("weight decay")),
    )),
    *row(2, 3, "Relative", COLUMNS, (
        ("B_x + B_r", On(claim("C56"))),
        ("O(L_trans (B_x + B_r) / sqrt m)", On(claim("C49"))),
        ("Weight decay on B_r", advice("weight decay")),
    )),
    *row(2, 4, "ALiBi", COLUMNS, (
        ("B_x + alpha (N' - 1)", On(claim("C55"))),
        ("O(L_trans (B_x + alpha (N' - 1)) / sqrt m)", Own(
            _ALIBI.rule,
            "The Lipschitz constants do not grow with N' (C54): {at_50:.7g} at 50 and {at_800:.7g} at 800. The "
            "nominal number at 200 is {nominal_paper:.6g} with the norm bound of the paper and {nominal_exact:.6g} "
            "with the exact one",
            _alibi_scaling,
            {**_ALIBI.expected, "nominal_paper": "0.01398000", "nominal_exact": "0.01000000"},
            (*_ALIBI.not_deciding, "nominal_paper", "nominal_exact"),
        )),
        ("Control alpha", advice("controlling alpha")),
    )),
    *row(2, 5, "Proposed", COLUMNS, (
        ("TBD", Own(
            Needs(("a bound",)),
            "The exact bounds are, for wavelets, B_x + 1 = {wavelet:.6g}; for Legendre rows {legendre_50:.7g} up to "
            "length 50, {legendre_100:.7g} up to 100 and {legendre_200:.7g} up to 200, always below B_x + sqrt d = 9",
            proposed_norms,
            {"wavelet": "2.000000", "legendre_50": "2.760348", "legendre_100": "3.549870", "legendre_200": "6.520529"},
            ("wavelet", "legendre_50", "legendre_100", "legendre_200"),
        )),
        ("TBD", Own(
            Needs(("a rate",)),
            "The nominal numbers are {wavelet:.6g} for wavelets and, for Legendre rows, {legendre_50:.8g} at 50 and "
            "{legendre_200:.8g} at 200",
            _proposed_scaling, {"wavelet": "0.02000000", "legendre_50": "0.02760348", "legendre_200": "0.06520529"},
            ("wavelet", "legendre_50", "legendre_200"),
        )),
        ("TBD", Own(
            Needs(("a remark",)),
            "The wavelet encoding learns {wavelet:.0f} numbers, the Legendre encoding {legendre:.0f}",
            lambda: {name: learned_numbers(name) for name in ("wavelet", "legendre")},
            {"wavelet": "0", "legendre": "0"}, ("wavelet", "legendre"),
        )),
    )),
)  # fmt: skip
STABLE = Holds(lambda sinusoidal, legendre: low(sinusoidal) >= legendre.value)


def comparable() -> Values:
    """Return the nominal numbers of Legendre and sinusoidal encodings at length 200 (Table 4)."""
    found = {"legendre": nominal("legendre", 200), "sinusoidal": nominal("sinusoidal", 200)}
    return {name: exact(value.value, value.why) for name, value in found.items()}
