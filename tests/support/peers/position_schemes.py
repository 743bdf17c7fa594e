"""Name the encoding of fastpe for the positions of every causal language model class of the installed transformers.

``python tests/support/peers/position_schemes.py > bench/results/positions.md`` writes the table. Rotary encodings are
read from the default configuration of each type; all others are listed here by hand, and a type that is in neither is
an error. Models are not made, and their modules are not imported.
"""

import logging
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

from fastpe.encodings import registry
from fastpe.model.schedules import SCHEDULES

MODELS = Path(transformers.__file__).parent / "models"
ROTARY = {
    "default": "rope", "linear": "rope_linear", "dynamic": "rope_dynamic", "yarn": "rope_yarn",
    "longrope": "rope_longrope", "llama3": "rope_llama3", "proportional": "rope_proportional",
}  # fmt: skip
BY_HAND = {
    "learned": """bart bert bert-generation big_bird bigbird_pegasus biogpt blenderbot blenderbot-small camembert
        data2vec-text electra ernie git gpt-sw3 gpt2 gpt_bigcode gpt_neo mbart megatron-bert mvp openai-gpt opt plbart
        rembert roberta roberta-prelayernorm roc_bert trocr whisper xlm xlm-roberta xlm-roberta-xl xmod""",
    "sinusoidal_t2t": "ctrl marian musicgen musicgen_melody pegasus xglm",
    "axial": "reformer",
    "alibi": "bloom mpt",
    "transformer_xl": "xlnet",
    "nope": "jamba kimi_linear nemotron_h zamba",
    "rope": "codegen gptj roformer",  # their configurations state no rotation
    "": "falcon_mamba mamba mamba2 rwkv xlstm",  # recurrences alone
}
KEYS = {name: key for key, names in BY_HAND.items() for name in names.split()}
MISSING = {
    "cpmant": "buckets within a segment, else one number for each pair of segments",
    "prophetnet": "a value for each bucket that the query's token determines",
    "inkling_text": "relative scores from a second kind of queries (`fastpe.reference.distance_bank`)",
    "inkling2_text": "as inkling_text, and a temperature that multiplies them too",
    "inkling2_loop_text": "as inkling2_text",
    "deepseek_v4": "values are rotated as well, and outputs are turned back",
}
LEFT_OUT = {  # parts of attention that have no positions of their own, or that the configuration does not name
    "diffllama": "the difference of two softmaxes",
    "gpt_neo": "scores are not scaled",
    "laguna": "the checkpoint names the layers with windows",
    "mellum": "the checkpoint names the layers with windows",
    "zaya": "convolutions of queries and keys",
}
INTERLEAVED = ("roformer",)  # it rotates in a method
TEMPERED = ("ministral3",)  # and those whose schedule says so
LAYERS = {
    "linear": "linear recurrences", "conv": "convolutions", "hybrid": "recurrences next to attention",
    "indexed": "attention to chosen keys", "compressed": "compressed keys",
}  # fmt: skip
SAME = {  # types whose layers follow the schedule of another
    "afmoe": "command_a:1024", "cohere2": "command_a", "cohere2_moe": "command_a", "exaone_moe": "exaone4",
    "gemma3_text": "gemma3", "gemma3n": "gemma3", "gemma3n_text": "gemma3", "gemma4_text": "gemma4",
    "gemma4_unified": "gemma4", "gemma4_unified_text": "gemma4", "granitemoe_swa": "granite_swa",
    "llama4_text": "llama4", "modernbert-decoder": "modernbert_decoder", "muse_spark_text": "muse_spark",
    "vaultgemma": "gemma2", "muse_glimmer_text": "command_a:2048", "diffusion_gemma": "gemma4",
}  # fmt: skip
HEAD = f"""# Positions of Hugging Face's causal language models

- made by: `python tests/support/peers/position_schemes.py > bench/results/positions.md`
- versions: transformers {transformers.__version__}, whose {len(CLASSES)} types of `AutoModelForCausalLM` are all listed
"""
TEXT = """
The keys are those of the default configuration; the rotary types of a configuration (linear, dynamic, yarn, longrope,
llama3, proportional) all have a key. "Layers" names the schedule (`fastpe train --schedule`), if layers differ in what
they see or in their encoding. "Left out" names mechanisms and parts of models that fastpe does not have.

| type | encoding | options | layers | left out |
| --- | --- | --- | --- | --- |
"""


def source(config):
    """The modelling file of a configuration's package."""
    package = type(config).__module__.split(".")[-2]
    found = sorted((MODELS / package).glob("modeling_*.py"))
    return "".join(each.read_text("utf-8") for each in found if not each.stem.endswith(("_tf", "_flax")))


def pairs(text):
    """Which channels the rotating functions of a modelling file pair."""
    whole = re.sub(r"^\)", " )", text, flags=re.M)  # the end of a list of arguments is not the end of a function
    rotating = re.findall(r"^def (?:rotate|apply_rotary)\w*\(.*?(?=^\S)", whole, re.M | re.S)
    return "interleaved" if re.search(r"::2\]|view_as_complex|as_real|interleave", "".join(rotating)) else "half"


def rotations(config):
    """The parameters of each kind of rotary layer."""
    found = getattr(config, "rope_parameters", None) or {}
    if not found or "rope_theta" in found or "rope_type" in found or "type" in found:
        return [found] if found else []
    return [each for each in found.values() if each]


def row(name):
    """Type, keys, options, schedule, and what is left out."""
    config = CONFIG_MAPPING[name]()
    config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    options, lost = [], [own[name] for own in (MISSING, LEFT_OUT) if name in own]
    each = rotations(config)
    if name in KEYS:
        keys = [KEYS[name]] if KEYS[name] else []
        lost += [] if keys else ["recurrences in place of attention"]
    elif name in MISSING and not each:
        keys = []
    elif each or name in ("cohere_compass_text", "olmo_hybrid"):
        keys = [
            "mrope" if "mrope_section" in own else ROTARY[own.get("rope_type", own.get("type", "default"))]
            for own in each
        ] or ["rope"]
        if getattr(config, "alibi", False):
            keys = ["alibi"]
        if any(own.get("partial_rotary_factor", 1.0) != 1.0 for own in each) and "rope_proportional" not in keys:
            options.append("rotated")
        if getattr(config, "qk_rope_head_dim", 0):
            lost.append("a key of its own channels that all heads share (MLA)")
    else:
        raise ValueError(f"{name} is neither rotary nor listed by hand")
    if any(key.startswith("rope") for key in keys):
        options.insert(0, f"pairs={'interleaved' if name in INTERLEAVED else pairs(source(config))}")
    options += ["rotated"] if getattr(config, "rotary_dim", None) else []
    if name in TEMPERED:
        keys, options = [*keys, "temperature"], [*options, "temperature.rule=ministral"]
    kinds = set(getattr(config, "layer_types", None) or ())
    for kind, said in LAYERS.items():
        if any(kind in own for own in kinds) and KEYS.get(name) != "" and "inkling" not in name:
            lost.append(f"layers: {said}")
    schedule = SAME.get(name, name if name in SCHEDULES else "")
    assert not schedule or schedule.partition(":")[0] in SCHEDULES, schedule
    if schedule:
        keys += registry.all_keys(SCHEDULES[schedule.partition(":")[0]].encoding)
    near = {"sliding_attention", "chunked_attention"} & kinds
    if near and not schedule:
        sight = "all layers" if len(kinds) == 1 else "in an order of its own" if not lost else "some layers"
        schedule = f"window, {sight}"
    assert all(key in registry.built_in() for key in keys), keys
    shown = ", ".join(f"`{key}`" for key in dict.fromkeys(keys)) or "-"
    return name, shown, ", ".join(options) or "-", schedule or "-", "; ".join(lost) or "-"


def main():
    """Write the table."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    rows, failed = [], {}
    for name in sorted(CLASSES):
        try:
            rows.append(row(name))
        except Exception as error:  # a configuration without defaults raises errors of any type
            failed[name] = f"its default configuration is not valid ({type(error).__name__})"
    counts = Counter("missing" if own[0] in MISSING else "recurrence" if own[1] == "-" else "key" for own in rows)
    sys.stdout.write(HEAD)
    sys.stdout.write(
        f"- {counts['key']} types have a key, {counts['recurrence']} are recurrences without positions, "
        f"{counts['missing']} have a mechanism that no key has; no default configuration: {len(failed)}\n"
    )
    sys.stdout.write(TEXT)
    for own in rows:
        sys.stdout.write("| " + " | ".join(own) + " |\n")
    for name, why in failed.items():
        sys.stdout.write(f"| {name} | ? | - | - | {why} |\n")


if __name__ == "__main__":
    main()
