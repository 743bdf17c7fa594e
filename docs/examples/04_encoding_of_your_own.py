"""
An encoding of your own, with a learned parameter
=================================================

An encoding is a file: a docstring, the formula in NumPy, and a record that names the slots. ``fastpe check --template``
prints such a file to start from. This example adds a penalty that saturates: all far keys get the same penalty, and the
model learns its size and the distance from which it applies.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fastpe

# %%
# The file. `reference` is the formula; `parameters` and `init` declare what is learned; `pull` is the backward pass: it
# adds the gradient of the slot, ``dslots["bias"]``, to the gradients of the parameters.

SOURCE = '''"""Saturating penalty: a penalty that grows with the distance up to a limit, learned for each head.

    S_ij = s q_i . k_j - height_h (1 - exp(-|j - i| / scale))

Source: an own construction.
"""

import numpy as np

import fastpe


def _shape(spec, scale):
    distances = np.abs(np.arange(1.0 - spec.length, spec.length))
    return 1.0 - np.exp(-distances / scale)


def parameters(spec, **options):
    return {"height": (spec.heads,)}


def init(spec, rng, **options):
    return {"height": np.full(spec.heads, 2.0)}


def reference(spec, params, *, scale):
    return {"bias": -params["height"][:, None] * _shape(spec, scale)}


def pull(spec, params, dslots, dparams, *, scale):
    dparams["height"] -= (dslots["bias"] * _shape(spec, scale)).sum(axis=1)


ENCODING = fastpe.Encoding(
    slots=("bias",),
    summary="a penalty by distance that saturates",
    options={"scale": fastpe.Option(8.0, "distance over which it grows", float, above=0.0)},
    beyond="defined",
    direction="no",
    source="an own construction",
    ulp=8.0,
)
'''
file = Path(tempfile.mkdtemp()) / "saturating.py"
file.write_text(SOURCE)
key = fastpe.register(file)
print(fastpe.page(key))

# %%
# ``fastpe check saturating.py`` runs the tests that fastpe's own encodings must pass, such as the comparison of `pull`
# with finite differences. After `fastpe.register`, the encoding works everywhere under its name, also in sums such as
# ``"saturating+rope"``.

before = fastpe.show(key, heads=4, causal=True, train_length=32)

# %%
# Train a model whose task is to recall the last written bit among distractors.

config = fastpe.TrainConfig(
    key, task="flip_flop", causal=True, width=32, hidden=128, layers=2, heads=4, norm="layernorm", final_norm=True,
    lr=3e-3, warmup=50, decay="linear", clip=1.0, train_length=16, samples=3200, epochs=8, test_sequences=300,
)  # fmt: skip
result = fastpe.train(config, progress=False)
print(result)

# %%
# What it has learned: each head has its own height.

learned = [name for name in result.model.parameters if name.startswith("encoding.")]
heights = result.model.parameters[learned[0]]
print(learned[0], np.round(heights, 2))

figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
distances = np.arange(64)
for head, height in enumerate(np.ravel(heights)[:4]):
    panel.plot(distances, -height * (1 - np.exp(-distances / 8.0)), label=f"head {head}")
panel.plot(distances, -2.0 * (1 - np.exp(-distances / 8.0)), "k--", linewidth=0.8, label="before training")
panel.set(xlabel="distance of query and key", ylabel="bias")
panel.legend()
plt.show()
