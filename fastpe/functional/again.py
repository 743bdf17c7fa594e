"""Calls whose arrays alone are new, as every layer of a model makes them while it writes one token.

They run the record of the call before (`kernels.kept`): compiled code sees whether the new arrays are laid out as those
before. Where there are but other keys, as with every token of a growing cache, the record is changed (`grown`); else
the call goes the way of `functional.seen`, which leaves a record of it here; of a call with bands the whole way does.
Nothing that is written to is kept from call to call. Calls whose slots are no arrays of the call's own sizes always go
that way; so do those whose keys are copied first, as those of half precision are where they are mapped, or turned and
grown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.functional.arguments import dropout_stream
from fastpe.functional.axes import AXES, Array
from fastpe.functional.bands import Band
from fastpe.functional.grown import grown, reads_as_they_lie
from fastpe.functional.layouts import address_of, contiguous
from fastpe.functional.places import BANDS, OF_BANDS, places_of, sizes_of
from fastpe.kernels._jit import direct, strided
from fastpe.kernels.at_address import LAYOUT
from fastpe.kernels.attention import again
from fastpe.kernels.attention.banded import OF_A_BAND
from fastpe.kernels.attention.cells import FEW
from fastpe.kernels.attention.given import NUMBER, WORDS, Given, Sizes
from fastpe.kernels.attention.records import ROWS_OF_INPUTS, SEEN_OF_INPUTS, SLOTS_OF_INPUTS, Inputs
from fastpe.kernels.dlpack import Functions
from fastpe.kernels.dropout import Dropout
from fastpe.kernels.simd import bits_of
from fastpe.kernels.threads import lanes_for, run_again

MOST_QUERIES = int(FEW)
_MOST = 512  # calls that are kept; then all are dropped
_SEEDS = 2**63
PLAIN_TYPES = frozenset({bool, int, float, str, type(None), np.bool_, np.int64, np.float32, np.float64})
"""Types of options that cannot change between calls, and tell these apart."""
_SEEN = {
    "key_lengths": (1,), "query_start": (1,), "spans": (3,), "mask": (1, 2, 3, 4), "bias": (2, 3), "sinks": (1,),
    "scale": (1,),
}  # fmt: skip
_ARRAYS = [name for name in (*Given._fields, "index") if name in AXES]
_SLOTS = {name: (len(AXES[name]), len(AXES[name]) + 1) for name in _ARRAYS} | {"growth": (2,)}
_AXES = _SLOTS | _SEEN
"""What may be given beside q, k and v, and how many axes it has."""
_MOVES = {"rotors", "polar"}
_TURNED = {"angles", "growth", "theta", *_MOVES}  # with which keys are no longer what they were
_TURNS = {"row_scale", *_TURNED}
_OF_KERNELS = _SLOTS.keys() - _SEEN.keys() - _TURNS
_SCALE, _TABLE, _SOFTCAP = Given._fields.index("scale"), Inputs._fields.index("table"), again.OF_CASE.index("softcap")
AT, SEED_AT = again.AT, again.AT + NUMBER
"""Places in the words of `Again.words_at`: of the first word of what is given, and of the seed of dropout."""
ELSEWHERE = int(again.ELSEWHERE)
OPTIONS = ("scale", "pairs", "rectify")
"""What else may be among slots, where it is no array."""

_ENTRIES: dict[tuple[bool, bool], tuple[Any, Any]] = {
    (False, False): (again.forward_at, again.forward_again),
    (False, True): (again.halves_at, again.halves_again),
    (True, False): (None, again.bands_again),
    (True, True): (None, again.banded_halves_again),
}
"""By whether there are bands, and whether precision is half."""
OF_TENSORS, OF_ARRAYS = range(2)
"""Places of both entries, and of what is called of them."""

_kept: dict[Any, "Again"] = {}


def is_seed(value: Any) -> bool:
    """Whether it is a seed of dropout that is taken here."""
    return type(value) is int and 0 <= value < _SEEDS


def key_of(
    q: Any, k: Any, v: Any, causal: Any, window: Any, softcap: Any, dropout: float, tolerance: Any, return_lse: Any,
    slots: Mapping[str, Any], given: Mapping[str, Array] | None,
) -> Any:  # fmt: skip
    """What tells calls apart of which a record may be kept; None of others.

    given: as `given_arrays` has it; not None where weights are dropped.
    """
    if not (type(q) is type(k) is type(v) is np.ndarray and q.dtype is k.dtype is v.dtype):
        return None
    scale = pairs = rectify = None
    if slots:
        scale, pairs, rectify = map(slots.get, OPTIONS)
        if type(scale) is np.ndarray:
            scale = None  # it is among `given`
    options = causal, window, softcap, tolerance, return_lse, scale, pairs, rectify
    types = tuple(map(type, options))
    if not PLAIN_TYPES.issuperset(types):  # such as arrays without axes, which may hold another number in the next call
        return None
    own = None if given is None else tuple((name, x.dtype, x.ndim) for name, x in given.items())
    return q.shape, q.dtype, dropout, options, types, own


def given_arrays(arrays: Mapping[str, Any], bands: Any = None) -> dict[str, Array] | None:
    """Those that are not None; None where one is no array as records are made with. Options are passed over."""
    found = {}
    for name, x in arrays.items():
        if x is None or (name in OPTIONS and type(x) is not np.ndarray):
            continue
        axes = _AXES.get(name)
        if axes is None or type(x) is not np.ndarray or x.ndim not in axes:
            return None
        found[name] = x
    if bands is None:
        return found
    if type(bands) is not tuple or len(bands) > len(BANDS):
        return None
    for names, each in zip(BANDS, bands, strict=False):
        if type(each) is not Band or not all(type(x) is np.ndarray for x in each):
            return None
        found.update(zip(names, each, strict=True))
    return found


def attend(key: Any, q: Array, k: Array, v: Array, given: Mapping[str, Array] | None, seed: int | None) -> Any:
    """What `attention` returns; None where no such call, of arrays laid out alike, was made before.

    seed: of dropout, None where nothing is dropped.
    """
    kept = _kept.get(key)
    if kept is None:
        return None
    found = kept.run(q, k, v, given, seed)
    if found is not None:
        return found
    longer = kept.grown(layouts_of((q, k, v)), shapes_of(given)) if k.ndim == v.ndim == 4 else None
    if longer is None:
        return None
    keep(key, longer)
    return longer.run(q, k, v, given, seed)


def keep(key: Any, kept: "Again") -> None:
    """Keep a call for the next one like it."""
    if len(_kept) >= _MOST:
        _kept.clear()
    _kept[key] = kept


def kept_of(
    qkv: tuple[Array, Array, Array], given: Mapping[str, Array] | None, **options: Any
) -> "Again | None":  # fmt: skip
    """The call of these arrays that is kept; options: `causal` and such as `key_of` takes."""
    causal, window, softcap = (options.get(name) for name in ("causal", "window", "softcap"))
    dropout = options.get("dropout", 0.0)
    kept = _kept.get(key_of(*qkv, causal, window, softcap, dropout, None, False, options, given))
    if kept is None or kept.record[: 3 * LAYOUT].tolist() != layouts_of(qkv) or kept.given != shapes_of(given):
        return None
    return kept


def layouts_of(qkv: Sequence[Array]) -> list[int]:
    """The first words of a record."""
    return [number for x in qkv for number in (*x.shape, *x.strides)]


def shapes_of(given: Mapping[str, Array] | None) -> list[tuple[int, ...]] | None:
    """The shapes of what is given, one after the other."""
    return None if given is None else [x.shape for x in given.values()]


def with_case(case: tuple[Any, ...], inputs: tuple[Any, ...], record: Array) -> Array:
    """The record of a call after its case, as `records.in_one_row` has it, the table of slots, and room for slopes."""
    words = np.array([*map(int, case)], np.int64)
    words[_SOFTCAP : _SOFTCAP + 1].view(np.float64)[0] = case[_SOFTCAP]
    return np.concatenate([words, inputs[_TABLE].reshape(-1), np.zeros(again.SLOPES, np.int64), record])


class Again:
    """A call, and what runs it again."""

    __slots__ = (
        "banded", "bits", "direct", "dtype", "entries", "given", "grows", "keys", "kind", "lse_dtype", "nowhere",
        "others", "places", "record", "return_lse", "shape", "size", "tasks", "work",
    )  # fmt: skip

    def __init__(
        self, qkv: tuple[Array, ...], given: Mapping[str, Array] | None, record: Array, inputs: tuple[Any, ...],
        size: int, out: Array, half: bool, return_lse: bool, dropout: Dropout | None,
    ) -> None:  # fmt: skip
        """inputs: the arrays that the record was made of. record: as `with_case` has it. size: of a lane's memory. out:
        as kernels compute it. dropout: None where nothing is dropped."""
        self.dtype, self.lse_dtype, self.shape = qkv[0].dtype, out.dtype, out.shape
        self.bits = None if self.dtype.itemsize > 2 else bits_of(qkv[0]).dtype
        self.size, self.return_lse, self.given = size, return_lse, shapes_of(given)
        of_kernels = _OF_KERNELS if self.bits is None else _OF_KERNELS | {"growth"}  # which else is of rows
        slots = True if dropout or (given and given.keys() & of_kernels) else None
        moves = True if given and given.keys() & _MOVES and self.bits is None else None  # halves have one kind
        # with slots of the kernels it is compiled for both: one kind less
        turns = True if slots or (given and given.keys() & _TURNS) else None
        rest = SLOTS_OF_INPUTS if slots else ROWS_OF_INPUTS if given is None else SEEN_OF_INPUTS
        own = Inputs(*inputs)
        self.others = own.scale, *inputs[rest:]  # to keep them; not the arrays of the call
        of_bands = 0 if given is None else len(given.keys() & OF_BANDS.keys()) // len(Band._fields)
        self.banded = of_bands > 0
        self.kind: tuple[bool | None, ...] = (None if given is None else True, slots, turns, moves)
        if self.banded:
            self.kind = True, slots
        self.entries, self.direct = _ENTRIES[self.banded, self.bits is not None], list[Any]([None, None])
        # addresses, and elements
        self.nowhere, counts = np.zeros(WORDS + OF_A_BAND * of_bands, np.int64), np.zeros(NUMBER, np.int64)
        if dropout is not None:
            self.nowhere[NUMBER:WORDS].view(np.float64)[:] = dropout
            self.nowhere[NUMBER : NUMBER + 2] = dropout_stream(0).key().view(np.int64)
        self.places, sizes = dict[str, tuple[int, np.dtype[Any]]](), (0,) * len(Sizes._fields)
        if given is not None:
            self.nowhere[_SCALE], counts[_SCALE] = own.scale.ctypes.data, own.scale.size
            self.places = places_of(given, out.dtype)
            sizes = sizes_of(given, own, qkv, half)
            for name, x in given.items():
                place = self.places[name][0]
                if name not in OF_BANDS:
                    counts[place] = x.size
                else:  # samples
                    self.nowhere[place + OF_A_BAND // 2] = x.shape[0] if x.ndim > 1 + ("spans" in name) else 1
        self.record = np.concatenate([np.array([*layouts_of(qkv), *sizes, *counts], np.int64), record])
        self.keys, self.tasks = qkv[1].shape[2], out.shape[0] * out.shape[1]
        self.work = self.tasks * out.shape[2] * (qkv[0].shape[-1] + out.shape[-1])
        self.grows = self._may_grow(set(given or ()))

    def _may_grow(self, names: set[str]) -> bool:
        """Whether a record for other keys differs in sizes alone: of a call that is given arrays of these names."""
        laid = self.banded or names & _MOVES or ("rel_gain" in names and names & _TURNS)
        return not laid and reads_as_they_lie(self.record, self.dtype.itemsize)

    def grown(self, layouts: list[int], shapes: list[tuple[int, ...]] | None) -> "Again | None":
        """The call of another number of keys, or of keys that lie otherwise; None where more is new."""
        if not self.grows or len(shapes or ()) != len(self.given or ()):
            return None
        given = {
            name: (place, before, now)
            for (name, (place, _)), before, now in zip(self.places.items(), self.given or (), shapes or (), strict=True)
        }
        turned = not _TURNED.isdisjoint(given)
        record = grown(self.record, layouts, self.dtype.itemsize, given, in_one_piece=turned)
        if record is None:
            return None
        made = Again.__new__(Again)
        for name in Again.__slots__:  # machine code as well
            setattr(made, name, getattr(self, name))
        made.record, made.given, made.keys = record, shapes, layouts[LAYOUT + 2]
        return made

    @property
    def is_linear(self) -> bool:
        """Whether compiled code makes its record for any number of keys."""
        return bool(self.record[again.SLOPES + LAYOUT + 2])

    def run(self, q: Array, k: Array, v: Array, given: Mapping[str, Array] | None, seed: int | None) -> Any:
        """What `attention` returns, or None."""
        if not q.ndim == k.ndim == v.ndim == 4 or self.given != shapes_of(given):
            return None
        lanes = lanes_for(self.work * k.shape[2], self.tasks)
        addresses, _alive = self.addresses(given, seed)
        out = np.empty(self.shape, self.dtype if self.bits is None else self.bits)
        lse = np.empty(self.shape[:-1], self.lse_dtype)
        rows = (q, k, v) if self.bits is None else (q.view(self.bits), k.view(self.bits), v.view(self.bits))
        if not self._run(lanes, (out, lse), rows, addresses):
            return None
        out = out.view(self.dtype)
        return (out, lse) if self.return_lse else out

    def _run(self, lanes: int, found: tuple[Array, Array], qkv: tuple[Array, ...], given: Array | None) -> bool:
        """Whether compiled code has found output and lse, of what lies at the addresses `given`."""
        first, rest, function = (self.record, self.size, *found), (given, *self.kind[1:]), self.direct[OF_ARRAYS]
        if function is None:
            function = direct(self.entries[OF_ARRAYS], 0, lanes, *first, *map(strided, qkv), *rest)
            self.direct[OF_ARRAYS] = function
        return bool(run_again(lanes, 0, function, *first, *qkv, *rest))

    def run_at(self, threads: int, team: int, tensors: tuple[Any, ...], block: int) -> tuple[int, Any]:
        """How the call of tensors went (below 0 if it was not made), and its output, a tensor; on so many threads at
        most, of this `threads.run_again`'s team.

        block: where that of `block_of` lies.
        """
        lanes = lanes_for(self.work * self.keys, self.tasks, most=threads, awake=team > 0)
        found, function = [None], self.direct[OF_TENSORS]
        if function is None:
            arguments = block, id(tensors), id(found), self.bits or self.dtype, *self.kind
            function = self.direct[OF_TENSORS] = direct(self.entries[OF_TENSORS], 0, lanes, *arguments)
        went = run_again(lanes, team, function, block, id(tensors), id(found), self.bits or self.dtype, *self.kind)
        if went != self.keys and went > 0:
            self.keys = went  # the next call has about as many
        return went, found[0]

    def block_of(self, layouts: Array, words: Array, functions: Functions) -> tuple[Array, int]:
        """What compiled code reads of a call of tensors, `again.BLOCK` words, and where they lie; keep all arrays.

        layouts: as `dlpack.locate` has them. words: `words_at`, with the addresses of what is given otherwise.
        functions: of the library of tensors.
        """
        parts = (self.record, self.record.size), (layouts, layouts.shape[1]), (words, words.size)
        addresses = (x for array, size in parts for x in (address_of(array), size))
        made = np.array([*addresses, self.size, *functions], np.int64)
        return made, address_of(made)

    def words_at(self) -> Array:
        """Words for `block_of`: places for the addresses of q, k and v, and from `AT` on of what is given."""
        rest = self.nowhere[:0] if self.given is None else self.nowhere
        return np.concatenate([np.zeros(AT, np.int64), rest])

    def addresses(self, given: Mapping[str, Array] | None, seed: int | None) -> tuple[Array | None, list[Array]]:
        """Where compiled code finds what is given, and the arrays that lie there."""
        if given is None:
            return None, []
        found, alive = self.words(seed), []
        for name, x in given.items():
            place, dtype = self.places[name]
            whole = contiguous(x, dtype)
            alive.append(whole)
            found[place] = address_of(whole)
        return found, alive

    def words(self, seed: int | None) -> Array:
        """`WORDS` without addresses."""
        found = self.nowhere.copy()
        if seed is not None:
            found[NUMBER] = seed
        return found
