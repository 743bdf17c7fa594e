"""Rows over offsets -K .. K, written and read by distance. Each distance has two elements, one on each side of the
middle.

The computed values first go into two short lines that stay in cache: ascending for the keys ahead of the query,
descending for the keys behind it. From there they are moved to their places in the row, in whole cache lines.
"""

from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.fills.table import move_edges, move_line, move_rows
from fastpe.kernels.simd import at, backwards, lanes, load_wide, store_rounded

PIECE = 2048
"""Number of distances that are computed before they are moved."""
SLACK = 64
"""Number of elements that may be written past the end of a piece. They are overwritten later, or never used."""


@inlined
def places_of(row, reach, start):
    """Return pointers into a contiguous row, for use in place of the two lines. Values of the distances from `start` on
    are then written directly to their places in the row.
    """
    return at(row, reach + start), at(row, reach + 1 - start - PIECE - SLACK)


@inlined
def store_ahead(line, j, value):
    """Store a vector of values in a line. Its first lane is the value at distance j, counted from the first distance of
    the piece. A line has PIECE + SLACK elements.
    """
    store_rounded(line, j, value, lanes(value))


@inlined
def store_behind(line, j, value):
    """Do the same as `store_ahead` for the line of the other side, whose last element has the piece's
    first distance.
    """
    store_rounded(line, PIECE + SLACK - lanes(value) - j, backwards(value), lanes(value))


@inner
def move_sides(ahead, behind, start, count, row, reach, step, large):
    """Move the values of `count` distances from both lines to a row over -reach .. reach. Both lines begin at distance
    `start`.

    The value at distance 0 is taken from the line `behind`.
    """
    skipped = 1 if start == 0 else 0
    more = count - skipped
    move_rows(at(ahead, skipped), 1, more, at(row, (reach + start + skipped) * step), more, step, large)
    line = at(behind, PIECE + SLACK - count)
    move_rows(line, 1, count, at(row, (reach + 1 - start - count) * step), count, step, large)


# If a whole piece of a large row is moved at once, the processor waits for memory. Instead, call `move_edges_of`, and
# then `move_lines` with line = 0, 1, ... between the steps that compute the next piece.


@inner
def move_edges_of(piece):
    """Move the elements at the edges of both lines that do not fill a cache line. Return for each side how many of
    these elements precede the first whole cache line.

    `piece` is a tuple: the two lines, the first distance of the piece (not 0), the row, and the reach of the row. The
    row must be contiguous.
    """
    ahead, behind, start, row, reach = piece
    head = move_edges(ahead, at(row, reach + start), PIECE)
    return head, move_edges(at(behind, SLACK), at(row, reach + 1 - start - PIECE), PIECE)


@inlined
def move_lines(piece, heads, line, of_ahead, of_behind):
    """Move one cache line on each of the requested sides."""
    ahead, behind, start, row, reach = piece
    if of_ahead:
        move_line(ahead, at(row, reach + start), heads[0], line, PIECE)
    if of_behind:
        move_line(at(behind, SLACK), at(row, reach + 1 - start - PIECE), heads[1], line, PIECE)


@inlined
def load_sides(ahead, behind, row, reach, distance, width):
    """Load the elements of a contiguous row for the distances from `distance` on, as a float64 vector. If both sides
    are requested, return the sum of their vectors."""
    if not behind:
        return load_wide(at(row, reach + distance), 0, width)
    other = backwards(load_wide(at(row, reach + 1 - distance - width), 0, width))
    return load_wide(at(row, reach + distance), 0, width) + other if ahead else other
