"""
Your own text: length curves and generation
===========================================

Three small language models learn a text and are read at up to eight times their training length. Replace the text of
this example by any file: ``data="my.txt"``.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fastpe

# %%
# The text of this example is made by a small grammar. A name at the start of a paragraph returns in its last sentence,
# so that a model gains from looking back.

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
file = folder / "text.txt"
file.write_text("".join(paragraph() for _ in range(2500)))
print(file.read_text()[:260])

# %%
# Each model reads blocks of 64 characters in training. The last tenth of the text is kept for validation.

models, text = {}, None
for encoding in ("alibi", "rope", "nope"):
    config = fastpe.TrainConfig(
        encoding, task="text", data=str(file), causal=True, width=64, hidden=256, layers=2, heads=4,
        train_length=64, batch=16, samples=4800, epochs=1, lr=2e-3, warmup=20, decay="cosine", test_lengths=(64,),
    )  # fmt: skip
    result = fastpe.train(config, progress=False)
    models[encoding], text = result.model, config.read_text().parts(0.1)[1]
    print(encoding, f"{result.result['test']['64']['bits_per_byte']:.3f} bits per character")

# %%
# A length curve reads the validation text in windows of several lengths. In a sliding window every token but the first
# ones has a long context, so the curve shows the effect of the length itself.

lengths = (32, 64, 128, 256, 512)
figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
panel.axvspan(64, 560, color="0.93")
panel.text(70, 0.02, "longer than in training", color="0.35", transform=panel.get_xaxis_transform())
for encoding, model in models.items():
    curve = fastpe.length_curve(model, text[:6000], lengths, sliding=True)
    panel.plot([p.length for p in curve.points], [p.loss for p in curve.points], marker="o", label=encoding)
panel.set(xlabel="length of the window", ylabel="loss, nats per character", xscale="log", xlim=(30, 560))
panel.set_xticks(lengths, [str(length) for length in lengths])
panel.minorticks_off()
panel.legend()

# %%
# ALiBi keeps its loss at every length. RoPE meets angles that it has never seen. Both can be read off the text that
# they write, token by token, far beyond 64 characters:

for encoding in ("alibi", "rope"):
    print(f"--- {encoding}\n{models[encoding].generate('Ada went to ', 240, temperature=0.5, seed=1)}\n")
plt.show()
