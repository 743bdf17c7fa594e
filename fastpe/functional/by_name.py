"""Attention on a dict of arguments, for the adapters to PyTorch and JAX.

The call is `fastpe.columns.two_sided`, which is never causal, if `before` and `after` are among the arguments, and
`fastpe.attention` otherwise.
"""

from collections.abc import Mapping
from typing import Any

from fastpe.functional import attention, two_sided
from fastpe.functional.arguments import Array, Call


def check(given: Mapping[str, Any]) -> None:
    """Raise the errors that the call would raise. Callers may pass zeros for arrays whose values are not known yet."""
    if "before" in given:
        call, _ = _of_both_sides(given, None)
    else:
        own = {name: given[name] for name in ("q", "k", "v", "causal", "window", "lengths")}
        rest = {name: value for name, value in given.items() if name not in (*own, "tolerance")}
        call = attention.checked(**own, return_lse=False, wrt=None, slots=rest)
    attention.checked_tolerance(given["tolerance"], call.computed)


def outputs(given: Mapping[str, Any], *, rounds: bool = False) -> tuple[Array, Array]:
    """Return the output and lse. `rounds`: whether q, k and v are float32 arrays that hold bfloat16 values."""
    if "before" in given:
        found = two_sided.split(*_of_both_sides(given, ()), given["tolerance"], rounds=rounds).outputs()
    else:
        found = attention.rounded(**given) if rounds else attention.attention(**given, return_lse=True)
    out, lse = found
    return out, lse


def gradients(
    out: Array, lse: Array, dout: Any, given: Mapping[str, Any], *, wrt: tuple[str, ...], rounds: bool = False
) -> dict[str, Array]:
    """Return the gradients for `dout` or (dout, dlse), given the `out` and `lse` of an earlier forward pass."""
    if "before" in given:  # runs the forward passes again: out and lse do not determine the share of each side
        return two_sided.split(*_of_both_sides(given, wrt), given["tolerance"], rounds=rounds).pullback(dout)
    return attention.gradients(out, lse, dout, **given, wrt=wrt, rounds=rounds)


def _of_both_sides(given: Mapping[str, Any], wrt: tuple[str, ...] | None) -> tuple[Call, list[Array]]:
    own = {name: given[name] for name in ("q", "k", "v", "before", "after", "window", "lengths")}
    rest = {name: value for name, value in given.items() if name not in (*own, "causal", "tolerance")}
    return two_sided.checked(**own, return_lse=True, wrt=wrt, slots=rest)
