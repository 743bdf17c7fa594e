"""Peers of the rotations on grids."""

import importlib
from types import SimpleNamespace

import mpmath
import numpy as np
from peer_case import exactly_turned, power, single, turned, waves
from peer_rotations import MORE, ROWS, D, N, rope_case, rotate_rows, theta

H, W = 4, 6
CELLS = [(n // W, n % W) for n in range(N)]
FX, FY = waves(2, D // 2, seed=2), waves(2, D // 2, seed=3)
FX, FY = (f.astype(np.float32).astype(np.float64) for f in (FX, FY))


def timm_axial():
    from timm.layers.pos_embed_sincos import apply_rot_embed, build_rotary_pos_embed

    sin, cos = build_rotary_pos_embed([H, W], dim=D, temperature=100.0, in_pixels=False)
    # row first there: its halves change places
    sin, cos = (half.roll(D // 2, dims=-1) for half in (sin, cos))
    return apply_rot_embed(single(ROWS), sin, cos).numpy()


def timm_eva():
    from timm.layers.pos_embed_sincos import apply_rot_embed, build_rotary_pos_embed

    made = build_rotary_pos_embed([H, W], dim=D, temperature=10000.0, in_pixels=False, ref_feat_shape=[3, 3])
    return apply_rot_embed(single(ROWS), *made).numpy()


def eva_angle(n, t):
    y, x = CELLS[n]
    place = mpmath.mpf(3 * y) / H if t < D // 4 else mpmath.mpf(3 * x) / W
    return place * theta(2 * (t % (D // 4)))


def timm_dinov3(**options):
    def rotated():
        from timm.layers.pos_embed_sincos import RotaryEmbeddingDinoV3, apply_rot_embed_cat

        made = RotaryEmbeddingDinoV3(D, **options).eval()
        return apply_rot_embed_cat(single(ROWS), made.get_embed([H, W]), half=True).numpy()

    return rotated


def dinov3_angle(periods, divisors=(H, W)):
    def angle(n, t):
        axis = t // (D // 4)
        place = (2 * CELLS[n][axis] + 1) / mpmath.mpf(divisors[axis]) - 1
        return 2 * mpmath.pi * place / periods(t % (D // 4))

    return angle


def axial_angle(n, t):
    y, x = CELLS[n]
    return (x if t < D // 4 else y) * theta(2 * (t % (D // 4)), 100.0)


def timm_mixed():
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat, get_mixed_freqs, get_mixed_grid

    rows, columns = get_mixed_grid([H, W])
    turns = get_mixed_freqs(single(np.stack([FX, FY])), columns, rows)
    return apply_rot_embed_cat(single(np.stack([ROWS, MORE])), turns).numpy()


def mixed(build):
    slots = build("rope_mixed", N, dim=2 * D, heads=2, grid=(H, W), params={"fx": FX, "fy": FY})
    each = zip((ROWS, MORE), slots["angles"], strict=True)
    return np.stack([turned(x, {"angles": angles[None], "pairs": slots["pairs"]}) for x, angles in each])


def exactly_mixed(index):
    head, *place = index

    def angle(n, t):
        y, x = CELLS[n]
        return x * mpmath.mpf(float(FX[head, t])) + y * mpmath.mpf(float(FY[head, t]))

    return exactly_turned((ROWS, MORE)[head], "interleaved", D, angle)(place)


POINTS = np.stack([50 + np.arange(N) // 6, 7 + np.arange(N) % 6 // 2, 300 + np.arange(N) % 2], -1)


def qwen_vl(folder, prefix, sections):
    """Through the rotation of one of Qwen's models that see images."""

    def rotated():
        import torch

        peer = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
        parameters = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections}
        config = SimpleNamespace(
            max_position_embeddings=512, rope_parameters=parameters, hidden_size=D, num_attention_heads=1
        )
        x = single(ROWS)[None, None]
        cos, sin = getattr(peer, prefix + "RotaryEmbedding")(config)(x, torch.tensor(POINTS.T)[:, None])
        return peer.apply_rotary_pos_emb(x, x, cos, sin)[0][0, 0].numpy()

    return rotated


def mrope(**options):
    return lambda build: turned(ROWS, build("mrope", N, dim=D, base=10000.0, positions=POINTS, **options))


def section_angle(n, t):
    return int(POINTS[n][0 if t < 4 else 1 if t < 10 else 2]) * theta(t)


def interleaved_angle(n, t):
    return int(POINTS[n][t % 3]) * theta(t) if t < 15 else int(POINTS[n][0]) * theta(t)


TIMM = "timm.layers.pos_embed_sincos"
CASES = (
    rope_case("rope_2d", "timm", TIMM, "build_rotary_pos_embed", timm_axial, rotate_rows("rope_2d", grid=(H, W)),
              exactly_turned(ROWS, "interleaved", D, axial_angle), W,
              why="row first by default: halves exchanged; float32"),
    rope_case("rope_mixed", "timm", TIMM, "get_mixed_freqs", timm_mixed, mixed, exactly_mixed, 2 * W),
    rope_case("mrope", "transformers>=5", "transformers.models.qwen2_vl.modeling_qwen2_vl", "Qwen2VLRotaryEmbedding",
              qwen_vl("qwen2_vl", "Qwen2VL", [4, 6, 6]), mrope(sections=(4, 6, 6)),
              exactly_turned(ROWS, "half", D, section_angle), 302),
    rope_case("mrope", "transformers>=5", "transformers.models.qwen3_vl.modeling_qwen3_vl",
              "Qwen3VLTextRotaryEmbedding", qwen_vl("qwen3_vl", "Qwen3VLText", [6, 5, 5]),
              mrope(sections=(6, 5, 5), deal="interleaved"), exactly_turned(ROWS, "half", D, interleaved_angle), 302,
              note="interleaved"),
    rope_case("rope_2d", "timm", TIMM, "build_rotary_pos_embed", timm_eva,
              rotate_rows("rope_2d", grid=(H, W), first="row", base=10000.0, train_grid=(3, 3)),
              exactly_turned(ROWS, "interleaved", D, eva_angle), 3, note="eva"),
    rope_case("rope_dinov3", "timm", TIMM, "RotaryEmbeddingDinoV3", timm_dinov3(),
              rotate_rows("rope_dinov3", grid=(H, W)),
              exactly_turned(ROWS, "half", D, dinov3_angle(lambda t: power(100.0, 4 * t, D))), 7),
    rope_case("rope_dinov3", "timm", TIMM, "RotaryEmbeddingDinoV3",
              timm_dinov3(temperature=None, min_period=0.5, max_period=90.0, normalize_coords="max"),
              rotate_rows("rope_dinov3", grid=(H, W), period_min=0.5, period_max=90.0, normalise="max"),
              exactly_turned(ROWS, "half", D, dinov3_angle(lambda t: power(180.0, t, 7) / 2, (W, W))), 13,
              note="periods"),
)  # fmt: skip
