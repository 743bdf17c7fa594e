"""`fastpe.attention` for JAX: a custom derivative over callbacks to the host. Needs the extra `jax`.

>>> import jax
>>> import jax.numpy as jnp
>>> q = k = v = jnp.ones((1, 3, 4))
>>> loss = lambda bias: attention(q, k, v, causal=True, bias=bias).sum()
>>> jax.jit(jax.grad(loss))(jnp.zeros((1, 5))).shape
(1, 5)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base.validation import unmasked
from fastpe.functional import attention as host

try:
    import jax
except ImportError as error:
    raise ImportError("fastpe.jax needs JAX: pip install -e '.[jax]' from a clone of fastpe") from error

Array = Any  # what JAX computes with: its arrays, NumPy's, and the tracers that stand for them
_PLAIN = ("causal", "window", "lengths", "tolerance")
_OPTIONS = ("causal", "window", "tolerance", "pairs", "rectify")
_CONSTANT = ("angles", "growth", "scale", "index", "lengths")  # NumPy's arrays stay in their own dtype


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    window: int | None = None,
    lengths: Any = None,
    tolerance: float | None = None,
    **slots: Any,
) -> Array:
    """`fastpe.attention` under `jax.jit`, `jax.grad`, `jax.vjp` and `jax.vmap` (one sample after the other).

    Parameters
    ----------
    q : (B, H, N, D) or (H, N, D) float32 or float64
        Queries.
    k, v : (B, Hk, M, D), or without B, of q's dtype
        Keys and values.
    lengths
        As for `fastpe.attention`; integers that may be traced.
    causal, window, tolerance
        As for `fastpe.attention`; never traced.
    **slots
        As for `fastpe.attention`. NumPy arrays stay as they are, ``angles`` in float64 for instance; ``pairs`` and
        ``rectify`` are never traced.

    Returns
    -------
    out : (B, H, N, D)
        In q's dtype. There is no second derivative.

    Raises
    ------
    TypeError, ValueError
        As for `fastpe.attention`. Values that are traced are checked when the compiled function runs: JAX then raises
        an error of its own with that text.

    References
    ----------
    Vaswani et al. 2017, eq. (1); Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithm 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> q = jnp.zeros((1, 2, 4))
    >>> attention(q, q, q + 1).tolist()
    [[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]
    """
    for name in ("return_lse", "wrt"):
        if name in slots:
            raise TypeError(f"{name} is not an argument of fastpe.jax.attention, but of fastpe.attention")
    given = {"q": q, "k": k, "v": v, "lengths": lengths, "causal": causal, "window": window, "tolerance": tolerance}
    given |= slots
    for name in _OPTIONS:
        if isinstance(given.get(name), jax.core.Tracer):
            raise TypeError(f"{name} must be known when the function is traced, not {given[name]}")
    for name, value in given.items():
        unmasked(name, value)  # which JAX would take for its values
        if isinstance(value, np.ndarray) and name not in _CONSTANT:
            given[name] = jax.numpy.asarray(value)
    _check(given)
    traced, constants = _split(given)
    real = {name: value for name, value in traced.items() if jax.numpy.issubdtype(value.dtype, jax.numpy.floating)}
    whole = {name: value for name, value in traced.items() if name not in real}
    out: Array = _differentiable(constants)(real, whole)
    return out


def _check(given: Mapping[str, Any]) -> None:
    """Raise the errors of `fastpe.attention` now, those of values that are not yet known aside."""

    def seen(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(seen(part) for part in value)
        if isinstance(value, jax.core.Tracer):  # zeros that take no memory
            return np.broadcast_to(np.zeros((), value.dtype), value.shape)
        return np.asarray(value) if isinstance(value, jax.Array) else value

    rest = {name: seen(value) for name, value in given.items()}
    q, k, v, causal, window, lengths, tolerance = (rest.pop(name) for name in (*"qkv", *_PLAIN))
    call = host.checked(q, k, v, causal, window, lengths, False, None, rest)
    host.checked_tolerance(tolerance, call.q.dtype)


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """What JAX traces, and everything else. A pair of lengths becomes two entries."""
    flat = dict(given)
    if isinstance(flat["lengths"], tuple):
        flat |= {f"lengths {number}": value for number, value in enumerate(flat.pop("lengths"))}
    traced = {name: value for name, value in flat.items() if isinstance(value, jax.Array)}
    return traced, {name: value for name, value in flat.items() if name not in traced}


def _joined(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """What `_split` has split, as arguments of `fastpe.attention`, arrays of JAX as arrays of NumPy."""
    flat = {name: np.asarray(x) if isinstance(x, jax.Array) else x for part in parts for name, x in part.items()}
    pair = [flat.pop(name) for name in ("lengths 0", "lengths 1") if name in flat]
    return flat | ({"lengths": tuple(pair)} if pair else {})


def _differentiable(constants: Mapping[str, Any]) -> Any:
    """Attention as a function of (floating arrays, arrays of integers), both by name, with its derivative."""

    def on_host(function: Any, like: Any, *operands: Any) -> Any:
        """What the function gives, of the shapes and dtypes of `like`."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
        return jax.pure_callback(function, shapes, *operands, vmap_method="sequential")

    @jax.custom_vjp
    def call(real: Mapping[str, Array], whole: Mapping[str, Array]) -> Array:
        return on_host(lambda *parts: host.attention(**_joined(*parts, constants)), real["q"], real, whole)

    def forward(real: Any, whole: Any) -> tuple[Array, Any]:
        wanted = {name: () for name, x in real.items() if x.perturbed}  # a tree without leaves: known when traced
        values, numbers = ({name: x.value for name, x in part.items()} for part in (real, whole))
        q = values["q"]
        rows = jax.ShapeDtypeStruct(q.shape[:-1], q.dtype)
        done = on_host(
            lambda *parts: host.attention(**_joined(*parts, constants), return_lse=True), (q, rows), values, numbers
        )
        return done[0], (done, values, numbers, wanted)

    def backward(kept: Any, dout: Array) -> tuple[Any, Any]:
        done, real, whole, wanted = kept

        def gradients(dout: Any, done: Any, *parts: Any) -> dict[str, Any]:
            known = [np.asarray(each) for each in (*done, dout)]
            return host.gradients(*known, wrt=tuple(wanted), **_joined(*parts, constants))

        if isinstance(dout, jax.custom_derivatives.SymbolicZero):
            dout = jax.numpy.zeros(dout.shape, dout.dtype)
        found = on_host(gradients, {name: real[name] for name in wanted}, dout, done, real, whole)
        return {name: found.get(name) for name in real}, dict.fromkeys(whole)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call
