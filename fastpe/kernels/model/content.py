"""Content rows: the model's queries and keys after the matrices or the polar form, the rotation and, for queries, the
factors (`row_scale`).

If content rows differ from q and k, they are stored in `turned`, whose rows hold the queries of all heads and then the
keys. In polar form, a channel takes two elements in `turned` (`kernels.rows.polar`) and in `dcontent`. The rows of
`dcontent` then have no space for values.
"""

from fastpe.kernels.attention.slots import GROWTH, ROW_COUNT, WANTED
from fastpe.kernels.attention.tile import add_scaled, dot, scale_row
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.pack import place_of
from fastpe.kernels.model.selective_angles import add_turns, clear_turns, turn_row
from fastpe.kernels.rows.block_maps import add_map_gradients, map_row
from fastpe.kernels.rows.polar import lift_row, lower_row
from fastpe.kernels.rows.rotate import add_angle_gradients, add_growth_gradients, factors_of_row, rotate_row
from fastpe.kernels.simd import at, get, pointer, put, scalar


@inner
def moves_keys(sizes):
    """Whether content rows of keys differ from the keys."""
    return sizes.pairs or sizes.block or sizes.lifted or sizes.rank


@inner
def moves(sizes):
    """Whether content rows of queries differ from the queries."""
    return moves_keys(sizes) or sizes.scales_rows


@inner
def widened(width, sizes):
    """Return the number of channels of a content row."""
    return width * (1 + sizes.lifted)


@inner
def projection_of(which, row, h, sizes):
    """Return the position in `qkv` of the query (`which` is 0) or key (1) of a head in a row."""
    return row * sizes.projected + which * sizes.query_width + h * sizes.head


@inner
def _turned(which, row, h, sizes):
    """Return the position in `turned` of the query (`which` is 0) or key (1) of a head in a row."""
    return widened(row * (sizes.query_width + sizes.key_width) + which * sizes.query_width + h * sizes.head, sizes)


@inner
def _kinds(h, sizes):
    """Return 2 if there is a key head with the number h as well as a query head, otherwise 1."""
    return 2 if h < sizes.key_heads else 1


@inner
def _place_of_factor(layer, h, i, sizes):
    """Return the position of the factor of query i; its gradient has the same position."""
    return layer * sizes.row_scale_layer + h * sizes.row_scale_head + i


@inner
def _place_of_maps(layer, h, i, sizes):
    """Return the start of the matrices of a row; their gradients have the same start."""
    row = layer * sizes.rotors_layer + h * sizes.rotors_head + i * sizes.rotors_row
    return row * sizes.head * sizes.block


@inner
def _place_of_phases(layer, h, sizes):
    """Return the start of the phases of keys; their gradients have the same start."""
    return (layer * sizes.polar_layer + h * sizes.polar_head) * sizes.head


@inner
def _circles(polar, layer, which, h, sizes):
    """Return the cosines of the phases, followed by the sines, for queries (`which` is 0) or for keys (1). All phases
    of queries are 0."""
    return at(pointer(polar), which * 2 * (sizes.head + _place_of_phases(layer, h, sizes)))


@inner
def _map_rows(rotors, qkv, turned, scratch, own, layer, sizes):
    """Multiply the queries and keys of all heads by their matrices, for the rows of a sequence from `before` on."""
    if rotors is None:
        return
    if not sizes.block:
        return
    head = sizes.head
    for h in range(sizes.heads):
        for i in range(own.before, own.before + own.length):
            maps = at(pointer(rotors), _place_of_maps(layer, h, i, sizes))
            for which in range(_kinds(h, sizes)):
                x, y = at(qkv, projection_of(which, i, h, sizes)), at(turned, _turned(which, i, h, sizes))
                map_row(x, maps, y, head, sizes.block, sizes.half, False, scratch)


@inner
def _lift_rows(polar, qkv, turned, own, layer, sizes):
    """Convert the queries and keys of all heads to polar form, for the rows of a sequence from `before` on."""
    if polar is None:
        return
    if not sizes.lifted:
        return
    head = sizes.head
    for h in range(sizes.heads):
        for which in range(_kinds(h, sizes)):
            cos = _circles(polar, layer, which, h, sizes)
            for i in range(own.before, own.before + own.length):
                x, y = at(qkv, projection_of(which, i, h, sizes)), at(turned, _turned(which, i, h, sizes))
                lift_row(x, cos, at(cos, head), y, head)


@inner
def _turn(qkv, turned, act, own, layer, position, sizes, a):
    """Rotate the queries and keys of all heads, and scale queries, for a sequence's rows from `before` on.

    Rows that were multiplied by matrices or are in polar form are rotated in place. Keys are written to `turned` only
    if they are multiplied by matrices, in polar form or rotated.
    """
    pairs, wide, row = sizes.pairs, widened(sizes.head, sizes), factors_of_row(sizes.pairs, sizes.half)
    for h in range(sizes.heads):
        first = layer * sizes.angles_layer + h * sizes.angles_head
        for i in range(own.before, own.before + own.length):
            angle = place_of(1, i - own.before, own) if sizes.gathers_angles else i
            cos = at(pointer(position.turns), (first + angle) * row)
            for which in range(_kinds(h, sizes) if pairs or sizes.rank else 1):
                x, y = at(qkv, projection_of(which, i, h, sizes)), at(turned, _turned(which, i, h, sizes))
                if sizes.block or sizes.lifted:
                    x = y
                rotate_row(x, cos, at(cos, position.turns.shape[1]), y, wide, pairs, sizes.half)
                turn_row(position.selective, layer, y, h, own.start + i - own.before, 0, act, sizes, a)
            if sizes.scales_rows:
                factor = get(pointer(position.row_scale), _place_of_factor(layer, h, i, sizes))
                scale_row(at(turned, _turned(0, i, h, sizes)), wide, factor)


@inner
def make_content(layer, act, workspace, position, own, sizes, a):
    """Compute `turned` from `qkv` for one sequence."""
    if not moves(sizes):
        return
    qkv, turned = at(act, a.qkv + own.start * sizes.projected), at(act, a.turned + _turned(0, own.start, 0, sizes))
    _map_rows(position.rotors, qkv, turned, at(workspace, a.mapped), own, layer, sizes)
    _lift_rows(position.polar, qkv, turned, own, layer, sizes)
    _turn(qkv, turned, act, own, layer, position, sizes, a)


@inner
def _content_of_factor(rotors, polar, q, dq, layer, h, place, scratch, sizes):
    """Return the gradient of a query's factor: the product of dq and the query that the factor multiplies.

    dq: the gradient of the query's content row, rotated back, before it is multiplied by the factor.
    """
    head = sizes.head
    if rotors is None:
        return dot(q, dq, head)
    if sizes.lifted:
        cos = _circles(polar, layer, 0, h, sizes)
        lift_row(q, cos, at(cos, head), scratch, head)
        return dot(scratch, dq, 2 * head)
    if not sizes.block:
        return dot(q, dq, head)
    map_row(q, at(pointer(rotors), place), at(scratch, 3 * head), head, sizes.block, sizes.half, False, scratch)
    return dot(at(scratch, 3 * head), dq, head)


@inner
def _map_row_back(rotors, x, dy, dx, place, dmaps, scratch, sizes):
    """Write the gradient of a row before its multiplication by matrices to `dx`, and add the gradient of the matrices.
    Without matrices, return `dy`.
    """
    if rotors is None:
        return dy
    if not sizes.block:
        return dy
    head = sizes.head
    if sizes.wants_rotors:
        add_map_gradients(x, dy, at(dmaps, place), 0, head, head, sizes.block, sizes.half, scratch)
    map_row(dy, at(pointer(rotors), place), dx, head, sizes.block, sizes.half, True, scratch)
    return dx


@inner
def _lower_row(polar, x, dy, dx, layer, which, h, sizes):
    """Write the gradient of a row before its conversion to polar form to `dx`. Without a polar form, do nothing."""
    if polar is None:
        return
    if sizes.lifted:
        cos, head = _circles(polar, layer, which, h, sizes), sizes.head
        lower_row(x, dy, cos, at(cos, head), dx, head)


@inner
def content_backward(layer, act, workspace, slot_gradients, position, own, sizes, o, a):
    """Turn the gradients of content rows into those of queries and keys, and add these to dqkv. Add the gradients of
    angles, growth, factors, matrices and phases.
    """
    case, pairs, head, wide = position.case, sizes.pairs, sizes.head, widened(sizes.head, sizes)
    row = factors_of_row(pairs, sizes.half)
    places, growing = position.places, position.numbers[GROWTH, ROW_COUNT]
    clear_turns(position.selective, workspace, own, sizes, a)
    for h in range(sizes.heads):
        first = layer * sizes.angles_layer + h * sizes.angles_head
        for i in range(own.length):
            angle = place_of(1, i, own) if sizes.gathers_angles else i
            for which in range(_kinds(h, sizes)):
                place = projection_of(which, own.start + i, h, sizes)
                dx, y = at(workspace, a.dqkv + place), at(act, a.qkv + place)
                channel = widened(which * sizes.query_width, sizes) + h * wide
                dy = at(workspace, a.dcontent + (own.start + i) * case.g_row + channel)
                x = y
                if moves_keys(sizes) or (sizes.scales_rows and which == 0):
                    y = at(act, a.turned + _turned(which, own.start + i, h, sizes))
                if position.numbers[GROWTH, WANTED]:
                    dgrowth = at(slot_gradients, places[GROWTH, 0] + layer * places[GROWTH, 1] + i * growing)
                    add_growth_gradients(y, dy, dgrowth, growing, sizes.half, scalar(y, 1.0 - 2.0 * which))
                if sizes.wants_angles:
                    add_angle_gradients(
                        y, dy, at(slot_gradients, o.angles + (first + angle) * pairs), pairs, sizes.half
                    )
                if sizes.wants_polar and which == 1:
                    dphases = at(slot_gradients, o.polar + _place_of_phases(layer, h, sizes))
                    add_angle_gradients(y, dy, dphases, head, sizes.half)
                add_turns(position.selective, y, dy, h, own.start + i, workspace, sizes, a)
                target = dy if case.apart or sizes.block or sizes.lifted else dx
                if pairs or sizes.rank:
                    cos = at(pointer(position.turns), (first + angle) * row)
                    rotate_row(dy, cos, at(cos, 2 * position.turns.shape[1]), target, wide, pairs, sizes.half)
                    turn_row(position.selective, layer, target, h, own.start + i, 1, act, sizes, a)
                of_maps, spare = _place_of_maps(layer, h, i, sizes), at(workspace, a.mapped)
                if sizes.scales_rows and which == 0:
                    spot = _place_of_factor(layer, h, i, sizes)
                    if sizes.wants_row_scale:
                        spot_of_gradient = at(slot_gradients, o.row_scale + spot)
                        content = _content_of_factor(
                            position.rotors, position.polar, x, target, layer, h, of_maps, spare, sizes
                        )
                        put(spot_of_gradient, 0, get(spot_of_gradient, 0) + content)
                    scale_row(target, wide, get(pointer(position.row_scale), spot))
                dy = _map_row_back(
                    position.rotors, x, dy, at(spare, 2 * head) if case.apart else dx, of_maps,
                    at(slot_gradients, o.rotors), spare, sizes,
                )  # fmt: skip
                _lower_row(position.polar, x, dy, dx, layer, which, h, sizes)
                if case.apart:
                    add_scaled(dx, scalar(dx, 1.0), dy, head)
