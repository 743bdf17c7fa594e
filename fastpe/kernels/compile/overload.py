"""One name for several compiled functions: which of them is called follows from the types of its arguments.

    @intrinsic
    def product(typingctx, x, y):
        return called(typingctx, _rounded if isinstance(x, RoundingPointer) else _plain, (x, y))

Only the chosen one is compiled, and nothing is asked at run time.
"""


def overload_by_type(typingctx, function, arguments, convert=None, own=None):
    """What an intrinsic returns that calls a function made by `inner` with arguments of these types.

    Where the intrinsic's own are others, of the types `own`, convert(context, b, values) makes LLVM's values of the
    function's arguments from those of its own.
    """
    kind = typingctx.resolve_value_type(function)
    signature = kind.get_call_type(typingctx, arguments, {})

    def emit(context, b, _, values):
        implementation = context.get_function(kind, signature)
        context.add_linking_libs(implementation.libs)
        return implementation(b, convert(context, b, values) if convert else values)

    return signature.return_type(*own) if own else signature, emit
