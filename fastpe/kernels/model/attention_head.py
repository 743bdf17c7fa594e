"""The arrays that attention reads and writes for one head of the model: see `attention.inputs`."""

from fastpe.kernels.attention.inputs import NONE, Guard, Head, HeadGradients, SlotGradients, Visibility, place
from fastpe.kernels.attention.slots import BIAS
from fastpe.kernels.attention.terms.contextual_positions import RUNNING_COUNT
from fastpe.kernels.attention.tile import TILE_KEYS
from fastpe.kernels.attention.workspace import scratch_of
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.content import moves, moves_keys, widened
from fastpe.kernels.model.gates import gate_gradients, gates_of_head
from fastpe.kernels.rows.dropout import place_in
from fastpe.kernels.simd import at, part, pointer


@inner
def head_of(layer, h, act, position, dropout, place_of_first, own, sizes, a):
    """Return the arrays of one head. The data for skipping tiles is a placeholder: in the model no tile is skipped,
    because sequences are short."""
    return reflected_head_of(None, layer, h, act, position, dropout, place_of_first, own, sizes, a)


@inner
def reflected_head_of(path, layer, h, act, position, dropout, place_of_first, own, sizes, a):
    """Return the arrays of one head, as `head_of` does. path: the head's reflections (`attention.inputs.HeadPath`), or
    None.
    """
    n, to_key = own.before + own.length, key_after_query(h, sizes)
    q = at(act, a.qkv + own.start * sizes.projected + h * sizes.head)
    k, v = at(q, to_key), at(q, to_key + sizes.key_width)
    qr, kr = q, k
    if moves(sizes):
        qr = at(act, a.turned + widened(own.start * (sizes.query_width + sizes.key_width) + h * sizes.head, sizes))
    if moves_keys(sizes):
        kr = at(qr, widened(to_key, sizes))
    offsets = position.case.queries + position.case.keys - 1  # number of offsets of the longest sequence
    bias = part(pointer(position.bias), place(position.numbers, BIAS, layer, h), offsets)
    guard = Guard(q, q, pointer(position.no_guard), 0.0, 0.0)
    dropped = place_in(dropout, own.sequence, place_of_first + h)
    layers, batch, queries, _ = position.spans.shape
    which = min(layer, layers - 1) * batch + min(own.sequence, batch - 1)
    spans = at(pointer(position.spans), which * 2 * queries)
    visibility = Visibility(NONE, spans, q, pointer(position.places))  # the last two are placeholders
    return Head(
        q, qr, k, kr, v, bias, pointer(position.numbers), position.scale[layer, h], n, n, visibility, guard, dropout,
        dropped, gates_of_head(position.gates, h, act, own, sizes, a), _tallies(h, act, position, own, sizes, a),
        None, path,
    )  # fmt: skip


@inner
def key_after_query(h, sizes):
    """In a row of the queries, keys and values of all heads, return how many channels lie between the start of a head's
    query and the start of its key. Several query heads may have the same key head.
    """
    key_head = h // (sizes.heads // sizes.key_heads)
    return sizes.query_width + (key_head - h) * sizes.head


@inner
def scratch_memory(h, act, memory, position, own, a):
    """Return the scratch memory of one head, which starts at `memory`. If weights are kept, they have
    separate memory.
    """
    cells = at(memory, position.layout.cells)
    if position.case.kept:
        size = position.case.queries * TILE_KEYS
        cells = at(part(at(act, a.weights), h * size, size), own.start * TILE_KEYS)
    return scratch_of(memory, position.layout, cells)


@inner
def _tallies(h, act, position, own, sizes, a):
    size = position.case.queries * RUNNING_COUNT * sizes.counted
    return at(part(at(act, a.running_counts), h * size, size), own.start * RUNNING_COUNT * sizes.counted)


@inner
def transient_of(layer, workspace, a):
    """Return the memory of a layer's transient activations; see `memory.Arena`."""
    return at(workspace, a.transient + layer * a.transient_stride)


@inner
def lse_of(h, act, position, own, a):
    """Return the memory of the head's `lse`, the logarithms of its softmax denominators."""
    case = position.case
    return at(part(at(act, a.lse), h * case.queries, case.queries), own.start)


@inner
def mixed_of(h, act, own, sizes, a):
    """Return the memory of the head's output."""
    return at(act, a.mixed + own.start * sizes.query_width + h * sizes.head)


@inner
def _deltas(h, workspace, position, sizes, a):
    """Return the memory of a head's deltas. All heads share it, except if the deltas of several heads are needed at
    once: with a network over scores, or with fewer key heads than query heads.
    """
    apart = sizes.units > 0 or sizes.key_heads < sizes.heads
    return at(workspace, a.deltas + h * position.case.queries * apart)


@inner
def gradients_of(layer, h, j0, act, workspace, memory, slot_gradients, position, own, sizes, a):
    """Return the addresses of the gradients of one head. The gradient of the scale is a placeholder, because the scale
    is fixed.

    memory: start of the memory of attention.
    """
    case, to_key = position.case, key_after_query(h, sizes)
    slots = SlotGradients(slot_gradients, pointer(position.places), layer, h)
    channel, keys = h * sizes.head, j0 * case.g_row
    first = own.start * sizes.projected + channel
    content = rest = at(workspace, a.dqkv + first)
    if moves_keys(sizes) or case.apart:
        content = at(workspace, a.dcontent + own.start * case.g_row + widened(channel, sizes))
    if not case.apart:
        rest = content
    return HeadGradients(
        at(workspace, a.dmixed + own.start * sizes.query_width + channel), lse_of(h, act, position, own, a),
        _deltas(h, workspace, position, sizes, a), content, rest, at(content, widened(to_key, sizes) + keys),
        at(rest, widened(to_key, sizes) + keys),
        at(workspace, a.dqkv + first + to_key + sizes.key_width + j0 * case.gv_row), slots, slots, j0,
        at(memory, position.layout.stats),
        gate_gradients(position.gates, h, j0, workspace, own, sizes, a),
    )  # fmt: skip
