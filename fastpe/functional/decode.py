"""The fast path of `attention` for few queries over a key/value cache (`kernels.attention.decode`).

This path keeps no state between calls, and checks only whether the kernel supports the call. All other calls, including
calls with wrong arguments, take the general path, which raises the errors.
"""

import math
from typing import Any

import numpy as np

from fastpe.functional.layouts import contiguous, plain_rows
from fastpe.kernels.attention.decode import decode
from fastpe.kernels.attention.tile import FEW
from fastpe.kernels.simd import start_of
from fastpe.kernels.threads.team import run_short, workers_for

Array = np.ndarray[Any, Any]

MOST_QUERIES = int(FEW)
SLOTS = frozenset({"bias", "key_offset", "scale"})
"""The slots that the kernel supports."""

_COMPUTED = {np.dtype(name): np.dtype(name) for name in ("float32", "float64")} | {
    np.dtype("float16"): np.dtype("float32")
}
_NOTHING = {
    dtype: (np.zeros((0, 1, 1), dtype), np.zeros((0, 1, 1, 1), dtype), np.zeros(0, dtype))
    for dtype in _COMPUTED.values()
}  # placeholders of bias, mask and sinks, by the dtype of scores
_NO_OFFSETS, _NO_MASK = np.zeros((0, 1, 1)), np.zeros((0, 1, 1, 1), np.bool_)
_NO_INTEGERS, _NO_SPANS = np.zeros(0, np.int64), np.zeros((0, 1, 2), np.int64)
_LARGEST = {dtype: float(np.finfo(dtype).max) for dtype in _COMPUTED.values()}


def attend(
    q: Any, k: Any, v: Any, causal: Any, window: Any, return_lse: Any, lengths: Any = None, mask: Any = None,
    spans: Any = None, query_start: Any = None, softcap: Any = None, sinks: Any = None, bias: Any = None,
    key_offset: Any = None, scale: Any = None,
) -> Any:  # fmt: skip
    """Return the result of `attention`, or None if the call must take the general path.

    The kernel needs q, k and v with the axes (B, H, N, D), where N is at most `MOST_QUERIES`.
    """
    if not (type(q) is type(k) is type(v) is np.ndarray and q.ndim == k.ndim == v.ndim == 4):
        return None
    (b, h, n, d), (samples, hk, m, width), dtype = q.shape, k.shape, q.dtype
    dv = v.shape[3]
    if n > MOST_QUERIES or samples != b or width != d or v.shape[:3] != (b, hk, m) or 0 in (b, h, n, d, hk, m, dv):
        return None
    computed = _computed_dtype(dtype)
    if computed is None or k.dtype != dtype or v.dtype != dtype or h % hk:
        return None
    if type(causal) is not bool or type(return_lse) is not bool or not _is_window(window):
        return None
    visible = _visible(b, n, causal, window, lengths, query_start, spans)
    terms = _terms((b, h, n, m, d), computed, scale, bias, key_offset, softcap, mask, sinks)
    if visible is None or terms is None:
        return None
    q, k, v = plain_rows(q), plain_rows(k), plain_rows(v)
    out, lse = np.empty((b, h, n, dv), computed), np.empty((b, h, n), computed)
    sizes = b, h, hk, n, m, d, dv, q.itemsize, q.strides, k.strides, v.strides
    workers = workers_for(b * h * n * m * (d + dv), b * h * n)
    largest = _LARGEST[computed]
    if not run_short(workers, decode, start_of(q), start_of(k), start_of(v), sizes, visible, terms, largest, out, lse):
        return None
    out = out if computed is dtype else out.astype(dtype)
    return (out, lse) if return_lse else out


def _computed_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype in which scores are computed, or None if the kernel does not support this dtype."""
    return _COMPUTED.get(dtype) or (np.dtype(np.float32) if dtype.name == "bfloat16" else None)


def _is_window(window: Any) -> bool:
    return window is None or (type(window) is int and 1 <= window < 2**62)


def _visible(
    b: int, n: int, causal: bool, window: int | None, lengths: Any, starts: Any, spans: Any
) -> tuple[Any, ...] | None:  # fmt: skip
    """Return the fields of `kernels.attention.decode.Visible` as a plain tuple, or None if they are not supported."""
    if lengths is None:
        lengths = _NO_INTEGERS
    elif _is_int64(lengths) and lengths.shape == (b,):
        lengths = contiguous(lengths, np.int64)
    else:
        return None
    if starts is None:
        starts = _NO_INTEGERS
    elif type(starts) is int and abs(starts) < 2**62:
        starts = np.array([starts])
    elif _is_int64(starts) and starts.shape in ((), (b,)):
        starts = contiguous(starts, np.int64).reshape(-1)
    else:
        return None
    if spans is None:
        spans = _NO_SPANS
    elif _is_int64(spans) and spans.shape in ((n, 2), (1, n, 2), (b, n, 2)):
        spans = _led(spans, 2, np.int64)
    else:
        return None
    return causal, window or 0, lengths, starts, spans


def _terms(
    sizes: tuple[int, ...], dtype: np.dtype[Any], scale: Any, bias: Any, offsets: Any, softcap: Any, mask: Any,
    sinks: Any,
) -> tuple[Any, ...] | None:  # fmt: skip
    """Return the fields of `kernels.attention.decode.Terms` as a plain tuple, or None if they are not supported."""
    b, h, n, m, d = sizes
    no_bias, added, no_sinks = _NOTHING[dtype]
    if scale is None:
        scale = np.array([1 / math.sqrt(d)])
    elif type(scale) is float or type(scale) is int:
        scale = np.array([scale], np.float64)
    elif _has_floats(scale) and scale.shape == (h,):
        scale = contiguous(scale, np.float64)
    else:
        return None
    if bias is None:
        bias = no_bias
    elif _fits(bias, (h, None), b) and bias.dtype == dtype and bias.shape[-1] % 2:
        bias = _led(bias, 2, dtype)
    else:
        return None
    if offsets is None:
        offsets = _NO_OFFSETS
    elif _has_floats(offsets) and (_fits(offsets, (h, m), b) or _fits(offsets, (1, m), b)):
        offsets = _led(offsets, 2, np.float64)
    else:
        return None
    if softcap is None:
        softcap = 0.0
    elif type(softcap) is not float or not 1e-30 < softcap < 1e30:
        return None
    shown = _NO_MASK
    if mask is not None:
        if type(mask) is not np.ndarray or mask.ndim > 4:
            return None
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        fits = all(size in (1, most) for size, most in zip(mask.shape, (b, h, n), strict=False))
        if fits and mask.shape[3] == m and mask.dtype == np.bool_:
            shown = contiguous(mask, np.bool_)
        elif fits and mask.shape[3] == m and mask.dtype == dtype:
            added = contiguous(mask, dtype)
        else:
            return None
    if sinks is None:
        sinks = no_sinks
    elif type(sinks) is np.ndarray and sinks.shape == (h,) and sinks.dtype == dtype:
        sinks = contiguous(sinks, dtype)
    else:
        return None
    return scale, bias, offsets, softcap, shown, added, sinks


def _is_int64(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype == np.int64


def _has_floats(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in (np.float32, np.float64)


def _fits(x: Any, shape: tuple[int | None, ...], b: int) -> bool:
    """Whether x is an array of this shape, optionally after an axis B or 1. None stands for any size except 0."""
    if type(x) is not np.ndarray or not x.size or x.ndim not in (len(shape), len(shape) + 1):
        return False
    own = x.shape[-len(shape) :]
    fits = all(size is None or size == actual for size, actual in zip(shape, own, strict=True))
    return fits and (x.ndim == len(shape) or x.shape[0] in (1, b))


def _led(x: Array, axes: int, dtype: Any) -> Array:
    """Return the array, contiguous, with a leading axis added if it has only `axes` axes."""
    return contiguous(x if x.ndim > axes else x[None], dtype)
