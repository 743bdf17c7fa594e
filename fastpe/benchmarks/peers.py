"""The same computations in PyTorch and JAX, in the fastest form that we know, to compare times and results.

PyTorch and JAX are optional (`pip install -e '.[peers]'` from a clone of fastpe); functions that use them import them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]
Step = Callable[[], float]

NOT_COUNTED = -100  # a target that PyTorch ignores
INSTALL = "not installed: pip install -e '.[peers]' from a clone of fastpe"


def joined_parameters(model: Transformer) -> dict[str, Array]:
    """Copies of a model's parameters, with query, key and value projections joined into one, as in other libraries.

    Raises
    ------
    ValueError
        If the model has parts that the functions of this module do not compute.
    """
    config = model.config
    if config.optional_parts or config.activation in ("relu2", "geglu"):
        unknown = ", ".join(config.optional_parts) or f"activation {config.activation!r}"
        raise ValueError(f"model must not have {unknown}: there is no peer")
    parameters = {name: np.array(value) for name, value in model.parameters.items()}
    for layer in range(model.config.layers):
        prefix = f"layers.{layer}.attention"
        for kind in ("weight", "bias") if model.config.bias else ("weight",):
            parts = [parameters.pop(f"{prefix}.{name}.{kind}") for name in ("query", "key", "value")]
            parameters[f"{prefix}.qkv.{kind}"] = np.concatenate(parts, -1)
    return parameters


def _with_learned(slots: Mapping[str, Any], weights: Mapping[str, Any]) -> dict[str, Any]:
    """The slots. A slot that is itself a parameter, such as a learned table, is replaced by the parameter."""
    learned = {name.rpartition(".")[2]: value for name, value in weights.items() if name.startswith("encoding.")}
    return {**slots, **learned}


def _score_mask(config: ModelConfig, slots: Mapping[str, Array], length: int) -> Array | None:
    """The mask (H or 1, N, N) that is added to the scores: the bias, and -inf for hidden pairs; or None."""
    offsets = np.arange(length)[None, :] - np.arange(length)[:, None]
    mask = None
    if "bias" in slots:
        mask = slots["bias"][:, offsets + length - 1]
    if config.causal:
        hidden = np.where(offsets > 0, -np.inf, 0.0).astype(config.dtype)[None]
        mask = hidden if mask is None else mask + hidden
    return mask


# ---------------------------------------------------------------------------------------------------------------------
# PyTorch


def torch_weights(model: Transformer) -> dict[str, Any]:
    """The model's parameters as PyTorch leaf tensors, with query, key and value projections joined into one."""
    import torch

    return {name: torch.tensor(value, requires_grad=True) for name, value in joined_parameters(model).items()}


def torch_loss(config: ModelConfig, outputs: Any, targets: Any) -> Any:
    """The model's loss on PyTorch tensors, from the outputs of `torch_forward`. Target tokens below 0 do not count."""
    from torch.nn.functional import cross_entropy, mse_loss

    if config.vocabulary is None:
        return mse_loss(outputs, targets)
    return cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=NOT_COUNTED)


# Long: the whole forward pass of the peer in one function, in usual PyTorch code.
def torch_forward(
    config: ModelConfig, weights: dict[str, Any], slots: dict[str, Any], x: Any, *, mask: Any = None, own: bool = False,
    factors: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """The model's forward pass on PyTorch tensors: from x (B, N) to outputs (B, N) or logits (B, N, V).

    Parameters
    ----------
    config : ModelConfig
    weights : dict of tensor
        As `torch_weights` returns them.
    slots : dict of tensor
    x : tensor (B, N)
    mask : tensor, optional
        Added to the scores; by default it is computed from the slots.
    own : bool
        Whether to use PyTorch's attention function.
    factors : dict, optional
        Dropout factors of activations, in the form of `Transformer.dropout_factors`.
    """
    import torch
    from torch.nn import functional as f

    n, c, heads, dropped = x.shape[1], config.width, config.heads, factors or {}
    if mask is None:
        found = _score_mask(config, {name: slot.numpy() for name, slot in slots.items()}, n)
        mask = None if found is None else torch.from_numpy(found)

    def affine(u: Any, name: str) -> Any:
        return f.linear(u, weights[f"{name}.weight"].T, weights.get(f"{name}.bias"))

    def norm(u: Any, name: str) -> Any:
        if config.norm == "none":
            return u
        if config.norm == "rmsnorm":
            return f.rms_norm(u, (c,), weights[f"{name}.weight"], 1e-5)
        return f.layer_norm(u, (c,), weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def kept(u: Any, name: str) -> Any:
        return u * dropped[name] if name in dropped else u

    def attention(u: Any, name: str) -> Any:
        q, k, v = affine(u, f"{name}.qkv").chunk(3, -1)
        factor = dropped.get(f"{name}.weights")
        if heads > 1 or own or factor is not None:
            q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
        if own:
            causal = config.causal and "bias" not in slots  # PyTorch has a faster path for this
            mixed = f.scaled_dot_product_attention(q, k, v, attn_mask=None if causal else mask, is_causal=causal)
        else:
            scores = q @ k.transpose(-1, -2) * (c // heads) ** -0.5
            shares = (scores if mask is None else scores + mask).softmax(-1)
            mixed = (shares if factor is None else shares * factor) @ v
        return affine(mixed.transpose(1, 2).flatten(2) if mixed.ndim == 4 else mixed, f"{name}.out")

    def feedforward(u: Any, name: str) -> Any:
        before = affine(u, f"{name}.in")
        if config.activation == "swiglu":
            return affine(f.silu(affine(u, f"{name}.gate")) * before, f"{name}.out")
        approximate = "tanh" if config.activation == "gelu_tanh" else "none"
        active = f.relu(before) if config.activation == "relu" else f.gelu(before, approximate=approximate)
        return affine(active, f"{name}.out")

    tokens = config.vocabulary is not None
    z = f.embedding(x, weights["embed.weight"]) if tokens else affine(x[..., None], "embed")
    table = _with_learned(slots, weights).get("table")
    if table is not None:
        z = z + table
    z = kept(z, "embed")
    for layer in range(config.layers):
        for block, number, name in ((attention, 1, "attention"), (feedforward, 2, "feedforward")):
            prefix = f"layers.{layer}"
            out = kept(block(norm(z, f"{prefix}.norm{number}"), f"{prefix}.{name}"), f"{prefix}.{name}")
            z = z + out if config.residual else out
    if config.final_norm:
        z = norm(z, "final_norm")
    outputs = f.linear(z, weights["embed.weight"]) if config.tied else affine(z, "head")
    return outputs if tokens else outputs[..., 0]


def torch_step(
    model: Transformer, x: Array, y: Array, threads: int, *, compiled: bool = False, own: bool = False
) -> Step:
    """A function that makes one training step of a copy of `model` in PyTorch, and returns the loss.

    A step computes the loss and all gradients, and updates the parameters with PyTorch's fused Adam, which is the
    fastest of PyTorch's three versions here. If `compiled`, loss and gradients are compiled with `torch.compile`. `own`
    is the same as for `torch_forward`.
    """
    import torch

    torch.set_num_threads(threads)
    config, weights = model.config, torch_weights(model)
    filled = model.slots(x.shape[1])
    slots = {name: torch.tensor(value) for name, value in filled.items()}
    found = _score_mask(config, filled, x.shape[1])
    mask = None if found is None else torch.tensor(found if config.heads > 1 or own else found[0])
    optimiser = torch.optim.Adam(weights.values(), lr=1e-3, fused=True)
    inputs, targets = torch.tensor(x), torch.tensor(y)

    def loss_of(weights: dict[str, Any], inputs: Any, targets: Any) -> Any:
        return torch_loss(config, torch_forward(config, weights, slots, inputs, mask=mask, own=own), targets)

    function: Callable[..., Any] = torch.compile(loss_of) if compiled else loss_of

    def step() -> float:
        loss = function(weights, inputs, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.item())

    return step


# ---------------------------------------------------------------------------------------------------------------------
# JAX


def jax_step(model: Transformer, x: Array, y: Array) -> Step:
    """A function that makes one training step of a copy of `model` in JAX, and returns the loss.

    The step (loss, all gradients, Adam) is one jitted function. Parameters and moments are donated, so that they are
    updated in place. JAX uses as many threads as there are cores that the process may use.
    """
    import jax
    import jax.numpy as jnp

    config = model.config
    filled = model.slots(x.shape[1])
    slots = {name: jnp.asarray(value) for name, value in filled.items()}
    found = _score_mask(config, filled, x.shape[1])
    mask = None if found is None else jnp.asarray(found if config.heads > 1 else found[0])
    inputs, targets = jnp.asarray(x), jnp.asarray(y)

    def loss_of(weights: dict[str, Any]) -> Any:
        outputs = _jax_forward(config, weights, _with_learned(slots, weights), mask, inputs)
        if config.vocabulary is None:
            return jnp.mean((outputs - targets) ** 2)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[..., None], -1)
        return -jnp.mean(chosen)

    def update(weights: Any, first: Any, second: Any, count: Any) -> tuple[Any, Any, Any, Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        rate, root = 1e-3 / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        weights = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) / root + 1e-8), weights, first, second)
        return weights, first, second, count, loss

    compiled = jax.jit(update, donate_argnums=(0, 1, 2, 3))
    weights = {name: jnp.asarray(value) for name, value in joined_parameters(model).items()}
    state = (weights, *(jax.tree.map(jnp.zeros_like, weights) for _ in range(2)), jnp.zeros((), jnp.float32))

    def step() -> float:
        nonlocal state
        *new, loss = compiled(*state)
        state = tuple(new)
        jax.block_until_ready(state)
        return float(loss)

    return step


def _jax_forward(config: ModelConfig, weights: dict[str, Any], slots: dict[str, Any], mask: Any, x: Any) -> Any:
    """The model's forward pass on JAX arrays, from `joined_parameters`."""
    import jax

    heads, (batch, n) = config.heads, x.shape

    def affine(u: Any, name: str) -> Any:
        return u @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def norm(u: Any, name: str) -> Any:
        if config.norm == "none":
            return u
        centred = u - u.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def attention(u: Any, name: str) -> Any:
        q, k, v = jax.numpy.split(affine(u, f"{name}.qkv"), 3, -1)
        if heads > 1:
            q, k, v = (t.reshape(batch, n, heads, -1).swapaxes(1, 2) for t in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) * config.head_width**-0.5
        mixed = jax.nn.softmax(scores if mask is None else scores + mask, -1) @ v
        return affine(mixed.swapaxes(1, 2).reshape(batch, n, -1) if heads > 1 else mixed, f"{name}.out")

    tokens = config.vocabulary is not None
    z = weights["embed.weight"][x] if tokens else affine(x[..., None], "embed")
    if "table" in slots:
        z = z + slots["table"]
    for layer in range(config.layers):
        prefix = f"layers.{layer}"
        out = attention(norm(z, f"{prefix}.norm1"), f"{prefix}.attention")
        z = z + out if config.residual else out
        before = affine(norm(z, f"{prefix}.norm2"), f"{prefix}.feedforward.in")
        hidden = jax.nn.gelu(before, approximate=False) if config.activation == "gelu" else jax.nn.relu(before)
        out = affine(hidden, f"{prefix}.feedforward.out")
        z = z + out if config.residual else out
    outputs = affine(z, "head")
    return outputs if tokens else outputs[..., 0]
