"""Dropout (Srivastava et al. 2014): elements times 0 with probability r, else times 1 / (1 - r).

Whether an element is kept is a pure function of (seed, step, sequence, place, row, column), so that the backward pass,
with any number of threads, finds the same elements without storing them. The words come from Philox4x32-10 (Salmon et
al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): 64 adjacent elements of a row, a *cell*, use the four words of
16 blocks; word w of block b belongs to element 16 w + b, which needs no shuffling in registers of any width. Block b of
cell g has the counter (16 g + b, place, step mod 2^32, step / 2^32); the key is that of the seed. An element is dropped
if its word is below r 2^32.

Cells are numbered row by row. A place is a number that combines a sequence and one of the model's dropouts
(`places_of`). About ten integer operations per element.
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
    """The parameters of dropout in a step: 32-bit numbers, and the threshold and scale."""

    key_low: int
    key_high: int
    step_low: int
    step_high: int
    threshold: int  # r 2^32
    scale: float  # 1 / (1 - r)
    places: int  # number of places of a sequence


NO_DROPOUT = Dropout(0, 0, 0, 0, 0, 1.0, 0)


def places_of(layers: int, heads: int) -> int:
    """The number of dropouts of a model: 0 is the input; those of layer l start at 1 + l (2 + heads): the output of
    attention, the output of the feed-forward map, and the weights of every head."""
    return 1 + layers * (2 + heads)


@intrinsic
def _factors(typingctx, p, first, place, step_low, step_high, key_low, key_high, threshold, scale):
    """Four vectors: the factors of words 0 .. 3 of the blocks first, first + 1, ..., as many as there are lanes."""
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
    """32-bit numbers, each in a lane of 64 bits, which holds the product of two of them."""

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
        """The upper and the lower half of the product."""
        whole = self.b.mul(number, self.constant(factor))
        return self.b.lshr(whole, self.constant(32)), self.low(whole)


def philox(lanes, counter, key):
    """Four words for every lane of a counter of four words; the key's two words are scalars."""
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
    """Whether anything is dropped: kernels that are compiled for dropout may be called without."""
    if dropout is None:
        return False
    return dropout.scale > 1.0


@inner
def _times(x, j, count, factor):
    if j < count:
        store_first(x, j, load_first(x, j, count - j) * factor, count - j)


@inner
def drop_row(dropout, x, count, cell, place):
    """Apply dropout to `count` elements from x on, in place; the first is in the first column of the cell."""
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
    """The number of a place in a sequence of the batch."""
    if dropout is None:
        return place
    return (sequence * dropout.places + place) & _MOST
