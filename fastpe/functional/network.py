"""What the network over scores, the slots `mlp_in`, `mlp_bias` and `mlp_out`, goes with."""

from collections.abc import Collection, Mapping
from typing import Any

NETWORK = ("mlp_in", "mlp_bias", "mlp_out")
BESIDE = ("angles", "bias", "scores", "sinks")
"""Slots that may be given with it: its kernels hold the scores of all heads, and make no others."""
_OPTIONS = ("scale", "pairs", "window", "spans", "query_start")


def check_network(given: Mapping[str, Any], slots: Collection[str] | Mapping[str, Any]) -> None:
    """Refuse parts of a network, and what does not go with one.

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
    >>> check_network({"mlp_in": 0, "mlp_bias": 0, "mlp_out": 0, "softcap": 3}, {})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: softcap cannot be given with mlp_in: beside it go angles, bias, scores, sinks, scale, pairs, ...
    """
    own = [name for name in NETWORK if given.get(name) is not None]
    if not own:
        return
    if len(own) < len(NETWORK):
        raise ValueError(f"mlp_in, mlp_bias and mlp_out must be given together, not {' and '.join(own)} alone")
    for name, value in given.items():
        fits = name in (*NETWORK, *BESIDE, *_OPTIONS) or name == "dropout_seed"
        if not (fits or value is None or (name in ("dropout", "rectify") and not value)):
            beside = ", ".join((*BESIDE, *_OPTIONS))
            raise ValueError(f"{name} cannot be given with mlp_in: beside it go {beside}")
    if isinstance(slots, Mapping) and slots:
        (width, _, taps), offsets, readout = (slots[name].shape[1:] for name in NETWORK)
        if offsets != (width,):
            raise ValueError(f"mlp_bias must have the shape (W,) = ({width},) of mlp_in's first axis, not {offsets}")
        if readout[1:] != (width, taps):
            raise ValueError(
                f"mlp_out must have the shape (H, W, T) with W = {width} and T = {taps} as in mlp_in, not {readout}"
            )
