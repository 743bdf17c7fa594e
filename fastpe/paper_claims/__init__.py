"""The claims of one paper, Li (2025), recomputed and judged: `fastpe theory --claims`, and the paper's Tables 1 to 4.

The package uses `fastpe.theory`, but `fastpe.theory` does not use the package. Users of encodings do not need it.

- `background`, `expressiveness`, `complexity`, `generalisation`, `extrapolation`, `wavelets` and `polynomials` have the
  claims C1 to C121, one module for each section of the paper. `wavelet_values` and `polynomial_values` compute the
  values for the last two.
- `record` defines a claim and its judgement. `rules` computes the verdict from the values.
- `tables`, `cell`, `expressiveness_tables`, `capacity_tables`, `extrapolation_tables` and `summary_tables` have the
  cells of Tables 1 to 4.
- `setting` has the sizes and tables of the paper's setting.
- `wavelet_encoding`, `wavelet_functions`, `legendre_encoding`, `locality` and `nominal` have computations that only the
  claims need. Proof P9 (steps of Legendre rows) is in `legendre_encoding`, P14 (raw wavelets shrink) in
  `wavelet_encoding`.

A claim that is true only under an assumption has the verdict TRUE IF. A claim of several sentences has the worst
verdict of its sentences.

From outside: `tables`.
"""

from fastpe.base.validation import nearest
from fastpe.paper_claims import (
    background,
    complexity,
    expressiveness,
    extrapolation,
    generalisation,
    polynomials,
    wavelets,
)
from fastpe.paper_claims.record import Claim, Judgement

_SECTIONS = (background, expressiveness, complexity, generalisation, extrapolation, wavelets, polynomials)
CLAIMS: tuple[Claim, ...] = tuple(
    sorted((claim for section in _SECTIONS for claim in section.CLAIMS), key=lambda claim: int(claim.id[1:]))
)
"""All claims, in the order of the paper."""


def claim(identity: str) -> Claim:
    """Return the claim with this id.

    Parameters
    ----------
    identity : str
        "C1" to "C121".

    Returns
    -------
    Claim

    Raises
    ------
    ValueError
        If there is no claim with this id. The message names the nearest id.

    Examples
    --------
    >>> claim("C23").statement
    'Offsets range in [-(N - 1), N - 1].'
    """
    by_id = {item.id: item for item in CLAIMS}
    if identity not in by_id:
        raise ValueError(f"claim {identity!r} is unknown (C1 to C{len(CLAIMS)}); {nearest(identity, by_id)}")
    return by_id[identity]


__all__ = ["CLAIMS", "Claim", "Judgement", "claim"]
