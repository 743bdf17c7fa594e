"""The score of every query and key in plain NumPy, and its pullback: see `reference._attention`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.functional.slot_arrays import cells_of
from fastpe.reference._bands import products
from fastpe.reference._case import Array, Case, Gradients
from fastpe.reference._counts import counted
from fastpe.reference._mlp import networked
from fastpe.reference._nonfinite import summed, times, where_nonzero
from fastpe.reference._reflected import reflected
from fastpe.reference._rotation import crossed, turn
from fastpe.reference._sizes import Sizes


def inner_products(case: Case) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """Return the sum of all terms that the scale multiplies, and its pullback."""
    q, k, slots = case.q, case.k, case.slots
    inner, content_pullback = _content(case)
    if "rel_key" in slots:
        inner = inner + case.gather(q @ _t(slots["rel_key"]), "rel_key")
    if "rel_query" in slots:
        inner = inner + _t(case.gather(k @ _t(slots["rel_query"]), "rel_query", transposed=True))
    if "key_bias" in slots:
        inner = inner + slots["key_bias"][:, :, None, :] @ _t(np.asarray(k))  # one vector: nothing is rounded

    def pullback(dinner: Array, gradients: Gradients) -> None:
        content_pullback(dinner, gradients)
        if "rel_key" in slots:
            by_offset = case.scatter(dinner, "rel_key")
            gradients.add("q", by_offset @ slots["rel_key"])
            gradients.add("rel_key", times(_t(by_offset), q))
        if "rel_query" in slots:
            by_offset = case.scatter(_t(dinner), "rel_query", transposed=True)
            gradients.add("k", by_offset @ slots["rel_query"])
            gradients.add("rel_query", times(_t(by_offset), k))
        if "key_bias" in slots:
            total = dinner.sum(axis=-2)[..., None]
            gradients.add("k", total * slots["key_bias"][:, :, None, :])
            gradients.add("key_bias", np.sum(total * where_nonzero(total, k), axis=-2))

    return inner, pullback


def _content(case: Case) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """sum_d q^_id k^_jd rel_gain[j-i, d], including growth. With ``rel_gain`` or ``growth``, this is computed in a loop
    over channels."""
    if case.look_back is not None:
        return _banded(case, case.look_back)
    q, q_pullback = _scaled_rows(case, *_rotate(case, "q"))
    k, k_pullback = _rotate(case, "k")
    if "reflectors" in case.slots:
        return reflected(case, (q, q_pullback), (k, k_pullback))
    plain = "rel_gain" not in case.slots and "growth" not in case.slots
    channels = [] if plain else range(q.shape[-1])

    def products(d: int) -> Array:
        return q[..., :, None, d] * k[..., None, :, d]

    inner = q @ _t(k) if plain else sum(products(d) * case.channel_gain(d) * case.channel_growth(d) for d in channels)

    def pullback(dinner: Array, gradients: Gradients) -> None:
        if plain:
            dq, dk = times(dinner, k), times(_t(dinner), q)
        else:
            dq, dk = (np.empty_like(dinner, shape=x.shape) for x in (q, k))
        for d in channels:
            gain, growth = case.channel_gain(d), case.channel_growth(d)
            factored = dinner * gain * growth
            dq[..., d], dk[..., d] = summed(factored, k[..., d]), summed(_t(factored), q[..., d])
            met = where_nonzero(dinner, products(d))
            gradients.add_channel_gain(d, dinner * met * growth)
            gradients.add_channel_growth(d, factored * met)
        q_pullback(dq, gradients)
        k_pullback(dk, gradients)

    return inner, pullback


def _banded(case: Case, look_back: Array) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """row_scale_i q_i R(M_ij theta) k_j, where M_ij is the rotary offset in the band that has i and j."""
    q, q_pullback = _scaled_rows(case, case.q, lambda dq, gradients: gradients.add("q", dq))
    inner, products_pullback = products(q, case.k, look_back, case.slots["theta"], case.pairs)

    def pullback(dinner: Array, gradients: Gradients) -> None:
        dq, dk, dtheta = products_pullback(dinner)
        q_pullback(dq, gradients)
        gradients.add("k", dk)
        gradients.add("theta", dtheta[None])

    return inner, pullback


def _scaled_rows(
    case: Case, q: Array, q_pullback: Callable[[Array, Gradients], None]
) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """row_scale_i q^_i"""
    if "row_scale" not in case.slots:
        return q, q_pullback
    factors = case.slots["row_scale"][..., None]

    def pullback(dscaled: Array, gradients: Gradients) -> None:
        gradients.add("row_scale", np.sum(dscaled * q, axis=-1))
        q_pullback(dscaled * factors, gradients)

    return factors * q, pullback


def _columns(case: Case) -> Any:
    """key_offset_j + (j - i) (key_slope_j + query_slope_i)"""
    slots, offsets = case.slots, case.positions.offsets()[:, None].astype(case.q.dtype)
    found: Any = 0
    if "key_offset" in slots:
        found = found + slots["key_offset"][..., None, :]
    if "key_slope" in slots:
        found = found + offsets * slots["key_slope"][..., None, :]
    if "query_slope" in slots:
        found = found + offsets * slots["query_slope"][..., None]
    return found


def _add_columns(case: Case, dlogits: Array, gradients: Gradients) -> None:
    """Add the gradients of `_columns`."""
    offsets = case.positions.offsets()[:, None]
    gradients.add("key_offset", dlogits.sum(axis=-2))
    gradients.add("key_slope", (dlogits * offsets).sum(axis=-2))
    gradients.add("query_slope", (dlogits * offsets).sum(axis=-1))


def _map(case: Case, name: str) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """Multiply each row of q or k by its position's map, a block-diagonal matrix (D, D), or convert it to polar
    form."""
    x = case.q if name == "q" else case.k
    if "polar" in case.slots:
        return _lift(case, name)
    if "rotors" not in case.slots:
        return x, lambda dx, gradients: gradients.add(name, dx)
    maps, positions = case.rotor_matrices(), case.positions
    if maps.shape[2] > 1:
        maps = positions.of_queries(maps, -3) if name == "q" else positions.of_keys(maps, -3)

    def pullback(dy: Array, gradients: Gradients) -> None:
        gradients.add(name, np.sum(maps * dy[..., None], axis=-2))
        gradients.add_rotors(name, dy[..., None] * x[..., None, :])

    return np.sum(maps * x[..., None, :], axis=-1), pullback


def _lift(case: Case, name: str) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """softplus(x) (cos phase, sin phase) for every channel, all cosines first; queries have phase 0."""
    x, phase = (case.q, np.zeros(1, case.q.dtype)) if name == "q" else (case.k, case.slots["polar"][..., None, :])
    radius, cos, sin = np.logaddexp(0, x, dtype=x.dtype), np.cos(phase), np.sin(phase)

    def pullback(dy: Array, gradients: Gradients) -> None:
        along, across = dy[..., : x.shape[-1]], dy[..., x.shape[-1] :]
        gradients.add(name, expit(x) * (along * cos + across * sin))
        if name == "k":
            gradients.add("polar", np.sum(radius * (across * cos - along * sin), axis=-2))

    return np.concatenate([radius * cos, radius * sin], axis=-1), pullback


def _rotate(case: Case, name: str) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """Rotate each pair of channels of q or k by its angle, (x, y) -> (x cos - y sin, x sin + y cos), after `_map`."""
    x, map_pullback = _map(case, name)
    if "angles" not in case.slots:
        return x, map_pullback
    whole = case.slots["angles"]
    angles = case.positions.of_queries(whole, -2) if name == "q" else case.positions.of_keys(whole, -2)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    turned = turn(x, cos, sin, case.pairs)

    def pullback(dturned: Array, gradients: Gradients) -> None:
        map_pullback(turn(dturned, cos, -sin, case.pairs), gradients)
        gradients.add_rows("angles", name, crossed(turned, dturned, case.pairs))

    return turned, pullback


def _content_logits(case: Case, inner: Array, cut: Array) -> tuple[Array, Array]:
    """Return the products times the scale, and the result times the gain."""
    u = np.where(cut, 0, case.scale * inner)
    return u, case.gather(case.slots["gain"][:, :, None, :], "gain") * u if "gain" in case.slots else u


def logits_of(case: Case, inner: Array, cut: Array) -> tuple[Array, Callable[[Array, Gradients], Array]]:
    """Return all scores and their pullback. `cut` marks products that `rectify` sets to 0 before terms are added."""
    slots, scale, sizes = case.slots, case.scale, isinstance(inner, Sizes)
    u, logits = _content_logits(case, inner, cut)
    exact = _content_logits(case, inner_products(case)[0], cut)[1] if sizes and "counts" in slots else logits
    of_counts, counts_pullback = counted(case, exact, sizes=sizes)
    logits = logits + of_counts
    biases: Any = 0
    if "bias" in slots:
        biases = biases + case.gather(slots["bias"][:, :, None, :], "bias")
    if "index" in slots:
        biases = biases + case.look_up_values()
    if "scores" in slots:
        biases = biases + cells_of(slots["scores"], case.positions)
    of_network, network_pullback = networked(case, logits, biases)
    logits = logits + biases + _columns(case) + of_network
    slope: Any = 1
    if case.softcap:
        turned = np.tanh(logits / case.softcap)
        logits, slope = case.softcap * turned, 1 if sizes else 1 - turned * turned

    def pullback(dlogits: Array, gradients: Gradients) -> Array:
        du = dlogits = dlogits * slope
        _add_columns(case, dlogits, gradients)
        dcells, dx = dlogits, network_pullback(dlogits, gradients)
        if "mlp_in" in slots:
            heads = case.q.shape[1]
            dcells, dlogits = dlogits + dx[:, heads:], dlogits + dx[:, :heads]
        if "scores" in slots:
            gradients.add_cells("scores", dcells)
        if "index" in slots:
            gradients.add_values(dcells)
        if "bias" in slots:
            gradients.add("bias", case.scatter(dcells, "bias").sum(axis=-2))
        du = dlogits = dlogits + counts_pullback(dlogits, gradients)
        if "gain" in slots:
            gradients.add("gain", case.scatter(dlogits * u, "gain").sum(axis=-2))
            du = dlogits * case.gather(slots["gain"][:, :, None, :], "gain")
        du = np.where(cut, 0, du)
        gradients.add("scale", du * inner)
        return scale * du

    return logits, pullback


def _t(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)
