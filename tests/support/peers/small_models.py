"""Hugging Face's models with a few random weights, by name: (class, settings, inputs without padding)."""

import torch
import transformers

WORDS = 37
_TEXT = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": None}  # fmt: skip
_GROUPED = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8}
_SPEECH = {"vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_mel_bins": 8,
           "max_source_positions": 20, "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1,
           "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
           "begin_suppress_tokens": None}  # fmt: skip
_FALCON = {**_TEXT, "hidden_dropout": 0.0, "attention_dropout": 0.0, "bias": False}
# name -> (class of the model, settings)
DECODERS = {
    "llama": ("LlamaForCausalLM", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", _GROUPED),
    "mistral": ("MistralForCausalLM", {**_GROUPED, "sliding_window": 5}),
    "gemma2": ("Gemma2ForCausalLM", {**_GROUPED, "sliding_window": 5, "attn_logit_softcapping": 5.0}),
    "gpt_oss": ("GptOssForCausalLM", {**_GROUPED, "sliding_window": 5, "num_local_experts": 2,
                                      "num_experts_per_tok": 1}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**_TEXT, "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 10,
                                              "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5,
                                              "n_routed_experts": 4, "num_experts_per_tok": 2,
                                              "n_group": 2, "topk_group": 1, "moe_intermediate_size": 16,
                                              "first_k_dense_replace": 1}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
                                 "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "attn_pdrop": 0.0,
                                 "embd_pdrop": 0.0, "resid_pdrop": 0.0}),
    "gpt_neox": ("GPTNeoXForCausalLM", _TEXT),
}  # fmt: skip
OTHERS = {
    "bert": ("BertForMaskedLM", {**_TEXT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "vit": ("ViTForImageClassification", {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                                          "num_attention_heads": 4, "image_size": 12, "patch_size": 4}),
    "whisper": ("WhisperForConditionalGeneration", _SPEECH),
    "t5": ("T5ForConditionalGeneration", {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2,
                                          "num_heads": 4, "dropout_rate": 0.0, "pad_token_id": 0, "eos_token_id": 2,
                                          "decoder_start_token_id": 0, "relative_attention_num_buckets": 8,
                                          "relative_attention_max_distance": 10}),
}  # fmt: skip
PATCHED = {
    "bloom": ("BloomForCausalLM", {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 1,
                                   "eos_token_id": None, "pad_token_id": 0}),
    "mpt": ("MptForCausalLM", {"vocab_size": WORDS, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64,
                               "expansion_ratio": 2, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}),
    "falcon": ("FalconForCausalLM", {**_FALCON, "alibi": True, "multi_query": False}),
    "falcon_rotary": ("FalconForCausalLM", {**_FALCON, "alibi": False, "multi_query": True}),
    "falcon_grouped": ("FalconForCausalLM", {**_FALCON, "alibi": False, "new_decoder_architecture": True,
                                             "num_kv_heads": 2}),
}  # fmt: skip


def made(name, attends="eager", **changed):
    """A model in float32, of always the same weights."""
    kind, settings = {**DECODERS, **OTHERS, **PATCHED}[name]
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    model = model_class._from_config(model_class.config_class(**{**settings, **changed}), attn_implementation=attends)
    with torch.no_grad():
        for parameter in model.parameters():  # sharper than those of a training's first step
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def inputs(name, padding=""):
    """Two samples; of the first, three words are padding."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(3, WORDS, (2, 11), generator=draw)
    mask = torch.ones_like(ids)
    if padding:
        hidden = slice(0, 3) if padding == "left" else slice(8, 11)
        mask[0, hidden] = 0
        ids[0, hidden] = 0
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 12, 12, generator=draw)}
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 40, generator=draw), "decoder_input_ids": ids}
    given = {"input_ids": ids} | ({"attention_mask": mask} if padding else {})
    return given | ({"decoder_input_ids": ids[:, 4:]} if name == "t5" else {})
