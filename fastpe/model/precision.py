"""How a model's matrix products are computed: in the dtype of the model, or with operands rounded to bfloat16."""

from fastpe.kernels.products.bfloat16 import isa as isa
from fastpe.kernels.products.bfloat16.isa import Isa
from fastpe.model.config import ModelConfig


def isa_of(config: ModelConfig) -> Isa | None:
    """Return the instruction set for products of operands rounded to bfloat16; None if nothing is rounded."""
    return isa.fastest() if config.precision == "bfloat16" else None


def remarks(config: ModelConfig) -> tuple[str, ...]:
    """Return remarks for users of this precision on this machine.

    Examples
    --------
    >>> remarks(ModelConfig("alibi"))
    ()
    """
    if isa_of(config) is not isa.SHIFTS:
        return ()
    return ("precision bfloat16: this CPU has no instructions for bfloat16, so it is not faster than float32 here",)
