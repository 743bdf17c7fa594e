"""Attention and `fastpe.build` for JAX, as host callbacks with custom derivatives. Needs the extra `jax`.

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

from fastpe.base.validation import truth, unmasked
from fastpe.encodings import build as encodings
from fastpe.encodings import combined
from fastpe.functional import by_name
from fastpe.functional.arguments import check_slots
from fastpe.functional.bands import flat, joined
from fastpe.functional.two_sided import refuse

try:
    import jax
except ImportError as error:
    raise ImportError("fastpe.jax needs JAX: pip install -e '.[jax]' from a clone of fastpe") from error

Array = Any  # arrays of JAX or NumPy, or JAX tracers
_OPTIONS = ("causal", "window", "tolerance", "pairs", "rectify", "softcap", "dropout")
# arguments whose NumPy arrays are not converted to JAX arrays, and so keep their dtype
_CONSTANT = (
    "angles", "growth", "key_offset", "before", "after", "theta", "scale", "index", "lengths", "spans", "query_start",
    "dropout_seed",
)  # fmt: skip
_HALVES = ("float16", "bfloat16")


def attention(
    q: Array, k: Array, v: Array, *, causal: bool = False, window: int | None = None, lengths: Any = None,
    mask: Any = None, spans: Any = None, query_start: Any = None, softcap: float | None = None, sinks: Any = None,
    dropout: float = 0.0, dropout_seed: Any = None, bands: Any = None, tolerance: float | None = None,
    return_lse: bool = False, **slots: Any,
) -> Any:  # fmt: skip
    """`fastpe.attention` for JAX arrays: it works under `jax.jit`, `jax.grad`, `jax.vjp` and `jax.vmap`.

    `jax.vmap` computes samples one by one. As in `fastpe.attention`, NaN and infinity affect only the queries that see
    the affected key. See `fastpe.attention` for the table of slots.

    Parameters
    ----------
    q : (B, H, N, D), (H, N, D) or (N, D) float64, float32, float16 or bfloat16
        Queries. For half precision, the computation is in float32.
    k : (B, Hk, M, D), or with as few axes as q, of q's dtype
        Keys.
    v : (B, Hk, M, Dv), of q's dtype
        Values.
    lengths, mask, spans, query_start, sinks, dropout_seed
        As for `fastpe.attention`; they may be traced. `sinks` and a mask of floats have gradients.
    causal, window, softcap, dropout, bands, tolerance, return_lse
        As for `fastpe.attention`; they must not be traced.
    **slots
        As for `fastpe.attention`. NumPy arrays of ``angles``, ``growth``, ``theta`` and ``key_offset`` keep their
        dtype, such as float64; ``pairs`` and ``rectify`` must not be traced.

    Returns
    -------
    out : (B, H, N, Dv)
        In q's dtype. There is no second derivative.
    lse : (B, H, N)
        Only if `return_lse`: in q's dtype, but float32 if q has half precision.

    Raises
    ------
    TypeError, ValueError
        As for `fastpe.attention`. Traced values are checked when the compiled function runs: JAX then raises its own
        error, with the message of fastpe's error.

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
    if "wrt" in slots:
        raise TypeError("wrt is not an argument of fastpe.jax.attention, but of fastpe.attention_vjp")
    check_slots(slots)
    given = {"lengths": lengths, "causal": causal, "window": window, "tolerance": tolerance, "mask": mask}
    given |= {"spans": spans, "query_start": query_start, "softcap": softcap, "sinks": sinks, "dropout": dropout}
    out, lse = _attended({"q": q, "k": k, "v": v, **given, "dropout_seed": dropout_seed, "bands": bands, **slots})
    return (out, lse) if truth("return_lse", return_lse) else out


def two_sided(
    q: Array, k: Array, v: Array, before: Array, after: Array, *, window: int | None = None, lengths: Any = None,
    tolerance: float | None = None, return_lse: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """`fastpe.columns.two_sided` under JAX's transformations, like `attention`.

    Parameters
    ----------
    q, k, v : (B, H, N, D), (B, Hk, N, D), (B, Hk, N, Dv), or with fewer axes
        As for `attention`, with as many queries as keys.
    before, after : (H or 1, N) floats, optionally after an axis B
        Running sums that reduce the weights of keys before the query and of keys after it, preferably in float64. NumPy
        arrays keep their dtype, such as float64.
    window, lengths, tolerance, return_lse, **options
        As for `fastpe.columns.two_sided`. `attention` says which arguments may be traced and which have gradients.

    Returns
    -------
    out : (B, H, N, Dv)
        In q's dtype. There is no second derivative.
    lse : (B, H, N)
        Only if `return_lse`: in q's dtype, but float32 if q has half precision.

    Raises
    ------
    TypeError, ValueError
        As `attention` does; also for arguments that `fastpe.columns.two_sided` does not support.

    References
    ----------
    Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate" (ICLR), in both directions.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> q, halves = jnp.zeros((1, 3, 4)), -jnp.log(jnp.full((1, 3), 0.5)).cumsum(-1)
    >>> two_sided(q, q, jnp.eye(3)[None], halves, halves)[0, 1].round(6).tolist()
    [0.25, 0.5, 0.25]
    """
    refuse(options)
    check_slots(options)
    given = {"lengths": lengths, "causal": False, "window": window, "tolerance": tolerance}
    out, lse = _attended({"q": q, "k": k, "v": v, "before": before, "after": after, **given, **options})
    return (out, lse) if truth("return_lse", return_lse) else out


def init(name: str, **request: Any) -> dict[str, Array]:
    """The initial values of an encoding's parameters (`fastpe.init`), as a dict of JAX arrays.

    Parameters
    ----------
    name, **request
        As for `fastpe.init`.

    Returns
    -------
    dict
        Parameter name -> array.

    Raises
    ------
    TypeError, ValueError
        As `fastpe.init` does.

    Examples
    --------
    >>> {key: value.shape for key, value in init("t5", heads=2, train_length=16).items()}
    {'table': (32, 2)}
    """
    return {key: jax.numpy.asarray(value) for key, value in encodings.init(name, **request).items()}


def build(name: str, length: int, *, params: Mapping[str, Array] | None = None, **request: Any) -> dict[str, Any]:
    """`fastpe.build` for JAX, differentiable in `params`: it works under `jax.jit`, `jax.grad`, `jax.vjp`, `jax.vmap`.

    Pass the result to `attention`: ``attention(q, k, v, **build(name, n, params=params))``. First remove the slots that
    act elsewhere: "table", "qk_table" and "taps".

    Parameters
    ----------
    name, length
        As for `fastpe.build`; they must not be traced.
    params : dict, optional
        Parameter name -> array, as `init` returns them; they may be traced.
    **request
        As for `fastpe.build`, except `out` and `reference`; they must not be traced. The dtype is that of `params`.

    Returns
    -------
    dict
        Slot name -> array, or a plain value. Without `params`, "angles" and "growth" are NumPy float64 arrays, which
        `attention` accepts even if JAX has no float64.

    Raises
    ------
    TypeError, ValueError
        As `fastpe.build` does.

    Examples
    --------
    >>> params = init("t5", heads=2, train_length=16)
    >>> jax.grad(lambda params: build("t5", 3, heads=2, params=params)["bias"].sum())(params)["table"].sum()
    Array(10., dtype=float32)
    """
    for key, value in request.items():
        if isinstance(value, jax.core.Tracer):
            raise TypeError(f"{key} must be known when the function is traced, not {value}")
        if key in ("out", "reference"):
            raise TypeError(f"{key} is not an argument of fastpe.jax.build, but of fastpe.build")
    dtypes = {str(value.dtype) for value in (params or {}).values()}
    if len(dtypes) > 1:
        raise TypeError(f"params must have one dtype, not {', '.join(sorted(dtypes))}")
    request |= {"dtype": dtypes.pop()} if dtypes else {}
    if not params:
        found = encodings.build(name, length, params=params, **request)
        return {
            slot: jax.numpy.asarray(x) if isinstance(x, np.ndarray) and slot not in _CONSTANT else x
            for slot, x in found.items()
        }
    sizes = {key: value for key, value in request.items() if key != "seed"}
    parts, spec = encodings.requested(name, length, sizes)
    outlines = {
        slot: jax.ShapeDtypeStruct(like.shape, jax.dtypes.canonicalize_dtype(like.dtype))
        for slot, like in combined.outlines(parts, spec).items()
    }
    slots: dict[str, Any] = _slots(name, length, sizes, outlines)(dict(params))
    return slots | combined.plain(parts, spec)


def _slots(name: str, length: int, request: Mapping[str, Any], outlines: Mapping[str, Any]) -> Any:
    """Return a differentiable function from parameters to the slots that are arrays."""

    def arrays(tree: Any) -> dict[str, Any]:
        return {key: np.asarray(value) for key, value in tree.items()}

    def fill(params: Any) -> dict[str, Any]:
        found = encodings.build(name, length, params=arrays(params), **request)
        return {slot: found[slot].astype(like.dtype, copy=False) for slot, like in outlines.items()}

    def pull(params: Any, dslots: Any) -> dict[str, Any]:
        return encodings.pull(name, length, arrays(dslots), params=arrays(params), **request)

    @jax.custom_vjp
    def call(params: Any) -> Any:
        return jax.pure_callback(fill, dict(outlines), params, vmap_method="sequential")

    def backward(params: Any, dslots: Any) -> Any:
        real = {slot: dslot for slot, dslot in dslots.items() if dslot.dtype != jax.dtypes.float0}
        like = {key: jax.ShapeDtypeStruct(value.shape, value.dtype) for key, value in params.items()}
        return (jax.pure_callback(pull, like, params, real, vmap_method="sequential"),)

    call.defvjp(lambda params: (call(params), params), backward)
    return call


def _attended(given: dict[str, Any]) -> tuple[Array, Array]:
    """Return the output and lse of attention for a dict of arguments."""
    of_bands = {} if given.get("bands") is None else flat(given["bands"])
    for name, value in of_bands.items():
        _check_no_key(name, value)
    for name, value in ({name: given.get(name) for name in _OPTIONS} | of_bands).items():
        if isinstance(value, jax.core.Tracer):
            raise TypeError(f"{name} must be known when the function is traced, not {value}")
    given |= joined({name: np.asarray(x) if isinstance(x, jax.Array) else x for name, x in of_bands.items()})
    for name, value in given.items():
        unmasked(name, value)  # JAX would ignore the mask of a masked array
        _check_no_key(name, value)
        if isinstance(value, np.ndarray) and name not in (*_CONSTANT, *_OPTIONS):
            given[name] = jax.numpy.asarray(value)
    _check(given)
    dtype = given["q"].dtype
    given |= {name: x.astype(np.float32) for name, x in given.items() if str(getattr(x, "dtype", "")) in _HALVES}
    traced, constants = _split(given)
    real = {name: value for name, value in traced.items() if jax.numpy.issubdtype(value.dtype, jax.numpy.floating)}
    whole = {name: value for name, value in traced.items() if name not in real}
    out, lse = _differentiable(constants)(real, whole)
    return out.astype(dtype), lse


def _check_no_key(name: str, value: Any) -> None:
    """Raise TypeError for JAX random keys, which NumPy arrays cannot hold."""
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, jax.Array) and jax.dtypes.issubdtype(each.dtype, jax.dtypes.prng_key):
            raise TypeError(
                f"{name} must hold numbers, not random keys, {each.dtype}: jax.random.bits makes integers of a key"
            )


def _check(given: Mapping[str, Any]) -> None:
    """Raise the errors of the call at once, except those that depend on traced values."""

    def seen(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(seen(part) for part in value)
        if isinstance(value, jax.core.Tracer):  # zeros that need no memory
            return np.broadcast_to(np.zeros((), value.dtype), value.shape)
        return np.asarray(value) if isinstance(value, jax.Array) else value

    by_name.check({name: seen(value) for name, value in given.items()})


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Split the arguments into JAX arrays and other values. A pair of lengths becomes two entries."""
    flat = dict(given)
    if isinstance(flat["lengths"], tuple):
        flat |= {f"lengths {number}": value for number, value in enumerate(flat.pop("lengths"))}
    traced = {name: value for name, value in flat.items() if isinstance(value, jax.Array)}
    return traced, {name: value for name, value in flat.items() if name not in traced}


def _joined(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `_split`, and convert JAX arrays to NumPy arrays."""
    flat = {name: np.asarray(x) if isinstance(x, jax.Array) else x for part in parts for name, x in part.items()}
    pair = [flat.pop(name) for name in ("lengths 0", "lengths 1") if name in flat]
    return flat | ({"lengths": tuple(pair)} if pair else {})


def _differentiable(constants: Mapping[str, Any]) -> Any:
    """Return attention as a differentiable function of two dicts: floating arrays, and integer or boolean arrays."""

    def on_host(function: Any, like: Any, *operands: Any) -> Any:
        """Call the function on the host. Its results have the shapes and dtypes of `like`."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
        return jax.pure_callback(function, shapes, *operands, vmap_method="sequential")

    def outlines(real: Mapping[str, Array]) -> tuple[Any, Any]:
        q, v = real["q"], real["v"]
        return jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype), jax.ShapeDtypeStruct(q.shape[:-1], q.dtype)

    @jax.custom_vjp
    def call(real: Mapping[str, Array], whole: Mapping[str, Array]) -> tuple[Array, Array]:
        found: tuple[Array, Array] = on_host(
            lambda *parts: by_name.outputs(_joined(*parts, constants)), outlines(real), real, whole
        )
        return found

    def forward(real: Any, whole: Any) -> tuple[Any, Any]:
        # empty tuples hold no arrays, so JAX does not trace them
        wanted = {name: () for name, x in real.items() if x.perturbed}
        values, numbers = ({name: x.value for name, x in part.items()} for part in (real, whole))
        done = call(values, numbers)
        return done, (done, values, numbers, wanted)

    def backward(kept: Any, douts: Any) -> tuple[Any, Any]:
        done, real, whole, wanted = kept

        def gradients(douts: Any, done: Any, *parts: Any) -> dict[str, Any]:
            out, lse, *known = (np.asarray(each) for each in (*done, *douts))
            return by_name.gradients(out, lse, tuple(known), _joined(*parts, constants), wrt=tuple(wanted))

        given = [
            jax.numpy.zeros(x.shape, x.dtype) if isinstance(x, jax.custom_derivatives.SymbolicZero) else x
            for x in douts
        ]
        found = on_host(gradients, {name: real[name] for name in wanted}, given, done, real, whole)
        return {name: found.get(name) for name in real}, dict.fromkeys(whole)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call
