"""RoPE: each pair of channels of query and key is rotated by an angle proportional to the position.

    theta_t = base^(-2t/R),  t = 0 .. R/2 - 1,         the angle of pair t at position p is p theta_t
    (x, y) -> (x cos a - y sin a,  x sin a + y cos a)

In the second line, (x, y) are the two channels of a pair, and a is the pair's angle.

Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding" (arXiv:2104.09864), section
3.2.2, eqs. (14) and (15).

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing. The rotation is applied to the query and key of every
head and layer, after the linear maps that produce them; values are not rotated. A score depends on the query, the key
and the offset j - i only, and a rotation does not change norms.

**Options**
- `base`: the slowest frequency is about 1/base.
- `pairs`: which channels form pair t. `interleaved`: channels 2t and 2t + 1 (the paper, GPT-J). `half`: channels t and
  t + R/2 (GPT-NeoX, the Hugging Face versions of LLaMA).
- `rotated`: R. Only the first R channels of a head are rotated, and the others do not change (GPT-J: 64 of 256). By
  default all D channels are rotated.

Positions may be any real numbers, including negative ones. Angles are float64 in [-pi, pi]. At any position up to
2**27, their error is little more than half a unit in the last place, or one unit on a processor without fused
multiply-add. The reason is that the frequency is stored as two float64, its product with the position is exact, and
whole turns are subtracted exactly. For comparison, an angle computed in float32 has an error of 0.004 at position 1e5.

**Speed.** Arithmetic is the bottleneck: one register of float64 angles takes 11 operations if positions are consecutive
integers, and 17 otherwise. With 64-byte registers and one operation per cycle at 3 GHz, this is 17 GB/s and 11 GB/s.

**Past the training length**: defined. The slow pairs reach angles that did not occur in training, and the model's
quality drops. To avoid this, `rope_linear`, `rope_ntk`, `rope_dynamic`, `rope_yarn`, `rope_longrope` and `rope_llama3`
change the frequencies.

**Traps.** The two values of `pairs` differ only in the order of channels. Weights trained with one value are wrong for
the other, unless the output channels of the query and key projections are reordered. Cached keys must be rotated by
their own positions.
"""

from fastpe.encodings.encoding import Reported
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import rope_options

ENCODING = rope_variant(
    lambda spec, theta, **options: theta,
    summary="rotates query and key by angles of the position",
    formula=r"""
        \theta_t &= \mathrm{base}^{-2t/R}, \quad t = 0, \dots, R/2 - 1 \\
        a &= p\, \theta_t \quad \text{the angle of pair } t \text{ at position } p \\
        (x, y) &\rightarrow (x \cos a - y \sin a,\ x \sin a + y \cos a)
    """,
    use_when="you want the usual choice of current language models, and texts no longer than in training",
    also_called=("rotary", "rotary position embedding", "RoFormer"),
    use="current",
    slots=("angles", "pairs"),
    options=rope_options("interleaved"),
    source="Su et al. 2021, arXiv:2104.09864, section 3.2.2, eqs. (14) and (15)",
    reported=Reported(
        "fails",
        "LLaMA 7B, trained on 2048 tokens: perplexity on PG19 rises from 7.20 to above 1000 at 4096 tokens.",
        "Chen, Wong, Chen and Tian 2023, arXiv:2306.15595, section 2.2 and table 1",
    ),
)
