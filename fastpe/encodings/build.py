"""Fill the slots of encodings, draw initial values, and turn gradients of slots into gradients of parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastpe.base import validation
from fastpe.base.validation import arrays, outputs, truth, whole
from fastpe.encodings import combined
from fastpe.encodings.combined import key
from fastpe.encodings.encoding import Part
from fastpe.encodings.registry import parse, resolve
from fastpe.encodings.slots import SLOTS, Spec, make_spec

if TYPE_CHECKING:
    import numpy as np

_SIZES = set(make_spec.__kwdefaults__ or ()) - {"axes"}


def requested(
    name: str, length: int, keywords: Mapping[str, Any], others: Collection[str] = ()
) -> tuple[tuple[Part, ...], Spec]:
    """Split `keywords` into sizes (the arguments of `make_spec`) and options; return the encoding's parts and `Spec`.

    others: other arguments of the public function. The error for an unknown keyword may suggest them.
    """
    sizes = {key: value for key, value in keywords.items() if key in _SIZES}
    options = {key: value for key, value in keywords.items() if key not in sizes}
    parts = parse(resolve(name), options, {*_SIZES, *others})
    return parts, make_spec(length, **sizes, axes=combined.axes(parts, given=sizes.get("positions") is not None))


def _seeded(parts: Sequence[Part], spec: Spec, seed: int) -> dict[str, np.ndarray]:
    seed = validation.seed("seed", seed)
    if not combined.parameter_shapes(parts, spec):
        return {}
    from fastpe.base.random import Stream

    combined.check_parameters(parts, spec)
    values: dict[str, np.ndarray] = {}
    for part in parts:
        stream = Stream(seed, "init", f"encoding.{part.scheme}")
        drawn = part.encoding.init(spec, stream, **part.options)
        for name in part.encoding.parameters(spec, **part.options):  # `init` may have another order
            values[key(parts, part, name)] = combined.typed(parts, name, drawn[name], spec)
    return values


def build(
    name: str,
    length: int,
    *,
    dim: int = 64,
    heads: int = 1,
    train_length: int | None = None,
    causal: bool = False,
    positions: Any = None,
    start: float = 0,
    dtype: Any = "float32",
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    reference: bool = False,
    out: dict[str, np.ndarray] | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Fill the slots of an encoding, or of a sum of encodings such as ``"wavelet+alibi"``.

    A slot is a value that acts at one point of a transformer: for example a table, angles of rotations, or a bias.

    Parameters
    ----------
    name : str
        Key of an encoding (`list_encodings`), or several keys joined by "+".
    length : int
        Number of positions N.
    dim, heads : int
        Width C of the model, and its number of heads H.
    train_length : int, optional
        The training length, on which some encodings depend. Default: `length`.
    causal : bool
        Whether the model that uses the encoding is causal.
    positions : array, optional
        (N,) or (B, N), integers or reals in any order. Default: 0, 1, ..., N-1. If positions have the axis B, slots
        that depend on positions have it, too, as their first axis. If a position of the encoding has several
        coordinates, the shape is (N, axes) or (B, N, axes), and the encoding's page states the default.
    start : float
        A number that is added to every position.
    dtype : float32 or float64
        The dtype of the slots, except `angles`, `growth`, and `rotors` with blocks of one channel: these are float64.
    params : dict, optional
        Values of the parameters, in the form that `init` returns. Default: the initial values for `seed`.
    seed : int
        Seed of the initial values.
    reference : bool
        Whether to compute the slots with the encoding's formula in NumPy, and not with its faster code. All arrays are
        then float64.
    out : dict, optional
        Slot name -> array to fill. The shape and dtype are those of the slot; the strides may be any. Objects that
        support the buffer protocol, or ``__dlpack__`` on the CPU, are also accepted. The arrays must not share memory
        with each other, with `params` or with `positions`. Default: new arrays.
    **options
        The options of the encoding. In a sum, their names start with the encoding's key: ``**{"wavelet.scale": 2.0}``.
        Encodings that act on the heads separately also have the option `on`, with which only some heads use them:
        ``"first:2"``, ``"last:2"``, or numbers of heads such as ``"0,3"``. The encoding is then that of a model with
        this many heads of the same width; for the other heads, its slots have no effect.

    Returns
    -------
    dict
        Slot name -> array; `fastpe.encodings.slots.SLOTS` lists the shapes. "scale", "pairs" and "rectify" are not
        arrays, but a float, a str and a bool. `fastpe.attention` takes all slots as keyword arguments, except "table",
        "qk_table" and "taps", which act before attention.

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid; the message names the argument, its value, and what was expected.
    BeyondTrainingLength
        If the encoding is undefined at one of the positions.

    Examples
    --------
    >>> build("sinusoidal", 2, dim=4)["table"].round(3).tolist()[0]
    [0.0, 1.0, 0.0, 1.0]
    """
    import numpy as np

    sizes = {"dim": dim, "heads": heads, "train_length": train_length, "causal": causal, "dtype": dtype}
    truth("reference", reference)
    others = ("params", "seed", "reference", "out")
    parts, spec = requested(name, length, {**sizes, "positions": positions, "start": start, **options}, others)
    if params is None:
        if combined.parameter_shapes(parts, spec):  # first, because drawing initial values may take long
            combined.check(parts, spec)
            combined.check_parameters(parts, spec)
            combined.outlines(parts, spec)  # raises an error if a slot does not fit in memory
        params = _seeded(parts, spec, seed)
    if reference:
        spec = replace(spec, dtype=np.dtype(np.float64))
    magnitudes: dict[str, float] = {}
    values = arrays(
        "params", params, combined.parameter_shapes(parts, spec), spec.dtype, measure=combined.largest, sizes=magnitudes
    )
    plain = combined.plain(parts, spec)
    if out is None:
        out = combined.allocate(parts, spec)
        combined.fill(parts, spec, values, out, reference, sizes=magnitudes.values())
        return out | plain
    inputs = {f"params[{name!r}]": value for name, value in params.items()}
    inputs |= {} if positions is None else {"positions": positions}
    given = outputs(
        {k: v for k, v in out.items() if k not in plain} if isinstance(out, dict) else out,
        combined.outlines(parts, spec),
        inputs,
    )
    # fills need strides that are multiples of the element size; only fields of packed records can have others
    targets = {slot: array if _in_elements(array) else np.empty_like(array, order="C") for slot, array in given.items()}
    combined.fill(parts, spec, values, targets, reference, sizes=magnitudes.values())
    for slot, array in targets.items():
        if array is not given[slot]:
            given[slot][...] = array
    out.update(plain)
    return out


def _in_elements(array: np.ndarray) -> bool:
    return array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)


def init(
    name: str,
    *,
    dim: int = 64,
    heads: int = 1,
    train_length: int,
    causal: bool = False,
    dtype: Any = "float32",
    seed: int = 0,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Return the initial values of an encoding's parameters, drawn as its authors draw them.

    The random numbers come from `fastpe.base.random`, and depend only on the seed and on the encoding's key.

    Parameters
    ----------
    name, dim, heads, train_length, causal, dtype, seed, **options
        The same as for `build`.

    Returns
    -------
    dict
        Parameter name -> array in `dtype`. Empty if the encoding learns nothing.

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `build`.

    Examples
    --------
    >>> init("learned", dim=4, train_length=3)["table"].shape
    (3, 4)
    """
    train_length = whole("train_length", train_length, 1, 2**27)
    sizes = {"dim": dim, "heads": heads, "train_length": train_length, "causal": causal, "dtype": dtype}
    return _seeded(*requested(name, train_length, {**sizes, **options}, ("seed",)), seed)


def pull(
    name: str,
    length: int,
    dslots: Mapping[str, Any],
    *,
    params: Mapping[str, Any],
    **request: Any,
) -> dict[str, np.ndarray]:
    """Turn gradients of the slots into gradients of the parameters: the vector-Jacobian product of `build`.

    Parameters
    ----------
    name, length
        The same as for `build`.
    dslots : dict
        Slot name -> gradient of a scalar loss with respect to the slot, in the shape of the slot. In a sum, slots that
        only encodings without parameters fill may be left out.
    params : dict
        The values that were passed to `build`.
    **request
        The arguments of `build` that describe the slots: dim, heads, train_length, causal, positions, start, dtype, and
        the options of the encoding.

    Returns
    -------
    dict
        Parameter name -> gradient, in the shape of the parameter and in `dtype`. Empty if the encoding learns nothing.

    Raises
    ------
    ValueError, TypeError
        If a gradient or a parameter is missing or has the wrong shape, and for the same reasons as `build`.

    Examples
    --------
    >>> import numpy as np
    >>> params = init("learned", dim=2, train_length=3)
    >>> pull("learned", 3, {"table": np.ones((3, 2))}, params=params, dim=2)["table"].tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """
    import numpy as np

    parts, spec = requested(name, length, request, ("params",))
    shapes = combined.parameter_shapes(parts, spec)
    values = arrays("params", params, shapes, spec.dtype, measure=combined.largest)
    slot_shapes = combined.slot_shapes(parts, spec)
    kinds = {slot: np.dtype(np.float64) if SLOTS[slot].dtype == "float64" else spec.dtype for slot in slot_shapes}
    widest = max(kinds.values(), key=lambda kind: kind.itemsize, default=spec.dtype)
    if isinstance(dslots, Mapping):  # attention also returns the gradient of `scale`, which no encoding learns
        dslots = {slot: x for slot, x in dslots.items() if slot not in combined.plain(parts, spec)}
    given = arrays("dslots", dslots, slot_shapes, widest, some=True, measure=combined.largest)
    gradients = {slot: array.astype(kinds[slot], copy=False) for slot, array in given.items()}
    combined.check(parts, spec)
    combined.check_gradients(parts, spec)
    dparams = {name: np.zeros(shape, spec.dtype) for name, shape in shapes.items()}
    combined.add_gradients(parts, spec, values, gradients, dparams)
    return dparams


def frequencies(name: str, length: int, **request: Any) -> np.ndarray[Any, Any]:
    """Return the frequencies of a rotary encoding in radians per position, for the slot `theta` of `fastpe.attention`.

    Parameters
    ----------
    name : str
        Key of an encoding whose angles are positions times frequencies: ``"rope"``, ``"rope_yarn"``, ...
    length : int
        The length for which the frequencies are computed. Most encodings have the same frequencies at every length.
    **request
        The same as for `fastpe.build`: dim, heads, train_length, options of the encoding. This function does not return
        the slots ``pairs`` and ``scale``; `build` returns them.

    Returns
    -------
    (R/2,) float64
        One frequency for each rotated pair of channels.

    Raises
    ------
    TypeError, ValueError
        For the same reasons as `fastpe.build`; also if the angles are not positions times frequencies, or if the
        encoding fills ``rotors``. `fastpe.attention` does not accept ``rotors`` together with ``theta`` and ``bands``.

    Examples
    --------
    >>> frequencies("rope", 8, dim=4).tolist()
    [1.0, 0.01]
    """
    import numpy as np  # the command line imports this module without NumPy

    last = max(whole("length", length, 1, 2**27) - 1.0, 1.0)
    points = np.array([0.0, 0.5, 1.0, last])
    slots = build(name, len(points), positions=points, **request)
    angles = slots.get("angles")
    if "rotors" in slots:
        raise ValueError(f"name must be an encoding that rotates by angles alone, not {name!r}, which also has rotors")
    if angles is not None and angles.shape[:-2] == (1,):
        theta = angles[0, 2]
        off = np.abs(np.exp(1j * angles[0]) - np.exp(1j * points[:, None] * theta))
        if np.all(off <= 1e-12 * (1 + points[:, None])):
            return np.asarray(theta)
    raise ValueError(f"name must be an encoding that rotates all heads by positions times frequencies, not {name!r}")
