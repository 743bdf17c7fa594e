"""Names that are about to move (see `kernels.compile`)."""

from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.compile.switches import CHECK_BOUNDS

__all__ = ["CHECK_BOUNDS", "entry", "inlined", "inner"]
