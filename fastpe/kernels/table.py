"""How a fill gets its rows into a table: computed in a block that stays in cache, then moved to where they belong.

That keeps the arithmetic free of the table's strides and alignment, and lets whole cache lines go to memory in order. A
table that is larger than the caches is written past them: no line is read before it is overwritten.
"""

from fastpe.kernels._jit import inlined, inner
from fastpe.kernels.simd import (
    at,
    before_boundary,
    fence,
    get,
    lanes,
    load,
    load_first,
    put,
    store,
    store_first,
    store_past_caches,
    transpose_block,
)

LARGE = 2**24
"""Bytes of a table that is written past the caches."""


@inner
def move_rows(block, rows, dim, table, row_step, step, large):
    """The first `rows` rows (dim,) of a contiguous block go to `table`, whose neighbours are so many elements apart."""
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
    """`count` elements; where they are part of something large, past the caches."""
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


# A large block moved in one go keeps the processor waiting for memory. Where the next block takes many steps to
# compute, a line of the last one can go along with each: `move_edges`, then `move_line` for line = 0, 1, ...


@inner
def move_edges(block, table, count):
    """The elements of a block that share their line of memory with another block; how many lie before whole lines."""
    head, width = before_boundary(table), lanes(block)
    if head > 0:
        tail = (count - head) // width * width + head
        store_first(table, 0, load_first(block, 0, head), head)
        store_first(table, tail, load_first(block, tail, count - tail), count - tail)
    return head


@inlined
def move_line(block, table, head, line, count):
    """One whole line of a block of `count` elements, a multiple of a vector's; nothing where it has no such line."""
    start = head + line * lanes(block)
    if start + lanes(block) <= count:
        store_past_caches(table, start, load(block, start))


@inner
def columns_to_rows(columns, block, rows, dim, tile):
    """block (rows, dim) = the transpose of `columns` (dim, rows).

    `rows` is a multiple of a vector's lanes, `columns` has room for that many more than dim, and `tile` for a square.
    """
    width = lanes(columns)
    for i in range(0, rows, width):
        for c in range(0, dim, width):
            whole = c + width <= dim
            target, target_row = (at(block, i * dim + c), dim) if whole else (tile, width)
            transpose_block(at(columns, c * rows + i), rows, target, target_row)  # one call: it is long to compile
            if not whole:
                for k in range(width):
                    store_first(block, (i + k) * dim + c, load(tile, k * width), dim - c)


@inner
def finish(large):
    """After the last block."""
    if large:
        fence()
