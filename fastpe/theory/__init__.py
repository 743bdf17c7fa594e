"""What can be proved, bounded or estimated about an encoding without training, in NumPy and mpmath.

    page                        all quantities of one encoding, or of the encoding of a trained model

Every number is a `value.Value`, which says whether it is exact, certified or estimated. The folder `pages` collects the
numbers of an encoding. The docstrings refer to proofs by number:

| proof | statement | module |
| --- | --- | --- |
| P1 | no two rows of the sinusoidal table are equal at integer positions, in any channel | `lags` |
| P2 | equal tokens have equal outputs if the encoding acts only on scores | `symmetry` |
| P3 | a function with a symmetry is at best the mean of the target over each orbit | `orbits` |
| P4 | two tokens can become equal if their position vectors are closer than twice the tokens' norm | `tables` |
| P5 | Lipschitz constants on bounded inputs | `lipschitz`, `layers` |
| P6 | a change of scores changes the softmax by at most tanh(oscillation / 4) in total variation | `softmax` |
| P7 | a bound on the weight of keys outside a window | `reach` |
| P8 | a bound on the influence of the first token on the last one | `lipschitz` |
| P10, P11 | Rademacher complexities of products and of readouts | `capacity` |
| P12 | bounds on the information between a position and its noisy row | `information` |
| P13 | a lower bound on that information from a probe | `probes` |

Q1 to Q20 and I1 to I8 are quantities; C1 to C121 are the claims of Li (2025), which `fastpe.paper_claims` judges.

From outside: `attention_information`, `biases`, `capacity`, `drift`, `essentials`, `gaps`, `information`, `jacobian`,
`kernel`, `lags`, `layers`, `lipschitz`, `orbits`, `pages.collect`, `pages.key_quantities`, `pages.of_model`,
`pages.of_run`, `pages.quantities`, `pages.record`, `pages.subject`, `pages.words`, `pairs`, `precision`, `reach`,
`rotations`, `softmax`, `symmetry`, `tables`, `value`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastpe.theory.pages.collect import page as page

__all__ = ["page"]


def __getattr__(name: str) -> Any:
    if name != "page":
        raise AttributeError(f"module 'fastpe.theory' has no attribute {name!r}")
    from fastpe.base.shielded import load

    return load("fastpe.theory.pages.collect").page
