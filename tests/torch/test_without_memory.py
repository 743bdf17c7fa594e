"""Tensors that have no memory are refused, or give the right result; they never end the process."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

SCRIPT = """
import torch
import fastpe.torch

def resized(x):
    y = x.clone()
    y.untyped_storage().resize_(0)
    return y

KINDS = {
    "zero": lambda x: torch._efficientzerotensor(x.shape),
    "functional": lambda x: torch._to_functional_tensor(x),
    "resized": resized,
}
for queries in (1, 4, 8):
    torch.manual_seed(0)
    right = [torch.randn(1, 2, n, 16) for n in (queries, 70, 70)]
    bias = torch.randn(2, 9)
    for options in ({}, {"bias": bias}):
        expected = fastpe.torch.attention(*right, **options)
        for kind, made in KINDS.items():
            for place in range(3 + len(options)):
                given = [*right, *options.values()]
                given[place] = made(given[place])
                try:
                    fastpe.torch.attention(*given[:3], **dict(zip(options, given[3:])))
                except ValueError as error:
                    assert str(error).startswith(("q", "k", "v", "bias")[place] + " must have memory"), error
                else:
                    raise AssertionError(f"{kind} {place} was taken for a tensor with numbers")
        assert torch.equal(fastpe.torch.attention(*right, **options), expected)
print("done")
"""


@pytest.mark.full("starts processes")
def test_tensors_without_memory_are_refused():
    """In a process of its own, which a crash would end."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
