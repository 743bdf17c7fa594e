"""The shortest ways from tensors to kernels: of few queries, where nobody looks at operators.

On the others Python takes as long as a query needs for thousands of keys. Where all that is given is tensors, and a
record of such a call is kept (`functional.again`), addresses are all that compiled code needs (`attend`); all else goes
to `fastpe.attention` as the arrays that it is (`attend_with`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fastpe.functional import again
from fastpe.functional import attention as host
from fastpe.functional.bands import Band
from fastpe.functional.grown import slopes
from fastpe.kernels.dlpack import FRONT, functions_of, layouts_of
from fastpe.kernels.openmp import team_of
from fastpe.kernels.threads import at_most
from fastpe.torch.operators import HALVES, array, has_arrays, lies_here, operators_are_seen, tensor

_MOST = 512  # calls that are kept; then all are dropped
_OPTIONS = 5  # of a call's key
_NOWHERE = -1  # for addresses that nobody asks for
_Tensor = torch.Tensor
_TENSORS = {_Tensor, torch.nn.Parameter}
_TYPES = {(window, softcap) for window in (int, type(None)) for softcap in (float, type(None))}
_OTHER_TYPES = {(pairs, rectify) for pairs in (str, type(None)) for rectify in (bool, type(None))}
_NO_OPTIONS = (None, None, None)
_NAMES = {"key_lengths": "lengths"}
Array = np.ndarray[Any, Any]
_CONSTANTS = {bool, int, float, str, np.ndarray}
_threads = torch.get_num_threads
_grad_is_enabled, _is_autocast = torch.is_grad_enabled, torch.is_autocast_enabled
_is_any_autocast = torch._C._is_any_autocast_enabled
_DTYPES = {torch.float32, torch.float64, *HALVES}

_team = team_of(str(Path(torch.__file__).parent / "lib" / "libgomp.so.1"))  # its wheels for Linux have it there
_functions = functions_of(torch.Tensor)  # 0 before PyTorch 2.10
_reader = _functions.reader


class _Kept(NamedTuple):
    """A call, and how it is made again."""

    call: again.Again
    layouts: Array  # of its tensors, as `dlpack.locate` takes them
    words: Array  # what compiled code copies, to write addresses to
    block: Array  # where it finds these (`again.Again.block_of`)
    place: int  # of the block
    converted: list[tuple[int, int, torch.dtype]]  # tensors that lie otherwise than they are read, and their places


_kept: dict[Any, _Kept] = {}
_last: dict[Any, _Kept] = {}
"""Of the calls that differ in tensors alone the last one that was made again."""
_like: dict[Any, _Kept] = {}
"""Likewise of those whose queries are laid out alike, too."""


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: Any, window: Any, softcap: Any,
    given: Mapping[str, Any], dropped: tuple[float, Any] | None = None,
) -> torch.Tensor | None:  # fmt: skip
    """What `attention` returns, or None where something else is asked for, or somebody is to see it.

    given: such slots as `functional.again` takes, those that there are, with its `OPTIONS`. dropped: the rate of
    dropout, and its seed, as `drops` takes them.
    """
    options: tuple[Any, Any, Any] | None = _NO_OPTIONS
    if "scale" in given or "pairs" in given or "rectify" in given:
        given, options = _apart(given)
    if causal is not True and causal is not False:
        return None
    if not (window is softcap is None) and (type(window), type(softcap)) not in _TYPES:
        return None
    if options is None:
        return None
    tensors = (q, k, v, *given.values())
    if not (_reader and _are_unseen(tensors)):
        return None
    rate, seed = (None, None) if dropped is None else dropped
    if dropped is not None and seed is None:
        if not _are_few(tensors):  # another way draws one
            return None
        seed = drawn_seed()
    key = causal, window, softcap, options, rate, *given  # the first `_OPTIONS` are no names
    found = _made_again(key, tensors, seed)
    if found is not None or not _are_few(tensors):
        return found
    chosen = {"causal": causal, "window": window, "softcap": softcap}
    chosen |= {name: x for name, x in zip(again.OPTIONS, options, strict=True) if x is not None}
    if dropped is not None:
        chosen |= {"dropout": rate, "dropout_seed": seed}
    return _attend_and_keep(key, tensors, given, chosen)


def drops(dropout: Any, seed: Any) -> bool:
    """Whether `attend` takes such a rate of dropout and its seed, None where one is to be drawn."""
    return type(dropout) is float and 0.0 < dropout < 1.0 and (seed is None or again.is_seed(seed))


def drawn_seed() -> int:
    """A seed of dropout from PyTorch's generator."""
    return int(torch.randint(2**62, ()))


def attend_with(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: Mapping[str, Any], dropped: tuple[float, Any] | None
) -> torch.Tensor | tuple[torch.Tensor, ...] | None:  # fmt: skip
    """As `attend`, with anything that `fastpe.attention` takes and that needs no gradient, None as good as absent; lse,
    too, where it is asked for."""
    if not (_are_unseen((q, k, v)) and _are_few((q, k, v))):
        return None
    own: dict[str, Any] = {}
    for name, x in given.items():
        if x is not None:
            own[_NAMES.get(name, name)] = made = _bands(x) if name == "bands" else _constant(x)
            if made is None:
                return None
    if dropped is not None:
        rate, seed = dropped
        own |= {"dropout": rate, "dropout_seed": drawn_seed() if seed is None else seed}
    with at_most(_threads()):
        found = host.attention(array(q, "q"), array(k, "k"), array(v, "v"), **own)
    if given.get("return_lse"):
        return tensor(found[0], q.dtype), torch.from_numpy(found[1])
    return tensor(found, q.dtype)


def _apart(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Any, Any, Any] | None]:
    """What is given without options, and these, None where they are not of their types; a scale for each head is none.
    One by one, since a loop takes three times as long."""
    if len(given) == 1 and type(given.get("scale")) is float:  # as models of transformers have it
        return {}, (given["scale"], None, None)
    own = dict(given)
    scale, pairs, rectify = own.pop("scale", None), own.pop("pairs", None), own.pop("rectify", None)
    if type(scale) in _TENSORS:
        own["scale"], scale = scale, None
    if scale is not None and type(scale) is not float:
        return own, None
    if pairs is rectify is None or (type(pairs), type(rectify)) in _OTHER_TYPES:
        return own, (scale, pairs, rectify)
    return own, None


def _bands(bands: Any) -> tuple[Band, ...] | None:
    """Bands of arrays; None where that is not to be seen here."""
    if type(bands) is not tuple or not all(type(each) is Band for each in bands):
        return None
    made = [Band(*map(_constant, each)) for each in bands]
    return None if any(x is None for each in made for x in each) else tuple(made)


def _constant(x: Any) -> Any:
    """What `fastpe.attention` takes in the place of something; None where gradients may go through it."""
    if isinstance(x, torch.Tensor):
        return array(x.float() if x.dtype in HALVES else x) if _are_unseen((x,)) and lies_here(x) else None
    return x if type(x) in _CONSTANTS else None


def _are_unseen(tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether they are tensors of PyTorch's own with values as they lie, and nobody looks at what becomes of them."""
    tracked = _grad_is_enabled()
    for x in tensors:
        if (type(x) is not _Tensor and type(x) not in _TENSORS) or x.is_neg() or (tracked and x.requires_grad):
            return False
    return not (operators_are_seen() or (_is_any_autocast() and _is_autocast("cpu")))


def _are_few(tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether NumPy has such q, k and v, the first three, with few queries, and as many samples in all."""
    q, k, v = tensors[:3]
    if not all(map(lies_here, tensors)):
        return False
    if q.ndim != 4 or q.shape[2] > again.MOST_QUERIES or not q.shape[:1] == k.shape[:1] == v.shape[:1]:
        return False
    return q.dtype is k.dtype is v.dtype and q.dtype in _DTYPES and has_arrays(q.dtype)


def _made_again(key: Any, tensors: tuple[torch.Tensor, ...], seed: int | None) -> torch.Tensor | None:
    """What comes out, or None where no such call of tensors that are laid out so is kept, or what is given takes
    another way."""
    kept = _last.get(key)  # as in all layers of a model
    if kept is not None:
        went, found = _run(kept, tensors, seed)
        if went != again.ELSEWHERE:
            return found
    layouts = layouts_of(_reader, id(tensors), len(tensors))
    like = _like.get(_with_queries(key, layouts))  # as where models take turns
    if like is not None and like is not kept:
        went, found = _run(like, tensors, seed)
        if went != again.ELSEWHERE:
            _last[key] = like
            return found
    other = _kept.get((key, layouts.tobytes()))
    if other is None and like is not None:
        other = _grown(like, key, layouts, tensors)
    if other is None:
        return None
    _last[key] = _like[_with_queries(key, layouts)] = other
    return _run(other, tensors, seed)[1]


def _with_queries(key: Any, layouts: Array) -> Any:
    """What tells calls apart that have such queries, too."""
    return key, layouts[:1].tobytes()


def _grown(kept: _Kept, key: Any, layouts: Array, tensors: tuple[torch.Tensor, ...]) -> _Kept | None:
    """A call of another number of keys, which is kept, too; None where more is new.

    Where all is linear in that number, as for the cache of a model, compiled code takes any other from there on.
    """
    before = kept.layouts[0]
    if not (layouts.size and np.array_equal(layouts[:, 1:FRONT], before[:, 1:FRONT])):  # devices, axes and types
        return None
    sizes, item = layouts[:, FRONT:].tolist(), tensors[0].element_size()
    rows = [number for x in sizes[:3] for number in (*x[:8:2], *(stride * item for stride in x[1:8:2]))]
    shapes = [tuple(own[: 2 * x.ndim : 2]) for own, x in zip(sizes[3:], tensors[3:], strict=True)]
    call = kept.call.grown(rows, None if kept.call.given is None else shapes)
    if call is None:
        return None
    made = _keep(key, call, layouts, tensors, dict(zip(key[_OPTIONS:], tensors[3:], strict=True)))
    more = call.keys - before[1, FRONT + 4]
    # only if the same tensors are read in place: one expanded, then one in one piece, lie on a line, too
    alike = call.is_linear and [number for number, *_ in made.converted] == [number for number, *_ in kept.converted]
    found = slopes(before[:, FRONT:], layouts[:, FRONT:], more) if alike else None
    if found is not None:
        made.layouts[1, :, FRONT:] = found
    return made


def _run(kept: _Kept, tensors: tuple[torch.Tensor, ...], seed: int | None) -> tuple[int, torch.Tensor | None]:
    """How it went, as `Again.run_at` has it, and what comes out, if anything does."""
    place = kept.place
    if seed is not None or kept.converted:
        words = kept.words.copy()
        if not all(lies_here(tensors[number]) for number, _, _ in kept.converted):
            return again.ELSEWHERE, None
        alive = [tensors[number].to(dtype).contiguous() for number, _, dtype in kept.converted]
        for (_, at, _), x in zip(kept.converted, alive, strict=True):
            words[at] = x.data_ptr()
        if seed is not None:
            words[again.SEED_AT] = seed
        _block, place = kept.call.block_of(kept.layouts, words, _functions)
    return kept.call.run_at(_threads(), _team, tensors, place)


def _attend_and_keep(
    key: Any, tensors: tuple[torch.Tensor, ...], given: Mapping[str, torch.Tensor], options: Mapping[str, Any]
) -> torch.Tensor:
    """The call on arrays, and what it leaves for those to come."""
    q, k, v = (array(x, name) for name, x in zip("qkv", tensors[:3], strict=True))
    arrays: dict[str, Any] = {n: array(x.float() if x.dtype in HALVES else x, n) for n, x in given.items()}
    own = {_NAMES.get(name, name): x for name, x in arrays.items()}
    with at_most(_threads()):
        out = host.attention(q, k, v, **options, **own)
    kept = again.kept_of((q, k, v), arrays or ({} if "dropout" in options else None), **options)
    layouts = layouts_of(_reader, id(tensors), len(tensors))
    if kept is not None and layouts.size:
        _last[key] = _like[_with_queries(key, layouts)] = _keep(key, kept, layouts, tensors, given)
    return tensor(out, tensors[0].dtype)


def _keep(
    key: Any, call: again.Again, layouts: Array, tensors: tuple[torch.Tensor, ...], given: Mapping[str, torch.Tensor]
) -> _Kept:  # fmt: skip
    """Keep a call of tensors that are laid out so."""
    if len(_kept) >= _MOST:
        _forget()
    named = key, layouts.tobytes()
    _kept[named] = made = _made(call, layouts, tensors, given)
    return made


def _forget() -> None:
    """Keep no call any longer."""
    for each in (_kept, _last, _like):
        each.clear()


def _made(
    call: again.Again, layouts: Array, tensors: tuple[torch.Tensor, ...], given: Mapping[str, torch.Tensor]
) -> _Kept:
    """What is kept of a call."""
    own = np.stack([layouts, np.zeros_like(layouts)])
    own[0, :3, 0] = range(3)
    converted = []
    for number, (name, x) in enumerate(given.items(), 3):
        place, read = call.places[name]
        own[0, number, 0] = again.AT + place
        dtype = getattr(torch, read.name)
        if not (x.dtype is dtype and x.is_contiguous()):
            own[0, number, 0] = _NOWHERE
            converted.append((number, again.AT + place, dtype))
    words = call.words_at()
    return _Kept(call, own, words, *call.block_of(own, words, _functions), converted)
