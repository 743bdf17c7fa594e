"""Peers of the encodings whose vectors meet query and key."""

from types import SimpleNamespace

import mpmath
import numpy as np
from peer_case import DOUBLE, Case, double, exact, heads, power, single, waves, weights

from fastpe import reference

N, C, H = 9, 24, 2
D = C // H
X = waves(N, C)
WQ, WK, WV = (waves(C, C, seed=seed) / 4 for seed in (1, 2, 3))
Q, K, V = (heads(X @ w, H) for w in (WQ, WK, WV))


def linear(layer, matrix):
    """Give a layer of PyTorch a matrix (in, out), and no bias."""
    layer.weight.data = double(matrix.T)
    if layer.bias is not None:
        layer.bias.data.zero_()


def attend(name, length=N, causal=False, **options):
    """The weights of attention with this encoding; `length` is N."""

    def found(build):
        slots = build(name, length, dim=C, heads=H, causal=causal, **options)
        return weights(Q, K, {slot: value for slot, value in slots.items() if slot != "rel_value"}, causal=causal)

    return found


TABLE, KEYS, QUERIES = waves(16, C, seed=4), waves(C, C, seed=5) / 4, waves(C, C, seed=6) / 4
DEBERTA = {
    "hidden_size": C, "num_attention_heads": H, "pos_att_type": ["c2p", "p2c"], "relative_attention": True,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def deberta():
    import torch
    from transformers.models.deberta import modeling_deberta as peer

    made = peer.DisentangledSelfAttention(SimpleNamespace(**DEBERTA, max_relative_positions=4)).double().eval()
    # rows of each head: query, key, value
    maps = np.stack([w.reshape(C, H, D) for w in (WQ, WK, WV)], 2).reshape(C, 3 * C)
    for layer, matrix in ((made.in_proj, maps), (made.pos_proj, KEYS), (made.pos_q_proj, QUERIES)):
        linear(layer, matrix)
    q = double(Q)[None]
    found = made(
        double(X)[None], torch.ones(1, 1, N, N), True, relative_pos=peer.build_relative_position(q, q),
        rel_embeddings=double(TABLE[:8]),
    )  # fmt: skip
    return found[1][0].detach().numpy()


def deberta_v2():
    import torch
    from transformers.models.deberta_v2 import modeling_deberta_v2 as peer

    config = SimpleNamespace(**DEBERTA, max_relative_positions=16, position_buckets=6)
    made = peer.DisentangledSelfAttention(config).double().eval()
    maps = (
        (made.query_proj, WQ), (made.key_proj, WK), (made.value_proj, WV), (made.pos_key_proj, KEYS),
        (made.pos_query_proj, QUERIES),
    )  # fmt: skip
    for layer, matrix in maps:
        linear(layer, matrix)
    found = made(double(X)[None], torch.ones(1, 1, N, N), True, rel_embeddings=double(TABLE[:12]))
    return found[1][0].detach().numpy()


def our_deberta(rows, **options):
    return attend("deberta", params={"table": TABLE[:rows], "key": KEYS, "query": QUERIES}, **options)


def deberta_v2_buckets():
    """Rows of the table of 512 that offsets -512 .. 512 take."""
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    buckets = make_log_bucket_position(torch.arange(512, -513, -1), 256, 512)
    return torch.clamp(buckets + 256, 0, 511).numpy().astype(np.int32)


def our_buckets(build):
    # a table whose rows are their own numbers
    params = {"table": np.arange(512.0)[:, None], "key": np.ones((1, 1)), "query": np.ones((1, 1))}
    return build("deberta", 513, dim=1, reach=512, buckets=256, params=params)["rel_key"][0, :, 0]


U, GLOBAL, WR = waves(H, D, seed=7), waves(H, D, seed=8), waves(C, C, seed=9) / 4
XL = {"u": U, "v": GLOBAL, "weight": WR}


def transformer_xl():
    import torch
    from transformers.models.deprecated.transfo_xl import modeling_transfo_xl as peer

    made = peer.RelPartialLearnableMultiHeadAttn(H, C, D, 0.0).eval()
    linear(made.qkv_net, np.concatenate([WQ, WK, WV], 1))
    linear(made.r_net, WR)
    linear(made.o_net, np.eye(C))
    made.r_w_bias.data, made.r_r_bias.data = double(U), double(GLOBAL)
    sinusoids = peer.PositionalEmbedding(C)(torch.arange(N - 1, -1, -1.0))
    hidden = torch.ones(N, N, dtype=torch.long).triu(1)[..., None]
    found = made.float()(single(X)[:, None], sinusoids, hidden, output_attentions=True)[1]
    return found[:, :, 0].permute(2, 0, 1).detach().numpy()


def conformer():
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as peer

    config = SimpleNamespace(
        hidden_size=C, num_attention_heads=H, position_embeddings_type="relative", attention_dropout=0.0,
        max_source_positions=N, _attn_implementation="eager",
    )  # fmt: skip
    made = peer.Wav2Vec2ConformerSelfAttention(config).double().eval()
    # sines and cosines alternate there
    alternating = np.stack([WR[: C // 2], WR[C // 2 :]], 1).reshape(C, C)
    maps = (made.linear_q, WQ), (made.linear_k, WK), (made.linear_v, WV), (made.linear_pos, alternating)
    for layer, matrix in maps:
        linear(layer, matrix)
    made.pos_bias_u.data, made.pos_bias_v.data = double(U), double(GLOBAL)
    sinusoids = peer.Wav2Vec2ConformerRelPositionalEmbedding(config)(single(X)[None]).double()
    return made(double(X)[None], None, sinusoids)[1][0].detach().numpy()


def exact_transformer_xl(causal):
    """Softmax of ((q_i + u) . k_j + (q_i + v) . r_(i-j)) / sqrt D with exact sinusoids."""

    def entry(index):
        h, i, j = index
        q, k, u, v = (exact(x) for x in (Q[h, i], K[h], U[h], GLOBAL[h]))
        w = exact(WR[:, h * D : (h + 1) * D])
        frequencies = [1 / power(1e4, 2 * t, C) for t in range(C // 2)]

        def score(key):
            row = [f((i - key) * x) for f in (mpmath.sin, mpmath.cos) for x in frequencies]
            return (np.dot(q + u, k[key]) + np.dot(q + v, np.dot(row, w))) / mpmath.sqrt(D)

        seen = [mpmath.exp(score(key)) for key in range(i + 1 if causal else N)]
        return seen[j] / sum(seen) if j < len(seen) else 0

    return entry


SHAW, SHAW_VALUES = waves(7, D, seed=10), waves(7, D, seed=14)


def tensor2tensor():
    import tensorflow.compat.v1 as tf
    from tensor2tensor.layers.common_attention import dot_product_attention_relative

    def given(getter, name, *args, **kwargs):
        return tf.constant(SHAW if "keys" in name else SHAW_VALUES)

    # queries are scaled before they come there
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope("shaw", custom_getter=given):
        q, k, v = (tf.constant(x[None]) for x in (Q * D**-0.5, K, V))
        return session.run(dot_product_attention_relative(q, k, v, None, 3, make_image_summary=False))[0]


def shaw(build):
    slots = build("shaw", N, dim=C, heads=H, reach=3, params={"key": SHAW, "value": SHAW_VALUES})
    return reference.attention(Q, K, V, **slots)


def wav2vec2_bert():
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    made = Wav2Vec2BertSelfAttention(
        SimpleNamespace(
            hidden_size=C, num_attention_heads=H, position_embeddings_type="relative_key", attention_dropout=0.0,
            left_max_position_embeddings=3, right_max_position_embeddings=3, _attn_implementation="eager",
        )
    ).double().eval()  # fmt: skip
    for layer, matrix in ((made.linear_q, WQ), (made.linear_k, WK), (made.linear_v, WV)):
        linear(layer, matrix)
    made.distance_embedding.weight.data = double(SHAW)
    return made(double(X)[None])[1][0].detach().numpy()


HUANG = waves(2 * N - 1, D, seed=11)


def bert():
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = SimpleNamespace(
        hidden_size=C, num_attention_heads=H, attention_probs_dropout_prob=0.0, max_position_embeddings=N,
        is_decoder=False, position_embedding_type="relative_key_query",
    )  # fmt: skip
    made = BertSelfAttention(config).double().eval()
    for layer, matrix in ((made.query, WQ), (made.key, WK), (made.value, WV)):
        linear(layer, matrix)
    made.distance_embedding.weight.data = double(HUANG[::-1].copy())
    return made(double(X)[None], output_attentions=True)[1][0].detach().numpy()


COUNTED = waves(4, D, seed=12)


def x_transformers_cope():
    import torch
    from x_transformers.x_transformers import CoPE

    made = CoPE(D, H, len(COUNTED)).double()
    made.pos_emb.data = double(COUNTED)
    q, k, v = (double(x)[None] for x in (Q, K, V))
    hidden = torch.ones(N, N, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) * D**-0.5).masked_fill(hidden, -torch.finfo(torch.float64).max)
    scores = (scores + made(q, scores)).masked_fill(hidden, -torch.inf)
    return (torch.softmax(scores, -1) @ v)[0].detach().numpy()


def cope(build):
    own = {"most": len(COUNTED) - 1, "divided": False, "params": {"vectors": COUNTED}}
    return reference.attention(Q, K, V, causal=True, **build("cope", N, dim=C, heads=H, causal=True, **own))


CASES = (
    Case("deberta", "transformers>=5", "transformers.models.deberta.modeling_deberta", "DisentangledSelfAttention",
         deberta, our_deberta(8, reach=4), DOUBLE, note="v1"),
    Case("deberta", "transformers>=5", "transformers.models.deberta_v2.modeling_deberta_v2",
         "DisentangledSelfAttention", deberta_v2, our_deberta(12, reach=16, buckets=6), DOUBLE, note="v2"),
    Case("deberta", "transformers>=5", "transformers.models.deberta_v2.modeling_deberta_v2",
         "make_log_bucket_position", deberta_v2_buckets, our_buckets, 0.0, note="buckets"),
    Case("transformer_xl", "transformers<5", "transformers.models.deprecated.transfo_xl.modeling_transfo_xl",
         "RelPartialLearnableMultiHeadAttn", transformer_xl, attend("transformer_xl", causal=True, params=XL), 1e-6,
         exact=exact_transformer_xl(True), why="in float32", note="causal"),
    Case("transformer_xl", "transformers>=5", "transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer",
         "Wav2Vec2ConformerSelfAttention", conformer, attend("transformer_xl", params=XL), 1e-6,
         exact=exact_transformer_xl(False), note="both_sides",
         why="sines and cosines alternate: rearranged; sinusoids in float32"),
    Case("shaw", "tensor2tensor", "tensor2tensor.layers.common_attention", "dot_product_attention_relative",
         tensor2tensor, shaw, DOUBLE, why="the authors' package; the output, with vectors for values"),
    Case("shaw", "transformers>=5", "transformers.models.wav2vec2_bert.modeling_wav2vec2_bert",
         "Wav2Vec2BertSelfAttention", wav2vec2_bert,
         attend("shaw", reach=3, use_values=False, params={"key": SHAW}), DOUBLE, why="keys only"),
    Case("huang4", "transformers<5", "transformers.models.bert.modeling_bert", "BertSelfAttention, relative_key_query",
         bert, attend("huang4", reach=N, params={"weight": HUANG[None]}), DOUBLE,
         why="its table goes by i - j: turned upside down"),
    Case("cope", "x-transformers", "x_transformers.x_transformers", "CoPE", x_transformers_cope,
         cope, DOUBLE),
)  # fmt: skip
