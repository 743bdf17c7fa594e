"""Compiled code that lets Python's other threads run while it works, after it has looked at Python's objects."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def unlocked(typingctx, function, arguments):
    """What the inner function ``function(*arguments)`` returns, which runs without Python's lock.

    The entry that calls this holds the lock (`_jit.entry` with `objects`), and has it again afterwards.
    """
    called = function.get_call_type(typingctx, arguments.types, {})

    def emit(context, b, signature, values):
        compiled = function.dispatcher.get_compile_result(called)
        state, nothing = ir.IntType(8).as_pointer(), ir.VoidType()
        leave = cgutils.get_or_insert_function(b.module, ir.FunctionType(state, []), "PyEval_SaveThread")
        enter = cgutils.get_or_insert_function(b.module, ir.FunctionType(nothing, [state]), "PyEval_RestoreThread")
        context.add_linking_libs([compiled.library])
        callee, left = context.declare_function(b.module, compiled.fndesc), b.call(leave, [])
        status, found = context.call_conv.call_function(
            b, callee, called.return_type, called.args, cgutils.unpack_tuple(b, values[1])
        )
        b.call(enter, [left])
        with b.if_then(status.is_error, likely=False):
            context.call_conv.return_status_propagate(b, status)
        return found

    return called.return_type(types.Dispatcher(function.dispatcher), arguments), emit
