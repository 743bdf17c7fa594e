"""
A learned bias in a PyTorch training loop
=========================================

PyTorch's fast attention has no gradient for a bias that is shared by positions, as in T5. `fastpe.torch.attention`
computes this gradient, and never stores the matrix of all pairs. This example needs PyTorch: ``pip install -e
".[torch]"``.
"""

# Needs: torch
import matplotlib.pyplot as plt
import numpy as np
import torch

import fastpe.torch

torch.manual_seed(0)
torch.set_num_threads(1)  # small tensors: more threads only wait for each other

# %%
# `fastpe.torch.Encoding` is a module whose parameters are those of the encoding. Called with a length, it returns the
# slots, which are arguments of attention.

length, width, heads, symbols = 32, 32, 4, 16
encoding = fastpe.torch.Encoding("t5", dim=width, heads=heads, train_length=length, causal=True)
print({name: tuple(each.shape) for name, each in encoding.named_parameters()})


class Model(torch.nn.Module):
    """One layer of attention, whose only knowledge of positions is the learned bias."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(symbols, width)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, symbols)
        self.encoding = encoding

    def forward(self, tokens):
        """Logits of the next token, (B, N, symbols)."""
        x = self.embed(tokens)
        parts = self.qkv(x).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
        seen = fastpe.torch.attention(*parts, causal=True, **self.encoding(tokens.shape[1]))
        return self.out(seen.transpose(1, 2).flatten(2))


# %%
# The task: repeat the symbol of three steps ago. The training loop is the usual one.

model = Model()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
before = encoding(length)["bias"].detach().numpy().copy()
for _ in range(200):
    tokens = torch.randint(symbols, (16, length))
    logits = model(tokens)[:, 3:]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :-3].flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.2f} -> {losses[-1]:.3f}; a guess has {np.log(symbols):.2f}")

# %%
# The learned bias: at least one head attends to the position three steps back.

after = encoding(length)["bias"].detach().numpy()
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(losses)
left.set(xlabel="update", ylabel="loss, nats", yscale="log")
back = np.arange(13)
for head in range(heads):
    right.plot(-back, after[head, length - 1 - back], marker="o", markersize=3, label=f"head {head}")
right.plot(-back, before[0, length - 1 - back], "k--", linewidth=0.8, label="head 0, before training")
right.axvline(-3, color="0.6", linewidth=0.8)
right.set(xlabel="offset, key - query", ylabel="bias")
right.legend(fontsize=8)
plt.show()
