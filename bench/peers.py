"""The peers of `fastpe bench` and the NumPy code, for import by tests and benchmarks."""

from fastpe.benchmarks.numpy_ways import HEADS, learned_rows, numpy_tables
from fastpe.benchmarks.peers import NOT_COUNTED, joined_parameters, torch_forward, torch_loss, torch_step, torch_weights

__all__ = [
    "HEADS", "NOT_COUNTED", "joined_parameters", "learned_rows", "numpy_tables", "torch_forward", "torch_loss",
    "torch_step", "torch_weights",
]  # fmt: skip
