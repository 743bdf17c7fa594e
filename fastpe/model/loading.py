"""Reads models from files that `model_file` wrote."""

from pathlib import Path

from fastpe.base import own_files
from fastpe.base.files import TensorFile
from fastpe.base.stored import DamagedFileError, damaged
from fastpe.encodings import registry
from fastpe.encodings.registry import ENCODINGS
from fastpe.model import model_file
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer
from fastpe.text import subwords
from fastpe.text.vocabulary import Vocabulary


def read(path: Path) -> Transformer:
    """Return the model in a file that `model_file.write` wrote.

    Raises
    ------
    DamagedFileError
        If a byte differs from what was written, or the file does not contain a model.
    ValueError
        If the model's encoding is user-defined, and is not registered or has changed.
    OSError
        If the file cannot be read.
    """
    file = TensorFile(path)
    if "model" not in file.facts:
        raise damaged(path, "it contains no fastpe model: its header has no configuration")
    file.check_facts(model_file.FACTS)
    encodings = file.facts.get("encodings", {})
    own_files.check_registered(path, encodings, ENCODINGS)
    try:
        config = ModelConfig.from_dict(file.facts["model"])
    except (ValueError, TypeError) as error:
        raise damaged(path, f"it contains no model that this version of fastpe supports: {error}") from error
    own_files.check_same(path, encodings, ENCODINGS, registry.all_keys(config.encoding))
    model = of(file, config)
    try:
        if "vocabulary" in file.facts:
            model.vocabulary = Vocabulary.from_dict(file.facts["vocabulary"], _tokenizer(file))
    except ValueError as error:
        raise damaged(path, str(error)) from error
    return model


def _tokenizer(file: TensorFile) -> bytes:
    """Return the content of the model's tokenizer if it is in the same folder. Without it, the model still reads
    tokens.
    """
    try:
        return subwords.kept(file.path.parent, file.facts["vocabulary"].get("sha256", ""))
    except (ValueError, OSError):  # that of another model
        return b""


def of(file: TensorFile, config: ModelConfig) -> Transformer:
    """Return the model of this configuration with the tensors of a file. Sizes are compared before
    memory is allocated.
    """
    try:
        model_file.check_sizes(file, config)
        model = Transformer(config)
    except DamagedFileError:
        raise
    except (ValueError, TypeError) as error:  # invalid sizes, or sizes that need more memory than this machine has
        raise ValueError(f"{file.path}: {error}") from error
    for name, tensor in file.read().items():
        model.parameters[name][...] = tensor
    return model
