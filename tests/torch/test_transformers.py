"""Hugging Face's models with fastpe's attention beside their own: outputs, gradients, generated words."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

from small_models import DECODERS, OTHERS, PATCHED, inputs, made  # noqa: E402 - only where the peers are

from fastpe.torch import patch, register_transformers  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _registered():
    register_transformers()


def ours(name, **changed):
    if name in PATCHED:
        return patch(made(name, **changed))
    return made(name, "fastpe", **changed)


def theirs(name, **changed):
    # Falcon's eager attention counts ALiBi twice
    return made(name, "sdpa" if name.startswith("falcon") else "eager", **changed)


def kept(name, given, logits):
    """Logits where there is no padding."""
    shown = given.get("attention_mask")
    return logits if shown is None or name == "t5" else logits * shown[..., None]


def assert_same(name, found, right, given):
    """Logits and gradients of all parameters, as near as float32 can be expected to be."""
    values = []
    for model in (found, right):
        logits = kept(name, given, model(**given).logits)
        weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
        model.zero_grad()
        (logits * weights).sum().backward()
        values.append((logits.detach(), {key: x.grad for key, x in model.named_parameters() if x.grad is not None}))
    (logits, gradients), (right_logits, right_gradients) = values
    assert (logits - right_logits).abs().max() <= 2e-6 * max(1.0, right_logits.abs().max())
    largest = max(x.abs().max() for x in right_gradients.values())
    assert gradients.keys() == right_gradients.keys()
    for key, gradient in gradients.items():
        assert (gradient - right_gradients[key]).abs().max() <= 5e-6 * largest, key


@pytest.mark.parametrize("padding", ["", "left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, *OTHERS, *PATCHED])
def test_outputs_and_gradients(name, padding):
    if padding and name in ("vit", "whisper"):
        pytest.skip("it takes no mask of words")
    found, right, given = ours(name), theirs(name), inputs(name, padding)
    assert_same(name, found, right, given)
    if not padding:
        assert_same(name, found.train(), right.train(), given)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", [*DECODERS, "t5", "whisper", *PATCHED])
def test_generated_words(name, cache):
    given = inputs(name, "" if name in ("whisper",) else "left")
    given.pop("decoder_input_ids", None)
    if name in ("mpt", "falcon") and cache == "static":
        pytest.skip("its ALiBi does not know a static cache, whatever attends")
    options = {"max_new_tokens": 7, "min_new_tokens": 7, "do_sample": False, "disable_compile": True}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    found, right = (
        model.generate(**given, cache_implementation=cache, **options) for model in (ours(name), theirs(name))
    )
    assert found.sequences.tolist() == right.sequences.tolist()
    for logits, exact in zip(found.logits, right.logits, strict=True):
        assert (logits - exact).abs().max() <= 5e-6 * max(1.0, exact.abs().max())


def test_packed_documents_by_their_positions():
    given = inputs("llama") | {"position_ids": torch.tensor([[*range(4), *range(7)], [*range(9), *range(2)]])}
    found, right = ours("llama"), theirs("llama")
    for model in (found, right):
        model.config.use_cache = False
    assert_same("llama", found, right, given)
    alone = right(input_ids=given["input_ids"][:1, 4:]).logits
    torch.testing.assert_close(found(**given).logits[:1, 4:], alone, rtol=0, atol=1e-5)


def test_packed_documents_by_their_edges():
    given = inputs("llama")["input_ids"].reshape(1, -1)
    positions = torch.tensor([[*range(5), *range(17)]])
    edges = torch.tensor([0, 5, 22], dtype=torch.int32)
    model = ours("llama")
    by_edges = model(input_ids=given, position_ids=positions, use_cache=False, cu_seq_lens_q=edges,
                     cu_seq_lens_k=edges, attention_mask=torch.ones_like(given)).logits  # fmt: skip
    by_positions = model(input_ids=given, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(by_edges, by_positions, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_of_ones_own(dtype):
    seen = torch.rand(2, 1, 11, 11, generator=torch.Generator().manual_seed(3)) < 0.7
    seen |= torch.eye(11, dtype=torch.bool)
    added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    given = inputs("llama")
    right = theirs("llama")(**given, attention_mask=added).logits
    found = ours("llama")(**given, attention_mask=seen if dtype == torch.bool else added).logits
    torch.testing.assert_close(found, right, rtol=0, atol=5e-6)


def test_dropout_is_that_of_training_and_of_pytorchs_generator():
    model = ours("llama", attention_dropout=0.5)
    given = inputs("llama")
    still = model(**given).logits
    model.train()
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(model(**given).logits)
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])
    assert not drawn[0].equal(still)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("name", ["llama", "gpt_oss", "t5"])
def test_compiled(name):
    given = inputs(name, "left")
    model = ours(name)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(**given).logits, model(**given).logits, rtol=0, atol=5e-6)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_compiled_generation(name):
    """One graph for all words, against a cache of fixed size: the words of the model's own attention."""
    given = inputs(name, "left")
    options = {"max_new_tokens": 7, "min_new_tokens": 7, "do_sample": False, "cache_implementation": "static"}
    right = theirs(name).generate(**given, **options, disable_compile=True)
    model = ours(name)
    graphs = []

    def counting(graph, _):
        graphs.append(graph)
        return graph

    model.forward = torch.compile(model.forward, fullgraph=True, backend=counting)
    assert model.generate(**given, **options, disable_compile=True).tolist() == right.tolist()
    assert 0 < len(graphs) < 5  # and not one for each word


@pytest.mark.parametrize(("name", "setting"), [("llama", "attention_dropout"), ("gpt2", "attn_pdrop"),
                                               ("bert", "attention_probs_dropout_prob")])  # fmt: skip
def test_dropout_of_weights_has_the_distribution_of_the_models_own(name, setting):
    """Mean and variance of logits over 1,000 draws, one for each sample of a batch."""
    draws, chance = 1000, 0.3
    given = {"input_ids": inputs(name)["input_ids"][:1].expand(draws, -1)}
    mean, variance = {}, {}
    for attends, make in (("ours", ours), ("theirs", theirs)):
        torch.manual_seed(5)
        with torch.no_grad():
            logits = make(name, **{setting: chance}).train()(**given).logits.double()
        mean[attends], variance[attends] = logits.mean(0), logits.var(0)
    off = (mean["ours"] - mean["theirs"]) / ((variance["ours"] + variance["theirs"]) / draws).sqrt().clamp(min=1e-6)
    assert off.abs().max() < 5.5  # of some 400 normal numbers
    assert 0.5 < off.square().mean() < 2
    drawn = variance["theirs"].mean(-1) > 1e-9  # the first word of a causal model sees itself alone, dropped or not
    ratio = variance["ours"].mean(-1)[drawn] / variance["theirs"].mean(-1)[drawn]
    assert 0.85 < ratio.min() <= ratio.max() < 1.18


def test_half_precision():
    given = inputs("llama")
    right = theirs("llama")(**given).logits
    error, own = ((made("llama", attends).bfloat16()(**given).logits.float() - right).abs().max()
                  for attends in ("fastpe", "eager"))  # fmt: skip
    assert error <= 2 * own


def test_implementations_can_be_set_and_set_back():
    model, given = made("llama"), inputs("llama")
    right = model(**given).logits
    model.set_attn_implementation("fastpe")
    assert not model(**given).logits.equal(right)
    model.set_attn_implementation("eager")
    assert model(**given).logits.equal(right)


def test_unsupported_arguments_are_refused_by_name():
    module = ours("llama").model.layers[0].self_attn
    attend = transformers.AttentionInterface()["fastpe"]
    q = torch.zeros(1, 4, 3, 8)
    for name, value in (("output_attentions", True), ("head_mask", q), ("indices", q)):
        with pytest.raises(ValueError, match=f"LlamaAttention asks for {name}, which"):
            attend(module, q, q, q, None, **{name: value})
    with pytest.raises(ValueError, match="needs an attention_mask for 2 queries and 3 keys"):
        attend(module, q[:, :, :2], q, q, None)
    with pytest.raises(ValueError, match="cu_seq_lens_q must end at the number of queries, 3, not at 2"):
        attend(module, q, q, q, None, cu_seq_lens_q=torch.tensor([0, 2]))


def test_models_without_the_interface_are_pointed_to_patch():
    for name in ("bloom", "mpt"):
        with pytest.raises(ValueError, match=r"compute attention themselves.*pass them to fastpe.torch.patch"):
            made(name, "fastpe")(**inputs(name))
    with pytest.raises(ValueError, match=r"FALCON_ATTENTION_CLASSES.*pass the model to fastpe.torch.patch"):
        made("falcon", "fastpe")
    with pytest.raises(ValueError, match=r"LlamaForCausalLM has no attention of BLOOM, MPT or Falcon"):
        patch(made("llama"))
    with pytest.raises(ValueError, match="has no attention of BLOOM"):
        patch(ours("bloom"))
    with pytest.raises(ValueError, match="asks for output_attentions"):
        ours("bloom")(**inputs("bloom"), output_attentions=True)


@pytest.mark.parametrize(
    ("queries", "keys", "offset", "first", "made"),
    [(1, 5, 4, 0, False), (1, 5, 9, 5, False), (4, 4, 0, 0, False), (1, 5, 2, 0, True), (2, 5, 3, 0, True),
     (1, 5, torch.tensor(4), 0, True)],
)  # fmt: skip
def test_masks_that_hide_nothing_are_not_made(queries, keys, offset, first, made):
    mask = transformers.AttentionMaskInterface()["fastpe"](
        config=transformers.LlamaConfig(),
        batch_size=1,
        q_length=queries,
        kv_length=keys,
        q_offset=offset,
        kv_offset=first,
    )
    assert (mask is not None) is made
    if made:
        positions = torch.as_tensor(offset) + torch.arange(queries)
        assert mask[0, 0].equal(torch.arange(first, first + keys) <= positions[:, None])
