"""The shortest ways from tensors to kernels: of few queries, where nobody looks at operators.

On the others Python takes as long as a query needs for thousands of keys. Where all that is given is tensors, and a
record of such a call is kept (`functional.again`), addresses are all that compiled code needs (`attend`); all else goes
to `fastpe.attention` as the arrays that it is (`attend_with`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastpe.functional import again
from fastpe.functional import attention as host
from fastpe.functional.bands import Band
from fastpe.kernels.openmp import team_of
from fastpe.kernels.threads import at_most
from fastpe.torch.operators import HALVES, array, has_arrays, operators_are_seen, tensor

_MOST = 512  # calls that are kept; then all are dropped
_TENSORS = {torch.Tensor, torch.nn.Parameter}
_TYPES = {(window, softcap) for window in (int, type(None)) for softcap in (float, type(None))}
_OPTIONS = {
    (scale, pairs, rectify)
    for scale in (float, type(None))
    for pairs in (str, type(None))
    for rectify in (bool, type(None))
}
_NO_OPTIONS = (None, None, None)
_NAMES = {"key_lengths": "lengths"}
_CONSTANTS = {bool, int, float, str, np.ndarray}
_DENSE, _threads = torch.strided, torch.get_num_threads
_grad_is_enabled, _is_autocast = torch.is_grad_enabled, torch.is_autocast_enabled
_DTYPES = {torch.float32, torch.float64, *HALVES}

_Places = list[tuple[int, torch.dtype | None]]
"""Of what is given its places in the addresses, and the dtype that it is read in, None where it lies there so."""

_team = team_of(str(Path(torch.__file__).parent / "lib" / "libgomp.so.1"))  # its wheels for Linux have it there

_kept: dict[Any, tuple[again.Again, _Places]] = {}
_last: tuple[Any, tuple[again.Again, _Places] | None] = (None, None)
"""The last call that was made again: what it is kept by, and what is kept."""


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: Any, window: Any, softcap: Any,
    given: Mapping[str, Any], dropped: tuple[float, Any] | None = None,
) -> torch.Tensor | None:  # fmt: skip
    """What `attention` returns, or None where something else is asked for, or somebody is to see it.

    given: such slots as `functional.again` takes, those that there are, with its `OPTIONS`. dropped: the rate of
    dropout, and its seed, as `drops` takes them.
    """
    global _last
    options = _NO_OPTIONS
    if given and not given.keys().isdisjoint(again.OPTIONS):
        given, options = _apart(given)
    if causal is not True and causal is not False:
        return None
    if not (window is softcap is None) and (type(window), type(softcap)) not in _TYPES:
        return None
    if options is not _NO_OPTIONS and tuple(map(type, options)) not in _OPTIONS:
        return None
    if not _are_plain(q, k, v):
        return None
    dtype = q.dtype
    key: Any = q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), dtype, causal, window, softcap, options
    for name, x in given.items():
        if not _is_plain(x):
            return None
        key += name, x.shape, x.stride(), x.dtype
    seed = None
    if dropped is not None:
        if not _are_few(q, k, v):
            return None
        rate, seed = dropped
        key, seed = (*key, rate), drawn_seed() if seed is None else seed
    before, kept = _last
    if key != before:  # as in all layers of a model; to look it up takes longer
        kept = _kept.get(key)
    if kept is not None:
        call, places = kept
        addresses, _alive = (None, None) if call.given is None else _addresses(call, places, given, seed)
        found = call.run_at(_threads(), _team, q.data_ptr(), k.data_ptr(), v.data_ptr(), addresses)
        _last = (None, None) if found is None else (key, kept)
        if found is not None:
            own = torch.from_numpy(found)
            return own if own.dtype is dtype else own.view(dtype)
    if not _are_few(q, k, v):
        return None
    chosen = {"causal": causal, "window": window, "softcap": softcap}
    chosen |= {name: x for name, x in zip(again.OPTIONS, options, strict=True) if x is not None}
    if dropped is not None:
        chosen |= {"dropout": dropped[0], "dropout_seed": seed}
    return _attend_and_keep(key, (q, k, v), given, chosen)


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
    if not (_are_plain(q, k, v) and _are_few(q, k, v)):
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
        found = host.attention(*map(array, (q, k, v)), **own)
    if given.get("return_lse"):
        return tensor(found[0], q.dtype), torch.from_numpy(found[1])
    return tensor(found, q.dtype)


def _apart(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Any, Any, Any]]:
    """What is given without options, and these; a scale for each head is none."""
    own = dict(given)
    scale, pairs, rectify = (own.pop(name, None) for name in again.OPTIONS)
    if isinstance(scale, torch.Tensor):
        own["scale"], scale = scale, None
    return own, (scale, pairs, rectify)


def _bands(bands: Any) -> tuple[Band, ...] | None:
    """Bands of arrays; None where that is not to be seen here."""
    if type(bands) is not tuple or not all(type(each) is Band for each in bands):
        return None
    made = [Band(*map(_constant, each)) for each in bands]
    return None if any(x is None for each in made for x in each) else tuple(made)


def _constant(x: Any) -> Any:
    """What `fastpe.attention` takes in the place of something; None where gradients may go through it."""
    if isinstance(x, torch.Tensor):
        return array(x.float() if x.dtype in HALVES else x) if _is_plain(x) else None
    return x if type(x) in _CONSTANTS else None


def _are_plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether they are of one dtype, in the CPU's memory as they stand there, and nobody looks at what becomes of
    them."""
    if not (type(q) in _TENSORS and type(k) in _TENSORS and type(v) in _TENSORS):
        return False
    if not (q.is_cpu and k.is_cpu and v.is_cpu) or q.is_neg() or k.is_neg() or v.is_neg():
        return False
    if not q.layout is k.layout is v.layout is _DENSE:
        return False
    if _grad_is_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    return not (operators_are_seen() or _is_autocast("cpu")) and q.dtype is k.dtype is v.dtype


def _are_few(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether NumPy has such arrays, with few queries, and as many samples in all."""
    if q.ndim != 4 or q.shape[2] > again.MOST_QUERIES or not q.shape[0] == k.shape[0] == v.shape[0]:
        return False
    return q.dtype in _DTYPES and has_arrays(q.dtype)


def _is_plain(x: torch.Tensor) -> bool:
    """As `_are_plain`, of one that is given beside them."""
    if type(x) not in _TENSORS or not x.is_cpu or x.is_neg() or x.layout is not _DENSE:
        return False
    return not (x.requires_grad and _grad_is_enabled())


def _addresses(
    call: again.Again, places: _Places, given: Mapping[str, torch.Tensor], seed: int | None
) -> tuple[Any, list[torch.Tensor]]:  # fmt: skip
    """As `Again.addresses`, of tensors."""
    found, alive = call.words(seed), list(given.values())
    for number, (place, dtype) in enumerate(places):
        if dtype is not None:
            alive[number] = alive[number].to(dtype).contiguous()
        found[place] = alive[number].data_ptr()
    return found, alive


def _places(call: again.Again, given: Mapping[str, torch.Tensor]) -> _Places:
    places: _Places = []
    for name, x in given.items():
        place, read = call.places[name]
        dtype = getattr(torch, read.name)
        places.append((place, None if x.dtype is dtype and x.is_contiguous() else dtype))
    return places


def _attend_and_keep(
    key: Any, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], given: Mapping[str, torch.Tensor],
    options: Mapping[str, Any],
) -> torch.Tensor:  # fmt: skip
    """The call on arrays, and what it leaves for those to come."""
    q, k, v = map(array, tensors)
    arrays: dict[str, Any] = {n: array(x.float() if x.dtype in HALVES else x) for n, x in given.items()}
    own = {_NAMES.get(name, name): x for name, x in arrays.items()}
    with at_most(_threads()):
        out = host.attention(q, k, v, **options, **own)
    kept = again.kept_of((q, k, v), arrays or ({} if "dropout" in options else None), **options)
    if kept is not None:
        if len(_kept) >= _MOST:
            _kept.clear()
        _kept[key] = kept, _places(kept, given)
    return tensor(out, tensors[0].dtype)
