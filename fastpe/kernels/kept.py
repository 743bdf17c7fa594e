"""Calls that are made again: what compiled code makes of their arguments is laid down once.

Python hands over an argument in a tenth of a microsecond. Those of a whole call of attention, 17 arrays and 80 numbers,
take as long as a query needs for some hundred keys. So an entry lays down what it hands to its lanes as a *record*, and
a smaller entry runs the same machine code again, with other arrays in place of the first arguments:

    @entry
    def work(crew, board, x, y, ...):
        whole = pointer(board), x, y, z, ...
        in_lanes(crew, _work, whole)
        record = np.empty(record_size(whole), np.int64)
        keep(record, _work, (whole[:2], whole[:3]), whole)
        return record

    @entry
    def again(run, lanes, record, x):
        board = np.zeros(BOARD, np.int64)
        done = run_kept((run, lanes), record, (pointer(board), x))
        hold(board)
        return done

    run_again(lanes, 0, again, record, x)

or ``run_kept(crew, record, (pointer(board), x, y))``: `keep` says how many of the first may be others. A
record holds addresses of arrays: who keeps it keeps the arrays, too, but for those that are changed. Of these it knows
the types; whether they are as large as those before is what `is_laid_out` tells. Nobody writes to it again: another
lane's core has it near from the call before, where what a call writes has to come from core to core.
"""

import zlib

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from fastpe.kernels._jit import CHECK_BOUNDS
from fastpe.kernels.at_address import AXES
from fastpe.kernels.threads import call_lanes, thunk_of, uncounted

_I64 = ir.IntType(64)
_PREFIXES = 4  # at most
_HEAD = 2 * _PREFIXES  # words before the arguments: of each prefix what tells its types, and where machine code lies


@intrinsic
def record_size(typingctx, arguments):
    """The words of a record of such arguments."""

    def emit(context, b, signature, values):
        return ir.Constant(_I64, _HEAD + -(-context.get_abi_sizeof(values[0].type) // 8))

    return types.intp(arguments), emit


@intrinsic
def keep(typingctx, record, function, prefixes, arguments):
    """Fill a record for calls of the inner function ``function(lane, *arguments)``, which begin with each of up to
    four prefixes: either may change. None of them is an array that compiled code has made."""
    called = function.get_call_type(typingctx, (types.intp, *arguments.types), {})

    def emit(context, b, signature, values):
        whole = values[-1]
        head, first = _places(context, b, signature.args[0], values[0], whole.type)
        for word in range(_PREFIXES):
            place = min(word, len(prefixes) - 1)
            changing = b.extract_value(values[2], place).type
            thunk = thunk_of(context, b.module, function, called, whole.type, changing)
            b.store(_number_of(prefixes[place]), b.gep(head, [ir.Constant(_I64, 2 * word)]))
            b.store(b.ptrtoint(thunk, _I64), b.gep(head, [ir.Constant(_I64, 2 * word + 1)]))
        b.store(uncounted(b, arguments, whole), first, align=8)
        context.add_linking_libs([function.dispatcher.get_compile_result(called).library])
        return context.get_dummy_value()

    return types.void(record, function, prefixes, arguments), emit


@intrinsic
def run_kept(typingctx, crew, record, changing):
    """Call what a record was made for with other arguments in place of its first.

    Returns False, and calls nothing, where those are of other types. crew: the first two of `threads.Crew`, of no more
    lanes than threads. What `changing` points to must be held (`simd.hold`).
    """

    def emit(context, b, signature, values):
        head, first = _places(context, b, signature.args[1], values[1], _I64)
        number, thunk = _number_of(changing), ir.Constant(_I64, 0)
        for word in range(_PREFIXES):
            known, code = (b.load(b.gep(head, [ir.Constant(_I64, 2 * word + own)])) for own in range(2))
            thunk = b.select(b.icmp_signed("==", known, number), code, thunk)
        fits = b.icmp_signed("!=", thunk, ir.Constant(_I64, 0))
        with b.if_then(fits):
            own = cgutils.alloca_once_value(b, values[2])
            frame = cgutils.alloca_once_value(b, cgutils.pack_array(b, [b.ptrtoint(x, _I64) for x in (first, own)]))
            function = b.inttoptr(thunk, ir.FunctionType(ir.VoidType(), [_I64, _I64]).as_pointer())
            run, lanes = cgutils.unpack_tuple(b, values[0])
            call_lanes(context, b, (run, lanes, lanes), function, b.ptrtoint(frame, _I64))
        return fits

    return types.boolean(crew, record, changing), emit


@intrinsic
def is_laid_out(typingctx, x, layout, place):
    """Whether x has the four axes, and the strides in bytes, that stand in an array from `place` on, and is aligned."""

    def emit(context, b, signature, values):
        if x.ndim != AXES:
            return cgutils.false_bit
        array, words = make_array(x)(context, b, values[0]), make_array(layout)(context, b, values[1]).data
        shape, strides = cgutils.unpack_tuple(b, array.shape), cgutils.unpack_tuple(b, array.strides)
        held, bits = cgutils.true_bit, b.ptrtoint(array.data, _I64)
        for number, each in enumerate([*shape, *strides]):
            word = b.load(b.gep(words, [b.add(values[2], ir.Constant(_I64, number))]))
            held = b.and_(held, b.icmp_signed("==", each, word))
        for stride in strides:
            bits = b.or_(bits, stride)
        size = context.get_abi_sizeof(context.get_data_type(x.dtype))  # a power of two
        beyond = b.and_(bits, ir.Constant(_I64, size - 1))
        return b.and_(held, b.icmp_signed("==", beyond, ir.Constant(_I64, 0)))

    return types.boolean(x, layout, types.intp), emit


@intrinsic
def start_within(typingctx, x):
    """`simd.start_of` of an array of four axes: where bounds are checked it goes on to the last of x."""
    kind = types.Array(x.dtype, 1, "C")

    def emit(context, b, signature, values):
        array, made = make_array(x)(context, b, values[0]), make_array(kind)(context, b)
        size, count = array.itemsize, ir.Constant(_I64, 1)
        if CHECK_BOUNDS:
            for axis in range(x.ndim):
                last = b.sub(b.extract_value(array.shape, axis), ir.Constant(_I64, 1))
                count = b.add(count, b.sdiv(b.mul(last, b.extract_value(array.strides, axis)), size))
        populate_array(made, data=array.data, shape=[count], strides=[size], itemsize=size, meminfo=None, parent=None)
        return made._getvalue()

    return kind(x), emit


def _places(context, b, array, record, kind):
    """The pointers to a record's head, and to its arguments, of the LLVM type `kind` or beginning with such."""
    head = make_array(array)(context, b, record).data
    return head, b.bitcast(b.gep(head, [ir.Constant(_I64, _HEAD)]), kind.as_pointer())


def _number_of(changing):
    """What tells their types from others."""
    return ir.Constant(_I64, zlib.crc32(str(changing).encode()))
