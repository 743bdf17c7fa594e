"""Make tests/data/torch_values.npz: small cases computed by PyTorch, for machines without it.

    python tests/support/peers/make_torch_values.py

Needs PyTorch (2.2 or later) and NumPy. Everything is float64. Every case is written with PyTorch's own operations and
differentiated by its autograd; nothing here calls fastpe. Keys of the file are ``case/kind/name``: kind ``in`` for
inputs, ``out`` for results, ``grad`` for gradients of inputs; ``case/settings`` is a JSON object.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

PATH = Path(__file__).resolve().parents[2] / "data" / "torch_values.npz"

MODELS = {
    "paper": {
        "width": 6, "heads": 1, "layers": 2, "hidden": 8, "causal": False, "activation": "relu", "norm": "none",
        "residual": True, "slots": ["table"],
    },
    "deep": {
        "width": 8, "heads": 4, "layers": 3, "hidden": 6, "causal": True, "activation": "gelu", "norm": "layernorm",
        "residual": True, "slots": ["bias"],
    },
    "bare": {
        "width": 6, "heads": 2, "layers": 1, "hidden": 5, "causal": False, "activation": "gelu", "norm": "layernorm",
        "residual": False, "slots": ["table", "bias"],
    },
    "tokens": {
        "width": 8, "heads": 2, "layers": 2, "hidden": 6, "causal": True, "activation": "gelu", "norm": "layernorm",
        "residual": True, "slots": ["table"], "vocabulary": 7,
    },
    "today": {
        "width": 8, "heads": 2, "layers": 2, "hidden": 6, "causal": True, "activation": "swiglu", "norm": "rmsnorm",
        "final_norm": True, "bias": False, "tied": True, "residual": True, "slots": ["bias"], "vocabulary": 7,
        "dropout": 0.25,
    },
    "gpt": {
        "width": 6, "heads": 3, "layers": 2, "hidden": 9, "causal": True, "activation": "gelu_tanh",
        "norm": "layernorm", "final_norm": True, "tied": True, "residual": True, "slots": ["table"], "vocabulary": 5,
    },
    "unbiased": {
        "width": 6, "heads": 1, "layers": 1, "hidden": 7, "causal": False, "activation": "swiglu", "norm": "layernorm",
        "final_norm": True, "bias": False, "residual": True, "slots": ["table"],
    },
}  # fmt: skip


def sdpa(rng):
    """PyTorch's own attention: grouped heads, bottom-right causal mask, additive bias."""
    b, h, hk, n, m, d = 2, 4, 2, 3, 5, 4
    x = leaves(rng, q=(b, h, n, d), k=(b, hk, m, d), v=(b, hk, m, d), scores=(h, n, m))
    mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    out = F.scaled_dot_product_attention(
        x["q"], x["k"], x["v"], attn_mask=x["scores"].masked_fill(~mask, -torch.inf), scale=0.7, enable_gqa=True
    )
    return finish(rng, x, out, causal=True, scale=0.7)


def rotary(rng):
    """Rotation of pairs as multiplication of complex numbers; the last channel is not turned."""
    h, n, d = 2, 4, 7
    x = leaves(rng, q=(h, n, d), k=(h, n, d), v=(h, n, d), angles=(h, n, 3))

    def turn(y):
        pairs = torch.view_as_complex(y[..., :6].reshape(h, n, 3, 2).contiguous())
        turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(x["angles"]), x["angles"]))
        return torch.cat([turned.reshape(h, n, 6), y[..., 6:]], -1)

    out = F.scaled_dot_product_attention(turn(x["q"])[None], turn(x["k"])[None], x["v"][None])[0]
    return finish(rng, x, out)


def everything(rng):
    """Every slot at once, with all vectors of all pairs (i, j) written out."""
    b, h, hk, n, m, d, reach = 2, 2, 1, 4, 5, 5, 2
    x = leaves(
        rng, q=(b, h, n, d), k=(b, hk, m, d), v=(b, hk, m, d), rel_gain=(h, 5, d), rel_key=(1, 5, d),
        rel_query=(h, 5, d), rel_value=(1, 5, d), key_bias=(h, d), gain=(h, 5), bias=(h, 5), values=(h, 3),
        scores=(b, h, n, m), angles=(h, m, 2), growth=(m, 2), scale=(h,),
    )  # fmt: skip
    index = torch.from_numpy(rng.integers(0, 3, (n, m)))
    offset = torch.arange(m) - (torch.arange(n)[:, None] + m - n)
    row = offset.clamp(-reach, reach) + reach
    k, v = x["k"].expand(b, h, m, d), x["v"].expand(b, h, m, d)

    def turn(y, growth):
        cos, sin = x["angles"][:, -y.shape[2] :].cos(), x["angles"][:, -y.shape[2] :].sin()
        factor = growth[-y.shape[2] :].exp()
        first, second, rest = y.split([2, 2, 1], -1)
        return torch.cat([(first * cos - second * sin) * factor, (first * sin + second * cos) * factor, rest], -1)

    products = turn(x["q"], x["growth"])[:, :, :, None, :] * turn(k, -x["growth"])[:, :, None, :, :]
    inner = (products * x["rel_gain"][:, row]).sum(-1)
    inner = inner + torch.einsum("bhnd,hnmd->bhnm", x["q"], x["rel_key"][:, row].expand(h, n, m, d))
    inner = inner + torch.einsum("bhmd,hnmd->bhnm", k, x["rel_query"][:, row])
    inner = inner + torch.einsum("hd,bhmd->bhm", x["key_bias"], k)[:, :, None, :]
    logits = x["gain"][:, row] * F.relu(x["scale"][:, None, None] * inner)
    logits = logits + x["bias"][:, row] + x["values"][:, index] + x["scores"]
    seen = (offset <= 0) & (offset > -3) & (torch.arange(m) < torch.tensor([5, 3])[:, None, None, None])
    weights = torch.softmax(logits.masked_fill(~seen, -torch.inf), -1)
    out = weights @ v + torch.einsum("bhnm,hnmd->bhnd", weights, x["rel_value"][:, row].expand(h, n, m, d))
    settings = {"causal": True, "window": 3, "lengths": [5, 3], "rectify": True, "pairs": "half"}
    return finish(rng, x, out, **settings) | {"in/index": index.to(torch.int32)}


# Long: the whole step of the model, written out once as PyTorch has it.
def model(rng, config):
    """The small model with torch.nn.functional; its matrices are (in, out), so they are transposed here."""
    c, f, h, n, b = config["width"], config["hidden"], config["heads"], 5, 3
    vocabulary = config.get("vocabulary")
    shapes = {"embed": (vocabulary or 1, c), "head": (c, vocabulary or 1)}
    for layer in range(config["layers"]):
        shapes |= {f"layers.{layer}.attention.{name}": (c, c) for name in ("query", "key", "value", "out")}
        shapes |= {f"layers.{layer}.feedforward.in": (c, f), f"layers.{layer}.feedforward.out": (f, c)}
    if config["activation"] == "swiglu":
        shapes |= {f"layers.{layer}.feedforward.gate": (c, f) for layer in range(config["layers"])}
    if config.get("tied"):
        del shapes["head"]
    biased = config.get("bias", True)
    sizes = {}
    for name, shape in shapes.items():
        sizes |= {f"{name}.weight": shape, **({f"{name}.bias": shape[1:]} if biased else {})}
    norms = [f"layers.{layer}.norm{k}" for layer in range(config["layers"]) for k in (1, 2)]
    norms += ["final_norm"] if config.get("final_norm") else []
    for name in norms if config["norm"] != "none" else ():
        kinds = ("weight", "bias") if biased and config["norm"] == "layernorm" else ("weight",)
        sizes |= {f"{name}.{kind}": (c,) for kind in kinds}
    if vocabulary and biased:
        del sizes["embed.bias"]
    slots = {"table": (n, c), "bias": (h, 2 * n - 1)}
    x = leaves(rng, **sizes, **{name: slots[name] for name in config["slots"]})
    if vocabulary:
        inputs, targets = (torch.from_numpy(rng.integers(0, vocabulary, (b, n))) for _ in range(2))
    else:
        inputs, targets = (torch.from_numpy(rng.standard_normal((b, n))) for _ in range(2))

    def linear(name, z):
        return F.linear(z, x[f"{name}.weight"].T, x.get(f"{name}.bias"))

    def norm(name, z):
        if config["norm"] == "none":
            return z
        if config["norm"] == "rmsnorm":
            return F.rms_norm(z, (c,), x[f"{name}.weight"], eps=1e-5)
        return F.layer_norm(z, (c,), x[f"{name}.weight"], x.get(f"{name}.bias"), eps=1e-5)

    factors = {}

    def dropped(name, y):
        """y with elements dropped, which ones being written down."""
        if not config.get("dropout"):
            return y
        kept = torch.from_numpy(rng.random(y.shape) >= config["dropout"]) / (1 - config["dropout"])
        factors[name] = kept.to(y.dtype)
        return y * factors[name]

    def active(name, u):
        hidden = linear(f"{name}.in", u)
        if config["activation"] == "swiglu":
            return F.silu(linear(f"{name}.gate", u)) * hidden
        if config["activation"] == "relu":
            return F.relu(hidden)
        return F.gelu(hidden, approximate="tanh" if config["activation"] == "gelu_tanh" else "none")

    offset = torch.arange(n) - torch.arange(n)[:, None]
    mask = torch.zeros(h, n, n, dtype=torch.float64)
    if "bias" in x:
        mask = mask + x["bias"][:, offset + n - 1]
    if config["causal"]:
        mask = mask.masked_fill(offset > 0, -torch.inf)
    z = F.embedding(inputs, x["embed.weight"]) if vocabulary else linear("embed", inputs[..., None])
    z = dropped("embed", z + x.get("table", 0))
    for layer in range(config["layers"]):
        a = norm(f"layers.{layer}.norm1", z)
        heads = [
            linear(f"layers.{layer}.attention.{name}", a).unflatten(-1, (h, c // h)).transpose(1, 2)
            for name in ("query", "key", "value")
        ]
        if config.get("dropout"):
            q, k, v = heads
            weights = torch.softmax(q @ k.transpose(-1, -2) * (c // h) ** -0.5 + mask, -1)
            mixed = dropped(f"layers.{layer}.attention.weights", weights) @ v
        else:
            mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask)
        out = linear(f"layers.{layer}.attention.out", mixed.transpose(1, 2).flatten(2))
        out = dropped(f"layers.{layer}.attention", out)
        z = z + out if config["residual"] else out
        hidden = active(f"layers.{layer}.feedforward", norm(f"layers.{layer}.norm2", z))
        out = dropped(f"layers.{layer}.feedforward", linear(f"layers.{layer}.feedforward.out", hidden))
        z = z + out if config["residual"] else out
    if config.get("final_norm"):
        z = norm("final_norm", z)
    if vocabulary:
        prediction = F.linear(z, x["embed.weight"]) if config.get("tied") else linear("head", z)
        loss = F.cross_entropy(prediction.flatten(0, 1), targets.flatten())
    else:
        prediction = linear("head", z)[..., 0]
        loss = F.mse_loss(prediction, targets)
    loss.backward()
    case = {f"in/{name}": value for name, value in x.items()} | {"in/x": inputs, "in/y": targets}
    case |= {f"grad/{name}": value.grad for name, value in x.items()}
    case |= {f"factor/{name}": value for name, value in factors.items()}
    return case | {"out/prediction": prediction, "out/loss": loss, "settings": config}


def adam(rng):
    """Three updates of PyTorch's Adam with given gradients."""
    parameter = torch.nn.Parameter(torch.from_numpy(rng.standard_normal(6)))
    case = {"in/parameter": parameter.detach().clone()}
    optimizer = torch.optim.Adam([parameter], lr=0.03, betas=(0.8, 0.95), eps=1e-3)
    gradients = torch.from_numpy(rng.standard_normal((3, 6)))
    trajectory = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
        trajectory.append(parameter.detach().clone())
    settings = {"lr": 0.03, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3}
    return case | {"in/gradients": gradients, "out/trajectory": torch.stack(trajectory), "settings": settings}


def adamw(rng):
    """Four updates of PyTorch's AdamW of a matrix that decays and a vector that does not, clipped by their norm."""
    parameters = [torch.nn.Parameter(torch.from_numpy(rng.standard_normal(shape))) for shape in ((2, 3), (4,))]
    case = {f"in/{name}": value.detach().clone() for name, value in zip(("matrix", "vector"), parameters, strict=True)}
    groups = [{"params": parameters[:1], "weight_decay": 0.4}, {"params": parameters[1:], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.03, betas=(0.8, 0.95), eps=1e-3)
    gradients = [torch.from_numpy(rng.standard_normal((4, *p.shape)) * 0.6) for p in parameters]
    trajectories = [[], []]
    for step in range(4):
        for parameter, own in zip(parameters, gradients, strict=True):
            parameter.grad = own[step].clone()
        torch.nn.utils.clip_grad_norm_(parameters, 1.2)
        optimizer.step()
        for found, parameter in zip(trajectories, parameters, strict=True):
            found.append(parameter.detach().clone())
    for name, own, found in zip(("matrix", "vector"), gradients, trajectories, strict=True):
        case |= {f"gradients/{name}": own, f"out/{name}": torch.stack(found)}
    settings = {"lr": 0.03, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.4, "clip": 1.2}
    return case | {"settings": settings}


def leaves(rng, **shapes):
    return {name: torch.from_numpy(rng.standard_normal(shape) / 2).requires_grad_() for name, shape in shapes.items()}


def finish(rng, x, out, **settings):
    dout = torch.from_numpy(rng.standard_normal(out.shape))
    out.backward(dout)
    case = {f"in/{name}": value for name, value in x.items()} | {"in/dout": dout, "out/out": out}
    return case | {f"grad/{name}": value.grad for name, value in x.items()} | {"settings": settings}


def values(seed):
    """All cases with random inputs of this seed, as a flat dict of arrays."""
    rng = np.random.default_rng(seed)
    cases = {"sdpa": sdpa(rng), "rotary": rotary(rng), "everything": everything(rng), "adam": adam(rng)}
    cases |= {f"model-{name}": model(rng, config) for name, config in MODELS.items()}
    cases["adamw"] = adamw(rng)
    flat = {}
    for case, entries in cases.items():
        for key, value in entries.items():
            is_settings = key == "settings"
            flat[f"{case}/{key}"] = np.array(json.dumps(value)) if is_settings else value.detach().numpy()
    return flat


def main():
    PATH.parent.mkdir(exist_ok=True)
    np.savez_compressed(PATH, **values(seed=0))
    sys.stdout.write(f"{PATH}: {PATH.stat().st_size} bytes, PyTorch {torch.__version__}\n")


if __name__ == "__main__":
    main()
