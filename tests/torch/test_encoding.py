"""`fastpe.torch.Encoding`: slots and gradients of every encoding are those of `fastpe.build` and `fastpe.pull`."""

import copy

import numpy as np
import pytest

import fastpe
from fastpe.encodings import registry
from fastpe.encodings.slots import SLOTS

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from fastpe.torch import Encoding, attention  # noqa: E402 - only where PyTorch is

SIZES = {"dim": 24, "heads": 2, "train_length": 16}
CAUSAL = ("fire", "xpos", "sandwich", "cope", "hard_alibi")
FILLING = [name for name in fastpe.list_encodings() if registry.get(name).gate is None]


def made(name, dtype=torch.float64, **options):
    return Encoding(name, **SIZES, causal=name in CAUSAL, dtype=dtype, **options)


def values(encoding):
    return {name: value.detach().numpy() for name, value in encoding.named_parameters()}


def kind(dtype):
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [*FILLING, "t5+alibi+wavelet", "huang1+kerple_log"])
def test_slots_and_gradients_are_those_of_fastpe(name, dtype):
    encoding = made(name, dtype)
    request = {**SIZES, "causal": name in CAUSAL, "dtype": kind(dtype)}
    first = fastpe.init(name, **request)
    assert list(encoding.state_dict()) == list(first)
    assert dict(encoding.named_parameters()).keys() == first.keys()
    for key, value in values(encoding).items():
        np.testing.assert_array_equal(value, first[key])
    slots, right = encoding(9), fastpe.build(name, 9, **request)
    assert list(slots) == list(right)
    dslots = {}
    for slot, value in slots.items():
        if not SLOTS[slot].dtype:
            assert value == right[slot]
            continue
        np.testing.assert_array_equal(value.detach(), right[slot])
        assert value.dtype == torch.from_numpy(right[slot]).dtype
        if value.is_floating_point():
            dslots[slot] = torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(4))
    learned = {slot: dslot for slot, dslot in dslots.items() if slots[slot].requires_grad}
    assert bool(learned) == bool(first)
    if learned:
        torch.autograd.backward([slots[slot] for slot in learned], [*learned.values()])
        exact = fastpe.pull(name, 9, {slot: each.numpy() for slot, each in dslots.items()}, params=first, **request)
        for key in first:
            np.testing.assert_array_equal(encoding.get_parameter(key).grad, exact[key])


def test_positions_and_a_start():
    encoding = made("rope")
    positions = torch.tensor([[5.0, 1.5, 3.0], [0.0, 1.0, 9.0]])
    right = fastpe.build("rope", 3, **SIZES, positions=positions.numpy(), dtype="float64")["angles"]
    np.testing.assert_array_equal(encoding(3, positions)["angles"], right)
    shifted = fastpe.build("rope", 3, **SIZES, start=4, dtype="float64")["angles"]
    np.testing.assert_array_equal(encoding(3, start=4)["angles"], shifted)
    q = torch.randn(2, 2, 3, 12)
    assert attention(q, q, q, **encoding(3, positions)).shape == q.shape


def test_slots_without_a_gradient_from_above_count_as_zero():
    encoding = made("transformer_xl")
    encoding(5)["bias"].sum().backward()
    assert encoding.v.grad.abs().sum() > 0
    np.testing.assert_array_equal(encoding.u.grad, 0)


def test_only_what_is_asked_for_gets_a_gradient():
    encoding = made("kerple_log")
    encoding.r2.requires_grad_(False)
    encoding(5)["bias"].sum().backward()
    assert encoding.r2.grad is None
    right = made("kerple_log")
    right(5)["bias"].sum().backward()
    np.testing.assert_array_equal(encoding.r1.grad, right.r1.grad)


def test_states_are_kept_copied_and_loaded(tmp_path):
    encoding, other = made("t5+huang1"), made("t5+huang1", seed=5)
    assert not other.get_parameter("t5.table").equal(encoding.get_parameter("t5.table"))
    torch.save(encoding.state_dict(), tmp_path / "state")
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    for each in (other, copy.deepcopy(encoding)):
        assert each(7)["bias"].equal(encoding(7)["bias"])
    assert "'t5+huang1', dim=24" in repr(encoding)


def test_half_precision_and_changes_of_dtype():
    encoding = made("t5+learned", torch.float32)
    slots = encoding.bfloat16()(5)
    assert (slots["table"].dtype, slots["bias"].dtype) == (torch.bfloat16, torch.float32)
    (slots["table"].sum() + slots["bias"].sum()).backward()
    assert {x.grad.dtype for x in encoding.parameters()} == {torch.bfloat16}
    assert encoding.double()(5)["bias"].dtype == torch.float64
    q = torch.randn(1, 2, 5, 12).bfloat16()
    assert attention(q, q, q, **made("rope+t5", torch.float32).bfloat16()(5)).dtype == torch.bfloat16


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match=r"dtype must be torch.float32 or torch.float64, not torch.float16"):
        made("alibi", torch.float16)
    with pytest.raises(ValueError, match="alibii"):
        made("alibii")
    with pytest.raises(TypeError, match="table is added to the embeddings"):
        attention(*torch.zeros(3, 1, 2, 5, 12), **made("sinusoidal")(5))
    with pytest.raises(fastpe.BeyondTrainingLength):
        made("learned")(17)
    with pytest.raises(ValueError, match=r"positions must have shape \(3,\)"):
        made("rope")(3, torch.zeros(4))
    with pytest.raises(TypeError, match="an encoding must be in CPU memory, not on the device meta"):
        made("t5").to("meta")(4)


@pytest.mark.parametrize("name", sorted({*fastpe.list_encodings()} - {*FILLING}))
def test_encodings_of_gates_are_refused(name):
    """It would be a module that does nothing."""
    with pytest.raises(ValueError, match=f"^name must be of encodings that fill slots, not '{name}', whose gates"):
        Encoding(f"alibi+{name}", dim=8, heads=2, train_length=4, causal=True)


@pytest.mark.parametrize("name", ["kerple_log", "transformer_xl", "rope_mixed"])
def test_gradients_are_those_of_pytorchs_checker(name):
    encoding = Encoding(name, dim=8, heads=2, train_length=6, dtype=torch.float64)
    q = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    keys = [name for name, _ in encoding.named_parameters()]

    def function(*parameters):
        return torch.func.functional_call(Attending(encoding), {f"encoding.{key}": x for key, x in
                                                                zip(keys, parameters, strict=True)}, (q,))  # fmt: skip

    assert torch.autograd.gradcheck(function, tuple(x.detach().clone().requires_grad_() for x in encoding.parameters()))


class Attending(torch.nn.Module):
    def __init__(self, encoding):
        super().__init__()
        self.encoding = encoding

    def forward(self, q):
        return attention(q, q, q, **self.encoding(q.shape[2]))


def test_training_moves_parameters_towards_a_target():
    torch.manual_seed(0)
    encoding = Encoding("t5", dim=8, heads=2, train_length=8)
    q = torch.randn(4, 2, 8, 4)
    target = attention(q, q, q, bias=-torch.arange(-7, 8).abs() * torch.ones(2, 1), scale=1.0)
    optimiser = torch.optim.Adam(encoding.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        losses.append((attention(q, q, q, **encoding(8)) - target).square().mean())
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < losses[0] / 20
