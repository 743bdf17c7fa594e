"""Named tuples that compiled code hands on by their address.

Numba hands on each member by itself: of a model's sizes and offsets that is 250 numbers for each call, for which it
makes two thirds of all that LLVM reads. Of a `ByAddress` it makes one, and a load where a member is read, which LLVM
may move, as nothing writes there.

Private: `AttributeTemplate` and `impl_ret_borrowed`, which Numba's manual uses in examples, though they are not in
`numba.extending`. Without them there are no kernels.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model


class ByAddress(types.Type):
    """A named tuple in memory; those in it are of this type, too."""

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
    """A named tuple by its address, and None as it is.

    It lies on the stack of the function that calls this, one for each place of the source: what a loop lays down is
    there until its next turn. Its arrays must outlive it.
    """
    if not isinstance(record, types.BaseNamedTuple):
        return record(record), lambda context, b, signature, values: values[0]

    def emit(context: Any, b: Any, signature: Any, values: Any) -> Any:
        return hidden(b, cgutils.alloca_once_value(b, values[0]))

    return ByAddress(record)(record), emit


def hidden(b: Any, address: Any) -> Any:
    """The same address: behind it LLVM does not know what was written there before (see `invariant.load`)."""
    return b.call(ir.InlineAsm(ir.FunctionType(address.type, [address.type]), "", "=r,0,~{memory}", True), [address])
