"""Peers of the encodings that add a number to the score."""

import mpmath
import numpy as np
from peer_case import DOUBLE, SINGLE, Case, double, exact, power, single, spread, waves

N, C, H = 9, 24, 2
D = C // H


def x_transformers_alibi():
    from x_transformers.x_transformers import AlibiPositionalBias

    return AlibiPositionalBias(12)(N, N).numpy()


def below(rows):
    """A bias slope * j, (H, N), as slope * (j - i) for j <= i: a constant in each row, which no softmax sees."""
    return np.tril(rows[:, None, :] - rows[:, :, None])


def bloom():
    import torch
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    return below(build_alibi_tensor(torch.ones(1, N, dtype=torch.long), 12, torch.float32)[:, 0].double().numpy())


def mpt():
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    return below(build_mpt_alibi_tensor(12, N)[:, 0].double().numpy())


def alibi(build):
    return spread(build("alibi", N, heads=12, dim=24)["bias"])


def exact_alibi(index):
    """Slopes 2^-1 .. 2^-8, then every other one of 16 heads."""
    head, i, j = index
    return -abs(i - j) * power(2, -(head + 1) if head < 8 else -(2 * (head - 8) + 1), 1 if head < 8 else 2)


LONG = 600
BUCKETS = waves(32, H)


def over_offsets(bias):
    """What the last and the first row of (H, N, N) say of the offsets 1-N .. N-1."""
    return np.concatenate([bias[:, -1], bias[:, 0, 1:]], -1)


def t5(causal):
    def bias():
        from transformers import T5Config
        from transformers.models.t5.modeling_t5 import T5Attention

        config = T5Config(d_model=C, d_kv=D, num_heads=H, is_decoder=causal)
        made = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        made.relative_attention_bias.weight.data = double(BUCKETS)
        return over_offsets(made.compute_bias(LONG, LONG)[0].detach().numpy())

    return bias


def t5_x_transformers(causal):
    def bias():
        from x_transformers.x_transformers import RelativePositionBias

        made = RelativePositionBias(1.0, causal=causal, heads=H)
        made.relative_attention_bias.weight.data = double(BUCKETS)
        return over_offsets(made(LONG, LONG).detach().numpy())

    return bias


def t5_torchscale():
    from torchscale.component.relative_position_bias import RelativePositionBias

    made = RelativePositionBias(n_heads=H)
    made.relative_attention_bias.weight.data = double(BUCKETS)
    return over_offsets(made.compute_bias(LONG, LONG)[0].detach().numpy())


def t5_torchtune():
    from torchtune.models.t5._encoder import T5EncoderRelativePositionBias

    made = T5EncoderRelativePositionBias(32, 128, H, LONG)
    made.embedding.weight.data = double(BUCKETS)
    return over_offsets(made()[0].detach().numpy())


def our_t5(causal):
    return lambda build: build("t5", LONG, heads=H, dim=C, causal=causal, train_length=LONG, params={"table": BUCKETS})[
        "bias"
    ]


R1, R2 = 1 + waves(H) / 2, 1 + waves(H, seed=1) / 2
NEMO = "nemo.collections.nlp.modules.common.megatron.position_embedding"


def kerple():
    from nemo.collections.nlp.modules.common.megatron.position_embedding import (
        kerple_relative_position_embedding as peer,
    )

    made = peer.KERPLERelativePositionEmbedding(True, H, None, max_seq_len=N)
    made.kerple_b.data, made.kerple_a.data = (double(r)[:, None, None] for r in (R1, R2))
    made.kerple_p.data = double(np.ones((H, 1, 1)))
    return made(N, N)[0].detach().numpy()


def sandwich_nemo():
    from nemo.collections.nlp.modules.common.megatron.position_embedding import (
        sandwich_relative_position_embedding as peer,
    )

    return peer.SandwichRelativePositionEmbedding(True, H, None, 128, max_seq_len=N)(N, N).reshape(H, N, N).numpy()


def sandwich_aligned():
    """With the divisor and the constant taken out, and the first cosine in place of the last one."""
    apart = np.abs(np.arange(N) - np.arange(N)[:, None])
    divisors = np.array([4.0, 8.0])[:, None, None]
    return sandwich_nemo() * divisors + 64 + np.cos(apart) - np.cos(apart / 1e4)


def sandwich(**options):
    return lambda build: spread(build("sandwich", N, heads=H, dim=C, **options)["bias"])


def product_of_rows(divisors):
    """Rows i and j of Vaswani's table, 128 wide, multiplied."""

    def entry(index):
        head, i, j = index
        w = [1 / power(1e4, 2 * t, 128) for t in range(64)]
        rows = ([f(p * x) for x in w for f in (mpmath.sin, mpmath.cos)] for p in (i, j))
        return mpmath.fdot(*rows) / divisors[head]

    return entry


POINTS, GAUSSIANS = 2 * waves(N, 3, seed=13), 6
RBF = {
    "mu": 1.5 + 1.5 * waves(GAUSSIANS), "sigma": 1.5 + waves(GAUSSIANS, seed=1), "mul": np.array([0.75]),
    "bias": np.array([0.25]), "hidden_weight": waves(GAUSSIANS, GAUSSIANS, seed=2),
    "hidden_bias": waves(GAUSSIANS, seed=3), "out_weight": waves(GAUSSIANS, H, seed=4), "out_bias": waves(H, seed=5),
}  # fmt: skip


def unimol():
    import torch
    from unimol_tools.models.unimol import GaussianLayer, NonLinearHead

    made, head = GaussianLayer(GAUSSIANS, 1), NonLinearHead(GAUSSIANS, H, "gelu")
    for layer, name in ((made.means, "mu"), (made.stds, "sigma"), (made.mul, "mul"), (made.bias, "bias")):
        layer.weight.data = single(RBF[name]).reshape(1, -1)
    for layer, name in ((head.linear1, "hidden"), (head.linear2, "out")):
        layer.weight.data, layer.bias.data = single(RBF[f"{name}_weight"].T), single(RBF[f"{name}_bias"])
    apart = single(np.linalg.norm(POINTS[:, None] - POINTS, axis=-1))[None]
    return head(made(apart, torch.zeros(1, N, N, dtype=torch.long)))[0].permute(2, 0, 1).detach().numpy()


def rbf_distance(build):
    return build("rbf_distance", N, heads=H, dim=C, positions=POINTS, gaussians=GAUSSIANS, params=RBF)["scores"]


def exact_rbf(index):
    """Gaussians of the distance, through two layers with the exact GELU."""
    h, i, j = index
    p = {name: exact(value) for name, value in RBF.items()}
    y = (
        p["mul"][0] * mpmath.norm([a - b for a, b in zip(exact(POINTS[i]), exact(POINTS[j]), strict=True)])
        + p["bias"][0]
    )
    wide = [abs(s) + mpmath.mpf("1e-5") for s in p["sigma"]]
    g = [mpmath.npdf(y, m, s) for m, s in zip(p["mu"], wide, strict=True)]
    hidden = np.dot(g, p["hidden_weight"]) + p["hidden_bias"]
    active = [x * mpmath.ncdf(x) for x in hidden]
    return np.dot(active, p["out_weight"][:, h]) + p["out_bias"][h]


ROW = "adds slope * j, a constant in each row apart: taken out; slopes in float32"
NETWORK = {
    name: waves(*shape, seed=seed).astype(np.float32).astype(np.float64)
    for seed, (name, shape) in enumerate({
        "w_in": (6,), "b_in": (6,), "w": (1, 6, 6), "b": (1, 6), "w_out": (6, H), "b_out": (H,),
    }.items())
}  # fmt: skip


def x_transformers_dynamic(logarithm):
    def bias():
        import torch
        from x_transformers.x_transformers import DynamicPositionBias

        made = DynamicPositionBias(6, heads=H, depth=2, log_distance=logarithm)
        own = [NETWORK["w_in"][:, None], NETWORK["b_in"], NETWORK["w"][0].T, NETWORK["b"][0], NETWORK["w_out"].T,
               NETWORK["b_out"]]  # fmt: skip
        with torch.no_grad():
            for parameter, value in zip(made.parameters(), own, strict=True):
                parameter.copy_(single(value))
            return made(N, N).numpy()

    return bias


def dynamic(logarithm):
    return lambda build: spread(
        build("dynamic_bias", N, dim=C, heads=H, hidden=6, logarithm=logarithm, params=NETWORK)["bias"]
    )


def exactly_dynamic(logarithm):
    net = {name: exact(array) for name, array in NETWORK.items()}

    def entry(index):
        h, i, j = index
        x = mpmath.mpf(i - j)
        x = mpmath.sign(x) * mpmath.log(abs(x) + 1) if logarithm else x
        units = [z / (1 + mpmath.exp(-z)) for z in net["w_in"] * x + net["b_in"]]
        units = [z / (1 + mpmath.exp(-z)) for z in np.array(units) @ net["w"][0] + net["b"][0]]
        return (np.array(units) @ net["w_out"] + net["b_out"])[h]

    return entry


CASES = (
    *(
        Case("dynamic_bias", "x-transformers", "x_transformers.x_transformers", "DynamicPositionBias",
             x_transformers_dynamic(logarithm), dynamic(logarithm), SINGLE * 40, exact=exactly_dynamic(logarithm),
             note="logarithm" * logarithm, why="the network is in float32 there")
        for logarithm in (False, True)
    ),
    Case("alibi", "x-transformers", "x_transformers.x_transformers", "AlibiPositionalBias", x_transformers_alibi, alibi,
         SINGLE * N, exact=exact_alibi, why="slopes in float32"),
    Case("alibi", "transformers>=5", "transformers.models.bloom.modeling_bloom", "build_alibi_tensor", bloom,
         lambda build: np.tril(alibi(build)), SINGLE * N, exact=exact_alibi, note="bloom", why=ROW),
    Case("alibi", "transformers>=5", "transformers.models.mpt.modeling_mpt", "build_mpt_alibi_tensor", mpt,
         lambda build: np.tril(alibi(build)), SINGLE * N, exact=exact_alibi, note="mpt", why=ROW),
    *(
        Case("t5", peer, module, of, make(causal), our_t5(causal), DOUBLE, note="causal" if causal else "both_sides")
        for peer, module, of, make in (
            ("transformers>=5", "transformers.models.t5.modeling_t5", "T5Attention", t5),
            ("x-transformers", "x_transformers.x_transformers", "RelativePositionBias", t5_x_transformers),
        )
        for causal in (False, True)
    ),
    Case("t5", "torchscale", "torchscale.component.relative_position_bias", "RelativePositionBias", t5_torchscale,
         our_t5(False), DOUBLE),
    Case("t5", "torchtune", "torchtune.models.t5._encoder", "T5EncoderRelativePositionBias", t5_torchtune,
         our_t5(False), DOUBLE),
    Case("kerple_log", "nemo-toolkit", f"{NEMO}.kerple_relative_position_embedding", "KERPLERelativePositionEmbedding",
         kerple, lambda build: spread(build("kerple_log", N, heads=H, dim=C, params={"r1": R1, "r2": R2})["bias"]),
         DOUBLE, why="its power of the distance, which the paper does not have, set to 1"),
    Case("sandwich", "nemo-toolkit", f"{NEMO}.sandwich_relative_position_embedding",
         "SandwichRelativePositionEmbedding", sandwich_nemo, sandwich(), 64.0, differs=1.0,
         exact=product_of_rows((4, 8)), note="as_it_is",
         why="sums t = 1 .. 64 where the rows of the table have t = 0 .. 63, and subtracts 64"),
    Case("sandwich", "nemo-toolkit", f"{NEMO}.sandwich_relative_position_embedding",
         "SandwichRelativePositionEmbedding", sandwich_aligned, sandwich(divisors=(1.0,)), 1e-3,
         exact=product_of_rows((1, 1)), note="aligned",
         why="the same with t = 0 in place of t = 64 and without the constant; float32"),
    Case("rbf_distance", "unimol-tools", "unimol_tools.models.unimol", "GaussianLayer, NonLinearHead", unimol,
         rbf_distance, 1e-5, exact=exact_rbf, why="pi is 3.14159 there; float32"),
)  # fmt: skip
