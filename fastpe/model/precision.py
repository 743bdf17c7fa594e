"""How a model's products are made: in the type of its numbers, or of operands rounded to bfloat16."""

from fastpe.kernels.products.bfloat16 import isa as isa
from fastpe.kernels.products.bfloat16.isa import Isa
from fastpe.model.config import ModelConfig


def isa_of(config: ModelConfig) -> Isa | None:
    """How products of operands rounded to bfloat16 are made here; None where nothing is rounded."""
    return isa.fastest() if config.precision == "bfloat16" else None


def remarks(config: ModelConfig) -> tuple[str, ...]:
    """What a user of this precision should know on this machine, once.

    Examples
    --------
    >>> remarks(ModelConfig("alibi"))
    ()
    """
    if isa_of(config) is not isa.SHIFTS:
        return ()
    return ("precision bfloat16: this CPU has no instructions for it, and it is not faster than float32 here",)
