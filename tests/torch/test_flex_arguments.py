"""`flex_attention`: errors with PyTorch's types, one for each wrong use, and modifications that cannot be traced."""

import functools
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from flex_mods import causal  # noqa: E402 - only where the peers are
from torch.nn.attention.flex_attention import AuxRequest  # noqa: E402

from fastpe.torch import create_block_mask, flex_attention, flex_report  # noqa: E402

Q = torch.randn(2, 4, 20, 8, generator=torch.Generator().manual_seed(0))
BLOCK = create_block_mask(causal, None, None, 20, 20)


def refused(error, match, *given, **options):
    with pytest.raises(error, match=match):
        flex_attention(*given, **options)


def test_tensors():
    refused(TypeError, r"key must be a torch.Tensor, not ndarray", Q, Q.numpy(), Q)
    refused(NotImplementedError, r"NYI: query must be a 4D tensor, not one with 3 axes", Q[0], Q, Q)
    warnings.simplefilter("ignore")  # PyTorch warns of nested tensors
    nested = torch.nested.nested_tensor([Q[0], Q[0, :, :5]])
    refused(NotImplementedError, r"value must be a dense tensor, not a nested one", Q, Q, nested)
    refused(ValueError, r"query must be in CPU memory, not on the device meta", Q.to("meta"), Q, Q)
    refused(ValueError, r"query must have floats, not torch.int64", Q.long(), Q, Q)
    refused(ValueError, r"value must have the dtype of query, torch.float32, not torch.float64", Q, Q, Q.double())


def test_shapes():
    refused(ValueError, r"query and key must have one width, not 8 and 7", Q, Q[..., :7], Q)
    refused(ValueError, r"key and value must have equal first axes", Q, Q, Q[:, :, :5])
    refused(ValueError, r"query has 4 heads and key 2: try enable_gqa=True", Q, Q[:, :2], Q[:, :2])
    refused(ValueError, r"heads of query, 4, must be a multiple of", Q, Q[:, :3], Q[:, :3], enable_gqa=True)
    refused(ValueError, r"query has 2 samples and key 1", Q, Q[:1], Q[:1])
    refused(ValueError, r"query has 2 samples and key 1", Q, Q[:1], Q[:1], block_mask=BLOCK)


def test_block_masks():
    refused(TypeError, r"block_mask must be a BlockMask, not function", Q, Q, Q, block_mask=causal)
    refused(RuntimeError, r"Cannot use mask_mod from a sliced BlockMask", Q, Q, Q, block_mask=BLOCK[:, :, :1])
    advice = r"block_mask is for 20 queries and 20 keys, not for 10 and 10: .* block_mask._adjust\(10, 10\)"
    refused(ValueError, advice, *[Q[:, :, :10]] * 3, block_mask=BLOCK)
    refused(ValueError, r"not for 40 and 40: create a new one$", *[Q.repeat(1, 1, 2, 1)] * 3, block_mask=BLOCK)
    refused(
        ValueError, r"block_mask is for 3 heads, not for 4", Q, Q, Q, block_mask=create_block_mask(causal, 1, 3, 20, 20)
    )
    t = torch.zeros(20, requires_grad=True)
    learned = create_block_mask(lambda b, h, q, k: t[q] >= 0, None, None, 20, 20, separate_full_blocks=False)
    refused(ValueError, r"mask_mod '<lambda>' must not capture tensors that require gradients", Q, Q, Q, None, learned)


def test_options():
    both = {"return_lse": True, "return_aux": AuxRequest(lse=True)}
    refused(ValueError, r"return_lse and return_aux cannot be given together", Q, Q, Q, **both)
    refused(NotImplementedError, r"max_scores is not available", Q, Q, Q, return_aux=AuxRequest(max_scores=True))
    refused(ValueError, r"BACKEND must be one of .* not 'X'", Q, Q, Q, kernel_options={"BACKEND": "X"})
    refused(ValueError, r"BACKEND 'FLASH' needs a GPU", Q, Q, Q, kernel_options={"BACKEND": "FLASH"})
    refused(ValueError, r"scale must be finite, not nan", Q, Q, Q, scale=float("nan"))
    refused(TypeError, r"scale must be a number, not '1'", Q, Q, Q, scale="1")
    refused(ValueError, r"fallback must be chunks or error, not 'no'", Q, Q, Q, fallback="no")
    refused(TypeError, r"return_aux must be an AuxRequest, not bool", Q, Q, Q, return_aux=True)
    refused(TypeError, r"kernel_options must be a dict, not str", Q, Q, Q, kernel_options="FLASH")
    refused(ValueError, r"score_mod 'square' has no form of slots: the score goes through aten.mul", Q, Q, Q, square,
            fallback="error")  # fmt: skip
    assert flex_attention(Q, Q, Q, kernel_options={"BLOCK_M": 64}).equal(flex_attention(Q, Q, Q))


def test_options_of_reports():
    with pytest.raises(TypeError, match="unexpected keyword argument 'kernel_option'"):
        flex_report(Q, Q, Q, kernel_option={})
    for wrong in ({"fallback": "no"}, {"kernel_options": {"BACKEND": "FLASH"}}):
        with pytest.raises(ValueError, match=f"{'fallback' if 'fallback' in wrong else 'BACKEND'}"):
            flex_report(Q, Q, Q, **wrong)
    assert flex_report(Q, Q, Q, square, fallback="error").way == "fallback"


def test_the_warning_of_return_lse_points_to_the_call():
    for call in (flex_attention, flex_report):
        with pytest.warns(FutureWarning, match="use return_aux") as caught:
            call(Q, Q, Q, return_lse=True)
        assert [each.filename for each in caught] == [__file__]


@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler warns of on its way
def test_options_are_checked_under_the_compiler():
    for options, match in (
        ({"fallback": "no"}, "fallback must be"),
        ({"kernel_options": {"BACKEND": "FLASH"}}, "needs a GPU"),
        ({"return_aux": AuxRequest(max_scores=True)}, "max_scores is not available"),
    ):
        for whole in (True, False):
            torch.compiler.reset()  # after an error, it runs the function as it is
            run = torch.compile(lambda q, options=options: flex_attention(q, q, q, **options), fullgraph=whole,
                                backend="eager")  # fmt: skip
            with pytest.raises(Exception, match=match):
                run(Q)
    run = torch.compile(lambda q: flex_attention(q, q, q, kernel_options={"BLOCK_M": 64}, return_lse=True),
                        fullgraph=True, backend="eager")  # fmt: skip
    for x, y in zip(run(Q), flex_attention(Q, Q, Q, return_lse=True), strict=True):
        assert x.equal(y)


def square(s, b, h, q, k):
    return s * s


TABLE = torch.zeros(20)


def control(s, b, h, q, k):
    return s if q > k else s * 2


def draws(s, b, h, q, k):
    return s + torch.rand(())


def writes(s, b, h, q, k):
    return s.add_(1)


def writes_to_a_captured_tensor(s, b, h, q, k):
    TABLE.add_(1)
    return s


def no_tensor(s, b, h, q, k):
    return 1.0


def vector(s, b, h, q, k):
    return s + TABLE


def drops(s, b, h, q, k):
    return torch.nn.functional.dropout(s, 0.5)


@pytest.mark.parametrize("wrap", [lambda mod: mod, functools.partial], ids=["function", "partial"])
@pytest.mark.parametrize(("mod", "match"), [
    (control, r"must not read the values of its arguments in Python, as `if`, int\(\) .* do: use torch.where"),
    (draws, r"must not draw random numbers, as aten.rand.default does"),
    (writes, r"must not write to tensors, as aten.add_.Tensor does"),
    (writes_to_a_captured_tensor, r"must not write to tensors, as aten.add_.Tensor does"),
    (drops, r"must not (draw random numbers|write to tensors), as aten.bernoulli_"),
    (no_tensor, r"must return a scalar tensor, not <class 'float'>"),
    (vector, r"must return a scalar tensor, not a tensor of shape \(20,\)"),
])  # fmt: skip
def test_mods_that_cannot_be_traced(mod, match, wrap):
    name = mod.__name__ if wrap is not functools.partial else "partial"
    refused(ValueError, rf"^score_mod '{name}' {match}", Q, Q, Q, wrap(mod))
    assert TABLE.eq(0).all()
    if mod is control:
        with pytest.raises(ValueError, match=r"^mask_mod 'control' must not read"):
            create_block_mask(functools.wraps(mod)(lambda b, h, q, k: control(b, b, h, q, k)), None, None, 5, 5)


def test_mods_of_the_wrong_kind():
    refused(TypeError, r"score_mod must be callable, not float", Q, Q, Q, 0.5)
    refused(TypeError, r"positional argument", Q, Q, Q, causal)


def test_transforms_and_second_derivatives_are_refused():
    def loss(q):
        return flex_attention(q, Q, Q, lambda s, b, h, q, k: s + (k - q)).square().sum()

    for transformed in (torch.func.grad(loss), torch.vmap(loss)):
        with pytest.raises(RuntimeError, match=r"flex_attention does not support torch.func and torch.vmap"):
            transformed(Q)
    q = Q.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(q), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"fastpe.torch has no second derivatives"):
        gradient.sum().backward()


def test_reports_in_words():
    t = torch.randn(20, 20)
    assert str(flex_report(Q, Q, Q, lambda s, b, h, q, k: 2 * torch.tanh(s / 2), BLOCK)) == (
        "slots: fastpe's kernels, in O(N) memory\n"
        "slots: scale, softcap\n"
        "hidden keys: a span of keys for each query"
    )  # fmt: skip
    assert str(flex_report(Q, Q, Q, lambda s, b, h, q, k: s + t[q, k] * h)) == (
        "chunks: fastpe's kernels, 20 queries at a time\n"
        "slots: mask, scale\n"
        "because: aten.mul.Tensor of query and key is added"
    )
    assert str(flex_report(Q, Q, Q, lambda s, b, h, q, k: s + t[0, (q * k) % 20])) == (
        "slots: fastpe's kernels, with arrays of all queries and keys\n"
        "slots: index, scale, values\n"
        "because: query and key select a number from a table"
    )
    assert str(flex_report(Q, Q, Q, square)) == (
        "fallback: PyTorch, 20 queries at a time\nbecause: the score goes through aten.mul.Tensor"
    )
