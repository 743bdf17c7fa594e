"""DAPE, data-adaptive biases: a small network corrects the scores of all heads.

    x_ij = [C_1 .. C_H, b_1 .. b_H],    S = C + b + W2 lrelu(W1 x + b1),    C_h = scale q_h . k_h

lrelu is a leaky ReLU with slope 0.01. b is the bias of a second encoding, as in "alibi+dape", "kerple_log+dape" or
"fire+dape"; without one, b is 0. Other encodings may change C: "rope+shaw+dape" rotates queries and keys and adds the
products with Shaw's vectors before the network reads C. The gates of "fox+dape" are not an input of the network; their
term is added to S.

With `reach` > 0 (version 2), W1 and W2 are convolutions along the keys. Without another encoding, "dape" depends on
position only through the causal mask and, with `reach` > 0, through the order of the keys. x is 0 at masked keys. The
hidden layer is also 0 at masked keys, except at keys after the query in causal attention.

Source: Zheng et al. 2024, "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation" (arXiv:2405.14722), and
"DAPE V2: Process Attention Score as Feature Map for Length Extrapolation" (arXiv:2410.04798);
chuanyang-Zheng/DAPE, DAPE.py, AliBi_DAPE, and megatron/model/positional_embeddings.py, Alibi_DAPEV2.

**Slots**: `mlp_in` (W, 2H, T), `mlp_bias` (W,), `mlp_out` (H, W, T). **Learns** all three, separately in every layer;
initially uniform in +-1/sqrt(fan-in), the default of the authors' framework.

**Options**
- `units`: the width W, 32 in the released code.
- `reach`: the number of keys on either side that both maps read: 0 in version 1, 1 in version 2. The maps then have T =
  2 reach + 1 taps.

**Past the training length**: defined; the network then reads larger biases than in training.

**Traps.** The authors' second map also has a bias. It is constant along a row of scores, so it does not change the
softmax, and it is left out here. In version 2, the hidden layer at the first key after the query is not 0, and it
contributes to the score of the key at the query's position. No information from the future enters, because x is 0 at
keys after the query. In the authors' code and in `fastpe.attention`, the hidden layer is 0 past the end of the
sequence, so the output of the last query changes when another token is appended. Models in fastpe compute the hidden
layer as if another token followed, so that generation token by token gives the same outputs as a pass over the complete
text. With its default arguments, the class in the released code drops all of ALiBi's slopes.
"""

import math
from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, *, units: int, reach: int) -> dict[str, tuple[int, ...]]:
    """The two maps and the bias of the first map; the slots have the same shapes."""
    heads, taps = spec.heads, 2 * reach + 1
    return {"mlp_in": (units, 2 * heads, taps), "mlp_bias": (units,), "mlp_out": (heads, units, taps)}


def init(spec: Spec, rng: Stream, *, units: int, reach: int) -> dict[str, Any]:
    """Uniform in +-1/sqrt(fan-in), with the fan-in of each map."""
    taps = 2 * reach + 1
    limits = {"mlp_in": 2 * spec.heads * taps, "mlp_bias": 2 * spec.heads * taps, "mlp_out": units * taps}
    return {
        name: (2.0 * stream_of(rng, name).uniform(shape) - 1.0) / math.sqrt(limits[name])
        for name, shape in parameters(spec, units=units, reach=reach).items()
    }


def reference(spec: Spec, params: dict[str, Any], *, units: int, reach: int) -> dict[str, Any]:
    """The slots are the parameters."""
    return dict(params)


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, units: int, reach: int) -> None:
    """Fill the slots."""
    for name, array in out.items():
        array[...] = params[name]


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, units: int, reach: int
) -> None:
    """Add dslots to dparams, because the slots are the parameters."""
    for name in dparams:
        dparams[name] += dslots[name]


ENCODING = Encoding(
    summary="a network of the scores and biases of all heads",
    formula=r"""
        x_{ij} &= [C_1 \dots C_H,\ b_1 \dots b_H], \quad C_h = \mathrm{scale}\, q_h \cdot k_h \\
        S &= C + b + W_2\, \mathrm{lrelu}(W_1 x + b_1)
    """,
    use_when="the bias of another encoding should adapt to the content; add it, as in alibi+dape",
    also_called=("DAPE V2", "CAPE"),
    not_to_be_confused={
        "continuous augmented CAPE": "sinusoids of positions that are randomly shifted and scaled in training",
        "multi-token attention": "convolutions over the scores of neighbouring queries and keys",
    },
    use="proposed",
    slots=("mlp_in", "mlp_bias", "mlp_out"),
    options={
        "units": Option(32, "width of the network", int, minimum=1, maximum=4096, samples=(3,)),
        "reach": Option(0, "number of keys read on either side; 1 in version 2", int, minimum=0, maximum=31),
    },
    per_layer=("mlp_in", "mlp_bias", "mlp_out"),
    beyond="defined",
    direction="no",
    source="Zheng et al. 2024, arXiv:2405.14722 and arXiv:2410.04798",
    ulp=0.0,
    shapes=parameters,
)
