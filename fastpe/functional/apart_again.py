"""Calls through reflections or a network of which the arrays alone are new, as `again` has others.

Of few queries a record is made, of what goes beside as well. A mask that leaves every query an interval of keys becomes
spans, and others stay what they are: a call whose mask becomes the other of both goes the long way.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastpe.functional import again, fitting
from fastpe.functional.axes import Array
from fastpe.functional.beside import Ran
from fastpe.functional.layouts import PLAIN
from fastpe.functional.networks import Network
from fastpe.functional.reflections import Reflections
from fastpe.functional.sight import Sight
from fastpe.kernels.attention import apart_again
from fastpe.kernels.attention.cells import TILE_KEYS
from fastpe.kernels.attention.records import GIVEN, MASK, SLOTS, SLOTS_OF_INPUTS, Inputs
from fastpe.kernels.dropout import NO_DROPOUT

_IN_MEMORY = {"angles", "rotors", "polar"}  # with which keys are laid down

_ENTRIES: dict[tuple[bool, bool], tuple[Any, Any]] = {
    (False, False): (apart_again.reflected_at, apart_again.reflected_again),
    (False, True): (apart_again.reflected_halves_at, apart_again.reflected_halves_again),
    (True, False): (apart_again.network_at, apart_again.network_again),
    (True, True): (apart_again.network_halves_at, apart_again.network_halves_again),
}
"""By whether there is a network, and whether precision is half: of tensors, and of arrays."""


class Made(NamedTuple):
    """What a call was made of."""

    own: Network | Reflections
    ran: Ran
    sight: Sight  # without a window
    scale: Array  # of each head, as it was given


def fits(qkv: tuple[Array, ...], given: Mapping[str, Array] | None, own: Network | Reflections) -> bool:
    """Whether compiled code takes the arrays as they are."""
    q, k, _ = qkv
    if not given or q.shape[2] > again.MOST_QUERIES or not fitting.fits(q, k, given, own.dtype):
        return False
    if given.keys() & _IN_MEMORY and fitting.is_much(k, own.dtype, lifted="polar" in given):
        return False
    if q.dtype != own.dtype:  # all are widened, row by row
        lies = all(x.strides[-1] == x.itemsize for x in qkv)
    else:
        lies = isinstance(own, Network) or all(x.flags.num & PLAIN == PLAIN for x in qkv)
    return lies and (isinstance(own, Network) or given["reflectors"].shape[:-1] == given["reflect"].shape)


class ApartAgain(again.Again):
    """Such a call, and what runs it again."""

    __slots__ = ()

    def __init__(
        self, qkv: tuple[Array, ...], given: Mapping[str, Array], made: Made, window: int | None, half: bool,
        return_lse: bool,
    ) -> None:  # fmt: skip
        own, ran = made.own, made.ran
        level, of_others, masked = apart_again.PLAIN, 0, apart_again.UNMASKED
        if "mask" in given:
            masked = apart_again.INTERVALS if made.sight.mask is None else apart_again.MASKED
        if ran.others is not None:
            level = apart_again.BESIDE if ran.others.x.slots is None else apart_again.WITH_SLOTS
            of_others = ran.others.arenas.shape[1]
        elif own.dropout is not None:
            level = apart_again.DROPPED
        dropout = NO_DROPOUT if own.dropout is None and ran.others is not None else own.dropout
        head = np.array([level, window or 0, own.has_offsets, of_others, masked], np.int64)
        record = np.concatenate([head, ran.record])
        inputs = _inputs_of(made, given)
        super().__init__(qkv, given, record, tuple(inputs), ran.size, own.out, half, return_lse, dropout)
        self.entries = _ENTRIES[isinstance(own, Network), self.bits is not None]
        self.kind = ()
        if ran.others is not None:
            self.others = made.scale, *ran.others.x[SLOTS_OF_INPUTS:]
        self.work, self.tasks = -(-ran.work // self.keys), ran.tasks

    def _may_grow(self, names: set[str]) -> bool:
        return False


def _inputs_of(made: Made, given: Mapping[str, Array]) -> Inputs:
    """Arrays as large as those that `again` is to make of what is given: a network has the bias of its own, and masks
    come before the spans that they become."""
    others, nothing = made.ran.others, np.zeros(0)
    if others is None:
        empty: Any = nothing
        inputs = Inputs(*[empty] * len(Inputs._fields))._replace(scale=made.scale, slots=None, columns=None)
    else:
        inputs = others.x
    table, mask, occupied = np.zeros((len(SLOTS), 1), np.int64), nothing, made.sight.occupied
    if "mask" in given:
        mask = given["mask"].reshape((1,) * (4 - given["mask"].ndim) + given["mask"].shape)
        table[MASK, GIVEN], occupied = 1, np.empty((*mask.shape[:2], 1, -(-mask.shape[-1] // int(TILE_KEYS))))
    inputs = inputs._replace(table=table, mask=mask, occupied=occupied, spans=made.sight.spans)
    return inputs._replace(bias=made.own.inputs.bias) if isinstance(made.own, Network) else inputs
