"""The small transformer in plain NumPy: its forward pass, its loss and all gradients."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastpe.reference._attention import attention_vjp_in
from fastpe.reference._gate import made_vjp
from fastpe.reference._operations import (
    Array,
    cross_entropy_vjp,
    embedding_vjp,
    geglu_vjp,
    gelu_tanh_vjp,
    gelu_vjp,
    layer_norm_vjp,
    linear_vjp,
    mean_squared_error_vjp,
    relu2_vjp,
    relu_vjp,
    rms_norm_vjp,
    softcap_vjp,
    swiglu_vjp,
)
from fastpe.reference._rounding import exactly
from fastpe.reference._sizes import Sizes

Gradients = dict[str, Array]
Arrays = Mapping[str, Array]
Slots = Mapping[str, Any] | Sequence[Mapping[str, Any]]
# maps the gradient of a block's output to that of its input; adds gradients of parameters and slots to the dicts
LayerPullback = Callable[[Array, Gradients, Gradients], Array]
NamedPullback = Callable[[Array, Gradients], Array]
Branch = Callable[[Array], tuple[Array, LayerPullback]]

_ACTIVATIONS = {"relu": relu_vjp, "gelu": gelu_vjp, "gelu_tanh": gelu_tanh_vjp, "relu2": relu2_vjp}
_GATED = {"swiglu": swiglu_vjp, "geglu": geglu_vjp}
_OPTIONAL: dict[str, Any] = {
    "vocabulary": None, "final_norm": False, "tied": False, "key_heads": None, "norm_eps": 1e-5,
    "norm_placement": "before", "parallel": False, "qk_norm": None, "logit_softcap": None, "embedding_scale": 1.0,
}  # fmt: skip
"""Attributes that the configuration of a model may lack, with their defaults."""


def model_forward(
    config: Any, parameters: Arrays, slots: Slots, x: Array, attend: Callable[..., Any] = attention_vjp_in
) -> Array:
    """Return the outputs of the small transformer (Li 2025, section 7.1) for a batch of sequences.

    The embeddings are ``e = x embed`` for numbers and ``e = embed[x]`` for tokens. The input of the first layer is
    ``z = e + taps * e + table``, where ``*`` is a convolution. Each layer computes ``z = z + Attention(norm1(z))`` and
    then ``z = z + FeedForward(norm2(z))``. The attributes residual, norm_placement and parallel change these formulas
    as in `fastpe.ModelConfig`. A linear head maps the last z, or its norm if final_norm is true, to the outputs.

    Everything is computed in the dtype of the parameters. If the parameters are `fastpe.reference.Rounding` arrays, the
    operands of matrix products are rounded to bfloat16.

    Parameters
    ----------
    config : object
        A `fastpe.ModelConfig`, or an object with the same attributes heads, layers, causal, activation, norm
        (``"none"``, ``"layernorm"``, ``"rmsnorm"``) and residual. For tokens, it also needs vocabulary, the number V of
        different tokens. These attributes are optional: final_norm, tied, key_heads, norm_eps, norm_placement,
        parallel, qk_norm, logit_softcap and embedding_scale. score_scale and score_softcap are not read: they are the
        slots ``scale`` and ``softcap``.
    parameters : mapping
        Arrays by name. Each name below stands for two arrays: ``.weight``, and ``.bias``, which may be missing.
        Matrices have the shape (in, out).

        - ``embed``: the weight is (1, C); for tokens it is (V, C), and there is no bias;
        - ``layers.{l}.attention.query``, ``.key``, ``.value`` and ``.out``; with qk_norm also ``.query_norm`` and
          ``.key_norm``; and the array ``layers.{l}.attention.sinks`` (H,), if there are sinks;
        - ``layers.{l}.feedforward.in`` and ``.out``; for ``"swiglu"`` and ``"geglu"`` also ``.gate``;
        - ``layers.{l}.norm1`` and ``.norm2``, the norms of inputs, unless norm is ``"none"`` or norm_placement is
          ``"after"``; and ``layers.{l}.post_norm1`` and ``.post_norm2``, those of outputs, if it is ``"after"`` or
          ``"both"``;
        - ``final_norm``, if final_norm is true;
        - ``head``: the weight is (C, 1), or (C, V) for tokens. There is no head if tied is true.
    slots : mapping, or a sequence of one mapping per layer
        Three slots are arguments of the model:

        - ``table`` (N, C) or (B, N, C) is added to the embeddings;
        - ``taps`` (K, C) are the taps of a depthwise convolution of the embeddings. The padding is zeros, in a causal
          model only before the first row;
        - ``qk_table`` (N, C) is added to the input of the query and key projections of every layer.

        All other slots, such as ``bias`` (H, 2N-1), are arguments of attention. If each layer has its own mapping,
        ``table`` and ``taps`` are read from the first one.
    x : (B, N)
        Numbers, or tokens: integers in [0, V).
    attend : callable, optional
        A function that replaces attention. Its arguments are dtype, q, k and v, and by name ``causal``, ``factors`` and
        the slots. It returns the output and its pullback. The pullback may be None.

    Returns
    -------
    array
        Outputs (B, N), or for tokens logits (B, N, V).

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(heads=1, layers=0, causal=False, activation="relu", norm="none", residual=True)
    >>> ends = {"embed.weight": np.ones((1, 2)), "embed.bias": np.zeros(2)}
    >>> ends |= {"head.weight": np.ones((2, 1)), "head.bias": np.array([0.5])}
    >>> model_forward(config, ends, {}, np.array([[1.0, 3.0]])).tolist()
    [[2.5, 6.5]]
    """
    return _model_vjp(config, parameters, slots, x, attend=attend)[0]


def model_loss_and_grads(
    config: Any, parameters: Arrays, slots: Slots, x: Array, y: Array, weights: Array | None = None,
    factors: Arrays | None = None,
) -> tuple[Any, Gradients, Any]:  # fmt: skip
    """Return the loss of the small transformer and its gradients.

    The loss is the mean squared error over batch and positions. For tokens, it is the cross entropy.

    Parameters
    ----------
    config, parameters, slots, x
        As for `model_forward`.
    y : (B, N)
        Targets: numbers or tokens, like x.
    weights : (B, N), optional
        Weights of targets, for a weighted mean. A target with weight 0 is ignored, whatever its value.
    factors : mapping, optional
        The factors that dropout multiplies activations by, as `Transformer.dropout_factors` returns them.

    Returns
    -------
    loss : scalar
    gradients : dict of arrays by parameter
    slot_gradients : dict of arrays by slot, or a list of one dict per layer
        The gradients of the given slots, without those that have no gradient. If `slots` is one mapping for all layers,
        this is one dict. The gradient of a slot that acts in every layer is then the sum over layers.
    """
    prediction, pullback = _model_vjp(config, parameters, slots, x, factors)
    loss, loss_pullback = _loss_vjp(config, prediction, y, weights)
    gradients, slot_gradients = pullback(loss_pullback(1.0))
    return loss, gradients, slot_gradients


def model_gradient_sizes(
    config: Any, parameters: Arrays, slots: Slots, x: Array, y: Array, weights: Array | None = None,
    factors: Arrays | None = None,
) -> tuple[Gradients, Any]:  # fmt: skip
    """Return, for every entry of the gradients of `model_loss_and_grads`, the sum of the absolute values of its terms.

    This sum is a scale for the rounding error of the entry. It is not zero even if the entry is exactly zero in theory,
    like the gradient of a key projection's bias.

    The terms are those of all sums within one block. A block is an attention, a feed-forward network, the two of a
    parallel layer together, or the part before or after all layers. The gradient of a block's output counts as one
    term. Some factors in attention are sums themselves: a score, a rotated query. Such a factor is replaced by the sum
    of the absolute values of its terms if the result is then larger.
    """
    prediction, pullback = _model_vjp(config, parameters, slots, x, factors)
    return pullback(_loss_vjp(config, prediction, y, weights)[1](1.0), of_terms=True)


def _loss_vjp(config: Any, prediction: Array, y: Array, weights: Array | None) -> tuple[Any, Callable[[float], Array]]:
    if _of_tokens(config):
        return cross_entropy_vjp(prediction, np.asarray(y), weights)
    return mean_squared_error_vjp(prediction, np.asarray(y, dtype=prediction.dtype), weights)


def _model_vjp(
    config: Any, parameters: Arrays, slots: Slots, x: Array, factors: Arrays | None = None,
    attend: Callable[..., Any] = attention_vjp_in,
) -> tuple[Array, Callable[..., tuple[Gradients, Any]]]:  # fmt: skip
    shared = isinstance(slots, Mapping)
    by_layer = [slots] * config.layers if isinstance(slots, Mapping) else list(slots)
    ends = slots if isinstance(slots, Mapping) else slots[0]
    table, taps, given = ends.get("table"), ends.get("taps"), [_of_layers(own) for own in by_layer]
    embedded, embed_pullback = _embed(config, parameters, x)
    z = embedded
    if taps is not None:
        z = z + _convolved(embedded, np.asarray(taps, z.dtype), config.causal)
    if table is not None:
        z = z + np.asarray(table, dtype=z.dtype)
    own_factors = {name: np.asarray(array, z.dtype) for name, array in (factors or {}).items()}
    z = z * own_factors.get("embed", 1)

    def branch(part: Callable[..., Any], layer: int, name: str, number: int) -> Branch:
        prefix = f"layers.{layer}."
        places = {suffix: f"{prefix}{name}{suffix}" for suffix in ("", ".weights")}
        dropped = {suffix: own_factors[place] for suffix, place in places.items() if place in own_factors}
        return partial(_branch, part, config, parameters, prefix, number, given[layer], dropped)

    pullbacks, final_pullback, parallel = list[tuple[int, LayerPullback]](), None, _setting(config, "parallel")
    for layer in range(config.layers):
        attention = branch(partial(_attention, attend), layer, "attention", 1)
        feedforward = branch(_feedforward, layer, "feedforward", 2)
        for block in [(attention, feedforward)] if parallel else [(attention,), (feedforward,)]:
            z, pullback = _added(config, block, z)
            pullbacks.append((layer, pullback))
    if _setting(config, "final_norm"):
        z, final_pullback = _norm(config, parameters, "final_norm", z)
    (y, head_pullback), tokens = _head(config, parameters, z), _of_tokens(config)

    def pullback_all(dy: Array, of_terms: bool = False) -> tuple[Gradients, Any]:
        gradients, slot_gradients = Gradients(), [Gradients() for _ in range(max(1, config.layers))]

        def back(pullback: Callable[..., Any], dz: Array, *places: Gradients) -> Any:
            if of_terms:  # stores sizes but passes on the gradient itself: sizes of sizes would grow with every layer
                pullback(dz.view(Sizes), gradients, *places)
                return pullback(dz, Gradients(), *(Gradients() for _ in places))
            return pullback(dz, gradients, *places)

        dz = back(head_pullback, dy if tokens else dy[..., None])
        if final_pullback is not None:
            dz = back(final_pullback, dz)
        for layer, pullback in reversed(pullbacks):
            dz = back(pullback, dz, slot_gradients[0 if shared else layer])
        dz = dz * own_factors.get("embed", 1)
        terms = dz.view(Sizes) if of_terms else dz
        if table is not None:
            slot_gradients[0]["table"] = terms.sum(axis=0) if table.ndim == 2 else terms
        if taps is not None:
            own = np.asarray(taps, dz.dtype)
            slot_gradients[0]["taps"] = _convolved_back(terms, embedded, own, config.causal)[1]
            dz = dz + _convolved_back(dz, embedded, own, config.causal)[0]
        back(embed_pullback, dz)
        return gradients, slot_gradients[0] if shared else slot_gradients

    return y if tokens else y[..., 0], pullback_all


def _of_layers(slots: Mapping[str, Any]) -> dict[str, Any]:
    """Return the slots that are given and act in layers."""
    return {name: slot for name, slot in slots.items() if slot is not None and name not in ("table", "taps")}


def _shifted(x: Array, ahead: int) -> Array:
    """Return an array whose row i is row i + ahead of x (B, N, C), or zero if there is none."""
    shifted, n = np.zeros_like(x), x.shape[1]
    if abs(ahead) < n:
        shifted[:, max(0, -ahead) : n - max(0, ahead)] = x[:, max(0, ahead) : n - max(0, -ahead)]
    return shifted


def _aheads(taps: Array, causal: bool) -> range:
    before = len(taps) - 1 if causal else len(taps) // 2
    return range(-before, len(taps) - before)


def _convolved(x: Array, taps: Array, causal: bool) -> Array:
    """Return the sum over k of taps[k] x[i + k - before], channel by channel."""
    total: Array = sum(tap * _shifted(x, ahead) for tap, ahead in zip(taps, _aheads(taps, causal), strict=True))
    return total


def _convolved_back(dz: Array, x: Array, taps: Array, causal: bool) -> tuple[Array, Array]:
    """Return the gradients of x and of the taps."""
    aheads = _aheads(taps, causal)
    dx: Array = sum(tap * _shifted(dz, -ahead) for tap, ahead in zip(taps, aheads, strict=True))
    return dx, np.stack([(dz * _shifted(x, ahead)).sum(axis=(0, 1)) for ahead in aheads])


def _setting(config: Any, name: str) -> Any:
    return getattr(config, name, _OPTIONAL[name])


def _of_tokens(config: Any) -> bool:
    return _setting(config, "vocabulary") is not None


def _embed(config: Any, parameters: Arrays, x: Array) -> tuple[Array, Callable[[Array, Gradients], object]]:
    """Return x mapped to the width of the model. Its pullback stores the gradients of the parameters."""
    weight = parameters["embed.weight"]
    if not _of_tokens(config):
        return _named(exactly(linear_vjp), parameters, "embed", np.asarray(x, dtype=weight.dtype)[..., None])
    z, pull = embedding_vjp(np.asarray(x), weight)
    scale = _setting(config, "embedding_scale")

    def pullback(dz: Array, gradients: Gradients) -> None:
        gradients["embed.weight"] = gradients.get("embed.weight", 0) + pull(dz * scale)

    return z * scale, pullback


def _head(config: Any, parameters: Arrays, z: Array) -> tuple[Array, NamedPullback]:
    y, pullback = _uncapped_head(config, parameters, z)
    cap = _setting(config, "logit_softcap")
    if cap is None:
        return y, pullback
    capped, pull = softcap_vjp(y, cap)
    return capped, lambda dy, gradients: pullback(pull(dy), gradients)


def _uncapped_head(config: Any, parameters: Arrays, z: Array) -> tuple[Array, NamedPullback]:
    if not _setting(config, "tied"):
        return _named(linear_vjp if _of_tokens(config) else exactly(linear_vjp), parameters, "head", z)
    y, pull = linear_vjp(z, parameters["embed.weight"].T)

    def pullback(dy: Array, gradients: Gradients) -> Array:
        dz, dweight, _ = pull(dy)
        gradients["embed.weight"] = dweight.T
        return dz

    return y, pullback


def _norm(config: Any, parameters: Arrays, name: str, z: Array) -> tuple[Array, NamedPullback]:
    vjp: Callable[..., Any] = layer_norm_vjp if config.norm == "layernorm" else rms_norm_vjp
    return _named(partial(vjp, eps=_setting(config, "norm_eps")), parameters, name, z)


def _branch(
    block: Callable[..., tuple[Array, LayerPullback]], config: Any, parameters: Arrays, prefix: str, number: int,
    slots: Arrays, factors: Arrays, z: Array,
) -> tuple[Array, LayerPullback]:  # fmt: skip
    """Return factors * norm(block(norm(z))) with the factors of dropout. The config may leave out one or both norms.

    number: 1 for attention, 2 for feed-forward, as in the names of norms."""
    placement = "none" if config.norm == "none" else _setting(config, "norm_placement")
    normed, norm_pullback = z, None
    if placement in ("before", "both"):
        normed, norm_pullback = _norm(config, parameters, f"{prefix}norm{number}", z)
    out, block_pullback = block(config, parameters, prefix, slots, factors.get(".weights"), normed)
    after_pullback = None
    if placement in ("after", "both"):
        out, after_pullback = _norm(config, parameters, f"{prefix}post_norm{number}", out)
    factor = factors.get("", 1)

    def pullback(dout: Array, gradients: Gradients, slot_gradients: Gradients) -> Array:
        dout = dout * factor
        dblock = after_pullback(dout, gradients) if after_pullback else dout
        dnormed = block_pullback(dblock, gradients, slot_gradients)
        return norm_pullback(dnormed, gradients) if norm_pullback else dnormed

    return out * factor, pullback


def _added(config: Any, branches: Sequence[Branch], z: Array) -> tuple[Array, LayerPullback]:
    """Return z plus the outputs of all branches, which all read z; without z in a model without residual
    connections."""
    made = [branch(z) for branch in branches]

    def pullback(dz: Array, gradients: Gradients, slot_gradients: Gradients) -> Array:
        found: Any = dz if config.residual else 0
        for _, branch_pullback in reversed(made):
            found = found + branch_pullback(dz, gradients, slot_gradients)
        return np.asanyarray(found)

    outputs: Any = z if config.residual else 0
    for out, _ in made:
        outputs = outputs + out
    return outputs, pullback


def _attention(
    attend: Callable[..., Any], config: Any, parameters: Arrays, prefix: str, slots: Arrays, factors: Array | None,
    x: Array,
) -> tuple[Array, LayerPullback]:  # fmt: skip
    prefix += "attention."
    slots = dict(slots)
    shift = slots.pop("qk_table", None)
    gated, places = (slots.pop(name, None) for name in ("gate", "places"))
    shifted = x if shift is None else x + np.asarray(shift, x.dtype)
    inputs = {"query": shifted, "key": shifted, "value": x}
    counts = {"query": config.heads} | dict.fromkeys(("key", "value"), _setting(config, "key_heads") or config.heads)
    maps = [_projected(config, parameters, prefix + name, counts[name], own) for name, own in inputs.items()]
    heads = [_split(projected, count) for (projected, _), count in zip(maps, counts.values(), strict=True)]
    if f"{prefix}sinks" in parameters:
        slots["sinks"] = parameters[f"{prefix}sinks"]
    made, made_pullback = made_vjp(gated, parameters, x, heads[0], heads[1], slots.get("angles"), places)
    slots, more = slots | made, {"follows": True} if "mlp_in" in slots else {}
    mixed, mix_pullback = attend(x.dtype, *heads, causal=config.causal, factors=factors, **more, **slots)
    out, out_pullback = _named(linear_vjp, parameters, prefix + "out", _merge(mixed))

    def pullback(dout: Array, gradients: Gradients, slot_gradients: Gradients) -> Array:
        found = mix_pullback(_split(out_pullback(dout, gradients), config.heads))
        of_made = made_pullback(found, gradients)
        if f"{prefix}sinks" in parameters:
            gradients[f"{prefix}sinks"] = found.pop("sinks")
        dheads = [found.pop(name) + of_made.get(name, 0) for name in "qkv"]
        dq, dk, dv = (back(_merge(dhead), gradients) for (_, back), dhead in zip(maps, dheads, strict=True))
        if shift is not None:
            found["qk_table"] = (dq + dk).sum(axis=0)
        for name, gradient in found.items():
            slot_gradients[name] = slot_gradients.get(name, 0) + gradient
        dx: Array = dq + dk + dv + of_made.get("x", 0)
        return dx

    return out, pullback


def _projected(config: Any, parameters: Arrays, name: str, heads: int, x: Array) -> tuple[Array, NamedPullback]:
    """Return x mapped to queries, keys or values, (B, N, channels of all heads), with the norm of `qk_norm`."""
    y, pullback = _named(linear_vjp, parameters, name, x)
    if _setting(config, "qk_norm") is None or name.endswith("value"):
        return y, pullback
    shape = (*y.shape[:2], heads, -1) if config.qk_norm == "head" else y.shape
    vjp = partial(rms_norm_vjp, eps=_setting(config, "norm_eps"))
    normed, norm_pullback = _named(vjp, parameters, f"{name}_norm", y.reshape(shape))

    def both(dnormed: Array, gradients: Gradients) -> Array:
        dy = norm_pullback(dnormed.reshape(normed.shape), gradients)
        return pullback(dy.reshape(y.shape), gradients)

    return normed.reshape(y.shape), both


def _feedforward(
    config: Any, parameters: Arrays, prefix: str, slots: Arrays, factors: None, x: Array
) -> tuple[Array, LayerPullback]:
    prefix += "feedforward."
    hidden, in_pullback = _named(linear_vjp, parameters, prefix + "in", x)
    gated = config.activation in _GATED
    if gated:
        gate, gate_pullback = _named(linear_vjp, parameters, prefix + "gate", x)
        active, gated_pullback = _GATED[config.activation](gate, hidden)
    else:
        active, activation_pullback = _ACTIVATIONS[config.activation](hidden)
    out, out_pullback = _named(linear_vjp, parameters, prefix + "out", active)

    def pullback(dout: Array, gradients: Gradients, slot_gradients: Gradients) -> Array:
        dactive = out_pullback(dout, gradients)
        if not gated:
            return in_pullback(activation_pullback(dactive), gradients)
        dgate, dhidden = gated_pullback(dactive)
        return in_pullback(dhidden, gradients) + gate_pullback(dgate, gradients)

    return out, pullback


def _named(vjp: Callable[..., Any], parameters: Arrays, name: str, x: Array) -> tuple[Array, NamedPullback]:
    """Apply an operation with ``name.weight`` and, if present, ``name.bias``. Its pullback stores their gradients."""
    own = [key for key in (f"{name}.weight", f"{name}.bias") if key in parameters]
    y, pull = vjp(x, *(parameters[key] for key in own))

    def pullback(dy: Array, gradients: Gradients) -> Array:
        dx: Array
        dx, *found = pull(dy)
        gradients.update(zip(own, found, strict=False))  # there is also a gradient for a missing bias
        return dx

    return y, pullback


def _split(x: Array, heads: int) -> Array:
    """(B, N, C) -> (B, H, N, D)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _merge(x: Array) -> Array:
    """(B, H, N, D) -> (B, N, C)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)
