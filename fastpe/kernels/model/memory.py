"""Where the kernels of the model find things: sizes, and offsets into flat arrays, in elements."""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.dape.network import DapeLayout
from fastpe.kernels.attention.inputs import Case, Options
from fastpe.kernels.attention.score import in_passes
from fastpe.kernels.attention.slots import COUNTS, GROWTH, KEY_BIAS, REL_GAIN, REL_KEY, REL_QUERY, ROWS
from fastpe.kernels.attention.terms.contextual_positions import RUNNING_COUNT
from fastpe.kernels.attention.tile import TILE_KEYS
from fastpe.kernels.attention.workspace import Layout, layout_for
from fastpe.kernels.model.dape import Network
from fastpe.kernels.model.gates import ARRAYS as GATE_ARRAYS
from fastpe.kernels.model.gates import GRADIENTS as GATE_GRADIENTS
from fastpe.kernels.model.reflections import Given, Kept, Reflections, kept_of_reflections, memory_for_reflections
from fastpe.kernels.model.selective_angles import kept_of_angles, memory_for_angles
from fastpe.kernels.products.bfloat16.isa import Isa
from fastpe.kernels.products.bfloat16.product import MEMORY
from fastpe.kernels.rows.activation import RELU
from fastpe.kernels.simd import region


class Sizes(NamedTuple):
    """What the model is and how long a sequence; flags are 0 or 1."""

    length: int  # of the longest sequence that there is room for
    width: int
    heads: int
    hidden: int
    inner: int  # columns of the map into the feed-forward network: hidden, or twice that
    layers: int
    causal: int
    activation: int  # as `kernels.rows.activation` numbers them
    norms: int
    centred: int  # whether norms subtract the mean
    norm_biased: int
    final_norm: int
    biased: int  # whether maps have biases
    residual: int
    vocabulary: int  # 0: scalars in and out
    tied: int  # whether the head is the transposed table of tokens
    has_table: int
    has_qk_table: int
    gated: int  # whether layers have gates, or slopes of their own
    rank: int  # of the maps by which layers make angles of their input, the largest; 0: none does
    reflects: int  # as `rank`, of the maps by which layers make reflections
    counted: int  # whether queries count their keys
    taps: int  # of the convolution at the input; 0: none
    pairs: int  # of channels that are rotated
    half: int  # whether a pair is channels c and c + pairs, not 2c and 2c + 1
    angles_layer: int  # rows from one layer's angles to the next one's, and from one head's; 0 where they are shared
    angles_head: int
    scales_rows: int  # whether queries have factors
    row_scale_layer: int  # as `angles_layer` and `angles_head`, of factors
    row_scale_head: int
    block: int  # channels of a block that is mapped; 0: none
    rotors_layer: int  # rows from one layer's maps to the next one's, from one head's, from one position's; or 0
    rotors_head: int
    rotors_row: int
    lifted: int  # whether channels become radii, two for one
    polar_layer: int  # as `angles_layer` and `angles_head`, of phases
    polar_head: int
    units: int  # of a network over scores (`attention.dape`); 0: none
    unit_taps: int
    net_layers: int  # that have a network of their own; 1: all share one
    wants_table: int
    wants_qk_table: int
    wants_taps: int
    wants_angles: int
    wants_row_scale: int
    wants_rotors: int
    wants_polar: int
    wants_net: int
    gathers_table: int  # whether a rule says each token's row of the table, and of the rotations
    gathers_angles: int
    anew: int  # whether what a layer makes of rows in a row begins anew with every document
    slots: int  # elements of the gradients of slots that all layers may share
    fused_input: int  # whether the ends are fused: `model.fused_embedding_and_head`
    fused_output: int
    packed: int  # whether the layers' matrices are packed once for all products, as they are and transposed
    products: Isa | None  # how products of operands rounded to bfloat16 are made; None: they are float32's or float64's


class Offsets(NamedTuple):
    """Where a tensor starts in the flat array of parameters (and of gradients); layer l adds l * `layer_stride`.

    In a layer the four matrices come first, then the vectors; what a model does not have has no room, and is not read.
    """

    embed_weight: int
    embed_bias: int
    head_weight: int
    head_bias: int
    final_norm_weight: int
    final_norm_bias: int
    layers: int
    layer_stride: int
    qkv_weight: int
    qkv_bias: int
    out_weight: int
    out_bias: int
    in_weight: int
    in_bias: int
    ff_weight: int
    ff_bias: int
    norm1_weight: int
    norm1_bias: int
    norm2_weight: int
    norm2_bias: int
    table: int  # of the gradients only, as all that follows: those of slots
    taps: int
    slots: int  # and of those that all layers may share, among them
    qk_table: int
    angles: int
    row_scale: int
    rotors: int
    polar: int
    mlp_in: int
    mlp_bias: int
    mlp_out: int
    projection: int  # those of fused ends, input and output
    readout: int


class Position(NamedTuple):
    """The slots of a model at one length, and what attention needs to find its way in them.

    An array that is not read stands for a slot that is not given. Rows of `numbers` and `places` are attention's slots.
    Of `rotors`, `polar`, `gates`, `selective` and `slots` there are all or none: a model with none of them is compiled
    without, any other for all of them. To compile each subset by itself would take as long as all together. Beside
    any of these, or a `net`, is dropout.

    Workers have it with pointers in the place of arrays of one axis (`simd.with_pointers`).
    """

    table: np.ndarray
    qk_table: np.ndarray
    taps: np.ndarray
    turns: (
        np.ndarray
    )  # (3, any), factors of rotation, as `kernels.rows.rotate` has them: cos, sin, and sin of turning back
    row_scale: np.ndarray
    bias: np.ndarray
    scale: np.ndarray  # (layers, H)
    spans: np.ndarray  # (layers or 1, B or 1, N, 2), int64: the keys that each query sees, where not all
    rotors: np.ndarray | None  # maps of blocks of channels, as `rows.block_maps.lie_in` has them
    polar: np.ndarray | None  # cosines and sines of phases, see `model.content`
    gates: np.ndarray | None  # (layers, 7), int64, see `model.gates`
    slopes: np.ndarray  # (H,), float64, of `model.gated_slopes`
    selective: np.ndarray | None  # (layers, 4), int64, see `model.selective_angles`
    frequencies: np.ndarray  # (C/2,), float64, of those
    reflections: Reflections | None  # see `model.reflections`; not beside a `net`
    net: Network | None  # over scores, of every layer or of all
    net_layout: DapeLayout | None
    no_guard: np.ndarray  # float64, not read: short sequences leave no tile out
    slots: int | None  # 1, or None where there are none but those above
    numbers: np.ndarray  # as `kernels.attention` takes them, layers in place of the batch
    places: np.ndarray  # in the gradients of `slots`: start, from layer to layer, from head to head, size of a head's
    case: Case
    layout: Layout


class Transposed(NamedTuple):
    """Where the transposed matrices start in the flat array of transposes; those of layer l, l * `layer_stride` on.

    In bfloat16 the layers' are packed words, and the matrices as they are lie `words` further on, packed likewise.
    """

    layer_stride: int
    words: int
    qkv_weight: int
    out_weight: int
    in_weight: int
    ff_weight: int
    head_weight: int  # of a model with a vocabulary only


class Arena(NamedTuple):
    """Where things lie in a thread's scratch memory. Layer l's activations: `layers` + l * `layer_stride` + ..."""

    streams: int
    stream_stride: int
    layers: int
    layer_stride: int
    normed1: int
    stats1: int
    qkv: int
    turned: int
    weights: int
    lse: int
    running_counts: int
    gates: int
    low: int  # of `model.selective_angles`, as what follows
    steps: int
    sums: int
    factors: int
    reflected: Kept
    mixed: int
    middle: int
    normed2: int
    stats2: int
    slopes: int  # what is mapped by the activation, then the slopes of the map there
    hidden: int
    dz: int
    dnormed: int
    dhidden: int
    dbranch: int  # of what is dropped out
    dmixed: int
    dqkv: int
    dcontent: int
    mapped: int  # rows of a head as blocks, and a gradient before it is added; or a lifted row
    dgates: int
    unit: int  # of `model.selective_angles`, as what follows
    dangles: int
    maps: int
    dreflected: Given
    deltas: int
    slots: int
    embedded: int
    shifted: int
    final: int
    final_stats: int
    embedding: int  # of fused ends: A and M of the input, M of the output
    projection: int
    readout: int
    attention: int
    output: int  # and then, in its place, its gradient
    picked: int  # of a model with a vocabulary: rows of the stream whose targets count, their gradients,
    dpicked: int
    tokens: int  # and their targets and shares
    shares: int
    packed: int  # what products round
    size: int


def attention_case(
    sizes: Sizes, numbers: np.ndarray, options: Options, *, keep_raw: bool, more: bool, spanned: bool, backward: bool,
    dropped: bool,
) -> tuple[Case, Layout]:  # fmt: skip
    """Sizes of the attention of one sequence, and its scratch memory.

    more: whether there are slots but a bias; spanned: whether queries have spans of keys.
    """
    n, c, heads = sizes.length, sizes.width, sizes.heads
    given = numbers[:, 0]
    made_again = more and (keep_raw or bool(given[[GROWTH, REL_GAIN, COUNTS]].any()))
    rotated = _rotates(sizes)
    moved = rotated or sizes.scales_rows > 0
    apart = bool(given[GROWTH] or (moved and given[[REL_KEY, REL_QUERY, KEY_BIAS, COUNTS]].any()))
    turned = 2 * c * (1 + sizes.lifted)
    terms = frozenset(slot for number, slot in enumerate(ROWS) if given[number])
    passes = in_passes(terms) or options.rectify or (backward and keep_raw)
    case = Case(
        batch=1, heads=heads, key_heads=heads, queries=n, keys=n, width=c // heads * (1 + sizes.lifted),
        v_width=c // heads,
        causal=sizes.causal, window=0, spanned=int(spanned), key_blocks=-(-n // int(TILE_KEYS)), half=sizes.half,
        options=options, in_passes=int(passes), keep_raw=int(backward and keep_raw), keep_slopes=0, skip=0,
        q_batch=0, q_head=0, q_row=3 * c, k_batch=0, k_head=0, k_row=3 * c, v_batch=0, v_head=0, v_row=3 * c,
        qr_row=turned if moved else 3 * c,
        kr_row=turned if rotated else 3 * c, o_row=c,
        g_row=turned if sizes.lifted else 3 * c, gv_row=3 * c, apart=int(apart),
        kept=int(backward and n <= TILE_KEYS and not (dropped or sizes.units or sizes.reflects or made_again)), alone=1,
        dropped=int(dropped),
        joined=int(given[[REL_GAIN, REL_KEY, REL_QUERY, KEY_BIAS, GROWTH, COUNTS]].any()),
    )  # fmt: skip
    return case, layout_for(case, numbers, backward=backward, reflected=sizes.reflects > 0)


def fused_sizes(sizes: Sizes) -> tuple[int, int]:
    """Elements of the maps of fused ends, at the input and at the output: 0 for one that is not."""
    projection = (max(sizes.vocabulary, 1) + sizes.length) * 3 * sizes.width
    return sizes.fused_input * projection, sizes.fused_output * (sizes.hidden + sizes.biased)


def _rotates(sizes: Sizes) -> bool:
    """Whether keys are other in the content than they are."""
    return any((sizes.pairs, sizes.block, sizes.lifted, sizes.rank))


def arena_layout(sizes: Sizes, case: Case, layout: Layout, more: int, *, backward: bool, rows: int = 0) -> Arena:
    """Offsets into the workspace, of regions; without a backward pass all layers share one place for their activations.

    more: what attention needs where `layout` is not it. rows: how many go through the model at a time where the others
    of their sequence stay, with what attention reads of them, in every layer; 0 where all of a sequence go together.
    """
    whole_n, n, c, f, cursor = sizes.length, rows or sizes.length, sizes.width, sizes.hidden, 0
    norms, tokens, rotated = sizes.norms, sizes.vocabulary > 0, _rotates(sizes)

    def take(count: Any) -> int:
        nonlocal cursor
        start = cursor
        cursor += -(-int(count) // 16) * 16
        return region(start, count)

    layer: dict[str, Any] = {
        "normed1": take(norms * n * c),
        "stats1": take(norms * 2 * n),
        "qkv": take(3 * whole_n * c),
        "turned": take((rotated or sizes.scales_rows > 0) * 2 * whole_n * case.width * sizes.heads),
        "weights": take(case.kept * sizes.heads * n * TILE_KEYS),
        "lse": take(sizes.heads * whole_n),
        "running_counts": take(sizes.counted * int(RUNNING_COUNT) * sizes.heads * whole_n),
        "gates": take(sizes.gated * GATE_ARRAYS * sizes.heads * whole_n),
        **{name: take(count) for name, count in kept_of_angles(sizes, n).items()},
        "reflected": kept_of_reflections(sizes, n, take),
        "mixed": take(whole_n * c),
        "middle": take(n * c),
        "normed2": take(norms * n * c),
        "stats2": take(norms * 2 * n),
        "slopes": take((sizes.activation != RELU) * n * sizes.inner),
        "hidden": take(n * f),
    }
    layer_size, layer_stride, cursor = cursor, cursor * bool(backward or rows), 0
    stream_stride = -(-n * c // 16) * 16
    whole: dict[str, Any] = {
        "streams": take((sizes.layers + 1) * stream_stride),
        "layers": take(layer_size * (sizes.layers if backward or rows else 1)),
        "dz": take(backward * n * c),
        "dnormed": take(backward * norms * n * c),
        "dhidden": take(backward * n * sizes.inner),
        "dbranch": take(backward * case.dropped * n * c),
        "dmixed": take(backward * n * c),
        "dqkv": take(backward * 3 * n * c),
        "dcontent": take(backward * (rotated or case.apart) * n * case.g_row),
        "mapped": take((sizes.block > 0 or sizes.lifted > 0) * 4 * (c // sizes.heads)),
        "dgates": take(backward * sizes.gated * GATE_GRADIENTS * sizes.heads * n),
        **{name: take(count) for name, count in memory_for_angles(sizes, n, backward=backward).items()},
        "dreflected": memory_for_reflections(sizes, take, backward=backward),
        "deltas": take(backward * (sizes.heads if sizes.units else 1) * n),
        "slots": take(backward * sizes.slots),
        "embedded": take((sizes.taps > 0) * whole_n * c),
        "shifted": take(sizes.has_qk_table * n * c),
        "final": take(sizes.final_norm * n * c),
        "final_stats": take(sizes.final_norm * 2 * n),
        "embedding": take(fused_sizes(sizes)[0] // 3),
        **{end: take(size) for end, size in zip(("projection", "readout"), fused_sizes(sizes), strict=True)},
        "attention": take(max(layout.size, more)),
        "output": take(n * max(sizes.vocabulary, 1)),
        "picked": take(tokens * n * c),
        "dpicked": take(backward * tokens * n * c),
        **{name: take(tokens * n) for name in ("tokens", "shares")},
        "packed": take((sizes.products is not None) * MEMORY),
    }
    return Arena(**layer, **whole, stream_stride=stream_stride, layer_stride=layer_stride, size=cursor)
