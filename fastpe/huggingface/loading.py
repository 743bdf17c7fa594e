"""Models of Hugging Face's transformers as `fastpe.Transformer`."""

from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import stored, validation
from fastpe.base.stored import damaged
from fastpe.huggingface import tokenizer, weights
from fastpe.huggingface.checkpoint import Checkpoint
from fastpe.huggingface.families import EMBEDDING_NORM, FAMILIES, NEUTRAL, TABLE, Family, Settings, Tensor
from fastpe.huggingface.values import Values
from fastpe.model.config import MOST_LAYERS, MOST_TOKENS, ModelConfig
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]

CONFIG, OURS = "config.json", "fastpe"


@validation.named_arguments
def load_hf(folder: str | Path) -> Transformer:
    """Read a model in the format of Hugging Face's transformers, without PyTorch.

    The folder has a config.json and weights as safetensors, in one file or in shards, in float32, float16 or bfloat16.
    If its tokenizer.json is one that `to_hf` wrote, or if the package ``tokenizers`` is installed, the model has a
    `vocabulary` and can read and generate text.

    A model that `to_hf` wrote has its former configuration and the same parameters, bit by bit, with three exceptions:
    parameters in float64 are rounded to float32; an encoding with parameters that fills a table becomes ``"learned"``
    with the same rows; and weights of norms of Gemma, which are stored minus 1, may be rounded in the last bit.

    Parameters
    ----------
    folder : str or pathlib.Path
        A folder of `to_hf` or of ``save_pretrained``.

    Returns
    -------
    Transformer

    Raises
    ------
    ValueError
        If no `ModelConfig` describes the model: the message names the first reason. Pickles, quantised weights and
        models that need code from the folder are refused.
    fastpe.base.stored.DamagedFileError
        If a file is damaged, or does not match the others.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from fastpe import ModelConfig, to_hf
    >>> config = ModelConfig(
    ...     "rope", width=16, heads=2, layers=1, causal=True, vocabulary=65, norm="rmsnorm", final_norm=True,
    ...     activation="swiglu", bias=False, tied=True,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = to_hf(Transformer(config), Path(folder, "model"))
    ...     again = load_hf(Path(folder, "model"))
    >>> name, again.config == config
    ('LlamaForCausalLM', True)
    """
    folder = validation.path("folder", folder)
    values = Values.read(folder / CONFIG)
    family = family_of(values)
    checkpoint = Checkpoint(folder)
    own = _settings(family, values, len(checkpoint.shapes))
    tensors = list(family.tensors(own, values))
    config = _config(values, own)
    names = _names(checkpoint, family, tensors)
    _check_shapes(checkpoint, names, _shapes(config, family, tensors))
    vocabulary = tokenizer.read(folder, config.vocabulary or 0)
    model = _exported(family, values, own, tensors, checkpoint, names)
    if model is None:
        if family.small_embeddings:
            _check_small(checkpoint, names, values, config)
        model = _made(config, family, tensors, checkpoint, names)
    model.vocabulary = vocabulary
    return model


def family_of(values: Values) -> Family:
    """The architecture of a config.json. Raises ValueError if it is not supported, or if weights are not enough."""
    if values.get("quantization_config", stored.anything) is not None:
        values.refuse("quantised weights are not supported", ValueError)
    kind = values.required("model_type", stored.text)
    if kind not in FAMILIES:
        if values.get("auto_map", stored.anything) is not None:
            values.refuse("the model needs code from its folder (auto_map), which is not run", ValueError)
        values.refuse(f"model_type {kind!r} is not supported, only {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def _settings(family: Family, values: Values, count: int) -> Settings:
    """The settings of the model, none of which is larger than the tensors allow."""
    for each in family.fields:
        if each.setting == "layers" and values.required(each.key, each.form) > min(count, MOST_LAYERS):
            raise damaged(values.path, f"{each.key} is {values.found[each.key]}, but the files have {count} tensors")
        if each.setting == "vocabulary":
            values.required(each.key, stored.whole(2, MOST_TOKENS))
    own = family.read(values)
    if own["heads"] % own["key_heads"]:
        raise damaged(values.path, f"{own['heads']} heads cannot share {own['key_heads']} heads of keys and values")
    return own


def _config(values: Values, own: Settings) -> ModelConfig:
    """The configuration for these settings, without those that a model may leave out."""
    given = {name: value for name, value in own.items() if name not in NEUTRAL or value != NEUTRAL[name](own)}
    try:
        return ModelConfig(**given)
    except (ValueError, TypeError) as error:
        raise damaged(values.path, error) from error


def _names(checkpoint: Checkpoint, family: Family, tensors: list[Tensor]) -> dict[str, str]:
    """The names of the tensors in the files: without the first part of the name if a bare model was stored (GPT-2)."""
    first = tensors[0].name
    bare = first not in checkpoint and first.partition(".")[2] in checkpoint
    wanted = {tensor.name: tensor for tensor in tensors}
    others = {f"{EMBEDDING_NORM}.{kind}" for kind in ("weight", "bias")} if family.small_embeddings else set()
    found = {}
    for name in [*wanted, *sorted(others)]:
        stored_as = name.partition(".")[2] if bare and name.partition(".")[0] == first.partition(".")[0] else name
        if stored_as not in checkpoint and name in wanted and (also := wanted[name].row.also):
            stored_as = f"{also}.{name.rpartition('.')[2]}"
        if stored_as not in checkpoint:
            raise damaged(checkpoint.folder, f"no safetensors file holds {name}")
        found[name] = stored_as
    head = next(row for row in family.rows if row.ours == ("head",))
    tied = set() if any(tensor.row is head for tensor in tensors) else {f"{head.theirs}.weight", f"{head.also}.weight"}
    for name in sorted(checkpoint.shapes.keys() - set(found.values()) - tied):
        raise damaged(checkpoint.path(name), f"{family.architecture} has no tensor {name}")
    return found


def _shapes(config: ModelConfig, family: Family, tensors: list[Tensor]) -> dict[str, tuple[int, ...]]:
    layout = weights.Layout(config)
    shapes = {tensor.name: layout.shape(tensor) for tensor in tensors}
    if family.small_embeddings:
        shapes |= {f"{EMBEDDING_NORM}.{kind}": (config.width,) for kind in ("weight", "bias")}
    return shapes


def _check_shapes(checkpoint: Checkpoint, names: dict[str, str], shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if (found := checkpoint.shapes[names[name]]) != shape:
            raise damaged(
                checkpoint.path(names[name]), f"tensor {names[name]} has shape {found} where config.json states {shape}"
            )


def _made(
    config: ModelConfig, family: Family, tensors: list[Tensor], checkpoint: Checkpoint,
    names: dict[str, str],
) -> Transformer:  # fmt: skip
    """The model with the parameters of the files; parameters that these lack are 0."""
    try:
        model = Transformer(config)
    except (ValueError, TypeError) as error:  # sizes that need more memory than this machine has
        raise ValueError(f"{checkpoint.folder}: {error}") from error
    left = set(model.parameters)
    for name, value in weights.unpack(family, config, tensors, lambda name: checkpoint.read(names[name])):
        own = "encoding.learned.table" if name == f"{TABLE}.weight" else name
        if own in model.parameters and model.parameters[own].shape == value.shape:
            model.parameters[own][...] = value
            left.discard(own)
    for name in left:
        if not name.startswith("encoding."):
            model.parameters[name][...] = 0
    return model


def _exported(
    family: Family, values: Values, own: Settings, tensors: list[Tensor], checkpoint: Checkpoint, names: dict[str, str]
) -> Transformer | None:
    """The model that `to_hf` wrote, with its own configuration, if that configuration gives exactly these files."""
    settings = values.found.get(OURS)
    if settings is None:
        return None
    try:
        config = ModelConfig.from_dict(settings)
        if family.misfits(config):
            return None
        written = family.read(Values(values.path, family.write(config)))
    except (ValueError, TypeError):  # of another version, or with an encoding that is not registered
        return None
    if written != own:
        return None
    model = _made(config, family, tensors, checkpoint, names)
    try:
        packed = weights.pack(model, family, values)
    except ValueError:
        return None
    same = all(np.array_equal(array, checkpoint.read(names[name])) for name, array in packed.items())
    return model if same and packed.keys() == names.keys() else None


def _check_small(checkpoint: Checkpoint, names: dict[str, str], values: Values, config: ModelConfig) -> None:
    """Refuse a BLOOM whose norm behind the embeddings is more than a factor."""
    weight, bias = (checkpoint.read(names[f"{EMBEDDING_NORM}.{kind}"]) for kind in ("weight", "bias"))
    embeddings = checkpoint.read(names["transformer.word_embeddings.weight"])
    small = np.square(embeddings, dtype=np.float64).mean(axis=1).max() <= 1e-6 * config.norm_eps
    if bias.any() or (weight != weight[0]).any() or weight[0] <= 0 or not small:
        values.refuse("the model has a norm behind its embeddings, which ModelConfig lacks")
