"""Dropout (Srivastava et al. 2014): an element is multiplied by 0 with probability r, otherwise by 1 / (1 - r).

Whether an element is kept is a pure function of the seed, the step, the sequence, the number of the dropout in the
model, and the element's row and column. So the backward pass, with any number of threads, drops the same elements
without storing which ones. Each element has a random 32-bit word, drawn by Philox4x32-10 (Salmon et al. 2011, "Parallel
random numbers: as easy as 1, 2, 3"). An element is dropped if its word is below r 2^32.

64 adjacent elements of a row form a *cell*, which uses the four words of each of 16 Philox blocks. Word w of block b
belongs to element 16 w + b, so no shuffling is needed for registers of any width. Block b of cell g has the counter
(16 g + b, place, step mod 2^32, step / 2^32); the key is derived from the seed.

Cells are numbered row by row. The place in a counter is one number for the sequence and the dropout together: sequence
times number of dropouts (`places_of`) plus number of the dropout, modulo 2^32. Dropout takes about ten integer
operations per element.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import Vector, at, code, lanes, llvm_vector, load_first, scalar, store_first

CELL, BLOCKS = np.int64(64), np.int64(16)
_MOST = 2**32 - 1

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


class Dropout(NamedTuple):
    """The parameters of dropout in one step: the key and the step as 32-bit numbers, the threshold, the scale, and the
    number of places.
    """

    key_low: int
    key_high: int
    step_low: int
    step_high: int
    threshold: int  # r 2^32
    scale: float  # 1 / (1 - r)
    places: int  # number of dropouts, and so of places for one sequence


NO_DROPOUT = Dropout(0, 0, 0, 0, 0, 1.0, 0)


def places_of(layers: int, heads: int) -> int:
    """Return the number of dropouts of a model. Dropout 0 is at the input. The dropouts of layer l are numbered from
    1 + l (2 + heads) on, in this order: at the output of attention, at the output of the feed-forward network, and at
    the weights of every head.
    """
    return 1 + layers * (2 + heads)


@intrinsic
def _factors(typingctx, p, first, place, step_low, step_high, key_low, key_high, threshold, scale):
    """Return four vectors of factors, one for each of the words 0 .. 3. Lane i has the factor from block first + i."""
    kind = Vector(p.dtype)

    def emit(context, b, signature, arguments):
        _, first, place, step_low, step_high, key_low, key_high, threshold, scale = arguments
        wide = _Lanes(b, kind.lanes)
        counter = (wide.counting(first), *map(wide.same, (place, step_low, step_high)))
        words = philox(wide, counter, (key_low, key_high))
        bar, kept, nothing = wide.same(threshold), code.broadcast(b, kind, scale), code.constant(kind, 0.0)
        packed = ir.Constant(ir.ArrayType(llvm_vector(kind), len(words)), ir.Undefined)
        for number, word in enumerate(words):
            factor = b.select(b.icmp_unsigned("<", word, bar), nothing, kept)
            packed = b.insert_value(packed, factor, number)
        return packed

    numbers = [types.intp] * 7
    return types.UniTuple(kind, 4)(p, *numbers, p.dtype), emit


class _Lanes:
    """32-bit numbers in lanes of 64 bits, so that the product of two of them fits."""

    def __init__(self, b, count):
        self.b, self._type, self._count = b, ir.VectorType(ir.IntType(64), count), count

    def constant(self, number):
        return ir.Constant(self._type, [number] * self._count)

    def same(self, number):
        empty = ir.Constant(self._type, ir.Undefined)
        one = self.b.insert_element(empty, number, ir.Constant(code.I32, 0))
        return self.b.shuffle_vector(one, empty, ir.Constant(ir.VectorType(code.I32, self._count), [0] * self._count))

    def counting(self, first):
        steps = ir.Constant(self._type, list(range(self._count)))
        return self.low(self.b.add(self.same(first), steps))

    def low(self, number):
        return self.b.and_(number, self.constant(_MOST))

    def product(self, number, factor):
        """Return the upper and the lower half of the product."""
        whole = self.b.mul(number, self.constant(factor))
        return self.b.lshr(whole, self.constant(32)), self.low(whole)


def philox(lanes, counter, key):
    """Return four random words for every lane. The counter has four words in each lane; the key's two words are
    scalars."""
    b, (c0, c1, c2, c3), word = lanes.b, counter, ir.IntType(64)
    for number in range(ROUNDS):
        k0, k1 = (
            lanes.same(b.and_(b.add(part, ir.Constant(word, number * step)), ir.Constant(word, _MOST)))
            for part, step in zip(key, KEY_STEPS, strict=True)
        )
        (high0, low0), (high1, low1) = (lanes.product(c, m) for c, m in zip((c0, c2), MULTIPLIERS, strict=True))
        c0, c1, c2, c3 = b.xor(b.xor(high1, c1), k0), low1, b.xor(b.xor(high0, c3), k1), low0
    return c0, c1, c2, c3


@inner
def drops(dropout):
    """Whether anything is dropped: a kernel that is compiled for dropout may be called with a rate of 0."""
    if dropout is None:
        return False
    return dropout.scale > 1.0


@inner
def _times(x, j, count, factor):
    if j < count:
        store_first(x, j, load_first(x, j, count - j) * factor, count - j)


@inner
def drop_row(dropout, x, count, cell, place):
    """Apply dropout to `count` elements from x on, in place; the first element is in the first column of the cell."""
    scale = scalar(x, dropout.scale)
    for start in range(0, count, CELL):
        for block in range(0, BLOCKS, lanes(x)):
            f0, f1, f2, f3 = _factors(
                x, cell * BLOCKS + block, place, dropout.step_low, dropout.step_high, dropout.key_low,
                dropout.key_high, dropout.threshold, scale,
            )  # fmt: skip
            _times(x, start + block, count, f0)
            _times(x, start + block + BLOCKS, count, f1)
            _times(x, start + block + 2 * BLOCKS, count, f2)
            _times(x, start + block + 3 * BLOCKS, count, f3)
        cell += 1


@inner
def drop_rows(dropout, x, n, c, place):
    """Apply dropout to n rows of c contiguous elements, in place."""
    if dropout is not None:
        cells = (c + CELL - 1) // CELL
        for i in range(n):
            drop_row(dropout, at(x, i * c), c, i * cells, place)


@inner
def place_in(dropout, sequence, place):
    """Return the place (see the head of this file) of dropout number `place` of the model in a sequence of the
    batch."""
    if dropout is None:
        return place
    return (sequence * dropout.places + place) & _MOST
