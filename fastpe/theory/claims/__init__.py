"""The claims of Li (2025), C1 to C121, recomputed and judged: a file a section of the paper."""

from fastpe.theory.claims import background, complexity, expressiveness, generalisation
from fastpe.theory.claims.record import Claim, Judgement

CLAIMS: tuple[Claim, ...] = (*background.CLAIMS, *expressiveness.CLAIMS, *complexity.CLAIMS, *generalisation.CLAIMS)

__all__ = ["CLAIMS", "Claim", "Judgement"]
