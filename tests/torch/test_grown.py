"""The shortest way from tensors to kernels with a cache that grows: the same bits as the long one."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

from ways_of_tensors import the_long_way  # noqa: E402

import fastpe.torch  # noqa: E402 - what comes after needs torch
from fastpe.functional import again  # noqa: E402
from fastpe.torch import call, straight  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


pytestmark = pytest.mark.usefixtures("no_tensors_kept")


def given_of(name, m, dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def numbers(*shape):
        return torch.randn(shape, generator=torch.Generator().manual_seed(m), dtype=wide)

    return {
        "nothing": {}, "options": {"causal": True, "window": 40, "softcap": 2.0, "scale": 0.3},
        "bools": {"mask": numbers(2, 1, 1, m) > -1}, "numbers": {"mask": numbers(m)},
        "all offsets": {"bias": numbers(4, 2 * m - 1)}, "clipped offsets": {"gain": numbers(2, 4, 11)},
        "cells": {"scores": numbers(4, 1, m), "values": numbers(4, 3), "index": torch.arange(m)[None] % 3},
        "keys": {"key_offset": numbers(2, 4, m), "lengths": torch.tensor([m, 9])},
        "turns": {"angles": numbers(1, m, 8).double(), "pairs": "half"},
        "turns in a table": {"angles": torch.linspace(0, 9, 320 * 8).double().reshape(1, 320, 8),
                             "query_start": torch.tensor([m - 1, 3])},
        "rounded mask": {"mask": numbers(1, 1, 1, m).to(wide if dtype == torch.float64 else torch.half)},
        "dropout": {"dropout": 0.3, "dropout_seed": 5, "sinks": numbers(4)},
    }[name]  # fmt: skip


NAMES = (
    "nothing", "options", "bools", "numbers", "all offsets", "clipped offsets", "cells", "keys", "turns",
    "turns in a table", "rounded mask", "dropout",
)  # fmt: skip


def call_of(name, m, dtype):
    made = torch.Generator().manual_seed(m)
    rows = [torch.randn(2, heads, count, 16, generator=made).to(dtype) for heads, count in ((4, 1), (2, m), (2, m))]
    return rows, given_of(name, m, dtype)


def only_compiled(rows, given, *ways):
    """Without the ways that lay down a record in Python."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((straight, "_attend_and_keep"), (call, "attend"), *ways):
            patch.setattr(owner, name, None)
        return fastpe.torch.attention(*rows, **given)


IN_PYTHON = (straight, "_grown"), (again.Again, "grown"), (straight, "layouts_of")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_from_the_second_token_on_compiled_code_takes_any_number_of_keys(dtype, name):
    for _ in range(3):
        fastpe.torch.attention(*call_of(name, 70, dtype)[0], **call_of(name, 70, dtype)[1])
    for m in (71, 72, 300, 70, 65, 10):
        rows, given = call_of(name, m, dtype)
        found = only_compiled(rows, given, *(IN_PYTHON if m != 71 else ()))
        assert found.dtype == dtype
        assert torch.equal(found, the_long_way(*rows, **given))
    assert len(straight._kept) == 2


def test_what_is_not_linear_is_laid_down_in_python():
    """Keys in a cache with room for more, and offsets as many as there are."""
    room = torch.randn(2, 2, 400, 16)
    for m, offsets in ((70, 11), (70, 11), (70, 11), (71, 13), (73, 13), (80, 13), (81, 13), (90, 13)):
        rows = torch.randn(2, 4, 1, 16), room[:, :, :m], torch.randn(2, 2, m, 16)
        given = {"bias": torch.randn(4, offsets)}
        assert torch.equal(fastpe.torch.attention(*rows, **given), the_long_way(*rows, **given))
    rows = torch.randn(2, 4, 1, 16), room[:, :, :95], torch.randn(2, 2, 95, 16)
    assert torch.equal(only_compiled(rows, given, *IN_PYTHON), the_long_way(*rows, **given))
    for k in (room[:, :, :95].contiguous(), room[:, :, 1:96], room[:, :1, :95].expand(2, 2, 95, 16)):
        again_rows = rows[0], k, rows[2]
        assert torch.equal(fastpe.torch.attention(*again_rows, **given), the_long_way(*again_rows, **given))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["nothing", "cells", "turns"])
def test_a_cache_with_room_for_more_may_follow_one_without(name, dtype):
    for m in (70, 70, 71, 72):
        rows, given = call_of(name, m, dtype)
        fastpe.torch.attention(*rows, **given)
    for m in (73, 71, 90):
        (q, k, v), given = call_of(name, m, dtype)
        room = torch.cat([k, k], dim=2)[:, :, :m], torch.cat([v, v], dim=2)[:, :, :m]
        for rows in ((q, *room), (q, k, room[1]), (q, room[0], v)):
            assert torch.equal(fastpe.torch.attention(*rows, **given), the_long_way(q, k, v, **given))


def test_models_may_take_turns():
    """One with other heads, and one that sees the last keys alone."""
    for m in range(70, 80):
        for heads, keys in ((4, m), (2, m + 5), (4, 60)):
            rows = torch.randn(2, heads, 1, 16), torch.randn(2, 2, keys, 16), torch.randn(2, 2, keys, 16)
            right = the_long_way(*rows)
            ways = IN_PYTHON[:2] if m > 72 else ()
            found = only_compiled(rows, {}, *ways) if m > 70 else fastpe.torch.attention(*rows)
            assert torch.equal(found, right)
        if m == 70:
            for heads in (4, 2):
                fastpe.torch.attention(torch.randn(2, heads, 1, 16), *torch.randn(2, 2, 2, 70, 16))


@pytest.mark.parametrize(
    "other",
    [
        ((3, 4, 1), (3, 2, 75), (3, 2, 75)), ((2, 4, 1), (2, 4, 75), (2, 4, 75)), ((2, 4, 1), (2, 2, 75), (2, 2, 74)),
        ((2, 4, 3), (2, 2, 2), (2, 2, 2)), ((2, 4, 1), (2, 2, 0), (2, 2, 0)),
    ],
    ids=str,
)  # fmt: skip
def test_calls_of_other_sizes_are_others(other):
    for m in (70, 70, 71, 72):
        rows, given = call_of("nothing", m, torch.float32)
        fastpe.torch.attention(*rows, **given)
    rows = [torch.randn(*sizes, 16) for sizes in other]
    if rows[1].shape != rows[2].shape:
        with pytest.raises(ValueError, match="v must"):
            fastpe.torch.attention(*rows)
    else:
        assert torch.equal(fastpe.torch.attention(*rows), the_long_way(*rows))


def test_numbers_that_attention_does_not_take_are_errors():
    for m in (70, 70, 71, 72):
        rows, given = call_of("keys", m, torch.float32)
        fastpe.torch.attention(*rows, **given)
    rows, given = call_of("keys", 75, torch.float32)
    with pytest.raises(ValueError, match="lengths of keys must lie"):
        fastpe.torch.attention(*rows, **(given | {"lengths": torch.tensor([76, 9])}))
    given["key_offset"][0, 0, 74] = torch.inf
    with pytest.raises(ValueError, match="key_offset must be finite"):
        fastpe.torch.attention(*rows, **given)


def test_a_mask_for_all_samples_is_not_read_as_one_of_each_sample():
    """Their strides lie on one line of the number of keys, on which one is copied first and the other is not."""
    draw = torch.Generator().manual_seed(0)
    for m, shared in ((9, True), (12, True), (8, False), (12, True), (9, True), (11, False), (9, True)):
        q = torch.randn(2, 2, 4, 8, generator=draw).transpose(1, 2)
        k, v = torch.randn(2, 2, 4, m, 8, generator=draw)
        seen = torch.rand(2, 1, 2, m, generator=draw) < 0.6
        seen[..., 0] = True
        mask = seen[:1].expand(2, -1, -1, -1) if shared else seen
        right = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        torch.testing.assert_close(fastpe.torch.attention(q, k, v, mask=mask), right, rtol=0, atol=1e-5)
