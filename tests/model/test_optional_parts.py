"""The optional parts of a model, such as grouped key heads, soft caps and norms at other places."""

from dataclasses import replace

import pytest

from fastpe import ModelConfig

TOKENS = ModelConfig("rope", width=24, heads=4, layers=2, hidden=20, causal=True, train_length=20, vocabulary=11)


def test_models_without_optional_parts_are_stored_as_before_and_others_with_these_parts():
    assert TOKENS.optional_parts == ()
    assert not {"key_heads", "norm_eps", "sinks"} & TOKENS.to_dict().keys()
    config = replace(TOKENS, key_heads=2, head_dim=8, norm_eps=1e-6, qkv_bias=False, sinks=True)
    assert config.optional_parts == ("key_heads", "head_dim", "norm_eps", "qkv_bias", "sinks")
    assert (config.head_width, config.key_value_heads, config.has_qkv_bias) == (8, 2, False)
    assert ModelConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key_heads": 3}, "heads must be divisible by key_heads, but 4 is not divisible by 3"),
        ({"key_heads": 0}, "key_heads must be at least 1, not 0"),
        ({"heads": 5}, "width must be divisible by heads, but 24 is not divisible by 5; head_dim sets"),
        ({"head_dim": 0}, "head_dim must be at least 1"),
        ({"norm_eps": 0.0}, "norm_eps must be above 0"),
        ({"norm_placement": "around"}, "norm_placement must be before or after or both"),
        ({"norm_placement": "both"}, "norm_placement 'both' needs a norm"),
        ({"norm_placement": "after", "norm": "rmsnorm", "parallel": True}, "parallel needs norm_placement 'before'"),
        ({"parallel": True, "residual": False}, "parallel needs residual=True"),
        ({"parallel": 1.5}, "parallel must be True or False"),
        ({"qk_norm": "heads"}, "qk_norm must be head or all"),
        ({"qkv_bias": 2}, "qkv_bias must be True or False"),
        ({"score_scale": 0.0}, "score_scale must be above 0"),
        ({"score_softcap": -1.0}, "score_softcap must be above 0"),
        ({"logit_softcap": float("inf")}, "logit_softcap must be finite"),
        ({"logit_softcap": 3.0, "vocabulary": None}, "logit_softcap needs a vocabulary"),
        ({"embedding_scale": 3.0, "vocabulary": None}, "embedding_scale needs a vocabulary"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_named(settings, says):
    with pytest.raises((ValueError, TypeError), match=rf"^{says}"):
        replace(TOKENS, **settings)
