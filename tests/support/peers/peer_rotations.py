"""Peers of the encodings that rotate queries and keys."""

import importlib

import mpmath
import numpy as np
from peer_case import IN_SINGLE, Case, exactly_turned, keras_layers, phases, power, single, turned, waves

D = 32
PLACES = [0, 1, 2, 17, 300, 4000]
INSIDE = [0, 1, 2, 17, 300, 2000]
FAR = [0, 1, 63, 1000, 30000, 100000]
N = 24
L0 = 2048
# float32 numbers, which both sides can hold
ROWS, MORE = (waves(N, D, seed=seed).astype(np.float32).astype(np.float64) for seed in (0, 1))
FEW = ROWS[: len(PLACES)]


def theta(t, base=10000.0, width=D):
    """The exact frequency of pair t."""
    return 1 / power(base, 2 * t, width)


def at(places, frequency):
    return lambda n, t: places[n] * frequency(t)


# ---------------------------------------------------------------------------------------------------------------------
# Plain


def gptj(width):
    def rotated():
        import torch
        from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

        sin, cos = create_sinusoidal_positions(PLACES[-1] + 1, width)[PLACES][None].chunk(2, dim=-1)
        x = single(FEW)[None, :, None]
        x = torch.cat([apply_rotary_pos_emb(x[..., :width], sin, cos), x[..., width:]], -1)
        return x[0, :, 0].numpy()

    return rotated


def roformer():
    from transformers.models.roformer import modeling_roformer as peer

    table = peer.RoFormerSinusoidalPositionalEmbedding(N, D).create_weight()[None, None]
    x = single(ROWS)[None, None]
    return peer.RoFormerSelfAttention.apply_rotary_position_embeddings(table, x, x)[0][0, 0].numpy()


def torchtune(places):
    def rotated():
        import torch
        from torchtune.modules import RotaryPositionalEmbeddings

        made = RotaryPositionalEmbeddings(D, max_seq_len=places[-1] + 1)
        return made(single(FEW)[None, :, None], input_pos=torch.tensor(places)[None])[0, :, 0].numpy()

    return rotated


def rotary_embedding_torch(first=0, **options):
    def rotated():
        from rotary_embedding_torch import RotaryEmbedding

        made = RotaryEmbedding(D, **options)
        return made.rotate_queries_or_keys(single(ROWS)[None], offset=first)[0].detach().numpy()

    return rotated


def x_transformers(**options):
    def rotated():
        import torch
        from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

        angles, _ = RotaryEmbedding(D, **options)(torch.tensor(PLACES))
        return apply_rotary_pos_emb(single(FEW)[None], angles)[0].numpy()

    return rotated


def keras_hub_rotary():
    made = keras_layers().RotaryEmbedding()
    return made(single(ROWS)[None, :, None]).detach().numpy()[0, :, 0]


def llama(places, longest=8192, **rescaling):
    """Through the model's own module: frequencies, their update for the length, cosines, rotation."""

    def rotated():
        import torch
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

        parameters = {"rope_type": "default", "rope_theta": 10000.0} | rescaling
        config = LlamaConfig(
            hidden_size=D, num_attention_heads=1, max_position_embeddings=longest, rope_parameters=parameters
        )
        x = single(FEW)[None, None]
        cos, sin = LlamaRotaryEmbedding(config)(x, torch.tensor(places)[None])
        return apply_rotary_pos_emb(x, x, cos, sin)[0][0, 0].numpy()

    return rotated


def rotated_in_part(folder, prefix, **rescaling):
    """Through the module of a model that rotates three quarters of a head's channels, in float64."""

    def rotated():
        import torch
        import transformers

        parameters = {"partial_rotary_factor": 0.75, "original_max_position_embeddings": L0, **SCALED, **rescaling}
        config = getattr(transformers, f"{prefix}Config")(
            hidden_size=D, num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=4 * L0,
            original_max_position_embeddings=L0, pad_token_id=0, rope_parameters=parameters,
        )  # fmt: skip
        peer = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
        x = torch.from_numpy(FEW)[None, None]
        cos, sin = getattr(peer, f"{prefix}RotaryEmbedding")(config)(x, torch.tensor(PLACES)[None])
        return peer.apply_rotary_pos_emb(x, x, cos, sin)[0][0, 0].numpy()

    return rotated


def rotate(name, places=PLACES, **options):
    def rotated(build):
        slots = build(name, len(places), dim=D, positions=places, train_length=L0, **options)
        channels = slots["rotors"].reshape(D) if "rotors" in slots else 1
        return channels * turned(FEW, slots) * (slots.get("scale", D**-0.5) * D**0.5) ** 0.5

    return rotated


def rotate_rows(name, start=0, **options):
    return lambda build: turned(ROWS, build(name, N, dim=D, start=start, train_length=N, **options))


def exact(frequency=theta, places=PLACES, pairs="half", width=D, factor=lambda: 1):
    rows = FEW if len(places) == len(FEW) else ROWS
    entry = exactly_turned(rows, pairs, width, at(places, frequency))
    return lambda index: (factor() if index[-1] < width else 1) * entry(index)


# ---------------------------------------------------------------------------------------------------------------------
# Rescaled: the exact frequencies, from the papers' and codes' formulas (D = 32, L0 = 2048, s = 4)


def rebased(n):
    """Dynamic NTK with a factor of 2, at n positions."""

    def frequency(t):
        return theta(t, 10000 * power(mpmath.mpf(2 * n) / L0 - 1, D, D - 2))

    return frequency


def ntk(t):
    return theta(t, 10000 * power(4, D, D - 2))


def yarn(t, truncate=True, width=D):
    low, high = (width * mpmath.log(L0 / (2 * mpmath.pi * turns)) / (2 * mpmath.log(10000)) for turns in (32, 1))
    if truncate:
        low, high = mpmath.floor(low), mpmath.ceil(high)
    ramp, own = min(max((t - low) / (high - low), 0), 1), theta(t, width=width)
    return own * (1 - ramp) + own / 4 * ramp


def llama3(t):
    plain = theta(t, 500000.0)
    turns = L0 * plain / (2 * mpmath.pi)
    smooth = min(max((turns - 1) / 3, 0), 1)
    return (1 - smooth) * plain / 8 + smooth * plain


SHORT, LONG = [1 + 0.125 * t for t in range(D // 2)], [1 + 0.5 * t for t in range(D // 2)]


def llama3_torchtune():
    import torch
    from torchtune.models.llama3_1 import Llama3ScaledRoPE

    made = Llama3ScaledRoPE(D, max_seq_len=PLACES[-1] + 1, base=500000, old_context_len=L0)
    return made(single(FEW)[None, :, None], input_pos=torch.tensor(PLACES)[None])[0, :, 0].numpy()


# ---------------------------------------------------------------------------------------------------------------------
# xPos: scores


def torchscale():
    from torchscale.component.xpos_relative_position import XPOS

    made = XPOS(D)
    q, k = made(single(ROWS)[None]), made(single(MORE)[None], downscale=True)
    return np.tril((q @ k.transpose(1, 2))[0].numpy())


def xpos_rotary_embedding_torch():
    from rotary_embedding_torch import RotaryEmbedding

    q, k = RotaryEmbedding(D, use_xpos=True).rotate_queries_and_keys(single(ROWS)[None], single(MORE)[None])
    return np.tril((q @ k.transpose(1, 2))[0].detach().numpy())


def xpos(build):
    slots = build("xpos", N, dim=D, causal=True)
    factors = np.repeat(np.exp(slots["growth"]), 2, axis=-1)
    return np.tril(turned(ROWS, slots) * factors @ (turned(MORE, slots) / factors).T)


def xpos_score(index):
    i, j = index
    total = mpmath.mpf(0)
    for t in range(D // 2):
        zeta = (mpmath.mpf(2 * t) / D + mpmath.mpf("0.4")) / mpmath.mpf("1.4")
        a, b, c, d = (mpmath.mpf(float(x)) for x in (*ROWS[i, 2 * t : 2 * t + 2], *MORE[j, 2 * t : 2 * t + 2]))
        angle = (i - j) * theta(t)
        turn = (a * c + b * d) * mpmath.cos(angle) + (a * d - b * c) * mpmath.sin(angle)
        total += power(zeta, i - j, 512) * turn
    return total


LLAMA = "transformers.models.llama.modeling_llama"
GPTJ = "transformers.models.gptj.modeling_gptj"
HALF = {"pairs": "half"}
SCALED = {"rope_theta": 10000.0, "factor": 4.0}
MSCALE = "cosine and sine are multiplied by mscale there, the score by its square here; float32"


def rope_case(scheme, peer, module, of, theirs, ours, exact, farthest=PLACES[-1], why=IN_SINGLE, **more):
    return Case(scheme, peer, module, of, theirs, ours, phases(farthest), exact=exact, why=why, **more)


CASES = (
    rope_case("rope", "transformers>=5", GPTJ, "apply_rotary_pos_emb", gptj(D), rotate("rope"),
              exact(pairs="interleaved"), note="gptj"),
    rope_case("rope", "transformers>=5", GPTJ, "apply_rotary_pos_emb", gptj(8), rotate("rope", rotated=8),
              exact(lambda t: theta(t, width=8), pairs="interleaved", width=8), note="partial"),
    rope_case("rope", "transformers>=5", "transformers.models.roformer.modeling_roformer", "RoFormerSelfAttention",
              roformer, rotate_rows("rope"), exact(places=range(N), pairs="interleaved"), N, note="roformer",
              why="the authors' model; cosines rounded to float32"),
    rope_case("rope", "transformers>=5", LLAMA, "LlamaRotaryEmbedding", llama(PLACES), rotate("rope", **HALF),
              exact(), note="llama"),
    rope_case("rope", "transformers>=5", LLAMA, "LlamaRotaryEmbedding", llama(FAR), rotate("rope", FAR, **HALF),
              exact(places=FAR), FAR[-1], note="far", differs=1e-4,
              why="angles in float32: at position 100000 a unit in the last place of an angle is 0.008"),
    rope_case("rope", "torchtune", "torchtune.modules", "RotaryPositionalEmbeddings", torchtune(PLACES),
              rotate("rope"), exact(pairs="interleaved")),
    rope_case("rope", "rotary-embedding-torch", "rotary_embedding_torch", "RotaryEmbedding",
              rotary_embedding_torch(), rotate_rows("rope"), exact(places=range(N), pairs="interleaved"), N),
    rope_case("rope", "x-transformers", "x_transformers.x_transformers", "RotaryEmbedding", x_transformers(),
              rotate("rope"), exact(pairs="interleaved")),
    rope_case("rope", "keras-hub", "keras_hub", "RotaryEmbedding", keras_hub_rotary, rotate_rows("rope", **HALF),
              exact(places=range(N)), N),
    rope_case("rope_linear", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, linear",
              llama(PLACES, rope_type="linear", **SCALED), rotate("rope_linear", factor=4, **HALF),
              exact(lambda t: theta(t) / 4)),
    rope_case("rope_linear", "rotary-embedding-torch", "rotary_embedding_torch", "RotaryEmbedding, interpolate_factor",
              rotary_embedding_torch(500, interpolate_factor=4.0),
              rotate_rows("rope_linear", start=500, factor=4, pairs="interleaved"),
              exact(lambda t: theta(t) / 4, range(500, 500 + N), "interleaved"), 500 + N),
    rope_case("rope_linear", "x-transformers", "x_transformers.x_transformers",
              "RotaryEmbedding, interpolation_factor", x_transformers(interpolation_factor=4.0),
              rotate("rope_linear", factor=4, pairs="interleaved"), exact(lambda t: theta(t) / 4, pairs="interleaved")),
    rope_case("rope_ntk", "rotary-embedding-torch", "rotary_embedding_torch", "RotaryEmbedding, theta_rescale_factor",
              rotary_embedding_torch(theta_rescale_factor=4.0), rotate_rows("rope_ntk", factor=4, pairs="interleaved"),
              exact(ntk, range(N), "interleaved"), N),
    rope_case("rope_ntk", "x-transformers", "x_transformers.x_transformers", "RotaryEmbedding, base_rescale_factor",
              x_transformers(base_rescale_factor=4.0),
              rotate("rope_ntk", factor=4, pairs="interleaved"), exact(ntk, pairs="interleaved")),
    rope_case("rope_dynamic", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, dynamic",
              llama(PLACES, L0, rope_type="dynamic", rope_theta=10000.0, factor=2.0),
              rotate("rope_dynamic", factor=2, **HALF), exact(rebased(PLACES[-1] + 1)), note="beyond"),
    rope_case("rope_dynamic", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, dynamic",
              llama(INSIDE, L0, rope_type="dynamic", rope_theta=10000.0, factor=2.0),
              rotate("rope_dynamic", INSIDE, factor=2, **HALF),
              exact(places=INSIDE), note="within"),
    rope_case("rope_yarn", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, yarn",
              llama(PLACES, rope_type="yarn", original_max_position_embeddings=L0, **SCALED),
              rotate("rope_yarn", factor=4, **HALF), exact(yarn, factor=lambda: 1 + mpmath.log(4) / 10), why=MSCALE),
    rope_case("rope_yarn", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, yarn",
              llama(PLACES, rope_type="yarn", original_max_position_embeddings=L0, truncate=False, **SCALED),
              rotate("rope_yarn", factor=4, truncate=False, **HALF),
              exact(lambda t: yarn(t, False), factor=lambda: 1 + mpmath.log(4) / 10), why=MSCALE, note="untruncated"),
    rope_case("rope_yarn", "transformers>=5", "transformers.models.gpt_neox.modeling_gpt_neox",
              "GPTNeoXRotaryEmbedding, yarn", rotated_in_part("gpt_neox", "GPTNeoX", rope_type="yarn"),
              rotate("rope_yarn", factor=4, rotated=24, **HALF),
              exact(lambda t: yarn(t, width=24), width=24, factor=lambda: 1 + mpmath.log(4) / 10), note="partial"),
    rope_case("rope_proportional", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, proportional",
              llama(PLACES, rope_type="proportional", partial_rotary_factor=0.3, **SCALED),
              rotate("rope_proportional", proportion=0.3, factor=4), exact(lambda t: theta(t) / 4 * (t < 4))),
    rope_case("rope_longrope", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, longrope",
              llama(PLACES, rope_type="longrope", short_factor=SHORT, long_factor=LONG,
                    original_max_position_embeddings=L0, **SCALED),
              rotate("rope_longrope", factor=4, short=SHORT, long=LONG, **HALF),
              exact(lambda t: theta(t) / mpmath.mpf(LONG[t]),
                    factor=lambda: mpmath.sqrt(1 + mpmath.log(4) / mpmath.log(L0))), why=MSCALE),
    rope_case("rope_longrope", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, longrope",
              llama(INSIDE, rope_type="longrope", short_factor=SHORT, long_factor=LONG,
                    original_max_position_embeddings=L0, **SCALED),
              rotate("rope_longrope", INSIDE, factor=4, short=SHORT, long=LONG, chosen_by="sequence", **HALF),
              exact(lambda t: theta(t) / mpmath.mpf(SHORT[t]), INSIDE,
                    factor=lambda: mpmath.sqrt(1 + mpmath.log(4) / mpmath.log(L0))), why=MSCALE, note="within"),
    rope_case("rope_longrope", "transformers>=5", "transformers.models.phi3.modeling_phi3",
              "Phi3RotaryEmbedding, longrope",
              rotated_in_part("phi3", "Phi3", rope_type="longrope", short_factor=SHORT[:12], long_factor=LONG[:12]),
              rotate("rope_longrope", factor=4, short=SHORT[:12], long=LONG[:12], rotated=24, **HALF),
              exact(lambda t: theta(t, width=24) / mpmath.mpf(LONG[t]), width=24,
                    factor=lambda: mpmath.sqrt(1 + mpmath.log(4) / mpmath.log(L0))), note="partial"),
    rope_case("rope_llama3", "transformers>=5", LLAMA, "LlamaRotaryEmbedding, llama3",
              llama(PLACES, rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                    high_freq_factor=4.0, original_max_position_embeddings=L0),
              rotate("rope_llama3", **HALF), exact(llama3)),
    rope_case("rope_llama3", "torchtune", "torchtune.models.llama3_1", "Llama3ScaledRoPE", llama3_torchtune,
              rotate("rope_llama3", pairs="interleaved"), exact(llama3, pairs="interleaved")),
    rope_case("xpos", "torchscale", "torchscale.component.xpos_relative_position", "XPOS", torchscale, xpos,
              xpos_score, 4 * N, why="the authors' package; float32"),
    rope_case("xpos", "rotary-embedding-torch", "rotary_embedding_torch", "RotaryEmbedding, use_xpos",
              xpos_rotary_embedding_torch, xpos, xpos_score, 4 * N),
)  # fmt: skip
