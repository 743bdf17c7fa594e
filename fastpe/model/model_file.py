"""A model in a file: its parameters as safetensors, its configuration in the header."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import files, own_files, stored
from fastpe.base.files import TensorFile
from fastpe.base.stored import DamagedFileError, damaged
from fastpe.encodings import registry
from fastpe.encodings.registry import ENCODINGS
from fastpe.model.config import ModelConfig
from fastpe.model.parameters import parameter_shapes
from fastpe.model.transformer import Transformer
from fastpe.text import vocabulary
from fastpe.text.vocabulary import Vocabulary

SCHEMA = 2
FACTS = stored.record(
    {
        "schema": stored.exactly(SCHEMA),
        "model": stored.by_key(stored.anything),  # `ModelConfig.from_dict` checks the settings
        "sha256": stored.sha256,
        "header_sha256": stored.sha256,
    },
    optional={"encodings": own_files.FORM, "config": stored.sha256, "vocabulary": vocabulary.FORM},
)
"""Form of the facts in a model's file; ``config`` is the digest of the configuration of its run."""


def write(path: Path, model: Transformer, **facts: Any) -> None:
    """Write a model's parameters, with its configuration, digests of user-defined encodings, and other facts."""
    files.check_place(path)
    own = registry.own_files(model.config.encoding)
    stated = {"schema": SCHEMA, "model": model.config.to_dict(), "encodings": own, **facts}
    if model.vocabulary is not None:
        stated["vocabulary"] = model.vocabulary.to_dict()
    files.write_tensors(path, model.copies(), stated)


def read(path: Path) -> Transformer:
    """The model in a file that `write` wrote.

    Raises
    ------
    DamagedFileError
        If a byte differs from what was written, or the file does not contain a model.
    ValueError
        If its encoding is user-defined, and is not registered or has changed.
    OSError
        If the file cannot be read.
    """
    file = TensorFile(path)
    if "model" not in file.facts:
        raise damaged(path, "it contains no fastpe model: its header has no configuration")
    file.check_facts(FACTS)
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
            model.vocabulary = Vocabulary.from_dict(file.facts["vocabulary"])
    except ValueError as error:
        raise damaged(path, str(error)) from error
    return model


def of(file: TensorFile, config: ModelConfig) -> Transformer:
    """The model of this configuration with the tensors of a file; sizes are compared before memory is allocated."""
    try:
        _check_sizes(file, config)
        model = Transformer(config)
    except DamagedFileError:
        raise
    except (ValueError, TypeError) as error:  # invalid sizes, or sizes that need more memory than this machine has
        raise ValueError(f"{file.path}: {error}") from error
    for name, tensor in file.read().items():
        model.parameters[name][...] = tensor
    return model


def _check_sizes(file: TensorFile, config: ModelConfig) -> None:
    if config.layers > len(file.shapes):
        raise damaged(file.path, f"it does not match its configuration: it does not have {config.layers} layers")
    compare(file, {name: (shape, np.dtype(config.dtype)) for name, shape in shapes_of(config).items()})


def shapes_of(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter of the model, by name, without building the model."""
    expected = parameter_shapes(config)
    for part in registry.parse_all(config.encoding, config.options):
        spec = config.spec_of(part, 1)
        if spec.length == 1:  # a spec for one position, then extended: building a spec visits every position
            spec = replace(spec, length=config.train_length)
        for name, shape in part.encoding.parameters(spec, **part.options).items():
            owners = [f"layers.{layer}." for layer in range(config.layers)] if name in part.encoding.per_layer else [""]
            expected |= {f"{owner}encoding.{part.scheme}.{name}": shape for owner in owners}
    return expected


def compare(file: TensorFile, expected: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> None:
    """Raise DamagedFileError unless the file holds exactly the tensors with these names, shapes and dtypes."""
    found = {name: (file.shapes[name], file.dtypes[name]) for name in file.shapes}
    if found != expected:
        wrong = sorted(name for name in expected.keys() | found if expected.get(name) != found.get(name))
        raise damaged(file.path, f"it does not match its configuration: {', '.join(wrong[:3])}")
