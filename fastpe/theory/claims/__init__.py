"""The claims of Li (2025), C1 to C121, recomputed and judged: a file a section of the paper.

`record` has what a claim is, `rules` how its verdict follows from what is computed, and from nothing else; `tables` has
the cells of the paper's Tables 1 to 4. A claim that is true under an assumption alone is TRUE IF; one of several
sentences is as good as the worst of them.
"""

from fastpe.base.validation import nearest
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


def claim(identity: str) -> Claim:
    """The claim of an id.

    Raises
    ------
    ValueError
        For an id that is none; it names the nearest.

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
