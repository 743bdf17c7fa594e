"""One name for several compiled functions; the types of the arguments select one of them.

    @intrinsic
    def product(typingctx, x, y):
        function = _rounded if isinstance(x, RoundingPointer) else _plain
        return overload_by_type(typingctx, function, (x, y))

Only the selected function is compiled, and nothing is tested at run time.
"""


def overload_by_type(typingctx, function, arguments, convert=None, own=None):
    """Return the signature and the code generator of an intrinsic that calls `function`, a function made by `inner`.
    `arguments` is the tuple of the types of its arguments.

    If the intrinsic itself has other arguments, `own` is the tuple of their types, and ``convert(context, b, values)``
    returns the LLVM values of the function's arguments, given the values of the intrinsic's arguments.
    """
    kind = typingctx.resolve_value_type(function)
    signature = kind.get_call_type(typingctx, arguments, {})

    def emit(context, b, _, values):
        implementation = context.get_function(kind, signature)
        context.add_linking_libs(implementation.libs)
        return implementation(b, convert(context, b, values) if convert else values)

    return signature.return_type(*own) if own else signature, emit
