"""What may be given to one call of attention beside what."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.functional import polar

Array = np.ndarray[Any, Any]

NETWORK = ("mlp_in", "mlp_bias", "mlp_out")
NOT_NETWORKED = {
    "rel_gain": "the kernels of a network have one product for a query and a key, not one for each channel",
    "growth": "rows that grow have no finite factors over all keys, and the kernels of a network take rows as they are",
    "counts": "it counts from near to far, and what a network reads is made from far to near",
    "bands": "a network reads the scores of keys side by side, and bands are passes of their own",
    "theta": "bands, which it is for, cannot either",
}
"""What has a formula beside a network, but no kernel."""

REFLECTIONS = ("reflectors", "reflect")
NOT_REFLECTED = {
    "rel_gain": "a reflected query has no product by channels with a key",
    "growth": "reflections mix the channels that grow",
    "polar": "reflectors have half as many channels as its rows",
    "bands": "a query has one path to a key, whatever its place is",
    "theta": "bands, which it is for, cannot either",
}
NOT_HELD = {
    "counts": "its backward pass counts keys by strips of keys, and reflections go back by blocks of queries",
    **dict.fromkeys(NETWORK, "a network reads the scores of all heads at once, and reflections make those of one"),
}
"""What has a formula beside reflections, but no kernel."""
_MOST_VALUES = 2**31 - 1  # that a kernel's index, int32, can choose from


def check_reflections(given: Mapping[str, Any], causal: bool) -> None:
    """Refuse what does not go with reflections between keys and queries; given: all slots and options that are not
    None."""
    if not given.keys() & set(REFLECTIONS):
        return
    if not given.keys() >= set(REFLECTIONS):
        raise ValueError("reflectors and reflect must be given together")
    if not causal:
        raise ValueError("reflectors needs causal=True: nothing is reflected between a query and keys after it")
    for name, why in NOT_REFLECTED.items():
        if name in given:
            raise ValueError(f"{name} cannot be given with reflectors: {why}")


def check_held(names: Collection[str]) -> None:
    """Refuse what goes together, but in no tile of the kernels. names: of slots, and "bands" where there are any.

    >>> check_held({"reflectors", "counts"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: counts cannot be given with reflectors but to fastpe.reference.attention: its backward pass counts ...
    """
    for main, unheld in (("reflectors", NOT_HELD), ("mlp_in", NOT_NETWORKED)):
        for name, why in unheld.items() if main in names else ():
            if name in names:
                raise ValueError(f"{name} cannot be given with {main} but to fastpe.reference.attention: {why}")


def check_together(slots: Mapping[str, Array], causal: bool) -> None:
    """Refuse slots that do not fit one another."""
    polar.check_polar(slots)
    if ("index" in slots) != ("values" in slots):
        raise ValueError("index and values must be given together")
    for name, fault in (("growth", "it grows without bound for"), ("counts", "nobody counts")):
        if name in slots and not causal:
            raise ValueError(f"{name} needs causal=True: {fault} keys after the query")
    counts = [slots[name].shape[-1] for name in ("angles", "growth") if name in slots]
    if len(set(counts)) > 1:
        raise ValueError(f"growth must have as many pairs as angles, {counts[0]}, not {counts[1]}")


def check_index(index: Any, values: Array | None) -> Array:
    """The entries of `values` that cells choose, as kernels take them."""
    # without any values their shape is refused later on
    count = _MOST_VALUES if values is None or 0 in (values.ndim, *values.shape[-1:]) else values.shape[-1]
    if count > _MOST_VALUES:
        raise ValueError(f"values must have at most {_MOST_VALUES} entries for index to choose from, not {count}")
    return validation.integers("index", index, 0, count - 1, dtype=np.int32)


def check_network(given: Mapping[str, Any], slots: Mapping[str, Array]) -> None:
    """Refuse parts of a network that do not fit.

    Parameters
    ----------
    given : dict
        All that a call has beside q, k and v, by name.
    slots : dict of str to array
        Its arrays with a leading axis.

    Raises
    ------
    ValueError
        Which names what is wrong.

    Examples
    --------
    >>> check_network({"mlp_in": 0, "mlp_bias": 0}, {})
    Traceback (most recent call last):
    ...
    ValueError: mlp_in, mlp_bias and mlp_out must be given together, not mlp_in and mlp_bias alone
    """
    own = [name for name in NETWORK if given.get(name) is not None]
    if not own:
        return
    if len(own) < len(NETWORK):
        raise ValueError(f"mlp_in, mlp_bias and mlp_out must be given together, not {' and '.join(own)} alone")
    if slots:
        (width, _, taps), offsets, readout = (slots[name].shape[1:] for name in NETWORK)
        if offsets != (width,):
            raise ValueError(f"mlp_bias must have the shape (W,) = ({width},) of mlp_in's first axis, not {offsets}")
        if readout[1:] != (width, taps):
            raise ValueError(
                f"mlp_out must have the shape (H, W, T) with W = {width} and T = {taps} as in mlp_in, not {readout}"
            )
