"""Products of operands rounded to bfloat16, in every way that this CPU has, against NumPy: error law, edges, guards."""

import subprocess
import sys

import numpy as np
import pytest
from guards import guarded
from hypothesis import given
from hypothesis import strategies as st

from fastpe import reference
from fastpe.kernels import simd
from fastpe.kernels.products.bfloat16 import isa as isa
from fastpe.kernels.products.bfloat16.on_arrays import packed, product, product_into, turned_into
from fastpe.kernels.products.bfloat16.product import MEMORY, SLAB
from fastpe.kernels.products.float_gemm import (
    FROM,
    LOWER_A,
    LOWER_C,
    NOT_SOON,
    ONTO,
    PLUS,
    RELU,
    UPPER_A,
    WHERE_POSITIVE,
)

WAYS = isa.ways()
SIZES = sorted({1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65})
sizes, ways = st.sampled_from(SIZES), st.sampled_from(WAYS)
EPS = float(np.finfo(np.float32).eps)


def normal(seed, *shape, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def rounded(x):
    return reference.bfloat16(x).astype(np.float64)


def assert_within_law(found, a, b, *addends):
    """Products of bfloat16 numbers are exact in float32, but for what the sums round."""
    x, y = rounded(a), rounded(b)
    expected, size = x @ y + sum(addends), np.abs(x) @ np.abs(y) + sum(map(np.abs, addends))
    np.testing.assert_array_less(np.abs(found - expected), (a.shape[1] + 4) * EPS * size + 1e-30)


# ------------------------------------------------------------------------------------------------------------ rounding


def extreme_values():
    """Ties, their neighbours, the largest, the smallest, denormal numbers, infinities, and any bits at all."""
    bits = np.random.default_rng(0).integers(0, 2**32, 4000, dtype=np.uint32)
    high = np.arange(0, 2**16, 7, dtype=np.uint32) << np.uint32(16)
    near = np.concatenate([high + np.uint32(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    x = np.concatenate([bits, near]).view(np.float32)
    return x[~np.isnan(x)]


def test_the_reference_rounds_as_pytorch():
    torch = pytest.importorskip("torch")
    x = extreme_values()
    theirs = torch.from_numpy(x).to(torch.bfloat16).to(torch.float32).numpy()
    normal_number = np.abs(x) >= 2.0**-126
    np.testing.assert_array_equal(reference.bfloat16(x)[normal_number], theirs[normal_number])
    assert (reference.bfloat16(x)[~normal_number] == 0).all()


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("side", ["a", "a transposed", "b"])
def test_operands_are_rounded_to_the_bit(isa, side):
    """A product with the identity matrix: one term, the others zero."""
    x = extreme_values()
    x = x[np.isfinite(reference.bfloat16(x))]
    count = len(x) // 33 * 33
    x, one = x[:count].reshape(-1, 33), np.eye(33, dtype=np.float32)
    if side == "b":
        found = product(one, np.ascontiguousarray(x.T), isa=isa).T
    else:
        found = product(np.asfortranarray(x) if "transposed" in side else x, one, isa=isa)
    np.testing.assert_array_equal(found, reference.bfloat16(x))


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
def test_nan_and_infinity_are_kept(isa):
    x = np.array([[np.nan], [-np.nan], [np.inf], [-np.inf], [3.4e38]], np.float32)
    found = product(x, np.ones((1, 1), np.float32), isa=isa)[:, 0]
    np.testing.assert_array_equal(found, [np.nan, np.nan, np.inf, -np.inf, np.inf])


# ------------------------------------------------------------------------------------------------------------- product


@pytest.mark.parametrize("mode", [0, FROM, FROM | PLUS, FROM | RELU, WHERE_POSITIVE, ONTO])
@given(m=sizes, n=sizes, depth=st.integers(0, 70), transposed=st.booleans(), isa=ways, seed=st.integers(0, 99))
def test_products(mode, m, n, depth, transposed, isa, seed):
    a, b, d, e = (normal(seed + each, *shape) for each, shape in enumerate([(m, depth), (depth, n), (m, n), (m, n)]))
    c, check = guarded((m, n), np.float32)
    product_into(c, np.asfortranarray(a) if transposed else a, b, mode, d, e, isa)
    check()
    if mode & WHERE_POSITIVE:
        assert (c[e <= 0] == 0).all()
        c = np.where(e > 0, c, product(a, b, isa=isa))
    if mode & RELU:
        plain = product(a, b, FROM, d, isa=isa)
        np.testing.assert_array_equal(c, np.maximum(plain, 0))
        c = plain
    addends = [x.astype(np.float64) for x, flags in ((d, FROM | ONTO), (e, PLUS)) if mode & flags]
    assert_within_law(c, a, b, *addends)


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("mode", [0, FROM | PLUS, FROM | RELU, ONTO, WHERE_POSITIVE])
def test_depths_beyond_a_slab_and_more_rows_than_are_packed_at_a_time(isa, mode):
    m, n, depth = 70, 35, int(SLAB) + 33
    a, b, d, e = normal(0, m, depth), normal(1, depth, n), normal(2, m, n, scale=99), normal(3, m, n)
    c, check = guarded((m, n), np.float32)
    c[...] = d
    product_into(c, a, b, mode, c if mode & ONTO else d, e, isa)
    check()
    addends = [x.astype(np.float64) for x, flags in ((d, FROM | ONTO), (e, PLUS)) if mode & flags]
    if mode & RELU:
        assert (c >= 0).all()
        assert_within_law(np.where(c > 0, c, product(a, b, FROM, d, isa=isa)), a, b, *addends)
    elif mode & WHERE_POSITIVE:
        assert (c[e <= 0] == 0).all()
        assert_within_law(np.where(e > 0, c, product(a, b, isa=isa)), a, b)
    else:
        assert_within_law(c, a, b, *addends)


@given(m=sizes, rows=sizes, columns=sizes, less=st.integers(0, 40), isa=ways, seed=st.integers(0, 99))
def test_a_matrix_that_is_packed_once_gives_the_same_bits_as_it_is_and_transposed(m, rows, columns, less, isa, seed):
    """And so do its first rows and columns."""
    matrix = normal(seed, rows, columns)
    for words, b in zip(packed(matrix, isa), (matrix, np.ascontiguousarray(matrix.T)), strict=True):
        depth, n = max(1, b.shape[0] - less), max(1, b.shape[1] - less)
        a = normal(seed + 1, m, depth)
        c, check = guarded((m, n), np.float32)
        product_into(c, a, words, isa=isa, packed_rows=b.shape[0])
        check()
        np.testing.assert_array_equal(c, product(a, np.ascontiguousarray(b[:depth, :n]), isa=isa))


@given(m=sizes, n=st.integers(1, 130), more=st.integers(0, 5), isa=ways, seed=st.integers(0, 99))
def test_a_matrix_that_is_turned_gives_the_same_bits_as_its_transpose(m, n, more, isa, seed):
    """And fits into the room that is promised; rows may lie apart."""
    wide = normal(seed, m, n + more)
    rows, a = wide[:, :n], normal(seed + 1, 5, n)
    words, check = guarded((max(n, 16) * -(-m // 32) * 32,), np.float32)
    turned_into(words, rows, isa)
    check()
    c = np.full((5, m), np.nan, np.float32)
    product_into(c, a, words, isa=isa, packed_rows=n)
    np.testing.assert_array_equal(c, product(a, np.ascontiguousarray(rows.T), isa=isa))


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
@pytest.mark.parametrize(("m", "depth", "n"), [(33, 100, 1500), (40, 2100, 100)])
def test_more_columns_than_are_packed_at_a_time(isa, m, depth, n):
    a, b = normal(0, m, depth), normal(1, depth, n)
    c, check = guarded((m, n), np.float32)
    product_into(c, np.asfortranarray(a), b, isa=isa)
    check()
    assert_within_law(c, a, b)
    np.testing.assert_array_equal(c[:, n - 40 :], product(a, b[:, n - 40 :], isa=isa))


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("mode", [0, FROM])
def test_what_goes_past_the_caches_is_the_same(isa, mode):
    a, b, d = normal(0, 70, int(SLAB) + 33), normal(1, int(SLAB) + 33, 80), normal(2, 70, 80)
    c = simd.aligned_zeros((70, 80), np.float32)
    product_into(c, np.asfortranarray(a), b, mode | NOT_SOON, d, isa=isa)
    np.testing.assert_array_equal(c, product(a, b, mode, d, isa=isa))


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
def test_a_packed_matrix_deeper_than_a_slab(isa):
    b = normal(0, int(SLAB) + 33, 35)
    a = normal(1, 5, len(b))
    c = np.empty((5, 35), np.float32)
    product_into(c, a, packed(b, isa)[0], isa=isa, packed_rows=len(b))
    np.testing.assert_array_equal(c, product(a, b, isa=isa))


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
def test_what_is_added_is_not_rounded(isa):
    a, b, row = normal(0, 9, 5), normal(1, 5, 40), normal(2, 1, 40, scale=1e3)
    plain = product(a, b, isa=isa)
    np.testing.assert_array_equal(product(a, b, FROM, row, isa=isa), plain + row)
    np.testing.assert_array_equal(product(a, b, ONTO, row, isa=isa), plain + row)


@given(n=st.integers(1, 150), width=sizes, isa=ways, seed=st.integers(0, 99))
def test_what_causal_attention_masks_is_left_out(n, width, isa, seed):
    lower, b = np.tril(normal(seed, n, n)), normal(seed + 1, n, width)
    for mode, a in ((LOWER_A, lower), (UPPER_A, lower.T)):
        assert_within_law(product(a, b, mode, isa=isa), a, b)
    c, check = guarded((n, n), np.float32)
    product_into(c, b, np.ascontiguousarray(b.T), LOWER_C, isa=isa)
    check()
    whole = product(b, np.ascontiguousarray(b.T), isa=isa)
    np.testing.assert_array_equal(np.tril(c), np.tril(whole))


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
def test_a_sum_has_one_order_whatever_stands_beside_it(isa):
    """Of one row and of many, of one column and of many, in any layout: the same bits."""
    a, b = normal(0, 80, 200), normal(1, 200, 70)
    whole = product(a, b, isa=isa)
    np.testing.assert_array_equal(product(a[17:18], b, isa=isa), whole[17:18])
    np.testing.assert_array_equal(product(a, b[:, 40:41], isa=isa), whole[:, 40:41])
    np.testing.assert_array_equal(product(np.asfortranarray(a), b, isa=isa), whole)
    strided = np.full((80, 3 * 200), np.nan, np.float32)[:, ::3]
    strided[...] = a
    np.testing.assert_array_equal(product(strided, b, isa=isa), whole)


@pytest.mark.parametrize("isa", WAYS, ids=lambda isa: isa.name)
@pytest.mark.parametrize(("m", "n", "depth"), [(64, 64, 64), (300, 70, 1500), (1, 33, int(SLAB))])
def test_nothing_is_written_past_the_memory_for_what_is_rounded(isa, m, n, depth):
    memory, check = guarded((MEMORY,), np.float32)
    a, b, c = normal(0, m, depth), normal(1, depth, n), np.empty((m, n), np.float32)
    product_into(c, a, b, isa=isa, memory=memory)
    product_into(c, np.asfortranarray(a), b, isa=isa, memory=memory)
    check()
    assert_within_law(c, a, b)


def test_without_permission_there_are_no_tiles(monkeypatch):
    monkeypatch.setattr(isa, "_tiles_granted", lambda: False)
    assert isa.AMX not in isa.ways()
    monkeypatch.setattr(isa, "cpu_features", set)
    assert isa.ways() == (isa.SHIFTS,)


@pytest.mark.skipif(simd.REGISTER_BYTES < 64, reason="this CPU has no wider registers to do without")
@pytest.mark.parametrize(
    ("name", "features"), [("haswell", "+avx2,+fma,+avx,+sse4.2,+sse4.1,+ssse3,+sse3,+sse2,+sse"), ("generic", "+sse2")]
)
def test_older_cpus_compute_the_same_products(name, features, monkeypatch):
    program = (
        "import numpy as np; from fastpe import reference\n"
        "from fastpe.kernels.products.bfloat16 import isa as way, on_arrays\n"
        "assert way.ways() == (way.SHIFTS,)\n"
        "r = np.random.default_rng(0); a, b = (r.standard_normal(s).astype('f') for s in ((50, 70), (70, 45)))\n"
        "x, y = reference.bfloat16(a).astype(float), reference.bfloat16(b).astype(float)\n"
        "for each in (a, np.asfortranarray(a)):\n"
        "    error = np.abs(on_arrays.product(each, b) - x @ y)\n"
        "    assert (error <= 75 * 2.0**-23 * (np.abs(x) @ np.abs(y))).all()\n"
    )
    monkeypatch.setenv("NUMBA_CPU_NAME", name)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", features)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
