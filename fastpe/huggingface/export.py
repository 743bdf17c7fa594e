"""Trained models in the format of Hugging Face's transformers."""

from collections.abc import Mapping
from pathlib import Path

from fastpe.base import files, validation
from fastpe.huggingface import checkpoint, tokenizer, weights
from fastpe.huggingface.families import FAMILIES, Family
from fastpe.huggingface.loading import CONFIG, OURS
from fastpe.huggingface.positions import Misfit, Table, longest
from fastpe.huggingface.values import Values
from fastpe.model.banded import Banded
from fastpe.model.generation import begins_alike
from fastpe.model.transformer import Transformer

_BY_NAME: Mapping[str, Family] = {
    **FAMILIES, **{each.architecture: each for each in FAMILIES.values()}
}  # fmt: skip


@validation.named_arguments
def to_hf(model: Transformer, folder: str | Path, *, architecture: str | None = None, eos: str | None = None) -> str:
    """Write a model in the format of Hugging Face's transformers. Neither PyTorch nor transformers is needed.

    ``AutoModelForCausalLM.from_pretrained(folder)`` reads the model and computes the same logits up to rounding. If the
    model has a `vocabulary`, ``AutoTokenizer.from_pretrained(folder)`` gives the same tokens.

    Parameters
    ----------
    model : Transformer
        A causal model of tokens.
    folder : str or pathlib.Path
        A new or empty folder.
    architecture : str, optional
        Its ``model_type``, such as ``"gpt2"``. By default the first of these that computes the model:

        ==============  =======================================================================================
        ``gpt2``        layer norm; an encoding that only adds a table to the input, or nope
        ``gpt_neox``    layer norm; rope
        ``llama``       RMSNorm, swiglu; rope
        ``mistral``     the same with one window in all layers
        ``qwen2``       the same with windows in some layers
        ``smollm3``     the same with rope in some layers and nope in the others
        ``qwen3``       as ``llama``, with norms of queries and keys in each head
        ``olmo2``       as ``llama``, with norms after attention and feed-forward, and of all queries and keys
        ``gemma2``      RMSNorm before and after attention and feed-forward, geglu, scaled embeddings; rope
        ``phi3``        as ``llama``, with rope that rotates some channels of a head
        ``stablelm``    layer norm, swiglu; rope; no biases
        ``mpt``         layer norm, gelu; ALiBi; hidden width 4 times the width; no biases
        ==============  =======================================================================================

        Only if it is named: ``bloom``, which has layer norm, gelu_tanh, ALiBi, and a hidden width of 4 times the width.
        BLOOM has a norm after the embeddings. Export makes the embeddings so small that this norm only multiplies them
        by a constant: do not cast such a model to float16.
    eos : str, optional
        The symbol that ends a text and is also the padding. By default byte 0 for bytes, and none for characters. A
        symbol that occurs in texts, such as a line break, is left out when transformers decodes without special tokens.

    Returns
    -------
    str
        The name of the architecture's class.

    Raises
    ------
    ValueError
        If no architecture computes the model: the message names the nearest one and what it needs. Or if the folder is
        not empty.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from fastpe import ModelConfig
    >>> own = {"width": 16, "causal": True, "vocabulary": 65, "norm": "layernorm", "final_norm": True, "tied": True}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_hf(Transformer(ModelConfig("learned", **own)), Path(folder, "model"))
    'GPT2LMHeadModel'
    >>> to_hf(Transformer(ModelConfig("t5", **own)), "unwritten", architecture="gpt2")
    Traceback (most recent call last):
        ...
    ValueError: GPT2LMHeadModel needs encoding with only a table, not 't5'
    """
    validation.instance("model", model, Transformer, "to_hf(fastpe.load('runs/rope-0'), 'folder')")
    folder = validation.path("folder", folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"folder must be new or empty, not {str(folder)!r}")
    if isinstance(model, Banded):
        raise ValueError("a model with bands cannot be exported: export the model that it was made from")
    family = chosen(model, architecture)
    values = family.write(model.config)
    end, vocabulary = None, model.vocabulary
    if vocabulary is not None and vocabulary.kind == "ids":  # their text is unknown
        vocabulary = None
    if vocabulary is not None and vocabulary.kind == "tokenizer":
        vocabulary.subwords  # noqa: B018 - raises if its file is not at hand
    if vocabulary is not None:
        end = tokenizer.end_token(vocabulary, eos)
    elif eos is not None:
        raise ValueError("eos needs a model of a text: the text of this model's tokens is unknown")
    token = None if end is None else end[0]
    values |= {"bos_token_id": None, "eos_token_id": token, "pad_token_id": token, OURS: model.config.to_dict()}
    tensors = weights.pack(model, family, Values(folder / CONFIG, values))
    files.make_folder(folder, exist_ok=True)
    length = longest(model.config)
    generation = {"do_sample": True, "max_length": length, "eos_token_id": token, "pad_token_id": token}
    checkpoint.write(folder / checkpoint.NAME, tensors)
    if vocabulary is not None:
        tokenizer.write(folder, vocabulary, length, end)
    files.write_file(folder / "generation_config.json", files.dump_json(generation))
    files.write_file(folder / CONFIG, files.dump_json(values))  # last: without it, the folder is not a model
    return family.architecture


def chosen(model: Transformer, architecture: str | None = None) -> Family:
    """The architecture in which a model is written. Raises ValueError if there is none, or if the named one lacks a
    setting."""
    config = model.config
    if config.vocabulary is None:
        raise ValueError("model must have a vocabulary: a model of numbers has no Hugging Face architecture")
    if architecture is not None:
        if architecture not in _BY_NAME:
            known = validation.nearest(str(architecture), FAMILIES, ", ".join(FAMILIES))
            raise ValueError(f"architecture {architecture!r} is unknown; {known}")
        family = _BY_NAME[architecture]
        if lacks := misfits(family, model):
            raise ValueError(f"{family.architecture} needs {lacks[0]}")
        return family
    found = {each: misfits(each, model) for each in FAMILIES.values() if not each.on_request}
    best = min(found, key=lambda each: sum(misfit.cost for misfit in found[each]))
    if found[best]:
        raise ValueError(
            f"no Hugging Face architecture computes this model; the nearest, {best.architecture}, needs "
            f"{' and '.join(map(str, found[best][:3]))}"
        )
    return best


def misfits(family: Family, model: Transformer) -> list[Misfit]:
    """What a model has and an architecture lacks."""
    found = family.misfits(model.config)
    if not found and isinstance(family.positions, Table) and not begins_alike(model, 1, longest(model.config)):
        found = [Misfit("encoding", model.config.encoding, "with rows that do not depend on the length")]
    values = Values(Path(CONFIG), {} if found else family.write(model.config))
    if not found and (name := weights.homeless(model, family, values)):
        array = model.parameters[name]
        found = [Misfit(f"parameter {name!r}", float(array[array != 0][0]), "0 (bias=False or tied=True)")]
    return found
