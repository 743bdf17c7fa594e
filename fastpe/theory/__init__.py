"""What can be proved, bounded or estimated of an encoding without training: plain NumPy and mpmath, a file a subject.

    page                        everything that is known of one encoding, or of that of a trained model

Every number is a `value.Value`, which says how it is known; `pages` collects those of an encoding. Docstrings name
proofs by number; what each shows, and where its short form stands:

- P1, on integers no two rows of sinusoidal are equal, in any channel: `lags`
- P2, equal tokens have equal outputs where an encoding acts on scores alone; P3, a function with a symmetry can do no
  better than the mean over its orbits: `symmetry`, `orbits`
- P4, two tokens whose positions are nearer than twice their size can collide: `tables`
- P5, Lipschitz constants on bounded inputs; P8, what the first token can do to the last one: `lipschitz`, `layers`
- P6, softmax moves by at most tanh(oscillation / 4) in total variation: `softmax`
- P7, what a window drops: `reach`
- P10, P11, Rademacher complexities of products and of readouts: `capacity`
- P12, bounds of the information between a position and its noisy row: `information`; P13, of a probe: `probes`

Q1 to Q20 and I1 to I8 are quantities; C1 to C121 are the claims of Li (2025), which `fastpe.paper_claims` judges.

From outside: `attention_information`, `biases`, `capacity`, `drift`, `essentials`, `gaps`, `information`, `jacobian`,
`kernel`, `lags`, `layers`, `lipschitz`, `orbits`, `pages.collect`, `pages.of_model`,
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
