"""One name for several compiled functions; the types of the arguments select one of them.

    @intrinsic
    def product(typingctx, x, y):
        return called(typingctx, _rounded if isinstance(x, RoundingPointer) else _plain, (x, y))

Only the selected one is compiled, and nothing is tested at run time.
"""


def overload_by_type(typingctx, function, arguments, convert=None, own=None):
    """The result of an intrinsic that calls a function made by `inner` with arguments of these types.

    If the intrinsic's arguments differ, with the types `own`, convert(context, b, values) makes the LLVM values of the
    function's arguments from those of the intrinsic.
    """
    kind = typingctx.resolve_value_type(function)
    signature = kind.get_call_type(typingctx, arguments, {})

    def emit(context, b, _, values):
        implementation = context.get_function(kind, signature)
        context.add_linking_libs(implementation.libs)
        return implementation(b, convert(context, b, values) if convert else values)

    return signature.return_type(*own) if own else signature, emit
