"""
Training on after the positions are dropped
===========================================

A model learns a text with rotary positions. Then the positions are removed, and it trains on for a short time at the
same length (DroPE, Gelberg et al. 2025). Tokens are subwords of a byte-pair encoding that is trained on the text.
"""
# Needs: tokenizers

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fastpe

# %%
# The text is made by a small grammar. A name at the start of a paragraph returns in its last sentence.

rng = np.random.default_rng(0)
names = ["Ada", "Bela", "Carla", "Dario", "Edda", "Finn", "Greta", "Hugo"]
places = ["the harbour", "the garden", "the old mill", "the market", "the river"]
things = ["a lamp", "two letters", "a green boat", "the key", "some bread"]


def paragraph():
    """A few sentences about one person."""
    who = rng.choice(names)
    said = [f"{who} went to {rng.choice(places)}."]
    for _ in range(rng.integers(1, 4)):
        said.append(f"There {'she' if who[-1] == 'a' else 'he'} found {rng.choice(things)}.")
    return " ".join([*said, f"In the evening {who} came home."]) + "\n"


folder = Path(tempfile.mkdtemp())
(folder / "text.txt").write_text("".join(paragraph() for _ in range(4000)))

# %%
# First, training with rotary positions. ``bpe:320`` trains a byte-pair encoding of 320 tokens on the training part of
# the text; the run folder keeps it as ``tokenizer.json``.

training = {"batch": 16, "epochs": 1, "lr": 3e-3, "warmup": 20, "decay": "cosine", "test_lengths": (32,)}
model = {"causal": True, "width": 64, "hidden": 256, "layers": 2, "heads": 4, "train_length": 32, "norm": "layernorm"}
data = {"task": "text", "data": str(folder / "text.txt"), "task_options": {"tokens": "bpe:320"}}
with_positions = fastpe.TrainConfig("rope", **data, **model, **training, samples=4800)
runs = {"rope": fastpe.train(with_positions, out=folder / "rope", progress=False)}

# %%
# Then the same weights without positions, for a fifth of the updates. All weights are copied. The control is a model
# that has no positions from the start, and the same total number of updates.

dropped = fastpe.TrainConfig.starting_from(folder / "rope", "nope", **training, samples=960)
runs["rope, then nope"] = fastpe.train(dropped, out=folder / "dropped", progress=False)
control = fastpe.TrainConfig("nope", **data, **model, **training, samples=5760)
runs["nope"] = fastpe.train(control, progress=False)
for name, run in runs.items():
    print(f"{name:16} {run.result['validation']['bits_per_byte']:.3f} bits per byte")

# %%
# Losses of subwords are compared in bits per byte. The curve reads the validation text in sliding windows of up to 16
# times the training length.

text, lengths = with_positions.read_text().parts(0.1)[1][:6000], (16, 32, 64, 128, 256, 512)
figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
panel.axvspan(32, 560, color="0.93")
panel.text(35, 0.02, "longer than in training", color="0.35", transform=panel.get_xaxis_transform())
for name, run in runs.items():
    curve = fastpe.length_curve(run.model, text, lengths, sliding=True)
    panel.plot(lengths, [point.bits_per_byte for point in curve.points], marker="o", label=name)
panel.set(xlabel="length of the window, tokens", ylabel="loss, bits per byte", xscale="log", xlim=(15, 560))
panel.set_xticks(lengths, [str(length) for length in lengths])
panel.minorticks_off()
panel.legend()

# %%
# With rotary positions, the loss is lowest near the training length, and rises steeply at the longest windows. After
# the positions are dropped, it is higher at short windows and rises less. This is one seed of a small model:
# ``fastpe compare`` says what several seeds allow to conclude.

plt.show()
