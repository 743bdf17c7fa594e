"""`fastpe.torch.head_scores` and `frequency_use` of small Hugging Face models, against eager attention's weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

from small_models import WORDS, made  # noqa: E402 - only where the peers are

from fastpe import heads as of_arrays  # noqa: E402
from fastpe import load_hf  # noqa: E402
from fastpe.model.changed import Changed  # noqa: E402
from fastpe.torch import attention, frequency_use, head_scores, heads, rotated  # noqa: E402
from fastpe.torch.layer import observed  # noqa: E402
from fastpe.training.inspection import Call, blocks  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def twice():
    return torch.randint(3, WORDS, (2, 12), generator=torch.Generator().manual_seed(0)).repeat(1, 2)


def of_eager(model, tokens, **options):
    """The scores from the dense weights of eager attention."""
    with torch.no_grad():
        weights = model(tokens, output_attentions=True).attentions
    found = [of_arrays.head_scores([each.double().numpy()], tokens, **options) for each in weights]
    return {name: np.stack([each[name] for each in found]) for name in of_arrays.SCORES}


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "gpt2", "deepseek_v3", "mistral"])
def test_scores_are_those_of_eager_weights(name, blocks, twice, monkeypatch):
    if blocks:
        monkeypatch.setattr(heads, "_BYTES", 4 * 2 * 4 * 24 * 5)  # five queries at a time
    model = made(name, "eager")
    for options in ({}, {"start": 12, "sink": 2}):
        found, right = head_scores(model, twice, **options), of_eager(model, twice, **options)
        assert list(found) == list(right)
        for key, value in found.items():
            assert value.dtype == torch.float64
            np.testing.assert_allclose(value, right[key], rtol=1e-5, atol=1e-6, err_msg=key)
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["llama", "gemma2", "mistral"])
def test_scores_are_those_that_fastpe_finds_in_the_same_checkpoint(name, twice, tmp_path):
    model, seen = made(name), {}
    model.save_pretrained(tmp_path / name)

    def watch(*call):
        seen[call[0]] = of_arrays.head_scores(blocks(Call(*call), "weights"), twice.numpy(), start=12)

    Changed(load_hf(tmp_path / name)).watched(twice.numpy(), watch)
    for key, value in head_scores(model, twice, start=12).items():
        own = np.stack([seen[layer][key] for layer in sorted(seen)])
        np.testing.assert_allclose(own, value, rtol=1e-3, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_neox"])
def test_scores_of_rotated_positions_belong_to_what_the_layer_computes(name, twice):
    """The outputs of a layer are its weights, as `head_scores` computes them, times values."""
    model, seen = made(name), []

    def observer(module, parts):
        for part in parts:
            v = torch.eye(part.k.shape[2]).expand(*part.k.shape[:2], -1, -1).contiguous()
            dense = np.zeros((*part.q.shape[:3], part.k.shape[2]), dtype="float32")
            first = 0
            for block in heads._weights(part):
                dense[:, :, first : first + block.shape[2], : block.shape[3]] = block
                first += block.shape[2]
            seen.append(np.abs(dense - attention(part.q, part.k, v, **part.given).numpy()).max())

    chosen = [True, False, True, True]
    with rotated(model, "self_extend", group=2, window=3, keep=0.7, heads=chosen), torch.no_grad():
        with observed(observer):
            model(twice)
        changed = head_scores(model, twice)["entropy"][0]
    assert len(seen) == 4
    assert max(seen) <= 1e-6
    own = head_scores(model, twice)["entropy"][0]
    assert ((changed - own).abs() > 1e-7).tolist() == chosen


def test_weights_are_computed_in_blocks_of_bounded_size(monkeypatch):
    monkeypatch.setattr(heads, "_BYTES", 2**14)
    sizes, original = [], heads._weights
    monkeypatch.setattr(heads, "_weights", lambda part: (sizes.append(each.nbytes) or each for each in original(part)))
    head_scores(made("llama"), torch.ones(1, 200, dtype=torch.long))
    assert len(sizes) == 2 * np.ceil(200 / (2**14 // (4 * 4 * 200)))
    assert max(sizes) <= 2**14


def test_an_error_leaves_no_observer(twice):
    model = made("llama")
    with pytest.raises(ValueError, match="start must be"):
        head_scores(model, twice, start=99)
    assert model.config._attn_implementation == "eager"
    model(twice)


def test_frequency_use_is_that_of_queries_and_keys(twice):
    model, found = made("llama"), []
    apply = transformers.models.llama.modeling_llama.apply_rotary_pos_emb
    use = frequency_use(model, twice)
    assert use.shape == (2, 4, 4)

    def noted(q, k, cos, sin):
        found.append(of_arrays.frequency_use(q.numpy(), k.numpy(), rotated=8, pairs="half"))
        return apply(q, k, cos, sin)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(transformers.models.llama.modeling_llama, "apply_rotary_pos_emb", noted)
        model(twice)
    np.testing.assert_allclose(use, np.stack(found), rtol=1e-5)
    with rotated(model, keep=0.0):  # layer 0 has the same queries
        np.testing.assert_allclose(frequency_use(model, twice)[0], found[0], rtol=1e-5)


def test_frequency_use_of_layers_without_positions_is_nan(twice):
    config = transformers.SmolLM3Config(
        vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0,
    )  # fmt: skip
    use = frequency_use(transformers.SmolLM3ForCausalLM(config).eval(), twice)
    assert use.isnan().all((1, 2)).tolist() == [False, False, False, True]
    assert use[:3].isfinite().all()


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_models_that_are_not_causal_are_refused(name, twice):
    with pytest.raises(ValueError, match="model must be a causal language model"):
        head_scores(made(name), twice)


def test_wrong_arguments(twice):
    with pytest.raises(TypeError, match="not Linear"):
        head_scores(torch.nn.Linear(2, 2), twice)
    with pytest.raises(ValueError, match="BloomForCausalLM computes attention itself"):
        head_scores(made("bloom"), twice)
    for wrong in (twice[0], twice.float(), twice.tolist()):
        with pytest.raises(TypeError, match="tokens must be a tensor"):
            head_scores(made("llama"), wrong)
    for scores in (head_scores, frequency_use):
        with pytest.raises(ValueError, match=r"tokens must not be empty, but have the shape \(2, 0\)"):
            scores(made("llama"), twice[:, :0])
    with pytest.raises(ValueError, match="GPT2LMHeadModel has no rotary embedding"):
        frequency_use(made("gpt2"), twice)
