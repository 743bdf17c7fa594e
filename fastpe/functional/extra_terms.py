"""What else is in a call of attention that goes a way of its own: the call without that, of which nothing is computed.

Its arrays are what the kernels of `kernels.attention.extra_terms` take, and it knows what becomes of their gradients.
"""

from collections.abc import Collection

import numpy as np

from fastpe.functional.arguments import Call
from fastpe.functional.passes import Pass, starts_of
from fastpe.kernels import simd
from fastpe.kernels.attention.extra_terms import Others
from fastpe.kernels.attention.inputs import Case, Gradients
from fastpe.kernels.rows.dropout import NO_DROPOUT, Dropout


def pass_without(call: Call, own: Collection[str], needless: Collection[str]) -> Pass | None:
    """The call without its own slots; None where nothing is left but some of those that need no pass of their own."""
    rest = {name: array for name, array in call.slots.items() if name not in own}
    if rest.keys() <= set(needless) and call.mask is None and not (call.softcap or call.rectify):
        return None
    shapes = {name: shape for name, shape in call.shapes.items() if name not in own}
    plain = call._replace(slots=rest, shapes=shapes, dropout=0.0, dtype=call.computed)
    (b, h, n, _), dv = call.q.shape, call.v.shape[-1]
    return Pass(plain, 0.0, (np.zeros((b, h, n, dv)), np.zeros((b, h, n))))


def dropout_beside(others: Others | None, dropout: Dropout | None) -> Dropout | None:
    """What kernels are given: beside others they are compiled for dropout too."""
    return dropout if others is None else dropout or NO_DROPOUT


def others_of(rest: Pass, case: Case, workers: int, g: Gradients | None, *, backward: bool) -> Others:
    """As kernels take it on so many workers; g: where gradients go, if there are any."""
    layout = rest.layout(case, gradients=backward)
    workspaces = simd.aligned_zeros((workers, layout.size), rest.dtype)
    return Others(rest.inputs, case, layout, workspaces, None if g is None else starts_of(g))
