"""A model in a file: its parameters as safetensors, its configuration in the header. `loading` reads models."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import files, own_files, stored
from fastpe.base.files import TensorFile
from fastpe.base.stored import damaged
from fastpe.encodings import registry
from fastpe.model.config import ModelConfig
from fastpe.model.parameters import parameter_shapes
from fastpe.text import vocabulary as vocabularies
from fastpe.text.vocabulary import Vocabulary

SCHEMA = 2
FACTS = stored.record(
    {
        "schema": stored.exactly(SCHEMA),
        "model": stored.by_key(stored.anything),  # `ModelConfig.from_dict` checks the settings
        "sha256": stored.sha256,
        "header_sha256": stored.sha256,
    },
    optional={"encodings": own_files.FORM, "config": stored.sha256, "vocabulary": vocabularies.FORM},
)
"""Form of the facts in a model's file. ``config`` is the digest of the configuration of the run that trained it."""


def write(
    path: Path, model: ModelConfig, parameters: Mapping[str, Any], vocabulary: Vocabulary | None, **facts: Any
) -> None:
    """Write a model's parameters, with its configuration, digests of user-defined encodings and `facts` in the header.

    Parameters
    ----------
    model : ModelConfig
        The configuration.
    **facts
        As in `FACTS`.
    """
    files.check_place(path)
    stated = {"schema": SCHEMA, "model": model.to_dict(), "encodings": registry.own_files(model.encoding), **facts}
    if vocabulary is not None:
        stated["vocabulary"] = vocabulary.to_dict()
    files.write_tensors(path, parameters, stated)


def check_sizes(file: TensorFile, config: ModelConfig) -> None:
    """Raise DamagedFileError unless the file holds the tensors of a model of this configuration."""
    if config.layers > len(file.shapes):
        raise damaged(file.path, f"it does not match its configuration: it does not have {config.layers} layers")
    compare(file, {name: (shape, np.dtype(config.dtype)) for name, shape in shapes_of(config).items()})


def shapes_of(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of the model, by name, without building the model."""
    expected = parameter_shapes(config)
    for part in registry.parse_all(config.encoding, config.options):
        spec = config.spec_of(part, 1)
        # a spec is built for one position and then extended, because building a spec visits every position
        if spec.length == 1:
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
