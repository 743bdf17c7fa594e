"""Tables and biases larger than the caches, on one thread, compared with memory bandwidth and usual NumPy code."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import fastpe
from fastpe.benchmarks.disturbance import between_turns
from fastpe.benchmarks.figures import WrongResult, judged
from fastpe.benchmarks.numpy_ways import HEADS, numpy_tables
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.doctor import probe
from fastpe.encodings import combined, registry
from fastpe.encodings.slots import make_spec

Array = np.ndarray[Any, Any]

LENGTH, DIM = 2**18, 64
"""Sizes of the tables, 64 MiB each."""
CHECKED = 128
"""Number of rows that are compared with the reference, evenly spaced and including the last."""
_GROWING = ("table", "qk_table", "bias")
_TOLERANCE = 1e-5
_INEXACT = {("numpy", "wavelet"): 2e-2}  # the NumPy code interpolates between PyWavelets' samples of a wavelet
OF_WRITE, TIMES = 0.6, 10.0
"""Goals: share of the measured write bandwidth, and NumPy's time relative to fastpe's."""


def names(length: int, dim: int) -> list[str]:
    """The encodings that fill exactly one slot, a table or bias that grows with the length and can have this length."""
    return [name for name in registry.built_in() if _slot(name, length, dim) is not None]


def _slot(name: str, length: int, dim: int) -> str | None:
    (part,) = registry.parse(name)
    spec = make_spec(length, **_settings(name, dim))
    try:
        part.encoding.check(spec, **part.options)
        shapes = combined.shapes_of(part, spec)
    except ValueError:
        return None
    slot = next(iter(shapes), None)
    return slot if len(shapes) == 1 and slot in _GROWING and max(shapes[slot]) >= length else None


def _settings(encoding: str, dim: int) -> dict[str, Any]:
    return {"dim": dim, "heads": HEADS, "causal": registry.get(encoding).direction == "causal"}


def fill_call(
    library: str, encoding: str, length: int, dim: int, dtype: str = "float32"
) -> tuple[Callable[[], Any], Callable[[], Array]]:
    """The call that fills a table or bias, and a function that fills it again and returns it."""
    if library == "numpy":
        way = numpy_tables()[encoding]
        return lambda: way(length, dim), lambda: way(length, dim)
    settings = {**_settings(encoding, dim), "dtype": dtype}
    params = fastpe.init(encoding, train_length=length, **settings) or None
    out = fastpe.build(encoding, length, params=params, **settings)
    (array,) = (value for value in out.values() if isinstance(value, np.ndarray))

    def fill() -> None:
        fastpe.build(encoding, length, params=params, out=out, **settings)

    def result() -> Array:
        array[...] = np.nan
        fill()
        return array

    return fill, result


def check_fill(library: str, encoding: str, length: int, dim: int, found: Array) -> None:
    """Compare a table or bias of more than `CHECKED` positions with the reference.

    Some rows of a table are compared with the reference, or a bias at the distances between some positions. If the
    encoding does not accept such positions, a short table is compared with the reference, and the long table with one
    that is filled into every other column of an array.

    Raises
    ------
    WrongResult
        If the error of an element exceeds 1e-5, or 1e-6 of the element if it is above 10. NumPy's wavelets may have
        larger errors.
    """
    settings, of_bias = _settings(encoding, dim), "bias" in registry.get(encoding).slots
    drawn = {"dtype": found.dtype} if library == "fastpe" else {}  # parameters are drawn in the dtype of the slot
    params = fastpe.init(encoding, train_length=length, **settings, **drawn) or None
    shape = (HEADS, 2 * length - 1) if of_bias else (length, dim)
    if found.shape != shape:
        raise WrongResult(f"{library}, {encoding}: the shape is {found.shape}, but should be {shape}")
    rows = np.unique(np.linspace(0, length - 1, CHECKED).astype(np.int64))
    try:
        expected = _array(fastpe.build(
            encoding, len(rows), positions=rows, params=params, reference=True, train_length=length, **settings
        ))  # fmt: skip
    except ValueError:  # the encoding takes positions with several coordinates or of a graph, or only offsets
        few = 120  # a grid of 10 by 12
        expected = _array(fastpe.build(encoding, few, reference=True, **settings))
        _compare(library, encoding, _array(fastpe.build(encoding, few, **settings)), expected)
        apart = np.empty((*shape[:-1], 2 * shape[-1]), found.dtype)[:, ::2]
        slot = "bias" if of_bias else registry.get(encoding).slots[0]
        fastpe.build(encoding, length, params=params, out={slot: apart}, dtype=found.dtype, **settings)
        _compare(library, encoding, found, apart)
        return
    # for positions that are not consecutive, the reference returns a bias by pairs
    found = found[:, rows[None, :] - rows[:, None] + length - 1] if of_bias else found[rows]
    _compare(library, encoding, found, expected)


def _array(slots: dict[str, Any]) -> Array:
    array: Array
    (array,) = (value for value in slots.values() if isinstance(value, np.ndarray))
    return array


def _compare(library: str, encoding: str, found: Array, expected: Array) -> None:
    error = float(np.max(np.abs(found - expected) / np.maximum(np.abs(expected) / 10, 1.0)))
    bound = _INEXACT.get((library, encoding), _TOLERANCE)
    if not error <= bound:
        raise WrongResult(f"{library}, {encoding}: off by {error:.2g}, bound {bound:.2g}")


# ---------------------------------------------------------------------------------------------------------------------
# The table


def measure(effort: Effort, tell: Tell, length: int = LENGTH, dim: int = DIM) -> dict[str, Any]:
    """Time the fill of every encoding of `names`, in place, on one thread.

    Returns
    -------
    dict
        - ``length``, ``dim``, ``heads``: the sizes.
        - ``write_gbytes_per_s``: the measured write bandwidth.
        - ``rows``, each with ``encoding``, ``bytes``, ``ms``, ``gbytes_per_s``, ``of_write`` (the share of the write
          bandwidth, judged), and ``times`` (the time of usual NumPy code relative to fastpe's, judged, or None if there
          is no such code).
        - ``disturbed``: signs of a disturbed machine.
    """
    slower = replace(effort, turns=min(effort.turns, 4), least=min(effort.least, 2))
    found, ways, writing = {}, numpy_tables(), list[float]()
    with Worker("fastpe", 1) as ours, Worker("numpy", 1) as numpy:
        for name in names(length, dim):
            tell(f"tables: {name}")
            arguments = {"encoding": name, "length": length, "dim": dim}
            candidates = [
                Candidate("fastpe", ours, "fill", {"library": "fastpe", **arguments}),
                Candidate("write", ours, "write"),
            ]
            if name in ways:
                candidates.append(Candidate("numpy", numpy, "fill", {"library": "numpy", **arguments}))
            prepare(candidates)
            take_turns(candidates, slower)
            found[name] = {each.label: each.best for each in candidates}
            writing += candidates[1].turns
    # use the fastest of all turns, because the bandwidth does not depend on the encoding
    write = probe.BYTES / min(best["write"] for best in found.values()) / 1e9
    rows = [_row(name, length, dim, best, write) for name, best in found.items()]
    return {
        "length": length, "dim": dim, "heads": HEADS, "write_gbytes_per_s": write, "rows": rows,
        "disturbed": between_turns("writing memory", writing),
    }  # fmt: skip


def _row(encoding: str, length: int, dim: int, best: dict[str, float], write: float) -> dict[str, Any]:
    count = 4 * (HEADS * (2 * length - 1) if _slot(encoding, length, dim) == "bias" else length * dim)
    rate = count / best["fastpe"] / 1e9
    times = judged(best["numpy"] / best["fastpe"], TIMES) if "numpy" in best else None
    return {
        "encoding": encoding, "bytes": count, "ms": best["fastpe"] * 1e3, "gbytes_per_s": rate,
        "of_write": judged(rate / write, OF_WRITE), "times": times,
    }  # fmt: skip
