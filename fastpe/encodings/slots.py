"""The sizes an encoding is built for (`Spec`), and the points of a transformer where it may act (`SLOTS`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastpe.base import validation
from fastpe.base.validation import floating, real, truth, whole

if TYPE_CHECKING:
    import numpy as np

MAX_POSITION = 2.0**27
"""Largest absolute value of a position. Up to this value, every encoding keeps its stated accuracy."""


@dataclass(frozen=True, eq=False)
class Spec:
    """The sizes that an encoding is built for. Most functions of an encoding get them as their first argument.

    Parameters
    ----------
    length, dim, heads : int
        Number of positions N, width C, number of heads H.
    train_length : int
        The training length.
    causal : bool
        Whether the model that uses the encoding is causal.
    positions : array or None
        None stands for the positions 0, 1, ..., N-1, or for the cells of a grid in raster order. An array is float64,
        and its shape is (N,) or (B, N). If a position has several coordinates, it is (N, axes) or (B, N, axes).
    start : float
        This number is added to every position.
    dtype : dtype
        The dtype of the slots: float32 or float64.
    axes : int
        The number of coordinates of a position.

    Examples
    --------
    >>> from fastpe.encodings.slots import make_spec
    >>> spec = make_spec(3, dim=8, heads=2, start=1)
    >>> spec.head_dim, spec.points().tolist()
    (4, [1.0, 2.0, 3.0])
    """

    length: int
    dim: int
    heads: int
    train_length: int
    causal: bool
    positions: np.ndarray | None
    start: float
    dtype: np.dtype
    axes: int = 1

    @property
    def batch(self) -> tuple[int, ...]:
        """(B,) if every sample has its own positions, else ()."""
        return () if self.positions is None else self.positions.shape[: -1 if self.axes == 1 else -2]

    @property
    def head_dim(self) -> int:
        """D, the width of one head.

        Raises
        ------
        ValueError
            If the heads do not divide the width.
        """
        if self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads={self.heads}, not {self.dim}")
        return self.dim // self.heads

    @cached_property
    def farthest(self) -> float:
        """The largest absolute value of a position."""
        if self.positions is None:
            return max(abs(self.start), abs(self.start + (self.length - 1)))
        return max(abs(float(end) + self.start) for end in (self.positions.min(), self.positions.max()))

    def points(self) -> np.ndarray:
        """Return the positions plus `start`, float64. The shape is that of `positions`, or (N,) if these are None."""
        import numpy as np

        base = np.arange(self.length, dtype=np.float64) if self.positions is None else self.positions
        return base + self.start


def _rows(spec: Spec) -> tuple[int, ...]:
    return (*spec.batch, spec.length, spec.dim)


def _offsets(spec: Spec) -> tuple[int, ...]:
    return (spec.heads, 2 * spec.length - 1)


def _heads(spec: Spec) -> tuple[int, ...]:
    return (spec.heads, spec.head_dim)


def _pairs(spec: Spec) -> tuple[int, ...]:
    return (*spec.batch, spec.heads, spec.length, spec.length)


@dataclass(frozen=True)
class Slot:
    """One point of a transformer where encodings act, by way of an array or another value.

    `axes` names the axes of the array, and `acts` says what the array does at this point.
    `combine` is "add", "multiply" or "alone" (only one encoding may fill it). `dtype` is "same" (the requested dtype),
    "float64", "int32", or "" for a value that is not an array. `shape` gives the usual shape; an encoding with another
    shape defines `Encoding.shapes`.
    """

    axes: str
    acts: str
    combine: str = "add"
    dtype: str = "same"
    shape: Callable[[Spec], tuple[int, ...]] | None = None


SLOTS: Mapping[str, Slot] = {
    "table": Slot("(N, C)", "added to the embeddings", shape=_rows),
    "qk_table": Slot("(N, C)", "added to the input of every layer's query and key projections", shape=_rows),
    "taps": Slot("(K, C)", "depthwise convolution over the sequence, added at the input", "alone"),
    "rotors": Slot("(H or 1, N or 1, D/b, b, b)", "maps blocks of b channels of query and key", "alone"),
    "polar": Slot("(H or 1, D)", "turns each channel into a radius and an angle; holds the phases of keys", "alone"),
    "angles": Slot("(H or 1, N, R/2)", "rotates the first R channels of query and key", dtype="float64"),
    "growth": Slot("(N, R/2)", "natural log of a factor that multiplies queries and divides keys", dtype="float64"),
    "row_scale": Slot("(H or 1, N)", "multiplies the products of each query and its keys", "multiply"),
    "rel_gain": Slot("(H or 1, 2K+1, D)", "multiplies the products of query and key", "multiply"),
    "rel_key": Slot("(H or 1, 2K+1, D)", "score: query times a vector of the offset"),
    "rel_query": Slot("(H or 1, 2K+1, D)", "score: key times a vector of the offset"),
    "key_bias": Slot("(H, D)", "score: key times a vector", shape=_heads),
    "rectify": Slot("bool", "score: negative values become zero", "alone", ""),
    "gain": Slot("(H, 2K+1)", "multiplies the score", "multiply", shape=_offsets),
    "bias": Slot("(H, 2K+1)", "added to the score; the row of offset o = key - query is o + K", shape=_offsets),
    "index": Slot("(N, M)", "score: index of the entry of values that is added", "alone", "int32"),
    "values": Slot("(H, V)", "score: the entries that index selects from", "alone"),
    "scores": Slot("(H, N, M)", "added to the score", shape=_pairs),
    "counts": Slot("(H or 1, P, D)", "score: query times a vector for the number of keys that it counts", "alone"),
    "mlp_in": Slot("(W, 2H, T)", "score: first map of a network of the scores and biases of all heads", "alone"),
    "mlp_bias": Slot("(W,)", "score: the bias of this first map", "alone"),
    "mlp_out": Slot("(H, W, T)", "score: the second map of this network, to a number for each head", "alone"),
    "rel_value": Slot("(H or 1, 2K+1, D)", "output: attention times a vector of the offset"),
    "scale": Slot("float or (H,)", "factor of the score, 1/sqrt(D) by default", "alone", ""),
    "pairs": Slot("'interleaved' or 'half'", "which channels a rotation pairs", "alone", ""),
}
"""Name -> slot. For positions that depend on the tokens (documents that restart at 0, positions of digits), gather rows
of a slot, as in ``table[positions]`` and ``angles[:, positions]``. The setting `positions` of a model does this."""


NOTATION = (
    "A position encoding provides a few small arrays, its slots. Each slot acts at one fixed point of a transformer. "
    "Unless the page says otherwise, N is the number of positions, C the width of the model, H the number of heads, "
    "D the width of a head, s the scale 1/sqrt(D), and S_ij the score of query i and key j before the softmax."
)
"""What pages of encodings do not explain. It is shown with every page."""


OF_OFFSETS = frozenset(slot for slot, each in SLOTS.items() if "2K+1" in each.axes)
"""Slots with one row for each offset key - query. They can be filled only for consecutive positions."""


def neutral(slot: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array for this slot that changes nothing. (`polar` has no such array.)

    >>> neutral("gain", (1, 3), "float32").tolist(), neutral("rotors", (1, 1, 1, 2, 2), "float32")[0, 0, 0].tolist()
    ([[1.0, 1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    """
    import numpy as np

    factor: Any = np.eye(shape[-1]) if slot == "rotors" else float(SLOTS[slot].combine == "multiply")
    return np.array(np.broadcast_to(factor, shape), dtype, order="C")


def misfit(slot: str, shape: tuple[int, ...], spec: Spec, beside: Collection[str] = ()) -> bool:
    """Whether an array of this shape cannot be this slot.

    beside: the other filled slots. If `polar` is among them, `angles` must have D columns.

    >>> misfit("rel_key", (1, 5, 8), make_spec(3, dim=16, heads=2)), misfit("bias", (2, 4), make_spec(3, heads=2))
    (False, True)
    """
    names = SLOTS[slot].axes.strip("()").split(", ")
    front = len(shape) - len(names)
    if front < 0 or shape[:front] not in ((), spec.batch):
        return True
    if slot == "angles" and "polar" in beside:
        names[-1] = "D"
    return not all(_fits(name, size, spec) for name, size in zip(names, shape[front:], strict=True))


def _fits(axis: str, size: int, spec: Spec) -> bool:
    match axis:
        case "N" | "M":
            return size == spec.length
        case "C":
            return size == spec.dim
        case "H":
            return size == spec.heads
        case "H or 1":
            return size in (spec.heads, 1)
        case "N or 1":
            return size in (spec.length, 1)
        case "D/b" | "b":
            return 0 < size <= spec.head_dim and spec.head_dim % size == 0
        case "D":
            return size == spec.head_dim
        case "R/2":
            return 0 < size <= spec.head_dim // 2
        case "2K+1" | "T":
            return size % 2 == 1
        case "2H":
            return size == 2 * spec.heads
    return size > 0


def make_spec(
    length: int,
    *,
    dim: int = 64,
    heads: int = 1,
    train_length: int | None = None,
    causal: bool = False,
    positions: Any = None,
    start: float = 0,
    dtype: Any = "float32",
    axes: int = 1,
) -> Spec:
    """Return a validated `Spec` from arguments of `fastpe.build` and the number of coordinates of a position."""
    if train_length is not None:
        train_length = whole("train_length", train_length, 1, 2**27)
    length = whole("length", length, 1, 2**27)
    spec = Spec(
        length=length,
        dim=whole("dim", dim, 1, 2**40),
        heads=whole("heads", heads, 1, 2**40),
        train_length=length if train_length is None else train_length,
        causal=truth("causal", causal),
        positions=None if positions is None else _positions(positions, length, axes),
        start=real("start", start),
        dtype=floating(dtype),
        axes=axes,
    )
    if not spec.farthest <= MAX_POSITION:
        raise ValueError(f"positions plus start must lie within ±2**27, but reach {spec.farthest:g} in absolute value")
    return spec


def _positions(positions: Any, length: int, axes: int) -> np.ndarray:
    import numpy as np

    given = validation.array("positions", positions).copy()  # a copy: checked values must not change
    shape = given.shape
    if axes > 1:
        if given.ndim not in (2, 3) or shape[-2:] != (length, axes) or given.size == 0:
            raise ValueError(f"positions must have shape ({length}, {axes}) or (B, {length}, {axes}), not {shape}")
        return validation.finite("positions", given, np.float64)
    if given.ndim == 3 and given.shape[-1] == 1:
        given = given[..., 0]
    if given.ndim not in (1, 2) or given.shape[-1] != length or given.size == 0:
        raise ValueError(f"positions must have shape ({length},) or (B, {length}), not {shape}")
    return validation.finite("positions", given, np.float64)
