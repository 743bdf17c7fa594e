"""The short path for few queries from PyTorch: results of the reference, taken only where nobody looks at operators."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")


import fastpe  # noqa: E402
from fastpe.functional import decode  # noqa: E402
from fastpe.torch import attention, call  # noqa: E402

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.fixture
def rows():
    torch.manual_seed(0)
    return [torch.randn(2, 4, 2, 16), torch.randn(2, 2, 70, 16), torch.randn(2, 2, 70, 16)]


@pytest.fixture
def decoded(monkeypatch):
    """How many calls took the short path."""
    calls, own = [], decode.attend

    def attend(*arguments, **given):
        found = own(*arguments, **given)
        calls.append(found is not None)
        return found

    monkeypatch.setattr(call.decode, "attend", attend)
    return calls


def numpys(x):
    """A tensor as an array of float32 at least."""
    return x.detach().to(torch.float64 if x.dtype is torch.float64 else torch.float32).numpy()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_are_those_of_the_reference(rows, decoded, dtype):
    rows = [x.to(dtype) for x in rows]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    bias, mask = torch.randn(4, 9, dtype=wide), torch.rand(2, 1, 1, 70) < 0.7
    given = {"bias": bias, "mask": mask, "lengths": torch.tensor([70, 9]), "sinks": torch.randn(4, dtype=wide)}
    out, lse = attention(*rows, causal=True, scale=0.3, return_lse=True, **given)
    assert decoded == [True]
    assert (out.dtype, lse.dtype) == (dtype, wide)
    arrays = {name: x.numpy() for name, x in given.items()}
    exact = fastpe.reference.attention(*map(numpys, rows), causal=True, scale=0.3, return_lse=True, **arrays)
    error = {torch.float32: 1e-6, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    np.testing.assert_allclose(numpys(out), exact[0], rtol=0, atol=error)
    np.testing.assert_allclose(lse.numpy(), exact[1], rtol=0, atol=max(error, 1e-13) if error < 1e-5 else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
def test_slots_of_half_precision_are_widened(rows, decoded, dtype):
    rows, mask = [x.to(dtype) for x in rows], torch.randn(2, 1, 1, 70, dtype=dtype)
    found = attention(*rows, mask=mask)
    assert decoded == [True]
    torch.testing.assert_close(found, attention(*rows, mask=mask.float()), rtol=0, atol=0)


def test_views_of_other_values_and_tensors_without_memory(rows, decoded):
    q, k, v = rows
    negative = torch.complex(torch.zeros_like(k), k).conj().imag  # its memory holds k, its values are -k
    assert negative.is_neg()
    torch.testing.assert_close(attention(q, negative, v), attention(q, -k, v), rtol=0, atol=1e-6)
    freed = k.clone()
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="must have memory"):
        attention(q, freed, v)
    for other in (k.to("meta"), k.to_sparse()):
        with pytest.raises((TypeError, ValueError)):
            attention(q, other, v)


def test_a_cache_that_is_written_to_in_place(rows, decoded):
    """As `StaticCache` of transformers has it: views into one tensor, of more keys in every call."""
    q, k, v = rows
    cache = torch.zeros(2, 2, 2, 100, 16)
    for m in (64, 65, 70):
        cache[0, :, :, :m], cache[1, :, :, :m] = k[:, :, :m], v[:, :, :m]
        found = attention(q, cache[0, :, :, :m], cache[1, :, :, :m])
        exact = torch.nn.functional.scaled_dot_product_attention(q, k[:, :, :m], v[:, :, :m], enable_gqa=True)
        torch.testing.assert_close(found, exact, rtol=0, atol=1e-6)
    assert decoded == [True] * 3


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_pytorchs_and_change_no_bit(rows, threads):
    q, k, v = rows[0], torch.randn(2, 2, 3000, 16), torch.randn(2, 2, 3000, 16)
    plain, before = attention(q, k, v), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.testing.assert_close(attention(q, k, v), plain, rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)
