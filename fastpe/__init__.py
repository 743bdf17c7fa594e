"""Fast, exact position encodings for transformers on a CPU.

Encodings, which fill *slots*: small arrays, each of which is used at one fixed point of a transformer
    list_encodings, page        the keys of all encodings; the page of an encoding: formula, source, options
    build                       fill the slots of an encoding, or of a sum such as "wavelet+alibi"
    init, pull, resize          parameters: initial values, gradients, resizing to another length or grid
    show                        draw an encoding, before training or as a model has learned it
    register                    add an encoding that you have written in a file
    Encoding, Option, Spec, Reported, Needs, BeyondTrainingLength
                                the names that such a file uses

Attention with any slots
    attention, attention_vjp    on NumPy arrays, with gradients, in O(N) memory
    attention_scores            scores or weights of attention as a dense array, for inspection
    rotate, rotate_vjp          rotation of pairs of channels (RoPE), for a key/value cache or any rows
    spans                       the keys that each query sees: documents, prefixes, padding, windows
    bands                       rotations by the distance of query and key: Self-Extend, ReRoPE, DCA, StreamingLLM
    columns                     terms of scores that depend on content: forget gates, decays, gated slopes
    angles                      rotations that depend on content: Selective RoPE
    temperatures                factors on queries that depend on the position
    heads                       scores of attention heads: previous token, induction, sink; use of frequencies
    fastpe.torch, fastpe.jax    the same for PyTorch and JAX

The small transformer
    ModelConfig, Transformer    settings and model: outputs, loss, gradients, save
    schedule                    the layers of a released model: encodings, windows, chunks
    Adam                        the optimiser
    Banded                      a trained model that uses bands to read longer inputs
    TrainConfig, train          settings of a training run; train a model
    CsvLog, TensorBoardLog      logs of a training run; how to write one for another service
    evaluate, load              test a model at other lengths; load a trained or saved model
    to_hf, load_hf              write and read models in the format of Hugging Face's transformers
    length_curve, receptive_field
                                measurements on a text: the loss by length; how far back a model looks
    inspect                     what heads attend to, which frequencies they use, what changes of positions do
    compare, load_study         compare encodings on tasks, over seeds, with statistics; read a finished study
    fastpe.tasks                the tasks for training

Results without training
    fastpe.theory.page          facts about an encoding: distances, reach, limits, and how each fact is known

    reference                   the specification: attention and the model in plain NumPy

``import fastpe`` does not import NumPy or Numba: each name is loaded when it is first used.

>>> import fastpe
>>> "wavelet" in fastpe.list_encodings()
True
"""

from typing import TYPE_CHECKING, Any

from fastpe.base import forks as _forks  # noqa: F401 - tracks forks from now on
from fastpe.base.shielded import load as _load
from fastpe.base.version import VERSION as _VERSION

__version__ = _VERSION

if TYPE_CHECKING:
    from fastpe import angles as angles
    from fastpe import bands as bands
    from fastpe import columns as columns
    from fastpe import heads as heads
    from fastpe import reference as reference
    from fastpe import spans as spans
    from fastpe import tasks as tasks
    from fastpe import temperatures as temperatures
    from fastpe import theory as theory
    from fastpe.base.option import Option
    from fastpe.encodings.build import build, init, pull
    from fastpe.encodings.encoding import BeyondTrainingLength, Encoding, Needs, Reported
    from fastpe.encodings.registry import list_encodings, page, register
    from fastpe.encodings.resize import resize
    from fastpe.encodings.slots import Spec
    from fastpe.experiments.compare import compare
    from fastpe.experiments.existing_runs import load_study
    from fastpe.functional.attention import attention, attention_vjp
    from fastpe.functional.rotation import rotate, rotate_vjp
    from fastpe.huggingface.export import to_hf
    from fastpe.huggingface.loading import load_hf
    from fastpe.model.adam import Adam
    from fastpe.model.banded import Banded
    from fastpe.model.config import ModelConfig
    from fastpe.model.schedules import schedule
    from fastpe.model.transformer import Transformer
    from fastpe.pictures.show import show
    from fastpe.reference import attention_scores
    from fastpe.training.config import TrainConfig
    from fastpe.training.evaluation import evaluate
    from fastpe.training.inspection import inspect
    from fastpe.training.length_curve import length_curve
    from fastpe.training.logging import CsvLog, TensorBoardLog
    from fastpe.training.loop import train
    from fastpe.training.receptive_field import receptive_field
    from fastpe.training.run_folder import load

# public name -> the module that defines it ("" = the name is itself a module)
_HOME = {
    "attention": "fastpe.functional.attention",
    "attention_vjp": "fastpe.functional.attention",
    "attention_scores": "fastpe.reference",
    "rotate": "fastpe.functional.rotation",
    "rotate_vjp": "fastpe.functional.rotation",
    "build": "fastpe.encodings.build",
    "init": "fastpe.encodings.build",
    "resize": "fastpe.encodings.resize",
    "list_encodings": "fastpe.encodings.registry",
    "page": "fastpe.encodings.registry",
    "show": "fastpe.pictures.show",
    "pull": "fastpe.encodings.build",
    "register": "fastpe.encodings.registry",
    "Encoding": "fastpe.encodings.encoding",
    "Option": "fastpe.base.option",
    "Spec": "fastpe.encodings.slots",
    "Reported": "fastpe.encodings.encoding",
    "Needs": "fastpe.encodings.encoding",
    "BeyondTrainingLength": "fastpe.encodings.encoding",
    "ModelConfig": "fastpe.model.config",
    "TrainConfig": "fastpe.training.config",
    "schedule": "fastpe.model.schedules",
    "Transformer": "fastpe.model.transformer",
    "Banded": "fastpe.model.banded",
    "Adam": "fastpe.model.adam",
    "train": "fastpe.training.loop",
    "CsvLog": "fastpe.training.logging",
    "TensorBoardLog": "fastpe.training.logging",
    "evaluate": "fastpe.training.evaluation",
    "load": "fastpe.training.run_folder",
    "to_hf": "fastpe.huggingface.export",
    "load_hf": "fastpe.huggingface.loading",
    "length_curve": "fastpe.training.length_curve",
    "inspect": "fastpe.training.inspection",
    "receptive_field": "fastpe.training.receptive_field",
    "compare": "fastpe.experiments.compare",
    "load_study": "fastpe.experiments.existing_runs",
    "angles": "",
    "bands": "",
    "columns": "",
    "heads": "",
    "reference": "",
    "spans": "",
    "tasks": "",
    "temperatures": "",
    "theory": "",
}
_ADAPTERS = ("jax", "torch")  # modules that need the framework they are named after

__all__ = [  # noqa: RUF022 - in the order a reader meets them
    "list_encodings", "page", "build", "init", "pull", "resize", "show", "register",
    "Encoding", "Option", "Spec", "Reported", "Needs", "BeyondTrainingLength",
    "attention", "attention_vjp", "attention_scores", "rotate", "rotate_vjp", "spans", "bands", "columns",
    "angles", "temperatures", "heads",
    "ModelConfig", "schedule", "Transformer", "Adam", "TrainConfig", "train", "CsvLog", "TensorBoardLog", "evaluate",
    "load", "Banded", "to_hf", "load_hf", "length_curve", "receptive_field", "inspect", "compare", "load_study",
    "tasks", "theory", "reference",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _ADAPTERS:
        return _load(f"fastpe.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fastpe' has no attribute {name!r}")
    home = _HOME[name]
    value = getattr(_load(home), name) if home else _load(f"fastpe.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
