"""Temperature by position: attention becomes sharper for queries far into a text.

    S_ij = f_i scale q_i . k_j,    f_i = 1 + a ln(1 + floor((i + 1) / L))      "llama4"
                                   f_i = 1 + a ln(1 + floor(i / L))            "ministral"
                                   f_i = (1 + (i + 1) / L)^a                   "beam"
                                   f_i = 1 + a ln max((i + 1) / L, 1)          "inkling2"

Positions i count from 0. The factor a is the option `strength`, and L is the option `every`.

Source: Llama 4 (Meta 2025) uses the formula "llama4" in its layers without position encoding; it is implemented here as
in `Llama4TextAttention` of Hugging Face's transformers. Ministral 3 and Mistral 4 (Mistral AI 2025) use the formula
"ministral" in every layer, together with YaRN. Beam uses "beam" and Inkling 2 uses "inkling2" in the layers that see
all positions. These are implemented as in the same library, version 5.24.

**Slot**: `row_scale` (1, N). **Learns**: nothing.

**Options**
- `rule`: the formula, "llama4" (the first step is at i = L - 1), "ministral" (at i = L), "beam" or "inkling2" (both
  without steps).
- `strength`: a; 0.1 in all of these models.
- `every`: L; 8192 in Llama 4 and Mistral 4, 16384 in Ministral 3, 2048 in Beam, 128000 in Inkling 2.

**Past the training length**: defined. "rope_yarn+temperature" combines it with YaRN.

**Traps.** Llama 4's formula was announced for inference only; Hugging Face's library also applies it in training, and
so does fastpe. The encoding changes nothing in sequences shorter than L, except with "beam", whose factor is more than
1 at every position. The factor multiplies the products of queries and keys, not biases. Inkling 2 also multiplies its
relative term, which here depends on the other encoding of the sum.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import sharpness
from fastpe.encodings.parts.sharpness import shapes
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """Raise an error for negative positions, because steps are counted from position 0."""
    sharpness.check("temperature", spec)


def reference(spec: Spec, params: dict[str, Any], *, rule: str, strength: float, every: int) -> dict[str, Any]:
    """The formula of the released code."""
    places = sharpness.places(spec)
    match rule:
        case "beam":
            return {"row_scale": np.exp(strength * np.log1p((places + 1) / every))}
        case "inkling2":
            return {"row_scale": 1.0 + strength * np.log(np.maximum((places + 1) / every, 1.0))}
    return {"row_scale": 1.0 + strength * np.log1p((places + (rule == "llama4")) // every)}


ENCODING = Encoding(
    summary="sharper attention for later queries",
    formula=r"""
        S_{ij} &= f_i\, \mathrm{scale}\, q_i \cdot k_j \\
        f_i &= 1 + a \ln\left(1 + \left\lfloor \frac{i + 1}{L} \right\rfloor\right)
            \quad \text{rule } \mathrm{llama4} \\
        f_i &= 1 + a \ln\left(1 + \left\lfloor \frac{i}{L} \right\rfloor\right) \quad \text{rule } \mathrm{ministral} \\
        f_i &= \left(1 + \frac{i + 1}{L}\right)^a \quad \text{rule } \mathrm{beam} \\
        f_i &= 1 + a \ln \max\left(\frac{i + 1}{L}, 1\right) \quad \text{rule } \mathrm{inkling2}
    """,
    use_when="texts have many thousands of tokens, as in Llama 4 and Ministral 3; add it to another encoding",
    also_called=("attn_temperature_tuning", "llama_4_scaling"),
    not_to_be_confused={
        "log_n": "a smooth factor beyond the training length",
        "ssmax": "a learned factor times the logarithm; with its option bias, that of Mistral Large 4",
    },
    slots=("row_scale",),
    options={
        "rule": Option("llama4", "whose formula", str, choices=("llama4", "ministral", "beam", "inkling2")),
        "strength": Option(0.1, "factor of the logarithm", float, minimum=-100.0, maximum=100.0, samples=(0.5,)),
        "every": Option(
            8192, "number of positions of a step, or until the factor grows", int, minimum=1, samples=(2, 16384)
        ),
    },
    beyond="defined",
    direction="causal",
    use="current",
    source="Llama 4, Meta 2025, Ministral 3, Mistral AI 2025, and others, released code",
    ulp=3.0,
    shapes=shapes,
)
