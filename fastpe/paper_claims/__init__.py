"""The claims of one paper, Li (2025), recomputed and judged: `fastpe theory --claims`, and the paper's Tables 1 to 4.

The package uses `fastpe.theory`; nothing in `fastpe.theory` uses it. Users of encodings do not need it.

- The claims C1 to C121, one module for each section of the paper: `background`, `expressiveness`, `complexity`,
  `generalisation`, `extrapolation`, `wavelets`, `polynomials`. The values that the last two are judged by are in
  `wavelet_values` and `polynomial_values`.
- What a claim is: `record`. How its verdict follows from the computed values: `rules`.
- The cells of Tables 1 to 4: `tables`, `cell`, `expressiveness_tables`, `capacity_tables`, `extrapolation_tables`,
  `summary_tables`.
- The sizes and tables of the paper's setting: `setting`.
- Computations that only the claims need: `wavelet_encoding`, `wavelet_functions`, `legendre_encoding`, `locality`,
  `nominal`. Proof P9 (steps of Legendre rows) is in `legendre_encoding`, P14 (raw wavelets shrink) in
  `wavelet_encoding`.

A claim that is true only under an assumption is TRUE IF. A claim of several sentences has the verdict of the worst one.

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
    by_id = {each.id: each for each in CLAIMS}
    if identity not in by_id:
        raise ValueError(f"claim {identity!r} is unknown (C1 to C{len(CLAIMS)}); {nearest(identity, by_id)}")
    return by_id[identity]


__all__ = ["CLAIMS", "Claim", "Judgement", "claim"]
