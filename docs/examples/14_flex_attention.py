"""
FlexAttention with gradients on a CPU
=====================================

PyTorch's FlexAttention takes a function that changes the score of a query and a key. On a CPU it has no gradients.
`fastpe.torch.flex_attention` has gradients, including those of tensors that the function captures. This example needs
PyTorch: ``pip install -e ".[torch]"``.
"""

# Needs: torch
import matplotlib.pyplot as plt
import torch

from fastpe.torch import create_block_mask, flex_attention, flex_report

torch.manual_seed(0)
torch.set_num_threads(1)  # small tensors: more threads only wait for each other

# %%
# A `score_mod` gets a score and the indices of sample, head, query and key. This one adds a learned number for each
# distance, up to 15, and a soft cap. A `mask_mod` says which keys a query sees.

length, width, heads, symbols = 48, 32, 4, 16
table = torch.zeros(heads, 16, requires_grad=True)


def by_distance(score, b, h, q_idx, kv_idx):
    """Add a learned bias and cap the sum at 8."""
    return 8 * torch.tanh((score + table[h, (q_idx - kv_idx).clamp(0, 15)]) / 8)


def causal(b, h, q_idx, kv_idx):
    """Hide later keys."""
    return q_idx >= kv_idx


block_mask = create_block_mask(causal, None, None, length, length)

# %%
# `flex_report` tells how a call is computed. A function of the distance becomes a bias, in O(N) memory. A square of the
# score cannot become a slot: PyTorch computes it, for some queries at a time.

q = torch.zeros(1, heads, length, width // heads)
print(flex_report(q, q, q, by_distance, block_mask), end="\n\n")
print(flex_report(q, q, q, lambda score, b, h, q_idx, kv_idx: score * score, block_mask))

# %%
# The task is to repeat the symbol of three steps before. Only the learned bias depends on positions.

embed = torch.nn.Embedding(symbols, width)
qkv = torch.nn.Linear(width, 3 * width, bias=False)
out = torch.nn.Linear(width, symbols)
optimiser = torch.optim.Adam([table, *embed.parameters(), *qkv.parameters(), *out.parameters()], lr=1e-2)
losses = []
for _ in range(200):
    tokens = torch.randint(symbols, (16, length))
    parts = qkv(embed(tokens)).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
    seen = flex_attention(*parts, by_distance, block_mask)
    logits = out(seen.transpose(1, 2).flatten(2))[:, 3:]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :-3].flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.2f} -> {losses[-1]:.3f}")

# %%
# The gradient has reached the captured table: some heads look three steps back.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(losses)
left.set(xlabel="update", ylabel="loss, nats", yscale="log")
for head, row in enumerate(table.detach()):
    right.plot(row, marker="o", markersize=3, label=f"head {head}")
right.axvline(3, color="0.6", linewidth=0.8)
right.set(xlabel="distance, query - key", ylabel="learned bias")
right.legend(fontsize=8)
plt.show()
