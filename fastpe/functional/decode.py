"""The short path of `attention` for few queries over a cache of keys (`kernels.attention.decode`).

It remembers nothing between calls, and checks only what tells whether a call is one that the kernel takes. Everything
else, wrong arguments included, goes through the general path, which has the error messages.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.layouts import contiguous, plain_rows
from fastpe.kernels.attention.cells import FEW
from fastpe.kernels.attention.decode import decode
from fastpe.kernels.simd import start_of
from fastpe.kernels.threads import lanes_for, run_short

Array = np.ndarray[Any, Any]

MOST_QUERIES = int(FEW)
TERMS = frozenset({"bias", "key_offset", "lengths", "mask", "query_start", "scale", "sinks", "softcap", "spans"})
"""The arguments that the kernel takes besides q, k, v, causal, window and return_lse."""

_COMPUTED = {np.dtype(name): np.dtype(name) for name in ("float32", "float64")} | {
    np.dtype("float16"): np.dtype("float32")
}
_NOTHING = {
    dtype: (np.zeros((0, 1, 1), dtype), np.zeros((0, 1, 1, 1), dtype), np.zeros(0, dtype))
    for dtype in _COMPUTED.values()
}  # of the dtype of scores: bias, mask, sinks
_NO_OFFSETS, _NO_MASK = np.zeros((0, 1, 1)), np.zeros((0, 1, 1, 1), np.bool_)
_NO_INTEGERS, _NO_SPANS = np.zeros(0, np.int64), np.zeros((0, 1, 2), np.int64)
_LARGEST = {dtype: float(np.finfo(dtype).max) for dtype in _COMPUTED.values()}


def attend(
    q: Any, k: Any, v: Any, causal: Any, window: Any, return_lse: Any, given: Mapping[str, Any]
) -> Any:  # fmt: skip
    """What `attention` returns, or None for a call that is to go through the general path.

    given: the other arguments that are not None; q, k and v have the axes (B, H, N, D).
    """
    if not (type(q) is type(k) is type(v) is np.ndarray and q.ndim == k.ndim == v.ndim == 4):
        return None
    (b, h, n, d), (hk, m), dv = q.shape, k.shape[1:3], v.shape[3]
    if n > MOST_QUERIES or not given.keys() <= TERMS:
        return None
    dtype = _computed_dtype(q.dtype)
    if dtype is None or not (q.dtype == k.dtype == v.dtype and k.shape == (b, hk, m, d) and v.shape == (b, hk, m, dv)):
        return None
    if 0 in (b, h, n, d, hk, m, dv) or h % hk:
        return None
    if type(causal) is not bool or type(return_lse) is not bool or not _is_window(window):
        return None
    visible = _visible(given, b, n, causal, window)
    terms = _terms(given, (b, h, n, m, d), dtype)
    if visible is None or terms is None:
        return None
    rows = [plain_rows(x) for x in (q, k, v)]
    out, lse = np.empty((b, h, n, dv), dtype), np.empty((b, h, n), dtype)
    sizes = (b, h, hk, n, m, d, dv, q.itemsize, *(x.strides for x in rows))
    workers = lanes_for(b * h * n * m * (d + dv), b * h * n)
    if not run_short(workers, decode, *map(start_of, rows), sizes, visible, terms, _LARGEST[dtype], out, lse):
        return None
    out = out.astype(q.dtype, copy=False)
    return (out, lse) if return_lse else out


def _computed_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """What the scores of such queries are computed in."""
    return _COMPUTED.get(dtype) or (np.dtype(np.float32) if dtype.name == "bfloat16" else None)


def _is_window(window: Any) -> bool:
    return window is None or (type(window) is int and 1 <= window < 2**62)


def _visible(given: Mapping[str, Any], b: int, n: int, causal: bool, window: int | None) -> tuple[Any, ...] | None:
    """`kernels.attention.decode.Visible`, as a plain tuple."""
    lengths, starts, spans = _NO_INTEGERS, _NO_INTEGERS, _NO_SPANS
    if "lengths" in given:
        lengths = given["lengths"]
        if not (_is_int64(lengths) and lengths.shape == (b,)):
            return None
        lengths = contiguous(lengths, np.int64)
    if "query_start" in given:
        starts = given["query_start"]
        if type(starts) is int and abs(starts) < 2**62:
            starts = np.array([starts])
        elif not (_is_int64(starts) and starts.shape in ((), (b,))):
            return None
        starts = contiguous(starts, np.int64).reshape(-1)
    if "spans" in given:
        spans = given["spans"]
        if not (_is_int64(spans) and spans.shape in ((n, 2), (1, n, 2), (b, n, 2))):
            return None
        spans = _led(spans, 2, np.int64)
    return causal, window or 0, lengths, starts, spans


def _terms(given: Mapping[str, Any], sizes: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, ...] | None:
    """`kernels.attention.decode.Terms`, as a plain tuple."""
    b, h, n, m, d = sizes
    bias, added, sinks = _NOTHING[dtype]
    offsets, seen, softcap = _NO_OFFSETS, _NO_MASK, 0.0
    scale: Any = given.get("scale", 1 / math.sqrt(d))
    if type(scale) is float or type(scale) is int:
        scale = np.array([scale], np.float64)
    elif _has_floats(scale) and scale.shape == (h,):
        scale = contiguous(scale, np.float64)
    else:
        return None
    if "softcap" in given:
        softcap = given["softcap"]
        if type(softcap) is not float or not 1e-30 < softcap < 1e30:
            return None
    if "bias" in given:
        bias = given["bias"]
        if not (_fits(bias, (h, None), b) and bias.dtype == dtype and bias.shape[-1] % 2):
            return None
        bias = _led(bias, 2, dtype)
    if "key_offset" in given:
        offsets = given["key_offset"]
        if not ((_fits(offsets, (h, m), b) or _fits(offsets, (1, m), b)) and _has_floats(offsets)):
            return None
        offsets = _led(offsets, 2, np.float64)
    if "mask" in given:
        mask = given["mask"]
        if type(mask) is not np.ndarray or mask.ndim > 4:
            return None
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        if mask.shape[3] != m or any(size not in (1, most) for size, most in zip(mask.shape, (b, h, n), strict=False)):
            return None
        if mask.dtype == np.bool_:
            seen = contiguous(mask, np.bool_)
        elif mask.dtype == dtype:
            added = contiguous(mask, dtype)
        else:
            return None
    if "sinks" in given:
        sinks = given["sinks"]
        if not (type(sinks) is np.ndarray and sinks.shape == (h,) and sinks.dtype == dtype):
            return None
        sinks = contiguous(sinks, dtype)
    return scale, bias, offsets, softcap, seen, added, sinks


def _is_int64(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype == np.int64


def _has_floats(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in (np.float32, np.float64)


def _fits(x: Any, shape: tuple[int | None, ...], b: int) -> bool:
    """Whether it is an array of such a shape, or with B or 1 before it; None stands for any size but 0."""
    if type(x) is not np.ndarray or not x.size or x.ndim not in (len(shape), len(shape) + 1):
        return False
    own = x.shape[-len(shape) :]
    fits = all(size is None or size == actual for size, actual in zip(shape, own, strict=True))
    return fits and (x.ndim == len(shape) or x.shape[0] in (1, b))


def _led(x: Array, axes: int, dtype: Any) -> Array:
    """The array, contiguous, with a leading axis if it has `axes` axes alone."""
    return contiguous(x if x.ndim > axes else x[None], dtype)
