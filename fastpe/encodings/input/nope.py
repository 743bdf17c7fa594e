"""No position encoding at all.

    nothing is added

Source: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in Transformers"
(arXiv:2305.19466), section 5, the scheme called NoPE; McGill-NLP/length-generalization,
src/models/custom_t5_decoder_only.py, position encoding "none". Li (2025) cites a 2021 paper as the source of its
mathematical framework and names Kazemnejad as the author, but that paper is by other authors.

**Slots**: none. **Options**: none. **Learns**: nothing.

**Past the training length**: defined, because nothing depends on the position.

**Traps.** A bidirectional transformer without position encoding commutes with every permutation of its input: it
processes a set, not a sequence. A causal transformer does not. For example, if all scores are equal, the output at
position i is the mean of the values at positions 0 .. i. If the value is 1 at the first token and 0 at all others, this
mean is 1/(i+1), which tells the next layer the position.
"""

from typing import Any

from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.slots import Spec


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fill no slot (Kazemnejad et al. 2023, section 2)."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="no position encoding at all",
    formula=r"\text{nothing is added}",
    use_when="order matters little or the causal mask is enough, and as the baseline of any comparison",
    also_called=("no position encoding",),
    not_to_be_confused={
        "hope": "some pairs of RoPE are not rotated",
        "MLA's qk_nope_head_dim": "the width of the channels that multi-head latent attention does not rotate",
        "DroPE": "a model trained with RoPE, then trained further without it",
    },
    use="current",
    slots=(),
    options={},
    beyond="defined",
    direction="no",
    source="Kazemnejad et al. 2023, arXiv:2305.19466, section 5",
    reported=Reported(
        "partly",
        "Best of five encodings on ten tasks up to twice the length; a 1.3B model trained at 1024 tokens holds up "
        "to about 1800.",
        "Kazemnejad et al. 2023, arXiv:2305.19466, fig. 1 and appendix F",
    ),
    ulp=0.0,
)
