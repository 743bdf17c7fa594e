"""The content of each file of a run folder, as forms that check a file when it is read.

Forms that take a configuration also check that the file fits the configuration: the step of a checkpoint is the last
step of its epoch, and the lengths of a result are the test lengths.
"""

from typing import Any

from fastpe.base import own_files
from fastpe.base.stored import (
    Form,
    anything,
    by_key,
    each,
    exactly,
    maybe,
    number,
    one_of,
    record,
    sha256,
    text,
    truth,
    whole,
)
from fastpe.training.config import TrainConfig

SCHEMA = 2

TOKENS = ("exact", "token", "loss")
METRICS = {
    "answer": TOKENS, "labels": TOKENS, "numbers": ("mse", "nmse", "mse_last", "mse_beyond"),
    "text": ("loss", "bits_per_byte"),
}  # fmt: skip
"""Metrics of a test, by the kind of the task."""
SUMMARY = {"answer": "exact", "labels": "exact", "numbers": "mse", "text": "bits_per_byte"}
"""The metric that summarizes a result, by the kind of the task (see `summary`)."""
NAMES = {
    "exact": "exact answers", "mse": "mean squared error", "bits_per_byte": "bits per byte", "loss": "nats per token",
}  # fmt: skip
"""The names of these metrics."""


def summary(config: TrainConfig) -> str:
    """Return the metric that summarizes a result: that of `SUMMARY`, or the loss of tokens whose text is unknown."""
    symbols = config.symbols
    return "loss" if symbols is not None and symbols.kind == "ids" else SUMMARY[config.chosen.task.kind]


ENDS = ("epochs", "solved", "validation")
"""Why a training ended (see `stopping.reason_to_end`)."""

_CPU = record({"name": text, "machine": text, "system": text, "vectors": each(text)})
_ENVIRONMENT = {"versions": by_key(text), "cpu": _CPU}

CONFIG = record(
    {
        "schema": exactly(SCHEMA),
        "config": by_key(anything),  # `TrainConfig.from_dict` checks them one by one
        "encoding_options": by_key(anything),
        "protocol": by_key(text),
        **_ENVIRONMENT,
        "resumed": each(record(_ENVIRONMENT, optional={"epochs": whole(1, 2**40)})),
    },
    optional={
        "encodings": own_files.FORM,
        "tasks": own_files.FORM,
        "text": text,
        "start": record({"left_out": each(text), "initial": each(text)}),
    },
)
"""Form of ``config.json``, without its checksum."""

SEAL = record({"result": sha256}, optional={"identity": sha256})
"""Form of ``seal.json``."""


def metrics_line(config: TrainConfig) -> Form:
    """Return the form of a line of ``metrics.jsonl``."""
    validation = {"validation": _validated(config)} if config.validation else {}
    return _at_an_epoch(config, record({**_progress(config), **validation}))


def _validated(config: TrainConfig) -> Form:
    """Return the form of the validation metrics."""
    share = {"exact": number(0.0)} if "exact" in METRICS[config.chosen.task.kind] else {}
    of_text = {"bits_per_byte": maybe(number(0.0))} if config.chosen.task.kind == "text" else {}
    return record({"loss": maybe(number(0.0)), **share}, optional=of_text)


def checkpoint(config: TrainConfig, digest: str) -> Form:
    """Return the form of the facts in ``checkpoint.safetensors``; `digest` is that of the configuration."""
    stated = {"schema": exactly(SCHEMA), "config": exactly(digest), "sha256": sha256, "header_sha256": sha256}
    best = {"best_epoch": whole(0, config.epochs), "best_loss": maybe(number(0.0)), "solved": truth}
    whole_file = _at_an_epoch(config, record({**stated, **_progress(config), **best}))

    def consistent(key: str, value: Any) -> None:
        whole_file(key, value)
        whole(0, value["epoch"] if config.validation else 0)("best_epoch", value["best_epoch"])

    return consistent


def result(config: TrainConfig) -> Form:
    """Return the form of ``result.json``."""
    kind = config.chosen.task.kind
    names = METRICS[kind]
    metrics = {name: maybe(number(0.0)) for name in names}
    count = {"tokens": whole(0, 2**62)} if kind == "text" else {"sequences": exactly(config.test_sequences)}
    test = record({**metrics, **count}, optional={"reason": text, "note": text})

    def told_why(key: str, value: Any) -> None:
        test(key, value)
        if value[names[0]] is None:
            text(f"{key}.reason", value.get("reason"))

    train = _ended(config)
    return record(
        {
            "schema": exactly(SCHEMA),
            "task": exactly(config.task),
            "encoding": exactly(config.encoding),
            "seed": exactly(config.seed),
            "train": train,
            "test": record({str(length): told_why for length in config.test_lengths}),
            **({"validation": told_why} if kind == "text" else {}),
        },
        optional={"validation": _validated(config)} if config.validation and kind != "text" else {},
    )


def _ended(config: TrainConfig) -> Form:
    """Return the form of the training's part of a result."""
    best = {"best_epoch": whole(0, config.epochs), "ended": one_of(*ENDS)} if config.validation else {}
    steps = whole(1, config.steps)
    form = record({"steps": steps, "loss": number(0.0), "seconds": number(0.0), **best})

    def consistent(key: str, value: Any) -> None:
        form(key, value)
        possible = {"epochs"} if value["steps"] == config.steps else set()
        possible |= {"solved"} if config.stop_solved else set()
        possible |= {"validation"} if config.patience else set()
        if not possible:
            exactly(config.steps)(f"{key}.steps", value["steps"])
        if config.validation:
            one_of(*sorted(possible))(f"{key}.ended", value["ended"])
        exactly(0)(f"{key}.steps mod {config.steps_per_epoch}", value["steps"] % config.steps_per_epoch)

    return consistent


def _progress(config: TrainConfig) -> dict[str, Form]:
    steps = whole(1, config.steps)
    return {"epoch": whole(1, config.epochs), "step": steps, "loss": number(0.0), "seconds": number(0.0)}


def _at_an_epoch(config: TrainConfig, form: Form) -> Form:
    """Return a form that also requires the step to be the last step of its epoch."""

    def consistent(key: str, value: Any) -> None:
        form(key, value)
        exactly(value["epoch"] * config.steps_per_epoch)("step", value["step"])

    return consistent
