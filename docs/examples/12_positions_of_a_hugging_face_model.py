"""
Positions of a Hugging Face model
=================================

This example replaces the rotary positions of a model of transformers, without training it again, and measures what its
heads attend to. It trains a small Llama on random tokens that are repeated, so nothing is downloaded. It needs PyTorch
and transformers.
"""

# Needs: torch, transformers
import matplotlib.pyplot as plt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fastpe.torch

torch.manual_seed(0)
torch.set_num_threads(1)  # small tensors: more threads only wait for each other
LENGTH, SYMBOLS = 48, 32
config = LlamaConfig(
    vocab_size=SYMBOLS, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=LENGTH, pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip
model = LlamaForCausalLM(config)


def repeated(samples, length, period):
    """Random tokens, repeated with a period. Only the first copy cannot be predicted."""
    one = torch.randint(SYMBOLS, (samples, period))
    return one.repeat(1, -(-length // period))[:, :length]


def loss_of(tokens, period):
    """The loss by place, after the first copy."""
    logits = model(tokens).logits[:, period - 1 : -1]
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, period:], reduction="none").mean(0)


optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(500):
    period = int(torch.randint(8, 25, ()))
    loss = loss_of(repeated(32, LENGTH, period), period).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"update {step + 1}: loss {loss:.3f}, chance {torch.tensor(SYMBOLS).log():.3f}")
model.eval()

# %%
# What the heads attend to
# ------------------------
# The model has learned to continue a repetition. `head_scores` shows how: a head of the first layer attends to the
# previous token, and a head of the second layer to the token after the earlier copy.

tokens = torch.stack([torch.randperm(SYMBOLS)[:24] for _ in range(16)]).repeat(1, 2)
scores = fastpe.torch.head_scores(model, tokens, start=24)
for name in ("previous", "induction", "sink"):
    print(f"{name:10}", scores[name].numpy().round(2).tolist())

figure, panels = plt.subplots(1, 3, figsize=(9, 2.2), layout="constrained")
for panel, name in zip(panels, ("previous", "induction", "sink"), strict=True):
    image = panel.imshow(scores[name], vmin=0, vmax=1, cmap="Blues")
    for (layer, head), value in [((i, j), scores[name][i, j]) for i in range(2) for j in range(4)]:
        panel.text(head, layer, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.5 else "black")
    panel.set(title=name, xlabel="head", ylabel="layer", xticks=range(4), yticks=range(2))
plt.show()

# %%
# Beyond the training length
# --------------------------
# The model was trained on 48 tokens, and reads 192. `rotated` replaces its positions for one forward pass.

schemes = {
    "as trained": {},
    "Self-Extend": {"scheme": "self_extend", "group": 8, "window": 26},
    "ReRoPE": {"scheme": "rerope", "window": 30},
    "YaRN": {"scheme": "rope_yarn", "factor": 4.0},
    "window and first keys": {"scheme": "streaming", "start": 4, "recent": 44},
}
longer, curves = repeated(32, 192, 20), {}
for name, options in schemes.items():
    with fastpe.torch.rotated(model, **options), torch.no_grad():
        curves[name] = loss_of(longer, 20)
    print(f"{name:22} loss at 20-47: {curves[name][:28].mean():.3f}, at 144-191: {curves[name][-48:].mean():.3f}")

figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, curve in curves.items():
    smooth = torch.nn.functional.avg_pool1d(curve[None], 8, 8)[0]
    panel.plot(20 + 8 * torch.arange(len(smooth)), smooth, label=name)
panel.axvline(LENGTH, color="0.5", linestyle="--")
panel.set(xlabel="place of the token; dashed: training length", ylabel="loss")
panel.legend()
plt.show()

# %%
# Only some heads
# ---------------
# Which heads need positions? Remove the rotation from one head after the other.

with torch.no_grad():
    print(f"intact: {loss_of(tokens, 24).mean():.3f}")
    for layer in range(2):
        for head in range(4):
            chosen = torch.zeros(2, 4, dtype=torch.bool)
            chosen[layer, head] = True
            with fastpe.torch.rotated(model, keep=0.0, heads=chosen):
                print(f"layer {layer}, head {head} without rotation: {loss_of(tokens, 24).mean():.3f}")
