"""`patch`: caches, dtypes and arguments of layers, as transformers passes them."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

from small_models import PATCHED, inputs, made  # noqa: E402 - only where the peers are

from fastpe.torch import patch, patches  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")


def theirs(name):
    return made(name, "sdpa" if name.startswith("falcon") else "eager")  # Falcon's eager attention counts ALiBi twice


def layer_of(model):
    return next(module for module in model.modules() if type(module).__name__ in patches._FORWARDS)


def in_chunks(model, ids, mask):
    """Logits of words in three forward passes with a cache."""
    field = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    cache, logits = None, []
    for start, end in ((0, 6), (6, 9), (9, 11)):
        out = model(ids[:, start:end], attention_mask=mask[:, :end], use_cache=True, **{field: cache})
        cache = getattr(out, field)
        logits.append(out.logits)
    return torch.cat(logits, 1), cache


@pytest.mark.parametrize("padding", ["", "left"])
@pytest.mark.parametrize("name", PATCHED)
def test_words_in_chunks_with_a_cache_give_the_logits_of_all_words_at_once(name, padding):
    given = inputs(name, padding)
    mask = given.get("attention_mask", torch.ones_like(given["input_ids"]))
    model = patch(made(name))
    found, cache = in_chunks(model, given["input_ids"], mask)
    right, _ = in_chunks(theirs(name), given["input_ids"], mask)
    assert cache.get_seq_length() == 11
    torch.testing.assert_close(found * mask[..., None], right * mask[..., None], rtol=0, atol=5e-6)
    if not padding:
        torch.testing.assert_close(found, model(**given).logits, rtol=0, atol=5e-6)


@pytest.mark.parametrize("name", PATCHED)
def test_float64_is_computed_in_float64(name, monkeypatch):
    given = inputs(name, "left")
    found = patch(made(name).double())(**given).logits
    model = theirs(name).double()
    monkeypatch.setattr(torch.Tensor, "float", lambda x: x)  # eager attention rounds its softmax to float32
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim))
    right = model(**given).logits
    shown = given["attention_mask"][..., None]
    torch.testing.assert_close(found * shown, right * shown, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", PATCHED)
def test_a_layer_refuses_arguments_that_it_does_not_know(name):
    layer = layer_of(patch(made(name)))
    kind = type(layer).__name__
    x = torch.zeros(1, 3, 32)
    given = {"mpt": (x, None), "bloom": (x, x, torch.zeros(4, 1, 3), None)}.get(name, (x, torch.zeros(4, 1, 3), None))
    given = (x, None, None) if name in ("falcon_rotary", "falcon_grouped") else given
    with pytest.raises(TypeError, match=rf"{kind} got an argument 'new_cache' that fastpe does not know"):
        layer(*given, new_cache=object())
    with pytest.raises(ValueError, match=f"{kind} asks for output_attentions"):
        layer(*given, output_attentions=True)


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon"])
def test_a_layer_whose_arguments_have_new_names_is_refused(name, monkeypatch):
    model = made(name)
    kind = type(layer_of(model))

    def forward(self, hidden_states, key_value_store=None, **kwargs):
        raise NotImplementedError

    monkeypatch.setattr(kind, "forward", forward)
    with pytest.raises(ValueError, match=f"{kind.__name__} of the installed transformers takes an argument 'key_value"):
        patch(model)
    assert type(layer_of(model)) is kind


@pytest.mark.parametrize("name", PATCHED)
def test_attention_weights_are_refused(name):
    model = patch(made(name))
    with pytest.raises(ValueError, match="asks for output_attentions"):
        model(**inputs(name), output_attentions=True)
    model.config.output_attentions = True
    with pytest.raises(ValueError, match="asks for output_attentions"):
        model(**inputs(name))


def test_mpt_takes_its_cache_by_both_names():
    layer = layer_of(patch(made("mpt")))
    x = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(0))
    caches = [transformers.DynamicCache(), transformers.DynamicCache()]
    one, other = (layer(x, None, **{key: c})[0] for key, c in zip(("cache", "past_key_values"), caches, strict=True))
    assert one.equal(other)
    assert [each.get_seq_length() for each in caches] == [3, 3]
