"""The instructions: rounding of vectors to pairs of bfloat16, and products of pairs, in vectors and in AMX tiles.

A *word* is a pair of bfloat16 numbers in 32 bits; the first number is in the lower half. Words are held in memory and
registers as float32 elements, but never used as float32 numbers. llvmlite has no type `bfloat`: LLVM's functions on
vectors of `bfloat` are declared with a vector type that is only printed as one.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastpe.kernels.products.bfloat16.isa import SHIFTS
from fastpe.kernels.products.float_gemm import cells_of, packed_tile, unpacked_tile
from fastpe.kernels.simd import code, llvm_vector, pointers
from fastpe.kernels.simd.code import I32
from fastpe.kernels.simd.pointers import I64, element

ROWS_OF_TILE = 16
WORDS_OF_ROW = 16
_UPPER = 0xFFFF0000


class _Bfloats(ir.VectorType):
    def _to_string(self):
        return f"<{self.count} x bfloat>"


def _bfloats(lanes):
    return _Bfloats(ir.HalfType(), lanes)


def _integers(kind):
    return ir.VectorType(I32, kind.lanes)


def _every(kind, value):
    return ir.Constant(_integers(kind), [value] * kind.lanes)


def _picked(b, x, y, lanes):
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def _rounded(b, kind, x):
    """Return the bits of x, rounded to bfloat16 in the upper half of each lane. NaN is kept; values below 2^-126 become
    zero."""
    bits = b.bitcast(x, _integers(kind))
    odd = b.and_(b.lshr(bits, _every(kind, 16)), _every(kind, 1))
    nearest = b.add(bits, b.add(odd, _every(kind, 0x7FFF)))
    size = b.and_(bits, _every(kind, 0x7FFFFFFF))
    tiny = b.icmp_unsigned("<", size, _every(kind, 0x00800000))
    unusual = b.icmp_unsigned(">", size, _every(kind, 0x7F800000))
    nearest = b.select(unusual, b.or_(bits, _every(kind, 0x00400000)), nearest)
    return b.select(tiny, b.and_(bits, _every(kind, 0x80000000)), b.and_(nearest, _every(kind, _UPPER)))


def _words_by_shifts(b, kind, first, second):
    low, high = _rounded(b, kind, first), _rounded(b, kind, second)
    return b.bitcast(b.or_(b.lshr(low, _every(kind, 16)), high), llvm_vector(kind))


def _words_at_once(b, kind, x, y):
    """Return one vector of words: the lanes of x, then the lanes of y, all rounded to bfloat16."""
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    return code.call_intrinsic(b, name, _bfloats(2 * kind.lanes), [y, x])


@intrinsic
def words_along(typingctx, x, y, isa):
    """Return the words (x0, x1), (x2, x3), ..., then (y0, y1), (y2, y3), ..."""

    def emit(context, b, signature, arguments):
        first, second, _ = arguments
        if isa.isa != SHIFTS.name:
            return b.bitcast(_words_at_once(b, x, first, second), llvm_vector(x))
        evens = _picked(b, first, second, list(range(0, 2 * x.lanes, 2)))
        odds = _picked(b, first, second, list(range(1, 2 * x.lanes, 2)))
        return _words_by_shifts(b, x, evens, odds)

    return x(x, y, isa), emit


@intrinsic
def words_across(typingctx, x, y, isa):
    """Return the words (x0, y0), (x1, y1), ..."""

    def emit(context, b, signature, arguments):
        first, second, _ = arguments
        if isa.isa == SHIFTS.name:
            return _words_by_shifts(b, x, first, second)
        halves = b.bitcast(_words_at_once(b, x, first, second), ir.VectorType(ir.IntType(16), 2 * x.lanes))
        order = [lane // 2 + lane % 2 * x.lanes for lane in range(2 * x.lanes)]
        return b.bitcast(_picked(b, halves, halves, order), llvm_vector(x))

    return x(x, y, isa), emit


@intrinsic
def tile_multiply_words(typingctx, tile, a, a_row, words, isa):
    """Return tile + the product of the column of words a[i * a_row] and a row of words. This adds two terms to each
    sum."""
    vector = tile.vector

    def widened(b, word):
        bits = b.bitcast(word, _integers(vector))
        upper, lower = b.and_(bits, _every(vector, _UPPER)), b.shl(bits, _every(vector, 16))
        return [b.bitcast(half, llvm_vector(vector)) for half in (lower, upper)]

    def emit(context, b, signature, arguments):
        packed, a, a_row, row, _ = arguments
        old, new = unpacked_tile(b, tile, packed), []
        places = [ir.Constant(I64, j * vector.lanes) for j in range(tile.columns)]
        across = [code.load_vector(b, vector, words.dtype, row, place) for place in places]
        for i in range(tile.rows):
            word = b.load(element(b, a, b.mul(a_row, ir.Constant(I64, i))))
            new.append(code.broadcast(b, vector, word))
        down, pairs = new, _bfloats(2 * vector.lanes)
        sums = []
        if isa.isa == SHIFTS.name:
            across, down = [widened(b, each) for each in across], [widened(b, each) for each in down]
            for c, i, j in cells_of(tile):
                sum_ = old[c]
                for x, y in zip(down[i], across[j], strict=True):
                    sum_ = code.multiply_add(b, vector, x, y, sum_)
                sums.append(sum_)
            return packed_tile(b, tile, sums)
        across, down = [b.bitcast(each, pairs) for each in across], [b.bitcast(each, pairs) for each in down]
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        for c, i, j in cells_of(tile):
            sums.append(code.call_intrinsic(b, name, llvm_vector(vector), [old[c], down[i], across[j]]))
        return packed_tile(b, tile, sums)

    return tile(tile, a, types.intp, words, isa), emit


@intrinsic
def fetch_to_write(typingctx, p, offset):
    """Prefetch the cache line of an element that will be written. The address need not be valid."""

    def emit(context, b, signature, arguments):
        place = b.bitcast(pointers.anywhere(b, *arguments), ir.IntType(8).as_pointer())
        hints = [ir.Constant(I32, hint) for hint in (1, 3, 1)]  # a write, into the nearest cache, of data
        code.call_intrinsic(b, "llvm.prefetch.p0", ir.VoidType(), [place, *hints])
        return context.get_dummy_value()

    return types.void(p, types.intp), emit


# ---------------------------------------------------------------------------------------------------------------------
# AMX: eight registers of 16 rows of 64 bytes


def _number(tile):
    return ir.Constant(ir.IntType(8), tile.literal_value)


def _do(b, name, arguments):
    """Call one of LLVM's functions on tiles; they return nothing."""
    code.call_intrinsic(b, f"llvm.x86.{name}", ir.VoidType(), arguments)


def _rows_of(b, pointer, row):
    """Return the address and the stride in bytes of the rows of a tile in memory, `row` elements apart, as LLVM
    values."""
    end = b.add(b.mul(row, ir.Constant(I64, ROWS_OF_TILE - 1)), ir.Constant(I64, WORDS_OF_ROW))
    address = b.bitcast(element(b, pointer, ir.Constant(I64, 0), end), ir.IntType(8).as_pointer())
    return [address, b.mul(row, ir.Constant(I64, 4))]


@intrinsic
def begin_tiles(typingctx):
    """Configure all tile registers as 16 rows of 64 bytes: 16 x 16 words, or 16 x 16 float32 sums."""

    def emit(context, b, signature, arguments):
        wanted = bytearray(64)
        wanted[0] = 1  # the palette
        for tile in range(8):
            wanted[16 + 2 * tile], wanted[48 + tile] = 4 * WORDS_OF_ROW, ROWS_OF_TILE
        place = cgutils.global_constant(b, "fastpe.tiles", cgutils.make_bytearray(wanted))
        _do(b, "ldtilecfg", [b.bitcast(place, ir.IntType(8).as_pointer())])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def end_tiles(typingctx):
    """Release the tile registers. As long as they are in use, every thread switch must save them."""

    def emit(context, b, signature, arguments):
        _do(b, "tilerelease", [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic(prefer_literal=True)
def tile_clear(typingctx, tile):
    """Set a register to zeros; `tile` is its number."""

    def emit(context, b, signature, arguments):
        _do(b, "tilezero", [_number(tile)])
        return context.get_dummy_value()

    return types.void(tile), emit


@intrinsic(prefer_literal=True)
def tile_load(typingctx, tile, p, row):
    """Load 16 rows of 16 elements, `row` apart, into a register."""

    def emit(context, b, signature, arguments):
        _do(b, "tileloadd64", [_number(tile), *_rows_of(b, *arguments[1:])])
        return context.get_dummy_value()

    return types.void(tile, p, types.intp), emit


@intrinsic(prefer_literal=True)
def tile_products(typingctx, sums, a, b_):
    """sums[i, j] += the products of row i of words of register `a` and column j of words of register `b_`."""

    def emit(context, b, signature, arguments):
        _do(b, "tdpbf16ps", [_number(sums), _number(a), _number(b_)])
        return context.get_dummy_value()

    return types.void(sums, a, b_), emit


@intrinsic(prefer_literal=True)
def tile_keep(typingctx, tile, p, row):
    """Store a register to 16 rows of 16 elements, `row` apart."""

    def emit(context, b, signature, arguments):
        _do(b, "tilestored64", [_number(tile), *_rows_of(b, *arguments[1:])])
        return context.get_dummy_value()

    return types.void(tile, p, types.intp), emit
