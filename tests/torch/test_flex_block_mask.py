"""`create_block_mask` compared with PyTorch's, and `flex_attention` with BlockMasks of all kinds."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from flex_mods import INF, causal, dense  # noqa: E402 - only where the peers are
from torch.nn.attention import flex_attention as pytorch  # noqa: E402
from torch.nn.attention.flex_attention import BlockMask  # noqa: E402

from fastpe.torch import create_block_mask, flex_attention, flex_report  # noqa: E402

N = 50


def drawn(b=1, h=2, n=N, m=N):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(b, h, size, 4, generator=generator) for size in (n, m, m))


def random_mask(b, h, q, k):
    return (q * 7 + k * 5 + h * 3 + b) % 4 != 0


MASKS = {
    "causal": causal,
    "random": random_mask,
    "of heads": lambda b, h, q, k: q - k <= 5 * h,
    "of samples": lambda b, h, q, k: (k <= 20 * b) & (q >= k),
    "nothing": lambda b, h, q, k: k < 0 * q,
    "everything": lambda b, h, q, k: k >= 0,
    "far tiles": lambda b, h, q, k: (q - k).abs() > 20,
}


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("size", [16, (16, 8), 128])
@pytest.mark.parametrize("name", MASKS)
def test_block_masks_are_those_of_pytorch(name, size, apart):
    for b, h in ((2, 3), (None, None)):
        given = (MASKS[name], b, h, N, N + 7, "cpu", size)
        found, right = create_block_mask(*given, separate_full_blocks=apart), pytorch.create_block_mask(
            *given, separate_full_blocks=apart
        )  # fmt: skip
        assert found.shape == right.shape
        assert found.BLOCK_SIZE == right.BLOCK_SIZE
        for each in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks"):
            x, y = getattr(found, each), getattr(right, each)
            assert (x is None and y is None) or (x.dtype == y.dtype and x.equal(y)), each


@pytest.mark.parametrize("size", [16, (16, 8)])
@pytest.mark.parametrize("name", MASKS)
def test_keys_that_are_seen(name, size):
    given = drawn(2, 3)
    block = create_block_mask(MASKS[name], 2, 3, N, N, BLOCK_SIZE=size)
    right = dense(*given, None, MASKS[name])[0].float()
    torch.testing.assert_close(flex_attention(*given, block_mask=block), right, rtol=0, atol=2e-6)


def test_lists_of_tiles_alone_are_a_mask():
    """A tile in no list is hidden, and mask_mod is not asked in full tiles."""
    counts, columns = torch.tensor([[[1, 2]]]), torch.tensor([[[[1, 0], [0, 1]]]])
    given = drawn(n=32, m=32)
    tiles = BlockMask.from_kv_blocks(counts.int(), columns.int(), BLOCK_SIZE=16)
    right = dense(*given, None, lambda b, h, q, k: (q >= 16) | (k >= 16))[0].float()
    torch.testing.assert_close(flex_attention(*given, block_mask=tiles), right, rtol=0, atol=2e-6)
    asked = BlockMask.from_kv_blocks(
        torch.tensor([[[0, 1]]]).int(), torch.tensor([[[[0, 1], [1, 0]]]]).int(),
        torch.tensor([[[1, 1]]]).int(), torch.tensor([[[[0, 1], [0, 1]]]]).int(), BLOCK_SIZE=16, mask_mod=causal,
    )  # fmt: skip
    right = dense(*given, None, lambda b, h, q, k: ((q < 16) & (k < 16)) | ((q >= 16) & ((k < 16) | (q >= k))))[0]
    torch.testing.assert_close(flex_attention(*given, block_mask=asked), right.float(), rtol=0, atol=2e-6)


def test_a_mask_mod_that_reads_a_table_and_is_asked_in_no_tile():
    tiles, given = torch.arange(18).reshape(2, 3, 3) % 4 != 0, drawn(n=48, m=48)

    def mask(b, h, q, k):
        return tiles[h, q // 16, k // 16]

    block = create_block_mask(mask, None, 2, 48, 48, BLOCK_SIZE=16)
    right = dense(*given, None, mask)[0].float()
    torch.testing.assert_close(flex_attention(*given, block_mask=block), right, rtol=0, atol=2e-6)


def test_a_cropped_mask_and_keys_of_one_sample():
    whole = create_block_mask(causal, None, None, N, N, BLOCK_SIZE=16)
    given = drawn(n=20, m=20)
    found = flex_attention(*given, block_mask=whole._adjust(20, 20))
    torch.testing.assert_close(found, dense(*given, None, causal)[0].float(), rtol=0, atol=2e-6)
    q, (_, k, v) = torch.randn(2, 2, N, 4), drawn()
    block = create_block_mask(MASKS["of samples"], 2, None, N, N, BLOCK_SIZE=16)
    right = dense(q, k.expand(2, -1, -1, -1), v.expand(2, -1, -1, -1), None, MASKS["of samples"])[0].float()
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=block), right, rtol=0, atol=2e-6)


def test_a_score_mod_may_hide_keys_as_well_as_a_block_mask():
    given = drawn()
    block = create_block_mask(random_mask, None, None, N, N, BLOCK_SIZE=16)

    def mod(s, b, h, q, k):
        return torch.where(q - k < 9, s + 0.1 * (q - k), -INF)

    right = dense(*given, mod, random_mask)[0].float()
    torch.testing.assert_close(flex_attention(*given, mod, block), right, rtol=0, atol=2e-6)
    report = flex_report(*given, mod, block)
    assert report.spans
    assert report.masks


def test_the_spans_of_a_mask_are_kept(monkeypatch):
    block = create_block_mask(causal, None, None, N, N, BLOCK_SIZE=16)
    given = drawn()
    flex_attention(*given, block_mask=block)
    monkeypatch.setattr("fastpe.torch.mods.ways.Tiles", None)
    flex_attention(*given, block_mask=block)
    block.kv_num_blocks += 0  # another version
    with pytest.raises(TypeError):
        flex_attention(*given, block_mask=block)


def test_arguments_that_need_a_gpu_are_refused():
    with pytest.raises(ValueError, match=r"device must be 'cpu', not 'meta'"):
        create_block_mask(causal, None, None, 5, 5, "meta")
    with pytest.raises(ValueError, match=r"compute_dq_write_order must be False"):
        create_block_mask(causal, None, None, 5, 5, compute_dq_write_order=True)
    with pytest.raises(ValueError, match=r"mask_mod '<lambda>' must return a bool tensor, not torch.int64"):
        create_block_mask(lambda b, h, q, k: q - k, None, None, 5, 5)


def test_wrong_sizes():
    for error, match, given in (
        (ValueError, r"Q_LEN must be at least 1, not 0", (None, None, 0, 5)),
        (TypeError, r"KV_LEN must be an integer, not 'a'", (None, None, 5, "a")),
        (ValueError, r"B must be at least 1, not 0", (0, None, 5, 5)),
        (TypeError, r"H must be an integer, not 1.5", (None, 1.5, 5, 5)),
        (ValueError, r"BLOCK_SIZE must be at least 1, not 0", (None, None, 5, 5, "cpu", 0)),
        (TypeError, r"BLOCK_SIZE must be an integer, not 'a'", (None, None, 5, 5, "cpu", (16, "a"))),
        (ValueError, r"BLOCK_SIZE must be one number or two, not \(1, 2, 3\)", (None, None, 5, 5, "cpu", (1, 2, 3))),
    ):
        with pytest.raises(error, match=match):
            create_block_mask(causal, *given)
