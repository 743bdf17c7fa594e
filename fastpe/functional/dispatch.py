"""The way that a call of attention goes: one pass, one for each band of keys (`split_softmax`), or through a network of
scores (`dape`)."""

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.bands import Band
from fastpe.functional.dape import Networked
from fastpe.functional.passes import Pass
from fastpe.functional.result import Result
from fastpe.functional.split_softmax import SplitSoftmax, part


def dispatch(
    call: Call, tolerance: float, known: tuple[Array, Array] | None = None, *, rounds: bool = False
) -> Result | SplitSoftmax:
    """The call's passes, the forward one done; the arguments are those of `Pass`."""
    if "mlp_in" in call.slots:
        return Networked(call.widened(), known)
    if "reflectors" in call.slots:  # nothing is rounded
        return Pass(call.widened() if call.q.dtype.itemsize == 2 else call, 0.0, known)
    if not call.bands or call.empty:
        return Pass(call, tolerance, known, rounds=rounds)
    calls = [_of_band(call, band) for band in call.bands]
    met = [each for each in calls if np.any(each.bands[0].spans[..., 0] < each.bands[0].spans[..., 1])]
    # each may leave out its share of a row's weight
    passes = [Pass(each, tolerance / len(calls), known, rounds=rounds) for each in met or calls[:1]]
    return SplitSoftmax(call, passes, known)


def _of_band(call: Call, band: Band) -> Call:
    """The call with one band's keys alone."""
    own, spans = part(call, band.spans)
    return own._replace(bands=(band._replace(spans=spans),))
