"""The claims of Li (2025), C1 to C121, recomputed and judged: a file a section of the paper."""

from fastpe.theory.claims import (
    background,
    complexity,
    expressiveness,
    extrapolation,
    generalisation,
    polynomials,
    wavelets,
)
from fastpe.theory.claims.record import Claim, Judgement

_SECTIONS = (background, expressiveness, complexity, generalisation, extrapolation, wavelets, polynomials)
CLAIMS: tuple[Claim, ...] = tuple(
    sorted((claim for section in _SECTIONS for claim in section.CLAIMS), key=lambda claim: int(claim.id[1:]))
)
"""In the order of the paper."""

__all__ = ["CLAIMS", "Claim", "Judgement"]
