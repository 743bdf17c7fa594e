"""
Checkpoints of Hugging Face: export, read, compare
==================================================

A small language model is trained, written in the format of Hugging Face's transformers, and read again. The checkpoint
is then read at up to eight times its training length, with several schemes that change its rotary positions.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fastpe

rng = np.random.default_rng(0)
who, what = ["Ada", "Bela", "Carla", "Dario"], ["a lamp", "two letters", "a green boat", "the key"]
folder = Path(tempfile.mkdtemp())
file = folder / "text.txt"
file.write_text("".join(f"{rng.choice(who)} found {rng.choice(what)} by the river.\n" for _ in range(2000)))

# %%
# A model with the parts of Llama: RMSNorm, a gated activation, rotary positions, no biases, and a tied head.

config = fastpe.TrainConfig(
    "rope", task="text", data=str(file), causal=True, train_length=64, width=64, heads=4, hidden=128, layers=2,
    norm="rmsnorm", final_norm=True, activation="swiglu", bias=False, tied=True, epochs=2, batch=16,
)  # fmt: skip
model = fastpe.train(config, out=folder / "run").model

# %%
# Export chooses the architecture. Neither PyTorch nor transformers is needed.

print(fastpe.to_hf(model, folder / "checkpoint"))
print(sorted(path.name for path in (folder / "checkpoint").iterdir()))
settings = json.loads((folder / "checkpoint" / "config.json").read_text())
print({key: settings[key] for key in ("model_type", "hidden_size", "num_key_value_heads", "rope_parameters")})

# %%
# The checkpoint is the same model, bit by bit. A checkpoint that transformers has written is read in the same way.

again = fastpe.load_hf(folder / "checkpoint")
tokens = again.vocabulary.encode("Ada found ")
print(again.config == model.config, np.array_equal(again(tokens), model(tokens)))
print(again.generate("Ada found ", 40, temperature=0.0))

# %%
# Losses by length, with bands that keep rotary positions within those of training.

text = again.vocabulary.encode(file.read_text()[-3000:])
lengths = (64, 128, 256, 512)
figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
for scheme in (None, "self_extend:group=8,window=32", "streaming:start=4,recent=56"):
    reader = again if scheme is None else fastpe.Banded(again, scheme)
    curve = fastpe.length_curve(reader, text, lengths)
    panel.plot(lengths, [point.loss for point in curve.points], marker="o", label=scheme or "none")
panel.axvline(64, color="0.6", linestyle=":")
panel.set(xlabel="tokens", ylabel="loss, nats per byte", xscale="log")
panel.set_xticks(lengths, [str(length) for length in lengths])
panel.minorticks_off()
panel.legend(title="bands")
plt.show()
