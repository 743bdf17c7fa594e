"""Named tuples that compiled code passes by address.

Numba passes each member of a tuple as a separate argument. For the sizes and offsets of a model these are 250 numbers
per call, which make up two thirds of the code that LLVM reads. A `ByAddress` is one argument, with a load wherever a
member is read. LLVM may move these loads, because nothing writes to this memory.

This module uses two private names of Numba, `AttributeTemplate` and `impl_ret_borrowed`, which examples in Numba's
manual use, but which are not in `numba.extending`. The kernels do not work without them.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model


class ByAddress(types.Type):
    """A named tuple in memory. Its members that are named tuples are of this type, too."""

    def __init__(self, members: types.BaseNamedTuple) -> None:
        self.members, self.instance_class = members, members.instance_class
        super().__init__(name=f"ByAddress({members})")


@register_model(ByAddress)
class _ByAddressModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: ByAddress) -> None:
        super().__init__(manager, kind, manager[kind.members].get_value_type().as_pointer())


@infer_getattr
class _Members(AttributeTemplate):
    key = ByAddress

    def generic_resolve(self, kind: ByAddress, name: str) -> Any:
        if name not in kind.members.fields:
            return None
        member = kind.members.types[kind.members.fields.index(name)]
        return ByAddress(member) if isinstance(member, types.BaseNamedTuple) else member


@lower_getattr_generic(ByAddress)
def _member(context: Any, b: Any, kind: ByAddress, value: Any, name: str) -> Any:
    place = kind.members.fields.index(name)
    found, member = cgutils.gep_inbounds(b, value, 0, place), kind.members.types[place]
    if isinstance(member, types.BaseNamedTuple):
        return found
    loaded = b.load(found)
    loaded.set_metadata("invariant.load", b.module.add_metadata([]))
    return impl_ret_borrowed(context, b, member, loaded)


@intrinsic
def by_address(typingctx: Any, record: Any) -> Any:
    """Pass a named tuple by its address; None is returned unchanged.

    The tuple is copied to the stack of the calling function. Each call of `by_address` in the source has one place on
    the stack, so in a loop the copy is valid until the next iteration. The arrays in the tuple must outlive the copy.
    """
    if not isinstance(record, types.BaseNamedTuple):
        return record(record), lambda context, b, signature, values: values[0]

    def emit(context: Any, b: Any, signature: Any, values: Any) -> Any:
        return hidden(b, cgutils.alloca_once_value(b, values[0]))

    return ByAddress(record)(record), emit


def hidden(b: Any, address: Any) -> Any:
    """Return the same address, in a form from which LLVM cannot tell what was written there before
    (see `invariant.load`)."""
    return b.call(ir.InlineAsm(ir.FunctionType(address.type, [address.type]), "", "=r,0,~{memory}", True), [address])
