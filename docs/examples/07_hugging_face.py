"""
A Hugging Face model by one line
================================

Any model that uses the attention interface of transformers can compute its attention with fastpe. This example uses a
small Llama with random weights, so nothing is downloaded. It needs PyTorch and transformers.
"""

# Needs: torch, transformers
import time

import matplotlib.pyplot as plt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fastpe.torch

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=4096,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()
tokens = torch.randint(128, (1, 512))

# %%
# Register fastpe once; a model then needs only one line, which chooses fastpe by name. `from_pretrained` accepts the
# same name as ``attn_implementation="fastpe"``.

fastpe.torch.register_transformers()


def logits(name):
    """The logits with this implementation of attention."""
    model.set_attn_implementation(name)
    with torch.no_grad():
        return model(tokens).logits[0]


ours, eager = logits("fastpe"), logits("eager")
print(f"largest difference of the logits: {(ours - eager).abs().max():.1e}; largest logit {eager.abs().max():.2f}")

# %%
# Padding, caches, generation and gradients work as before.

model.set_attn_implementation("fastpe")
loss = model(tokens, labels=tokens).loss
loss.backward()
print(
    f"loss {loss:.3f}, gradient of the first query map {model.model.layers[0].self_attn.q_proj.weight.grad.norm():.3f}"
)
print("generated:", model.generate(tokens[:, :8], max_new_tokens=6, do_sample=False, pad_token_id=0)[0, 8:].tolist())

# %%
# The time of a forward pass as a function of the length. Eager attention stores the matrix of all pairs; fastpe does
# not.

lengths, times = (256, 512, 1024), {"eager": [], "fastpe": []}
for name, own in times.items():
    model.set_attn_implementation(name)
    for length in lengths:
        read = torch.randint(128, (1, length))
        rounds = []
        with torch.no_grad():
            for _ in range(4):
                start = time.perf_counter()
                model(read)
                rounds.append(time.perf_counter() - start)
        own.append(1000 * min(rounds))

figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, own in times.items():
    panel.plot(lengths, own, marker="o", label=name)
panel.set(xlabel="tokens", ylabel="forward pass, ms", xscale="log", yscale="log")
panel.set_xticks(lengths, [str(length) for length in lengths])
panel.minorticks_off()
panel.legend(title="attention")
plt.show()
