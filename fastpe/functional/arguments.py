"""Checks of the arguments of attention, for the compiled kernels and for the reference."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation
from fastpe.base.random import Stream
from fastpe.base.validation import at_least_zero, nearest, shown, soft_cap, truth, whole
from fastpe.functional.bands import Band, check_bands
from fastpe.functional.layouts import contiguous
from fastpe.functional.slot_arrays import cells_of
from fastpe.functional.slots import SLOTS, check_combination, check_index, check_shapes, with_batch
from fastpe.functional.visibility import (
    NO_SPANS,
    Mask,
    Positions,
    Visibility,
    added_mask,
    as_spans,
    check_mask,
    check_spans,
    check_starts,
)

Array = np.ndarray[Any, Any]

_VISIBILITY = ("mask", "spans", "query_start", "bands")
_OPTIONS = ("scale", "rectify", "pairs", "softcap", "dropout", "dropout_seed", *_VISIBILITY)
_OWN = {"causal", "window", "lengths", "tolerance", "return_lse"}
_LISTED = "help(fastpe.attention) lists them"
_ELSEWHERE = {
    "table": "is added to the embeddings",
    "qk_table": "is added to the input of every layer's query and key maps",
    "taps": "is a depthwise convolution over the sequence, added to the embeddings",
    "enable_gqa": "is always on (k and v may have fewer heads than q)",
}
_SEEN = "'mask' (True where a key is seen)"
_SYNONYMS = {
    "is_causal": "'causal'", "attn_mask": _SEEN, "attention_mask": _SEEN, "attn_bias": "'mask' or 'scores'",
    "key_padding_mask": f"'lengths' or {_SEEN}", "padding_mask": f"'lengths' or {_SEEN}",
    "dropout_p": "'dropout'", "dropout_rng": "'dropout_seed'", "seed": "'dropout_seed'",
    "sm_scale": "'scale'", "softmax_scale": "'scale'", "scaling": "'scale'",
    "window_size": "'window'", "sliding_window": "'window'", "local_window_size": "'window'",
    "logits_soft_cap": "'softcap'", "attn_logits_soft_cap": "'softcap'", "logit_softcapping": "'softcap'",
    "soft_cap": "'softcap'", "alibi_slopes": "'bias', as fastpe.build('alibi', ...) makes it",
    "cu_seqlens": "'spans', as fastpe.spans makes them", "segment_ids": "'spans', as fastpe.spans makes them",
    "seqlens": "'lengths'", "cache_seqlens": "'lengths'", "query_seq_lengths": "'lengths'",
    "key_value_seq_lengths": "'lengths'", "kv_lengths": "'lengths'",
    "s_aux": "'sinks'", "attention_sinks": "'sinks'",
    "need_weights": "fastpe.attention_scores", "return_attn_probs": "fastpe.attention_scores",
    "return_softmax_lse": "'return_lse'", "wrt": "fastpe.attention_vjp",
}  # fmt: skip
"""Names of arguments of attention in PyTorch, JAX, FlashAttention and Transformers -> fastpe's names."""

_HALVES = ("float16", "bfloat16")  # computed in float32
_WIDEST = 2 * validation.FARTHEST  # limit of windows: wider ones hide nothing, and position + window must fit int64


class Call(NamedTuple):
    """The checked arguments of a call. Arrays that had no axis B have a leading axis of size 1.

    The integers that kernels use as indices (`index`, lengths, spans and starts) are copies, checked by
    `validation.integers`. All other arrays may share the caller's memory. Half precision is converted to float32,
    except q, k and v if `check` was told to keep them (see `widened`).

    `dtype` is the dtype of the output, and `lead` the number of axes that q has before N. `shapes` has the original
    shapes of the arguments to compute gradients for; `dtypes` has the dtypes of these gradients.
    """

    q: Array  # (B, H, N, D)
    k: Array  # (B, Hk, M, D)
    v: Array  # (B, Hk, M, Dv)
    slots: dict[str, Array]
    positions: Positions
    mask: Mask | None
    spans: Array | None  # (B or 1, N, 2)
    scale: Array  # () or (H,), float64
    pairs: str
    rectify: bool
    softcap: float  # 0: no soft cap
    dropout: float
    dropout_seed: int
    causal: bool
    window: int | None  # at most `_WIDEST`
    query_lengths: Array  # (B,)
    key_lengths: Array
    lead: int
    return_lse: bool
    dtype: np.dtype[Any]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype[Any]]
    bands: tuple[Band, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute: no samples, no queries or no keys."""
        return 0 in (self.q.shape[0], self.positions.n, self.positions.m)

    @property
    def computed(self) -> np.dtype[Any]:
        """The dtype of the computation: float32 for half precision."""
        return np.dtype(np.float32) if self.q.dtype.itemsize == 2 else self.q.dtype

    def visibility(self) -> Visibility:
        """Return the arrays that say which keys each query sees, except the mask."""
        lengths = np.stack([self.query_lengths, self.key_lengths], axis=1).astype(np.int64)
        spans = NO_SPANS if self.spans is None else contiguous(self.spans, np.int64)
        return Visibility(lengths, contiguous(self.positions.first, np.int64), spans)

    def widened(self, names: str = "qkv") -> "Call":
        """Return the call with the named arrays among q, k and v converted to float32 if they have half precision."""
        wide: dict[str, Any] = {name: in_float32(getattr(self, name)) for name in names}
        return self._replace(**wide)

    def without_axes(self, x: Array) -> Array:
        """Return x (B, H, ...) without the axes that q does not have."""
        return x.reshape(x.shape[2 - self.lead :])


def check(
    q: Any, k: Any, v: Any, *, causal: bool, window: int | None, lengths: Any, return_lse: bool,
    wrt: tuple[str, ...] | None, slots: Mapping[str, Any], reads_halves: bool = False,
) -> Call:  # fmt: skip
    """Check all arguments. Errors name the argument.

    If `reads_halves` is true, q, k and v stay in half precision, which some forward kernels read.
    """
    check_names(wrt)
    own_arrays = {name: any_real(name, value) for name, value in (("q", q), ("k", k), ("v", v))}
    arrays = {
        name: array if reads_halves and array.dtype.isnative else in_float32(array)
        for name, array in own_arrays.items()
    }
    lead = arrays["q"].ndim - 2
    batched = lead == 2
    sizes = _sizes(arrays)
    given = {name: value for name, value in slots.items() if value is not None}
    check_slots(slots)
    causal = truth("causal", causal)
    check_combination(given.keys(), causal)
    starts = check_starts(given.get("query_start"), sizes, batched)
    positions = Positions(sizes["N"], sizes["M"], starts)
    if starts is not None:
        sizes["L"] = max(sizes["M"], sizes["N"] + int(starts.max(initial=0)))
    as_given = {name: any_real(name, value) for name, value in given.items() if name in SLOTS and name != "index"}
    if "index" in given:
        as_given["index"] = check_index(given["index"], as_given.get("values"))
    own, dtype = {}, in_float32(arrays["q"][..., :0]).dtype
    for name, array in as_given.items():
        kind = SLOTS[name].dtype
        array = array.astype(np.float64) if kind == "float64" else in_float32(array)
        if kind == "q or float64" and array.dtype == np.float64:
            array = array.astype(dtype)
        own[name] = with_batch(name, array, sizes, as_given, longer=starts is not None)
    if "index" in own:
        own["index"] = cells_of(own["index"], positions)
    bands = check_bands(given, sizes)
    mask, spans, given_mask = visibility(given, sizes, batched, dtype, wrt)
    check_shapes(own)
    scale = _scale(given.get("scale"), sizes)
    real = {name: array for name, array in (own_arrays | as_given).items() if name != "index"}
    real |= {"scale": scale} if "scale" in given else {}
    real |= {"mask": given_mask} if given_mask is not None and given_mask.dtype != bool else {}
    queries, keys = _lengths(lengths, sizes, batched)
    pairs = check_pairs(given.get("pairs", "interleaved"))
    four = {name: array.reshape((1,) * (2 - lead) + array.shape) for name, array in arrays.items()}
    rate = at_least_zero("dropout", given.get("dropout", 0.0), below=1.0)
    return Call(
        **four, slots=own, positions=positions, mask=mask, spans=spans, softcap=_softcap(given.get("softcap")),
        dropout=rate, dropout_seed=_dropout_seed(rate, given.get("dropout_seed")),
        scale=scale.astype(np.float64), pairs=pairs,
        rectify=truth("rectify", given.get("rectify", False)), causal=causal,
        window=None if window is None else min(whole("window", window, 1), _WIDEST),
        query_lengths=queries, key_lengths=keys,
        lead=lead, return_lse=truth("return_lse", return_lse), dtype=own_arrays["q"].dtype,
        shapes=wanted(wrt, {name: array.shape for name, array in real.items()}),
        dtypes={name: array.dtype if is_real(array.dtype) else np.dtype(np.float64) for name, array in real.items()},
        bands=bands,
    )  # fmt: skip


def check_slots(given: Iterable[str]) -> None:
    """Raise TypeError for a name that is neither a slot of attention nor an option, even if its value is None."""
    for name in given:
        if name not in SLOTS and name not in _OPTIONS:
            raise TypeError(_unknown(name))


def _unknown(name: str) -> str:
    if name in _ELSEWHERE:
        return f"{name} {_ELSEWHERE[name]}: it is not an argument of attention"
    near = (
        f"did you mean {_SYNONYMS[name]}?"
        if name in _SYNONYMS
        else nearest(name, sorted({*SLOTS, *_OPTIONS, *_OWN}), _LISTED)
    )
    return f"{name} is not an argument of attention; {near}"


def dropout_key(seed: int) -> tuple[int, int]:
    """Return the key of the random numbers of dropout: two words of 32 bits."""
    key = int(Stream(seed, "attention dropout").words(1)[0])
    return key % 2**32, key // 2**32


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether gradients may have this dtype: float32, float64 or half precision."""
    return dtype in (np.float32, np.float64) or is_half(dtype)


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype is float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.name in _HALVES  # NumPy takes microseconds to make the name


def in_float32(x: Array) -> Array:
    """Return x, converted to float32 if it has half precision."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def any_real(name: str, value: Any) -> Array:
    """Return the value as an array of a floating dtype that attention supports."""
    array = validation.array(name, value, kinds="iufV")
    if not is_real(array.dtype):
        raise TypeError(f"{name} must be an array of float32 or float64, or of half precision, not of {array.dtype}")
    return array


def check_pairs(pairs: Any) -> str:
    """Check the argument `pairs`, which says which channels form a pair, and return it."""
    if not isinstance(pairs, str) or pairs not in ("interleaved", "half"):
        raise ValueError(f"pairs must be 'interleaved' or 'half', not {shown(pairs)}")
    return str(pairs)


def visibility(
    given: Mapping[str, Any], sizes: Mapping[str, int], batched: bool, dtype: Any, wrt: Any
) -> tuple[Mask | None, Array | None, Array | None]:
    """Return the checked mask, the spans, and the mask as it was passed. If spans can express the mask, it is merged
    into the returned spans, and the first result is None.
    """
    spans = None if given.get("spans") is None else check_spans(given["spans"], sizes, batched)
    if given.get("mask") is None:
        return None, spans, None
    as_given, mask = check_mask(given["mask"], sizes, batched)
    if 0 in mask.shape:
        return None, spans, as_given
    if not (wrt is None or "mask" in wrt) and mask.dtype != bool and np.all((mask == 0) | (mask == -np.inf)):
        mask = mask == 0  # the mask only hides keys, and its gradient is not wanted
    own = as_spans(mask, sizes["M"])
    if own is None:
        return added_mask(mask, sizes["M"], dtype), spans, as_given
    own = np.broadcast_to(own, (len(own), sizes["N"], 2))
    if spans is None:
        return None, np.array(own), as_given
    both = [np.maximum(own[..., 0], spans[..., 0]), np.minimum(own[..., 1], spans[..., 1])]
    return None, np.stack(both, axis=-1), as_given


def _softcap(value: Any) -> float:
    return 0.0 if value is None else soft_cap("softcap", value)


def _dropout_seed(rate: float, seed: Any) -> int:
    if seed is None and rate:
        raise ValueError("dropout needs dropout_seed, an integer that says which weights it drops")
    return 0 if seed is None else validation.seed("dropout_seed", seed)


def _sizes(arrays: Mapping[str, Array]) -> dict[str, int]:
    q, k, v = (arrays[name] for name in "qkv")
    if q.ndim not in (2, 3, 4) or 0 in (q.shape[-1], *q.shape[-3:-2]):
        raise ValueError(f"q must have the shape (B, H, N, D), (H, N, D) or (N, D), H and D not 0, not {q.shape}")
    if k.ndim != q.ndim or 0 in k.shape[-3:-2] or k.shape[:-3] != q.shape[:-3] or k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k must have the shape (B, Hk, M, D), Hk not 0, B and D as in q {q.shape}, not {k.shape}")
    if v.ndim != k.ndim or v.shape[:-1] != k.shape[:-1] or 0 in v.shape[-1:]:
        raise ValueError(
            f"v must have the shape of k, {k.shape}, except for a last axis of any size but 0, not {v.shape}"
        )
    (n, d), m = q.shape[-2:], k.shape[-2]
    heads, key_heads = (x.shape[-3] if x.ndim > 2 else 1 for x in (q, k))
    if heads % key_heads:
        raise ValueError(f"k must have a number of heads that divides q's {heads}, not {key_heads}")
    b = q.shape[0] if q.ndim == 4 else 1
    return {"B": b, "H": heads, "N": n, "M": m, "D": d, "Dv": v.shape[-1], "L": max(n, m)}


def _scale(scale: Any, sizes: Mapping[str, int]) -> Array:
    if scale is None:
        return np.array(1 / math.sqrt(sizes["D"]))
    array = validation.array("scale", scale)
    if array.shape not in ((), (sizes["H"],)):
        raise ValueError(f"scale must be a number or have the shape (H,) = ({sizes['H']},), not {array.shape}")
    return array


def check_names(wrt: Any) -> None:
    """Raise TypeError if `wrt` is neither None nor a collection of names."""
    if wrt is None or (isinstance(wrt, tuple) and not wrt):
        return
    if isinstance(wrt, str) or not isinstance(wrt, Collection) or not all(isinstance(name, str) for name in wrt):
        raise TypeError(f"wrt must be a tuple of names, as in ('q', 'bias'), not {shown(wrt)}")


def wanted(wrt: tuple[str, ...] | None, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arguments that `wrt` names, or all shapes if it is None."""
    if wrt is None:
        return shapes
    check_names(wrt)
    for name in wrt:
        if name not in shapes:
            raise ValueError(
                f"wrt names {name!r}, but the given arguments that have a gradient are {', '.join(shapes)}"
            )
    return {name: shapes[name] for name in wrt}


def _lengths(lengths: Any, sizes: Mapping[str, int], batched: bool) -> tuple[Array, Array]:
    """Return the checked numbers of queries and of keys that are not padding, (B,) each."""
    queries, keys = lengths if is_pair(lengths, batched) else (None, lengths)
    b = sizes["B"]
    return _length("queries", queries, b, sizes["N"], batched), _length("keys", keys, b, sizes["M"], batched)


def is_pair(lengths: Any, batched: bool) -> bool:
    """Whether `lengths` is a pair (queries, keys). In a batch, two integers are the key lengths of two samples."""
    if not isinstance(lengths, tuple) or len(lengths) != 2:
        return False
    plain = (np.asarray(each) if isinstance(each, np.ndarray) else each for each in lengths)
    return not batched or any(each is None or isinstance(each, Sequence) or np.ndim(each) for each in plain)


def _length(of: str, lengths: Any, b: int, most: int, batched: bool) -> Array:
    if lengths is None:
        return np.full(b, most)
    array = validation.integers(f"lengths of {of}", lengths, 0, most)
    if array.shape != ((b,) if batched else ()):
        expected = f"have the shape (B,) = ({b},)" if batched else "be one integer"
        raise ValueError(f"lengths of {of} must {expected}, not {validation.shown(lengths)}")
    return np.broadcast_to(array, (b,))
