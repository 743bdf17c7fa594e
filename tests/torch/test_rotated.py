"""`fastpe.torch.rotated` on small random models of many families, against transformers' own attention."""

import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

from small_models import WORDS, inputs, made  # noqa: E402 - only where the peers are

from fastpe.torch import head_scores, register_transformers, rotated  # noqa: E402
from fastpe.torch.rotary import is_rotated  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": None,
}  # fmt: skip
FITTING = (
    "cohere", "cohere2", "ernie4_5", "exaone4", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "gpt_neox", "gpt_oss",
    "granite", "helium", "llama", "ministral", "mistral", "mixtral", "modernbert-decoder", "nemotron", "olmo", "olmo2",
    "olmo3", "persimmon", "phi", "phi3", "qwen2", "qwen3", "smollm3", "stablelm", "starcoder2",
)  # fmt: skip
OWN_SIZES = {
    "gpt_oss": {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 5},
    "modernbert-decoder": {"local_attention": 5},
    "gemma3_text": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 2},
    **{name: {"sliding_window": 5} for name in ("cohere2", "exaone4", "gemma2", "ministral", "olmo3")},
}


def model_of(family, **changed):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **OWN_SIZES.get(family, {}), **changed})
    eager = family in ("gemma2", "gpt_oss")  # whose sdpa has no soft cap or no sinks
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager" if eager else "sdpa", dtype=torch.float32
    )
    with torch.no_grad():
        for parameter in model.parameters():  # sharper attention than with initial weights
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def logits(model, tokens, **given):
    with torch.no_grad():
        return model(tokens, **given).logits


def off(found, right):
    """The largest error in units of the largest logit."""
    return float((found - right).abs().max() / right.abs().max())


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(3, WORDS, (2, 24), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def llama():
    register_transformers()
    return made("llama", "sdpa")


def check_own_positions(family, tokens):
    model = model_of(family)
    most = 2e-6 if family in ("exaone4", "olmo2", "olmo3") else 1e-6  # these normalise the outputs of attention
    right = logits(model, tokens)
    with rotated(model) as same:
        assert same is model
        assert off(logits(model, tokens), right) <= most
    with rotated(model, "self_extend", group=1, window=7):
        assert off(logits(model, tokens), right) <= most
    with rotated(model, "self_extend", group=3, window=3):
        changed = logits(model, tokens)
    assert off(changed, right) > 1e-3
    assert torch.equal(logits(model, tokens), right)


def test_own_positions_change_nothing(tokens):
    check_own_positions("gemma3_text", tokens)  # two rotary embeddings and windows


@pytest.mark.full("a minute for 30 families")
@pytest.mark.parametrize("family", FITTING)
def test_own_positions_change_nothing_in_any_family(family, tokens):
    check_own_positions(family, tokens)


@pytest.mark.parametrize("padding", ["", "left", "right"])
def test_padding(llama, padding):
    given = inputs("llama", padding)
    shown = given.get("attention_mask", torch.ones_like(given["input_ids"]))[..., None]
    right = llama(**given).logits * shown
    with rotated(llama):
        assert off(llama(**given).logits * shown, right) <= 1e-6


OPTIONS = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "output_logits": True,
           "return_dict_in_generate": True}  # fmt: skip


@pytest.mark.full("generates three times")
def test_a_sample_with_padding_on_the_left_is_as_without(llama):
    given = inputs("llama", "left")
    with rotated(llama, "self_extend", group=2, window=4):
        both = torch.stack(llama.generate(**given, **OPTIONS).logits)
        alone = torch.stack(llama.generate(input_ids=given["input_ids"][:1, 3:], **OPTIONS).logits)
    assert off(both[:, :1], alone) <= 1e-6


SCHEMES = {
    "self_extend": {"group": 2, "window": 3}, "rerope": {"window": 3}, "leaky_rerope": {"window": 3, "step": 2},
    "dual_chunk": {"chunk": 6, "local": 2}, "shifted": {"shift": 5, "window": 2},
    "lm_infinite": {"window": 4, "start": 1}, "streaming": {"start": 1, "recent": 4}, "rope_yarn": {"factor": 4.0},
}  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", ["mistral", "gemma2", "gpt_neox"])
def test_token_by_token_with_a_cache_is_as_at_once(family, scheme):
    model, given = made(family, "eager"), inputs(family)["input_ids"][:1]
    with rotated(model, scheme, **SCHEMES[scheme]):
        made_by = model.generate(input_ids=given, **OPTIONS)
        at_once = logits(model, made_by.sequences)[:, given.shape[1] - 1 : -1]
    assert off(torch.stack(made_by.logits, dim=1), at_once) <= 2e-6


def test_factors_of_frequencies_are_those_of_inv_freq(llama, tokens):
    keep = np.array([1.0, 0.0, 0.5, 1.0])
    inv_freq = llama.model.rotary_emb.inv_freq
    own = inv_freq.clone()
    inv_freq.mul_(torch.tensor(keep, dtype=torch.float32))
    right = logits(llama, tokens)
    inv_freq.copy_(own)
    with rotated(llama, keep=keep):
        assert off(logits(llama, tokens), right) <= 1e-6
    assert off(logits(llama, tokens), right) > 1e-5


def test_without_frequencies_a_model_sees_a_set_of_tokens(llama, tokens):
    swapped = tokens[:, [1, 0, *range(2, tokens.shape[1])]]
    with rotated(llama, keep=0.0):
        one_layer = llama.model.layers
        llama.model.layers = one_layer[:1]  # keys of a later layer know the order from the causal mask
        try:
            first, second = logits(llama, tokens), logits(llama, swapped)
        finally:
            llama.model.layers = one_layer
    assert off(first[:, 2:], second[:, 2:]) <= 1e-6


OF_TRANSFORMERS = {
    "rope_linear": {"rope_type": "linear", "factor": 3.0},
    "rope_yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "rope_llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64},
}  # fmt: skip


@pytest.mark.parametrize("scheme", OF_TRANSFORMERS)
def test_other_frequencies_are_those_of_transformers(llama, tokens, scheme):
    settings = OF_TRANSFORMERS[scheme]
    scaled = made("llama", "sdpa", rope_parameters={"rope_theta": 10000.0, **settings})
    own, right = logits(llama, tokens), logits(scaled, tokens)
    with rotated(llama, scheme, factor=settings["factor"]):
        assert off(logits(llama, tokens), right) <= 1e-6
    with rotated(scaled):
        assert off(logits(scaled, tokens), right) <= 1e-6
    with rotated(scaled, "rope"):  # takes the model's own scaling away
        assert off(logits(scaled, tokens), own) <= 1e-6
    assert off(own, right) > 1e-3


def test_frequencies_without_a_factor_follow_from_the_tokens_read(llama, tokens):
    with rotated(llama, "rope_linear", factor=2.0, train_length=12):
        right = logits(llama, tokens)
    with rotated(llama, "rope_linear", train_length=12):  # 24 tokens: twice the training length
        assert off(logits(llama, tokens), right) <= 1e-6


def test_bands_and_factors_together(llama, tokens):
    with rotated(llama, "rerope", window=64, keep=[1, 0, 1, 1]):
        found = logits(llama, tokens)
    with rotated(llama, keep=[True, False, True, True]):
        assert off(found, logits(llama, tokens)) <= 1e-6


def test_chosen_heads_alone_change(llama, tokens):
    chosen = torch.tensor([[False, True, False, False], [True, True, False, True]])
    before = head_scores(llama, tokens)["entropy"]
    with rotated(llama, keep=0.0, heads=chosen):
        first = head_scores(llama, tokens)["entropy"]
    assert (((first - before).abs() > 1e-6)[0] == chosen[0]).all()
    whole = np.ones((2, 4, 4))
    whole[chosen] = 0.0
    with rotated(llama, keep=whole):
        right = logits(llama, tokens)
    with rotated(llama, keep=0.0, heads=chosen):
        assert off(logits(llama, tokens), right) <= 1e-6
    with rotated(llama, "self_extend", group=3, window=2, heads=torch.zeros(1, dtype=torch.bool)):
        assert off(logits(llama, tokens), logits(llama, tokens)) == 0


def test_sinks_and_masks_of_chosen_heads():
    model, given = made("gpt_oss"), inputs("gpt_oss", "left")
    shown = given["attention_mask"][..., None]
    right = model(**given).logits * shown
    with rotated(model, "self_extend", group=1, heads=[True, False, False, True]):
        assert off(model(**given).logits * shown, right) <= 1e-6


def test_gradients(llama, tokens):
    found = []
    for context in (rotated(llama), rotated(llama, keep=np.ones((2, 4, 4)) * [[[1]], [[1]]])):
        llama.zero_grad()
        with context:
            llama(tokens, labels=tokens).loss.backward()
        found.append([x.grad.clone() for x in llama.parameters()])
    llama.zero_grad()
    llama(tokens, labels=tokens).loss.backward()
    for one, other in zip(found, ([x.grad for x in llama.parameters()],) * 2, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a - b).abs().max() <= 1e-6 * max(x.grad.abs().max() for x in llama.parameters())


def test_half_precision():
    model = made("llama", "sdpa").bfloat16()
    given = inputs("llama")
    right = model(**given).logits.float()
    with rotated(model):
        found = model(**given).logits
    assert found.dtype == torch.bfloat16
    assert off(found.float(), right) <= 0.05


@pytest.mark.full("PyTorch traces a model")
def test_a_compiled_caller_runs_the_model_as_it_is(llama, tokens):
    with rotated(llama, keep=0.0):
        right = logits(llama, tokens)
        torch.testing.assert_close(torch.compile(llama, backend="eager")(tokens).logits, right, rtol=0, atol=1e-5)


def state(model):
    """What a block of `rotated` changes."""
    module = __import__("sys").modules[type(model).__module__]
    return (
        module.apply_rotary_pos_emb, "forward" in vars(model.model), "forward" in vars(model.model.rotary_emb),
        [layer.self_attn.config._attn_implementation for layer in model.model.layers],
    )  # fmt: skip


def test_restored_after_the_block_and_after_errors(llama, tokens):
    right, before = logits(llama, tokens), state(llama)
    with rotated(llama, keep=0.0):
        assert state(llama) != before
    assert state(llama) == before
    with pytest.raises(ZeroDivisionError), rotated(llama, keep=0.0):
        raise ZeroDivisionError
    assert state(llama) == before
    with pytest.raises(ValueError, match="output_attentions"), rotated(llama):
        llama(tokens, output_attentions=True)
    assert state(llama) == before
    for wrong in ({"scheme": "none"}, {"keep": [1, 2, 3]}, {"heads": [True, False]}):
        with pytest.raises(ValueError, match=next(iter(wrong))), rotated(llama, **wrong):
            raise AssertionError
    assert state(llama) == before
    assert torch.equal(logits(llama, tokens), right)


def test_a_model_can_go_after_the_block():
    model = made("llama")
    with rotated(model):
        pass
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_module_that_is_removed_in_the_block_is_free_after_it():
    model = made("llama")
    with rotated(model):
        removed = model.model.layers[1]
        del model.model.layers[1]
    assert not is_rotated(removed)


def test_two_models_at_a_time(llama, tokens):
    other = made("llama", "sdpa", rope_parameters={"rope_type": "default", "rope_theta": 100.0})
    right, own = logits(llama, tokens), logits(other, tokens)
    with rotated(llama), rotated(other, "rope", base=10000.0):
        assert off(logits(llama, tokens), right) <= 1e-6
        assert off(logits(other, tokens), right) <= 1e-6
    with rotated(other, keep=0.0):
        assert torch.equal(logits(llama, tokens), right)
    assert torch.equal(logits(other, tokens), own)


def test_a_block_in_a_block_is_refused(llama):
    with rotated(llama):
        with pytest.raises(ValueError, match="LlamaModel is in another block"), rotated(llama.model):
            raise AssertionError
        with pytest.raises(ValueError, match="LlamaForCausalLM is in another block"), rotated(llama):
            raise AssertionError


WRONG = {
    "unknown scheme": ({"scheme": "selfextend"}, ValueError, "scheme must be None, one of 'dual_chunk', .*, not 'self"),
    "no rotary scheme": ({"scheme": "alibi"}, ValueError, "scheme must be"),
    "more than angles": ({"scheme": "xpos"}, ValueError, "scheme must be"),
    "other angles in other heads": ({"scheme": "ms_poe"}, ValueError, "rotates all heads"),
    "a list": ({"scheme": ["rope"]}, ValueError, r"scheme must be .*, not \['rope'\]"),
    "no text": ({"scheme": 3}, ValueError, "scheme must be .*, not 3"),
    "unknown option": ({"scheme": "self_extend", "grp": 2}, TypeError, "no option 'grp'; did you mean 'group'"),
    "wrong option": ({"scheme": "self_extend", "group": 0}, ValueError, "group must be at least 1"),
    "unknown option of an encoding": ({"scheme": "rope_yarn", "fctor": 2.0}, ValueError, "did you mean 'factor'"),
    "the model's own": ({"scheme": "rope", "dim": 8}, TypeError, "dim is not an option"),
    "option alone": ({"group": 2}, TypeError, "no option 'group' without a scheme"),
    "keep of another shape": ({"keep": [1, 2, 3]}, ValueError, r"keep .* = \(2, 4, 4\), not \(3,"),
    "keep without numbers": ({"keep": "all"}, TypeError, "keep"),
    "keep with nan": ({"keep": [1, 1, 1, np.nan]}, ValueError, "keep must be finite"),
    "heads of another shape": ({"heads": [True] * 3}, ValueError, r"heads .* = \(2, 4\), not \(3,\)"),
    "heads as numbers": ({"heads": [0, 3]}, TypeError, "heads must hold booleans"),
}  # fmt: skip


@pytest.mark.unsampled
@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(llama, case):
    given, kind, message = WRONG[case]
    with pytest.raises(kind, match=message), rotated(llama, **given):
        raise AssertionError


@pytest.mark.full("makes eight models")
def test_models_that_are_refused_at_once():
    checkpointing = made("llama").train()
    checkpointing.gradient_checkpointing_enable()
    compiled = made("llama")
    compiled.model.forward = torch.compile(compiled.model.forward, backend="eager")
    dynamic, longrope = (
        made("llama", rope_parameters={"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, **more})
        for kind, more in (
            ("dynamic", {}),
            ("longrope", {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 32}),
        )
    )
    cases = [
        (made("gpt2"), "GPT2LMHeadModel has no rotary embedding"),
        (made("bloom"), "BloomForCausalLM computes attention"),
        (made("falcon_rotary"), "FalconForCausalLM computes attention"), (dynamic, "'dynamic'"),
        (longrope, "'longrope'"), (checkpointing, "gradient checkpointing"), (torch.compile(made("llama")), "compiled"),
        (compiled, "its LlamaModel is"),
    ]  # fmt: skip
    for model, message in cases:
        with pytest.raises(ValueError, match=message), rotated(model):
            raise AssertionError
    with (
        pytest.raises(TypeError, match="not Linear"),
        rotated(torch.nn.Linear(2, 2)),
    ):
        raise AssertionError


CHANGED_LATER = {
    "deepseek_v3": "does not rotate pairs|changes or moves",
    "llama4_text": "changes or moves",
    "hunyuan_v1_dense": "changes or moves",
}


@pytest.mark.parametrize("family", CHANGED_LATER)
def test_families_that_are_refused_by_their_first_pass(family, tokens):
    model = made(family) if family == "deepseek_v3" else model_of(family)
    right = logits(model, tokens)
    with rotated(model), pytest.raises(ValueError, match=f"{type(model).__name__} .*({CHANGED_LATER[family]})"):
        logits(model, tokens)
    assert torch.equal(logits(model, tokens), right)


def test_passes_that_are_refused(llama, tokens):
    packed = torch.cat([torch.arange(10), torch.arange(14)])[None].expand(2, -1)
    with rotated(llama):
        with pytest.raises(ValueError, match="position_ids must be consecutive"):
            logits(llama, tokens, position_ids=packed)
        with pytest.raises(ValueError, match="static cache"):
            llama.generate(tokens, max_new_tokens=2, cache_implementation="static", disable_compile=True)
        with pytest.raises(ValueError, match="output_attentions"):
            logits(llama, tokens, output_attentions=True)
        assert logits(llama, tokens).isfinite().all()
    llama.set_attn_implementation("fastpe_rotated")
    with pytest.raises(ValueError, match=r"only inside of fastpe\.torch\.rotated"):
        logits(llama, tokens)
    llama.set_attn_implementation("sdpa")


def test_a_model_that_changes_the_cosines_is_refused(llama, tokens):
    original = type(llama.model.layers[0]).forward

    def forward(self, hidden_states, position_embeddings=None, **given):
        return original(self, hidden_states, position_embeddings=tuple(x + 0 for x in position_embeddings), **given)

    layer = llama.model.layers[0]
    layer.forward = forward.__get__(layer)
    try:
        with rotated(llama), pytest.raises(ValueError, match="changes what its rotary embedding returns"):
            logits(llama, tokens)
    finally:
        del layer.forward
