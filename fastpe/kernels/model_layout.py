"""Where the kernels of the model find things: sizes, and offsets into flat arrays, in elements."""

from typing import NamedTuple


class Sizes(NamedTuple):
    """What the model is and how long the sequence; flags are 0 or 1."""

    length: int
    width: int
    heads: int
    hidden: int
    layers: int
    causal: int
    gelu: int
    norms: int
    residual: int
    has_table: int
    has_bias: int
    wants_table: int
    wants_bias: int
    vocabulary: int  # 0: scalars in and out


class Offsets(NamedTuple):
    """Where a tensor starts in the flat array of parameters (and of gradients); layer l adds l * `layer_stride`.

    In a layer the four matrices come first, then the vectors.
    """

    embed_weight: int
    embed_bias: int
    head_weight: int
    head_bias: int
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
    table: int  # of the gradients only: the slots' own
    bias: int


class Transposed(NamedTuple):
    """Where the transposed matrices start in the flat array of transposes; those of layer l, l * `layer_stride` on."""

    layer_stride: int
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
    weights: int
    mixed: int
    middle: int
    normed2: int
    stats2: int
    before: int
    hidden: int
    dz: int
    dnormed: int
    dhidden: int
    dmixed: int
    dqkv: int
    dscores: int
    transposed: int
    output: int  # and then, in its place, its gradient
    size: int


def arena_layout(sizes: Sizes, p: int, *, backward: bool) -> Arena:
    """Offsets into the arena; without a backward pass all layers share one place for their activations.

    p: elements from one row of the attention weights to the next, `length` rounded up to whole vectors.
    """
    n, c, f = sizes.length, sizes.width, sizes.hidden
    norms, gelu = sizes.norms, sizes.gelu
    cursor = 0

    def take(count: int) -> int:
        nonlocal cursor
        start = cursor
        cursor += -(-count // 16) * 16
        return start

    layer = {
        "normed1": take(norms * n * c),
        "stats1": take(norms * 2 * n),
        "qkv": take(3 * n * c),
        "weights": take(sizes.heads * n * p),
        "mixed": take(n * c),
        "middle": take(n * c),
        "normed2": take(norms * n * c),
        "stats2": take(norms * 2 * n),
        "before": take(gelu * n * f),
        "hidden": take(n * f),
    }
    layer_size, cursor = cursor, 0
    stream_stride = -(-n * c // 16) * 16
    whole = {
        "streams": take((sizes.layers + 1) * stream_stride),
        "layers": take(layer_size * (sizes.layers if backward else 1)),
        "dz": take(backward * n * c),
        "dnormed": take(backward * norms * n * c),
        "dhidden": take(backward * n * f),
        "dmixed": take(backward * n * c),
        "dqkv": take(backward * 3 * n * c),
        "dscores": take(backward * n * p),
        "transposed": take(c // sizes.heads * p),
        "output": take(n * max(sizes.vocabulary, 1)),
    }
    strides = {"stream_stride": stream_stride, "layer_stride": layer_size if backward else 0}
    return Arena(**layer, **whole, **strides, size=cursor)
