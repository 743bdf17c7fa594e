"""Move the rows of a fill into a table. A fill computes them in a block that stays in cache, and moves them from there.

The arithmetic therefore does not depend on the strides and the alignment of the table, and whole cache lines are
written in order. A table that is larger than the caches is written with non-temporal stores, so that no cache line is
read before it is overwritten.
"""

import numpy as np

from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.simd import (
    absolute,
    at,
    before_boundary,
    fence,
    fma,
    get,
    lanes,
    largest,
    load,
    load_first,
    maximum,
    pointer,
    put,
    store,
    store_first,
    store_past_caches,
    total,
    transpose_block,
    zeros,
)

LARGE = 2**24
"""Size in bytes from which a table is written past the caches."""


@inner
def move_rows(block, rows, dim, table, row_step, step, large):
    """Move the first `rows` rows (dim,) of a contiguous block to a table. row_step: the distance between rows of the
    table; step: the distance between elements of such a row; both in elements."""
    if step == 1 and row_step == dim:
        move(block, table, rows * dim, large)
    elif step == 1:
        for i in range(rows):
            move(at(block, i * dim), at(table, i * row_step), dim, False)
    else:
        for i in range(rows):
            for c in range(dim):
                put(table, i * row_step + c * step, get(block, i * dim + c))


@inner
def move(source, target, count, large):
    """Move `count` elements. If `large`, write them past the caches."""
    start, stop, width = 0, count // lanes(source) * lanes(source), lanes(source)
    if large:
        start = min(before_boundary(target), count)
        store_first(target, 0, load_first(source, 0, start), start)
        stop = start + (count - start) // width * width
        for j in range(start, stop, width):
            store_past_caches(target, j, load(source, j))
    else:
        for j in range(0, stop, width):
            store(target, j, load(source, j))
    store_first(target, stop, load_first(source, stop, count - stop), count - stop)


# If a large block is moved at once, the processor waits for memory. Instead, call `move_edges`, and then `move_line`
# with line = 0, 1, ... between the steps that compute the next block.


@inner
def move_edges(block, table, count):
    """Move the elements of a block that share a cache line with another block. Return how many of these elements
    precede the first whole cache line."""
    head, width = before_boundary(table), lanes(block)
    if head > 0:
        tail = (count - head) // width * width + head
        store_first(table, 0, load_first(block, 0, head), head)
        store_first(table, tail, load_first(block, tail, count - tail), count - tail)
    return head


@inlined
def move_line(block, table, head, line, count):
    """Move one whole cache line of a block of `count` elements, where `count` is a multiple of the vector length; do
    nothing if the block has no such line."""
    start = head + line * lanes(block)
    if start + lanes(block) <= count:
        store_past_caches(table, start, load(block, start))


@inner
def columns_to_table(columns, rows, count, dim, block, tile, table, row_step, step, large):
    """Move the first `count` rows of the transpose of `columns` (dim, rows) to a table, as `move_rows` does.

    `rows` is a multiple of the vector length L. `columns` has memory for (dim + L, rows) elements, `block` for (rows,
    dim) and `tile` for (L, L).
    """
    width = lanes(columns)
    in_lines = dim % width == 0 and row_step % width == 0 and before_boundary(table) == 0
    direct = count == rows and step == 1 and (in_lines or not large)
    out, apart = (table, row_step) if direct else (block, dim)
    for i in range(0, rows, width):
        for c in range(0, dim, width):
            whole = c + width <= dim
            target, target_row = (at(out, i * apart + c), apart) if whole else (tile, width)
            # only one call in the source, because each takes long to compile
            transpose_block(at(columns, c * rows + i), rows, target, target_row, direct and large)
            if not whole:
                for k in range(width):
                    store_first(out, (i + k) * apart + c, load(tile, k * width), dim - c)
    if not direct:
        move_rows(block, count, dim, table, row_step, step, large)


@entry(label="the largest of an array")
def largest_of(values: np.ndarray) -> float:
    """Return max |x| of a flat array, or NaN if an element is not finite. The array is read only once, because the
    speed of memory is the bottleneck.
    """
    x, width = pointer(values), lanes(pointer(values))
    found0, found1, found2, found3 = zeros(x), zeros(x), zeros(x), zeros(x)
    lost0, lost1, lost2, lost3 = zeros(x), zeros(x), zeros(x), zeros(x)  # sums of x * 0: NaN after an infinity or NaN
    for j in range(0, values.size, 4 * width):
        left = values.size - j
        x0, x1 = load_first(x, j, left), load_first(x, j + width, left - width)
        x2, x3 = load_first(x, j + 2 * width, left - 2 * width), load_first(x, j + 3 * width, left - 3 * width)
        found0, lost0 = maximum(absolute(x0), found0), fma(x0, zeros(x), lost0)
        found1, lost1 = maximum(absolute(x1), found1), fma(x1, zeros(x), lost1)
        found2, lost2 = maximum(absolute(x2), found2), fma(x2, zeros(x), lost2)
        found3, lost3 = maximum(absolute(x3), found3), fma(x3, zeros(x), lost3)
    lost = total((lost0 + lost1) + (lost2 + lost3))
    most: float = largest(maximum(maximum(found0, found1), maximum(found2, found3)))
    return most + lost


@inner
def finish(large):
    """Finish a fill after its last block: make the stores past the caches visible."""
    if large:
        fence()
