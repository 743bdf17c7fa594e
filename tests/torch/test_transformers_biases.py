"""Biases of positions of T5's kin: by offset, without the dense one; and those that follow no offset."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

from small_models import inputs, made  # noqa: E402 - only where the peers are

from fastpe.torch import attention, patches, register_transformers  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")
KIN = {
    "t5": ("T5ForConditionalGeneration", {}),
    "mt5": ("MT5ForConditionalGeneration", {}),
    "umt5": ("UMT5ForConditionalGeneration", {}),
    "longt5": ("LongT5ForConditionalGeneration", {"local_radius": 3}),
    "switch": ("SwitchTransformersForConditionalGeneration", {"num_experts": 2}),
    "udop": ("UdopForConditionalGeneration", {"image_size": 32, "patch_size": 16}),
}


@pytest.fixture(autouse=True)
def _registered():
    register_transformers()


def of_kin(name, attends):
    kind, more = KIN[name]
    kind = getattr(transformers, kind)
    settings = {"vocab_size": 37, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
                "dropout_rate": 0.0, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}  # fmt: skip
    torch.manual_seed(0)
    model = kind._from_config(kind.config_class(**settings, **more), attn_implementation=attends)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()  # whose results are as near as float64, however steep the function


def given_to(name, samples):
    given = {key: value[-samples:] for key, value in inputs("t5", "right").items()}
    if name == "udop":  # places on a page
        given["bbox"] = torch.rand(samples, 11, 4, generator=torch.Generator().manual_seed(2)).sort(-1).values
    return given


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("name", KIN)
def test_outputs_and_gradients_of_t5s_kin(name, samples):
    """With one sample UDOP's bias of places on a page has the shape of a bias of offsets."""
    found = []
    for attends in ("eager", "fastpe"):
        model = of_kin(name, attends)
        logits = model(**given_to(name, samples)).logits
        logits.square().sum().backward()
        gradients = {key: x.grad for key, x in model.named_parameters() if "bias" in key and x.grad is not None}
        found.append((logits, gradients))
    (right, right_gradients), (logits, gradients) = found
    torch.testing.assert_close(logits, right, rtol=0, atol=1e-10)
    assert gradients.keys() == right_gradients.keys()
    assert len(gradients) > 1
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, right_gradients[key], rtol=0, atol=1e-8, msg=key)


@pytest.mark.parametrize("name", [name for name in KIN if name != "udop"])
def test_no_dense_bias_is_made(name):
    model = of_kin(name, "fastpe")
    model(**given_to(name, 2))
    module = next(x for x in model.decoder.modules() if hasattr(x, "compute_bias"))
    row = module.compute_bias(4, 7, past_seen_tokens=3)
    assert row.shape == (1, 4, 1, 10)
    model.set_attn_implementation("eager")
    dense = module.compute_bias(4, 7, past_seen_tokens=3)
    offsets = torch.arange(7) - torch.arange(4)[:, None]
    assert dense.equal(row[0, :, 0, offsets + 3][None])


def test_training_with_checkpoints():
    """Blocks that are run again hand on the same row."""
    found = []
    for attends in ("eager", "fastpe"):
        model = of_kin("t5", attends).train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model(**given_to("t5", 2)).logits.square().sum().backward()
        found.append(model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad)
    right, gradient = found
    torch.testing.assert_close(gradient, right, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon"])
@pytest.mark.parametrize("hidden", [(), (0, 1, 2), (8, 9, 10), (4,)])
def test_alibi_goes_by_offset_where_no_word_is_missing_among_the_others(name, hidden, monkeypatch):
    """Positions of BLOOM and Falcon count the words that are there."""
    asked = []

    def attending(*tensors, **given):
        asked.append(given)
        return attention(*tensors, **given)

    monkeypatch.setattr(patches, "attention", attending)
    given = inputs(name)
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    given["attention_mask"][0, list(hidden)] = 0
    right = made(name, "sdpa" if name == "falcon" else "eager")(**given).logits
    found = patches.patch(made(name))(**given).logits
    shown = given["attention_mask"][..., None]
    torch.testing.assert_close(found * shown, right * shown, rtol=0, atol=3e-6)
    assert all(("bias" in each) is (name != "falcon" and hidden != (4,)) for each in asked)


def test_numbers_of_keys_that_are_rounded_are_not_taken_for_those_of_offsets():
    places = torch.arange(300.0)
    numbers = (torch.tensor([0.3, 0.7])[:, None] * places)[None, :, None]
    bias = patches._by_offset(numbers, None)["bias"]
    torch.testing.assert_close(bias[:, 299:], numbers[0, :, 0])
    assert patches._by_offset(numbers.bfloat16(), None) == {}
    assert patches._by_offset(numbers.where(places < 200, 0.0), None) == {}
    seen = torch.tensor([0, 200]).expand(1, 300, 2)
    torch.testing.assert_close(patches._by_offset(numbers.where(places < 200, 0.0), seen)["bias"], bias)
