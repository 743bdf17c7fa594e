"""A training that takes no time, interrupted ones, and what two of them must have in common."""

import json

import pytest

from fastpe.base.files import TensorFile
from fastpe.training.config import TrainConfig
from fastpe.training.loop import train

CONFIG = TrainConfig(
    "learned", {"beyond": "clip"}, width=8, hidden=8, layers=1, heads=2, train_length=6, samples=20, batch=8, epochs=3,
    lr=0.01, test_lengths=(6, 9), test_sequences=30,
)  # fmt: skip
STEPS = 3  # per epoch: 8, 8 and 4 sequences


def interrupted(config, path, kind, *, resume=False, **facts):
    """Train until Ctrl-C at the first event of this kind that has these facts."""

    def listen(event):
        if isinstance(event, kind) and all(getattr(event, name) == value for name, value in facts.items()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, out=path, resume=resume, progress=listen)


def same_model(path, whole):
    return (path / "model.safetensors").read_bytes() == (whole[0] / "model.safetensors").read_bytes()


def same_result(result, other):
    """Equal but for the seconds."""
    return {**result, "train": {**result["train"], "seconds": 0}} == {
        **other,
        "train": {**other["train"], "seconds": 0},
    }


def assert_same_run(path, other):
    """Both run folders hold the same model, checkpoint, metrics and result, but for the seconds."""
    assert same_model(path, [other])
    digests = [TensorFile(each / "checkpoint.safetensors").facts["sha256"] for each in (path, other)]
    assert digests[0] == digests[1]
    texts = [(each / "metrics.jsonl").read_text() for each in (path, other)]
    lines = [[json.loads(line) | {"seconds": 0} for line in text.splitlines()] for text in texts]
    assert lines[0] == lines[1]
    assert same_result(*(json.loads((each / "result.json").read_text()) for each in (path, other)))
