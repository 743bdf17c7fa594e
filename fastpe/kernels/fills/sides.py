"""Rows over offsets -K .. K, written and read by distance: two elements for each, one on either side of the middle.

What is computed goes into two short lines that stay in cache, upwards for the keys ahead and downwards for those
behind, and from there to its places in the row, in whole lines of memory.
"""

from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.fills.table import move_edges, move_line, move_rows
from fastpe.kernels.simd import at, backwards, lanes, load_wide, store_rounded

PIECE = 2048
"""Distances that are computed before they are moved."""
SLACK = 64
"""Elements that may be written past a piece, where the next run of distances or nothing follows."""


@inlined
def places_of(row, reach, start):
    """In place of two lines: where the distances from `start` on have their places in a contiguous row."""
    return at(row, reach + start), at(row, reach + 1 - start - PIECE - SLACK)


@inlined
def store_ahead(line, j, value):
    """Values of the distances from j on, counted from the piece's first; a line has PIECE + SLACK elements."""
    store_rounded(line, j, value, lanes(value))


@inlined
def store_behind(line, j, value):
    """As `store_ahead`, for the other side: a line that ends with the piece's first distance."""
    store_rounded(line, PIECE + SLACK - lanes(value) - j, backwards(value), lanes(value))


@inner
def move_sides(ahead, behind, start, count, row, reach, step, large):
    """The first `count` distances of both lines, from `start` on, go to a row over -reach .. reach.

    The middle, distance 0, is the line's behind.
    """
    skipped = 1 if start == 0 else 0
    more = count - skipped
    move_rows(at(ahead, skipped), 1, more, at(row, (reach + start + skipped) * step), more, step, large)
    line = at(behind, PIECE + SLACK - count)
    move_rows(line, 1, count, at(row, (reach + 1 - start - count) * step), count, step, large)


# A whole piece of a large row need not be moved in one go, while the processor waits for memory: `move_edges_of`, then
# `move_lines` with line = 0, 1, ..., in between computing the next one.


@inner
def move_edges_of(piece):
    """How many elements lie before whole lines of memory, on either side.

    `piece`: its lines, its first distance, which is not 0, and the row, without gaps, and its reach.
    """
    ahead, behind, start, row, reach = piece
    head = move_edges(ahead, at(row, reach + start), PIECE)
    return head, move_edges(at(behind, SLACK), at(row, reach + 1 - start - PIECE), PIECE)


@inlined
def move_lines(piece, heads, line, of_ahead, of_behind):
    """A line of memory on the sides asked for."""
    ahead, behind, start, row, reach = piece
    if of_ahead:
        move_line(ahead, at(row, reach + start), heads[0], line, PIECE)
    if of_behind:
        move_line(at(behind, SLACK), at(row, reach + 1 - start - PIECE), heads[1], line, PIECE)


@inlined
def load_sides(ahead, behind, row, reach, distance, width):
    """A vector of a contiguous row's elements from `distance` on, as float64: of the sides asked for, their sum."""
    if not behind:
        return load_wide(at(row, reach + distance), 0, width)
    other = backwards(load_wide(at(row, reach + 1 - distance - width), 0, width))
    return load_wide(at(row, reach + distance), 0, width) + other if ahead else other
