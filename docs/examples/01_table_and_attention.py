"""
What an encoding does to attention
==================================

Without a position encoding, the score of two tokens does not depend on where they are. This example shows how three
encodings change the weights of attention for the same queries and keys: ALiBi adds a bias to the scores, RoPE rotates
queries and keys, and the sinusoidal table is added to the embeddings.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastpe

# %%
# An encoding fills *slots*, small arrays that act at one point of a transformer. `fastpe.build` returns them by name.

length, dim, heads = 64, 64, 4
sizes = {"dim": dim, "heads": heads, "causal": True}
for name in ("alibi", "rope", "sinusoidal"):
    slots = fastpe.build(name, length, **sizes)
    print(name, {slot: np.shape(value) for slot, value in slots.items()})

# %%
# `fastpe.show` draws the slots of an encoding. ALiBi's bias is a line for each head. The dashed line marks the training
# length.

bias = fastpe.show("alibi", heads=heads, causal=True)

# %%
# The rows of the sinusoidal table, and the cosine of the angle between any two of them:

table = fastpe.show("sinusoidal")

# %%
# Now the effect on attention. All tokens have the same embedding here, so everything that differs between two
# positions comes from the encoding.

rng = np.random.default_rng(0)
token = rng.standard_normal(dim)
to_query, to_key = rng.standard_normal((2, heads, dim, dim // heads)) / np.sqrt(dim)


def weights(name):
    """Weights of attention, (heads, queries, keys)."""
    slots = fastpe.build(name, length, **sizes)
    embedded = np.tile(token, (length, 1)) + slots.pop("table", 0.0)
    q, k = embedded @ to_query, embedded @ to_key
    return fastpe.attention_scores(q, k, causal=True, **slots)


names = ("nope", "alibi", "rope", "sinusoidal")
figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained", sharey=True)
for panel, name in zip(axes, names, strict=True):
    image = panel.imshow(np.sqrt(weights(name)[0]), vmin=0, vmax=1, cmap="viridis")
    panel.set(title=name, xlabel="key")
axes[0].set_ylabel("query")
figure.colorbar(image, label="square root of the weight")

# %%
# Without an encoding (`nope`), every query spreads its weight evenly over the past. ALiBi prefers recent keys by
# construction. RoPE gives each pair of positions a score that depends only on their offset, so the pattern is constant
# along diagonals. With the sinusoidal table the pattern also depends on the absolute position.
#
# The following curves show the weights of the last query.

figure, panel = plt.subplots(figsize=(7, 3.5), layout="constrained")
for name in names:
    panel.plot(weights(name)[0, -1], label=name)
panel.set(xlabel="position of the key", ylabel="weight of the last query", yscale="log")
panel.legend()
plt.show()
