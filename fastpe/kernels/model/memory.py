"""The layout of the model's memory for kernels: sizes, and offsets into flat arrays, in elements."""

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

LOSS_ROWS = 192  # rows whose logits are in memory at a time, in passes that need no gradients


class Sizes(NamedTuple):
    """The sizes of the model and of a sequence; flags are 0 or 1."""

    length: int  # of the longest possible sequence
    width: int
    heads: int
    key_heads: int  # of keys and values
    head: int  # width of one head
    query_width: int  # of the queries of all heads together
    key_width: int  # of the keys of all key heads together, which is also that of the values
    projected: int  # columns of the matrix of queries, keys and values: query_width + 2 key_width
    hidden: int
    inner: int  # columns of the first feed-forward matrix: hidden, or twice that
    layers: int
    causal: int
    activation: int  # numbered as in `kernels.rows.activation`
    norms: int  # whether the inputs of attention and feed-forward are normalised (norm1, norm2)
    post_norms: int  # whether their outputs are normalised (post_norm1, post_norm2)
    norm_eps: float
    centred: int  # whether norms subtract the mean
    norm_biased: int
    final_norm: int
    biased: int  # whether linear layers have biases, except that of queries, keys and values
    qkv_biased: int  # whether the linear layer of queries, keys and values has a bias
    qk_norm: int  # see `model.qk_norm`
    residual: int
    parallel: int  # whether attention and feed-forward have the same input
    sinks: int
    vocabulary: int  # 0: a model of numbers
    tied: int  # whether the head is the transposed token embedding
    embedding_scale: float
    logit_softcap: float  # 0: none
    has_table: int
    has_qk_table: int
    gated: int  # whether layers have gates, or gated slopes
    rank: int  # largest rank of the matrices by which layers compute angles from their input; 0: none
    reflects: int  # the same for reflections
    counted: int  # whether queries count their keys
    taps: int  # of the convolution at the input; 0: none
    pairs: int  # of channels that are rotated
    half: int  # whether a pair is channels c and c + pairs, not 2c and 2c + 1
    angles_layer: int  # rows between the angles of layers, and of heads; 0 if they are shared
    angles_head: int
    scales_rows: int  # whether queries have factors
    row_scale_layer: int  # as `angles_layer` and `angles_head`, for factors
    row_scale_head: int
    block: int  # channels of a block that a matrix in `rotors` multiplies; 0: none
    rotors_layer: int  # rows between the matrices of layers, of heads, of positions; 0 if they are shared
    rotors_head: int
    rotors_row: int
    lifted: int  # whether channels are in polar form, two for one
    polar_layer: int  # as `angles_layer` and `angles_head`, for phases
    polar_head: int
    units: int  # of a network over scores (`attention.dape`); 0: none
    unit_taps: int
    net_layers: int  # number of layers with separate networks; 1: all share one
    wants_table: int
    wants_qk_table: int
    wants_taps: int
    wants_angles: int
    wants_row_scale: int
    wants_rotors: int
    wants_polar: int
    wants_net: int
    gathers_table: int  # whether a rule selects each token's row of the table
    gathers_angles: int  # whether a rule selects each token's row of the rotations
    restarts: int  # whether the convolutions and sums with which layers compute angles start again with every document
    slots: int  # elements of the gradients of slots that all layers may share
    fused_input: int  # whether the embedding is fused: `model.fused_embedding_and_head`
    fused_output: int  # whether the output head is fused
    packed: int  # whether the layers' matrices are packed once for all products, as they are and transposed
    products: Isa | None  # instruction set of products with operands rounded to bfloat16; None: no rounding


class Offsets(NamedTuple):
    """Start of each tensor in the flat array of parameters (and of gradients); for layer l add l * `layer_stride`.

    In a layer the four matrices come first, then the vectors. Missing tensors take no space, and are not read.
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
    post_norm1_weight: int
    post_norm1_bias: int
    post_norm2_weight: int
    post_norm2_bias: int
    query_norm: int
    key_norm: int
    sinks: int
    table: int  # gradients of slots; this and the following are only in the array of gradients
    taps: int
    slots: int  # start of the gradients that all layers may share
    qk_table: int
    angles: int
    row_scale: int
    rotors: int
    polar: int
    mlp_in: int
    mlp_bias: int
    mlp_out: int
    projection: int  # gradients of the fused embedding and of the fused head
    readout: int


class Position(NamedTuple):
    """The slots of a model at one length, and the layout of attention's slots.

    Missing slots are placeholder arrays that are not read. `numbers` and `places` have a row for each of attention's
    slots. `rotors`, `polar`, `gates`, `selective` and `slots` are either all present or all None. A model that uses
    none of them is compiled without code for them. Any other model is compiled with code for all of them, because
    compiling a subset would take as long. If any of these or `net` is present, code for dropout is compiled, too.

    Workers receive a `Position` with pointers in place of one-dimensional arrays (`simd.with_pointers`).
    """

    table: np.ndarray
    qk_table: np.ndarray
    taps: np.ndarray
    turns: (
        np.ndarray
    )  # (3, any), factors of rotation, see `kernels.rows.rotate`: cos, sin, and sin of the inverse rotation
    row_scale: np.ndarray
    bias: np.ndarray
    scale: np.ndarray  # (layers, H)
    spans: np.ndarray  # (layers or 1, B or 1, N, 2), int64: the keys that each query sees, if not all
    rotors: np.ndarray | None  # matrices for blocks of channels, in the layout of `rows.block_maps.lie_in`
    polar: np.ndarray | None  # cosines and sines of phases, see `model.content`
    gates: np.ndarray | None  # (layers, 7), int64, see `model.gates`
    slopes: np.ndarray  # (H,), float64, of `model.gated_slopes`
    selective: np.ndarray | None  # (layers, 4), int64, see `model.selective_angles`
    frequencies: np.ndarray  # (C/2,), float64, for `selective`
    reflections: Reflections | None  # see `model.reflections`; not together with a `net`
    net: Network | None  # over scores: one for each layer, or one for all
    net_layout: DapeLayout | None
    no_guard: np.ndarray  # float64, not read: for short sequences no tile is skipped
    slots: int | None  # 1, or None if there are only the slots above
    numbers: np.ndarray  # the table of `kernels.attention`, with layers in place of the batch
    places: np.ndarray  # in the gradients of `slots`: start, strides of layers and of heads, size for a head
    case: Case
    layout: Layout


class Transposed(NamedTuple):
    """Start of the transposed matrices in the flat array of transposes; for layer l add l * `layer_stride`.

    In bfloat16 the transposed matrices of the layers are packed. The same matrices, packed without being transposed,
    follow `words` elements further on.
    """

    layer_stride: int
    words: int
    qkv_weight: int
    out_weight: int
    in_weight: int
    ff_weight: int
    head_weight: int  # only in a model with a vocabulary


class Arena(NamedTuple):
    """The layout of a thread's scratch memory.

    The activations of layer l from `qkv` to `reflected`, which later positions read, start at `layers` +
    l * `layer_stride`. Those from `normed1` to `hidden`, which later positions do not read, start at `transient` +
    l * `transient_stride`. All these fields are offsets from there; the fields that follow are offsets into the whole
    memory.
    """

    streams: int
    stream_stride: int
    layers: int
    layer_stride: int
    transient: int
    transient_stride: int
    qkv: int
    turned: int
    weights: int
    running_counts: int
    gates: int
    low: int  # of `model.selective_angles`, like the next three
    steps: int
    sums: int
    factors: int
    reflected: Kept
    normed1: int
    stats1: int
    raw: int  # of `model.qk_norm`, like the next
    raw_stats: int
    lse: int
    mixed: int
    branch1: int  # outputs of attention and feed-forward before their norms
    branch_stats1: int
    middle: int
    normed2: int
    stats2: int
    branch2: int
    branch_stats2: int
    slopes: int  # input of the activation, then its derivative
    hidden: int
    dz: int
    dnormed: int
    dhidden: int
    dbranch: int  # gradient before dropout and post norms
    dmiddle: int  # gradient of a parallel layer's output
    dmixed: int
    dqkv: int
    dcontent: int
    mapped: int  # rows of a head with adjacent blocks, and a gradient before it is added; or a row in polar form
    dgates: int
    unit: int  # of `model.selective_angles`, like the next two
    dangles: int
    maps: int
    dreflected: Given
    deltas: int
    slots: int
    embedded: int
    shifted: int
    final: int
    final_stats: int
    embedding: int  # of the fused embedding and head: A and M of the input, M of the output
    projection: int
    readout: int
    attention: int
    output: int  # and then its gradient, which overwrites it
    block: int  # number of rows whose output is in memory at a time, when losses are computed
    picked: int  # in a model with a vocabulary: rows of the residual stream whose targets count, their gradients,
    dpicked: int
    tokens: int  # and their targets and shares
    shares: int
    cap_slopes: int  # derivatives of the soft cap, for the logits of one token
    packed: int  # operands that products have rounded
    size: int


def attention_case(
    sizes: Sizes, numbers: np.ndarray, options: Options, *, keep_raw: bool, more: bool, spanned: bool, backward: bool,
    dropped: bool,
) -> tuple[Case, Layout]:  # fmt: skip
    """Return the sizes and flags of attention for one sequence, and the layout of the scratch memory of attention.

    more: whether there are slots other than a bias. spanned: whether queries have spans of keys.
    """
    n, wide, head, capped = sizes.length, sizes.projected, sizes.head, options.softcap > 0.0
    given = numbers[:, 0]
    made_again = sizes.sinks or capped or (more and (keep_raw or bool(given[[GROWTH, REL_GAIN, COUNTS]].any())))
    rotated = _rotates(sizes)
    moved = rotated or sizes.scales_rows > 0
    apart = bool(given[GROWTH] or (moved and given[[REL_KEY, REL_QUERY, KEY_BIAS, COUNTS]].any()))
    turned = (sizes.query_width + sizes.key_width) * (1 + sizes.lifted)
    terms = frozenset(slot for number, slot in enumerate(ROWS) if given[number])
    passes = in_passes(terms) or options.rectify or capped or (backward and keep_raw)
    case = Case(
        batch=1, heads=sizes.heads, key_heads=sizes.key_heads, queries=n, keys=n, width=head * (1 + sizes.lifted),
        v_width=head,
        causal=sizes.causal, window=0, spanned=int(spanned), key_blocks=-(-n // int(TILE_KEYS)), half=sizes.half,
        options=options, in_passes=int(passes), keep_raw=int(backward and keep_raw),
        keep_slopes=int(backward and capped), skip=0,
        q_batch=0, q_head=0, q_row=wide, k_batch=0, k_head=0, k_row=wide, v_batch=0, v_head=0, v_row=wide,
        qr_row=turned if moved else wide,
        kr_row=turned if rotated else wide, o_row=sizes.query_width,
        g_row=turned if sizes.lifted else wide, gv_row=wide, apart=int(apart),
        kept=int(backward and n <= TILE_KEYS and not (dropped or sizes.units or sizes.reflects or made_again)), alone=1,
        dropped=int(dropped),
        joined=int(
            sizes.key_heads < sizes.heads or given[[REL_GAIN, REL_KEY, REL_QUERY, KEY_BIAS, GROWTH, COUNTS]].any()
        ),
    )  # fmt: skip
    return case, layout_for(case, numbers, backward=backward, reflected=sizes.reflects > 0)


def fused_sizes(sizes: Sizes) -> tuple[int, int]:
    """Return the number of elements of the matrix M of the fused embedding, and of M of the fused output head. A number
    is 0 if that part is not fused.
    """
    projection = (max(sizes.vocabulary, 1) + sizes.length) * 3 * sizes.width
    return sizes.fused_input * projection, sizes.fused_output * (sizes.hidden + sizes.biased)


def _rotates(sizes: Sizes) -> bool:
    """Whether content rows of keys differ from the keys."""
    return any((sizes.pairs, sizes.block, sizes.lifted, sizes.rank))


# Long: the list of all regions of the workspace.
def arena_layout(sizes: Sizes, case: Case, layout: Layout, more: int, *, backward: bool, rows: int = 0) -> Arena:
    """Return the offsets of the regions of the workspace. Without a backward pass, all layers share the memory of
    activations, the residual stream has memory for one layer, and the outputs of a model with a vocabulary have memory
    for at most `LOSS_ROWS` rows.

    more: size of the memory of a network over scores, which is used instead of `layout`. rows: number of positions that
    pass through the model at a time while the keys and values of the others are cached in every layer; layers then
    share only the memory of transient activations. 0 if whole sequences are processed at once.
    """
    whole_n, n, c, f, cursor = sizes.length, rows or sizes.length, sizes.width, sizes.hidden, 0
    norms, tokens, rotated, normed_qk = sizes.norms, sizes.vocabulary > 0, _rotates(sizes), sizes.qk_norm > 0
    both = sizes.query_width + sizes.key_width

    def take(count: Any) -> int:
        nonlocal cursor
        start = cursor
        cursor += -(-int(count) // 16) * 16
        return region(start, count)

    layer: dict[str, Any] = {
        "qkv": take(whole_n * sizes.projected),
        "turned": take((rotated or sizes.scales_rows > 0) * whole_n * both * (1 + sizes.lifted)),
        "weights": take(case.kept * sizes.heads * n * TILE_KEYS),
        "running_counts": take(sizes.counted * int(RUNNING_COUNT) * sizes.heads * whole_n),
        "gates": take(sizes.gated * GATE_ARRAYS * sizes.heads * whole_n),
        **{name: take(count) for name, count in kept_of_angles(sizes, n).items()},
        "reflected": kept_of_reflections(sizes, n, take),
    }
    cached_size = cursor
    layer |= {
        "normed1": take(norms * n * c),
        "stats1": take(norms * 2 * n),
        "raw": take(normed_qk * n * both),
        "raw_stats": take(normed_qk * 2 * n * (sizes.heads + sizes.key_heads)),
        "lse": take(sizes.heads * whole_n),
        "mixed": take(whole_n * sizes.query_width),
        "branch1": take(sizes.post_norms * n * c),
        "branch_stats1": take(sizes.post_norms * 2 * n),
        "middle": take(n * c),
        "normed2": take(norms * n * c),
        "stats2": take(norms * 2 * n),
        "branch2": take(sizes.post_norms * n * c),
        "branch_stats2": take(sizes.post_norms * 2 * n),
        "slopes": take((sizes.activation != RELU) * n * sizes.inner),
        "hidden": take(n * f),
    }
    layer_size, cursor, others = cursor, 0, sizes.layers - 1
    layer_stride = layer_size if backward else cached_size * (rows > 0)
    stream_stride = -(-n * c // 16) * 16 * backward
    block = min(n, LOSS_ROWS) if tokens and not backward else n
    whole: dict[str, Any] = {
        "streams": take(sizes.layers * stream_stride + n * c),
        "layers": take(others * layer_stride + layer_size),
        "dz": take(backward * n * c),
        "dnormed": take(backward * norms * n * c),
        "dhidden": take(backward * n * sizes.inner),
        "dbranch": take(backward * (case.dropped or sizes.post_norms) * n * c),
        "dmiddle": take(backward * sizes.parallel * n * c),
        "dmixed": take(backward * n * sizes.query_width),
        "dqkv": take(backward * n * sizes.projected),
        "dcontent": take(backward * (rotated or case.apart) * n * case.g_row),
        "mapped": take((sizes.block > 0 or sizes.lifted > 0) * 4 * sizes.head),
        "dgates": take(backward * sizes.gated * GATE_GRADIENTS * sizes.heads * n),
        **{name: take(count) for name, count in memory_for_angles(sizes, n, backward=backward).items()},
        "dreflected": memory_for_reflections(sizes, take, backward=backward),
        "deltas": take(backward * (sizes.heads if sizes.units or sizes.key_heads < sizes.heads else 1) * n),
        "slots": take(backward * sizes.slots),
        "embedded": take((sizes.taps > 0) * whole_n * c),
        "shifted": take(sizes.has_qk_table * n * c),
        "final": take(sizes.final_norm * n * c),
        "final_stats": take(sizes.final_norm * 2 * n),
        "embedding": take(fused_sizes(sizes)[0] // 3),
        **{end: take(size) for end, size in zip(("projection", "readout"), fused_sizes(sizes), strict=True)},
        "attention": take(max(layout.size, more)),
        "output": take(0 if rows else block * max(sizes.vocabulary, 1)),
        "picked": take(tokens * n * c),
        "dpicked": take(backward * tokens * n * c),
        **{name: take(tokens * n) for name in ("tokens", "shares")},
        "cap_slopes": take((sizes.logit_softcap > 0) * sizes.vocabulary),
        "packed": take((sizes.products is not None) * MEMORY),
    }
    # without a backward pass, all layers have the transient activations of the last one
    first = 0 if backward else others * layer_stride
    return Arena(
        **layer, **whole, stream_stride=stream_stride, layer_stride=layer_stride,
        transient=region(int(whole["layers"]) + first, others * layer_stride + layer_size - first),
        transient_stride=layer_stride * backward, block=block, size=cursor,
    )  # fmt: skip
