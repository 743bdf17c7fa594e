"""Table 5 of Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models", section 7, as a study.

The paper trains a small transformer "encoder" on the running sums of 50 numbers, with four position encodings, and
tests it at lengths 50, 100 and 200. It prints one number for each, without seeds or a spread, and leaves many settings
open. Here every encoding is trained with several seeds, in both readings of "encoder" (bidirectional and causal).
`nope`, `learned` and ALiBi with its authors' slopes are added to the paper's four encodings. No setting is tuned to
match the paper's numbers.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastpe.base.validation import nearest
from fastpe.encodings.registry import get, parse_option
from fastpe.experiments import claims
from fastpe.experiments.compare import compare
from fastpe.experiments.jobs import Listener
from fastpe.experiments.sections import Section
from fastpe.experiments.study import Study
from fastpe.experiments.study_folder import RUNS, Compared
from fastpe.experiments.table5_facts import LEFT_OPEN, LENGTHS, READINGS
from fastpe.training.config import TrainConfig

AUTHORS = "alibi-authors"
"""ALiBi with its authors' slopes. With the slope of Li (2025), 0.1 / 50 = 0.002, the bias is close to 0."""
ENCODINGS = ("sinusoidal", "alibi", AUTHORS, "wavelet", "legendre", "nope", "learned")
SEEDS, QUICK_SEEDS = 10, 3
QUICK: Mapping[str, Any] = {"samples": 1000, "epochs": 4, "test_sequences": 200}

Varied = dict[str, str]


@dataclass(frozen=True)
class Variant:
    """One choice of the settings that the paper leaves open: the changed settings as text, and the resulting study."""

    varied: Varied
    study: Study

    @property
    def name(self) -> str:
        """The changed settings, or "as the paper has it"."""
        return " ".join(f"{name}={value}" for name, value in self.varied.items()) or "as the paper has it"


def study(varied: Varied, seeds: int = SEEDS, quick: bool = False) -> Study:
    """The paper's experiment as a study, with the settings in `varied` changed.

    Examples
    --------
    >>> study({"wavelet.wavelet": "db2"}).encodings["wavelet"]["options"]
    {'wavelet': 'db2'}
    """
    settings = {name: _field(name, text) for name, text in varied.items() if "." not in name}
    encodings: dict[str, dict[str, Any]] = {}
    for label in ENCODINGS:
        key = label.removesuffix("-authors")
        own = {name.partition(".")[2]: text for name, text in varied.items() if name.startswith(f"{label}.")}
        options = {name: parse_option(key, name, text) for name, text in own.items()}
        if label == key:
            options = TrainConfig.paper(key, options).options  # with the options that the paper names
        encodings[label] = {"encoding": key, "options": options}
    if "start" in settings:
        encodings["learned"]["start"] = 0.0
    tasks = {reading: {"task": "running_sum", "causal": reading == "causal"} for reading in READINGS}
    own_settings = {"test_lengths": list(LENGTHS), **settings, **(QUICK if quick else {})}
    return Study(encodings, tasks, seeds, "sinusoidal", own_settings, claims="table5")


def variants(requests: Sequence[str], seeds: int = SEEDS, quick: bool = False) -> list[Variant]:
    """The studies with every combination of the requested values. A request is a string such as ``"batch=32,64"``.

    Raises
    ------
    ValueError
        If a request is malformed, names an unknown setting or repeats one, or an encoding refuses a combination.

    Examples
    --------
    >>> [one.name for one in variants(["batch=32,64", "residual=no"])]
    ['batch=32 residual=no', 'batch=64 residual=no']
    """
    choices: dict[str, list[str]] = {}
    for request in requests:
        name, equals, text = request.partition("=")
        name = name.strip()
        values = list(dict.fromkeys(value.strip() for value in text.split(",")))
        if not equals or not all(values):
            raise ValueError(f"vary must be SETTING=VALUE,VALUE,..., not {request!r}")
        if name in choices:
            raise ValueError(f"vary {name!r} is given twice: give all its values in one list")
        _check_name(name)
        choices[name] = values
    return [
        _variant(dict(zip(choices, chosen, strict=True)), seeds, quick)
        for chosen in itertools.product(*choices.values())
    ]


def _variant(varied: Varied, seeds: int, quick: bool) -> Variant:
    try:
        return Variant(varied, study(varied, seeds, quick))
    except ValueError as error:
        if not varied:
            raise
        raise ValueError(f"vary: {', '.join(f'{k}={v}' for k, v in varied.items())}: {error}") from error


def _check_name(name: str) -> None:
    scheme, dot, option = name.partition(".")
    known = [key for key in ENCODINGS if key != AUTHORS]
    if dot and scheme in known and option in get(scheme).options:
        return
    if dot or name not in LEFT_OPEN:
        options = [f"{key}.{each}" for key in known for each in get(key).options]
        raise ValueError(
            f"vary: {name!r} is not a setting that the paper leaves open and that can be varied; "
            f"{nearest(name, [*LEFT_OPEN, *options] if dot else LEFT_OPEN)}"
        )


def _field(name: str, text: str) -> Any:
    """The value of a setting, converted from text."""
    default = getattr(TrainConfig, name)
    try:
        if isinstance(default, bool):
            return {"yes": True, "true": True, "no": False, "false": False}[text.lower()]
        return type(default)(text)
    except (KeyError, ValueError):
        raise ValueError(f"{name} must be {LEFT_OPEN[name]}, not {text!r}") from None


def reproduce(
    out: Path, made: Sequence[Variant], workers: int = 1, notify: Listener | None = None
) -> list[tuple[Variant, Compared]]:
    """Make all runs of some variants, write their reports, and return each variant with its results.

    Parameters
    ----------
    out : Path
        The folder of the study. Each variant that changes settings has a folder in this folder. Runs are in
        ``out/runs``. A run that was finished with the same settings, sources, versions and CPU is not repeated.
    made : sequence of Variant
        The variants, as `variants` returns them.
    workers : int
        Number of processes, each with one thread; results do not depend on it.
    notify : callable, optional
        Called with every `fastpe.experiments.jobs.JobEvent`.
    """
    found = []
    for one in made:
        folder = out if not one.varied else out / one.name.replace(" ", "_")
        compared = compare(one.study, out=folder, runs=out / RUNS, workers=workers, progress=notify)
        assert compared is not None  # `compare` returns None only for a shard
        found.append((one, compared))
    return found


def overview(found: Sequence[tuple[Variant, Compared]]) -> Section:
    """The verdicts of all variants on claims about the order, which do not depend on the unit of errors."""
    chosen = ("the order at", "wavelet is best")
    verdicts = {
        (one["reading"], one["claim"], variant.name): one["verdict"]
        for variant, compared in found
        for one in claims.judge(variant.study, compared.summary)
        if one["claim"].startswith(chosen)
    }
    complete = [
        f"{variant.name} ({reading})"
        for variant, _ in found
        for reading in READINGS
        if {verdict for (read, _, name), verdict in verdicts.items() if (read, name) == (reading, variant.name)}
        == {claims.HOLDS}
    ]
    line = f"Variants with the paper's order at all lengths: {', '.join(complete) or 'none'}."
    head = ("reading", "claim", "variant", "verdict")
    return Section("All variants", [line], head, [(*key, verdict) for key, verdict in verdicts.items()])
