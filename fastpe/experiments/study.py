"""Studies: which encodings, tasks, settings and seeds are to be run, as an object and as a TOML file.

A study may choose settings from a grid (`Study.choose`). Every candidate of the grid is then trained for every task and
encoding, on seeds that are not among those of the study, so that the reported result is not the luck of the seeds that
chose. These tuning runs (`Trial`) are validated and never tested: on sequences of the training lengths from a random
stream of their own (`fastpe.training.validation`), or on the last part of the training text (option ``tuning`` of the
task).
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpe.base import files, validation
from fastpe.base.registry import Registry
from fastpe.base.stored import parse_toml, printable
from fastpe.base.validation import count, is_time, named_arguments, nearest, real, shown, whole
from fastpe.encodings import registry
from fastpe.experiments import table5_facts
from fastpe.tasks.registry import TASKS
from fastpe.training.config import TrainConfig
from fastpe.training.presets import PRESETS, preset

MOST_SEEDS = 10_000
MOST_CANDIDATES = 10_000  # every candidate of a grid is listed, and a short file may ask for 10**12
FIRST_TUNING_SEED = 10_000
"""The first seed that chooses, where only the number of these seeds is given; counted seeds of a study end below it."""
TUNING_SEEDS = 3
"""How many seeds choose by default."""

SETTINGS = {f.name for f in fields(TrainConfig) if f.compare} - {
    "encoding", "options", "task", "task_options", "seed",
}  # fmt: skip
"""The settings that a study gives its runs."""
SETTINGS_HELP = "help(fastpe.TrainConfig) lists them"
_NEVER_CHOSEN = {
    "train_length", "lengths", "target_scale", "data", "digest", "alphabet", "test_lengths", "test_sequences",
    "validation",
}  # fmt: skip
"""Settings that define the question or its measurement: validation scores of different values cannot be compared."""
_OF_STUDY = ("seeds", "baseline", "margin", "threshold", "preset", "claims", "choose_seeds")

Candidate = Mapping[str, Any]


class RunKey(NamedTuple):
    """Names one run of a study: the labels of its task and encoding in the study, and its seed."""

    task: str
    encoding: str
    seed: int


class Trial(NamedTuple):
    """Names one tuning run: the labels of its task and encoding, the number of the candidate, and its seed."""

    task: str
    encoding: str
    candidate: int
    seed: int


@named_arguments
@dataclass(frozen=True)
class Study:
    """Encodings x tasks x seeds, all with the same settings.

    Parameters
    ----------
    encodings, tasks : dict of str to dict, or sequence of str
        By label: ``encoding`` or ``task`` (by default the label), ``options``, and settings for its runs. In a sequence
        the names are the labels.
    seeds : int or sequence of int
        The number of seeds, for the seeds 0 .. seeds - 1, or the seeds; the same for all encodings and tasks.
    baseline : str, optional
        The encoding that the others are compared with. The default is nope if it is among them, else the first.
    settings : dict
        Settings of all runs, as in `TrainConfig`.
    preset : str, optional
        A protocol (`fastpe.training.presets`) that `settings` change.
    margin : float, optional
        Differences within the margin count as no difference. It has the unit of scores; for errors it is relative (0.1
        is ten percent).
    threshold : float
        The least score up to an effective length.
    claims : str, optional
        The claims of a paper that the report judges: "table5", see `fastpe.experiments.claims`.
    choose : dict of str to list
        Settings, or options that every encoding has, and their candidate values. For every task and encoding all
        combinations are trained, and the study takes the one that is best in validation.
    choose_seeds : int or sequence of int, optional
        The seeds of the tuning runs, or their number, counted from 10000; by default 3. None of them may be in `seeds`.

    Raises
    ------
    ValueError, TypeError
        If a name is unknown, or a setting is not possible with an encoding or a task; the message names it.

    Examples
    --------
    >>> study = Study(["alibi", "nope"], ["reverse"], seeds=3, settings={"train_length": 8, "samples": 640})
    >>> study.baseline, len(list(study.run_keys()))
    ('nope', 6)
    >>> Study.from_toml(study.to_toml()) == study
    True
    """

    encodings: Mapping[str, Mapping[str, Any]]
    tasks: Mapping[str, Mapping[str, Any]]
    seeds: int | Sequence[int] = 10
    baseline: str = None  # type: ignore[assignment] # see __post_init__
    settings: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None
    margin: float | None = None
    threshold: float = 0.9
    claims: str | None = None
    choose: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    choose_seeds: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, key in (("encodings", "encoding"), ("tasks", "task")):
            object.__setattr__(self, name, _plain(_entries(name, key, getattr(self, name))))
        _known("settings", self.settings)
        object.__setattr__(self, "settings", _plain(self.settings))
        object.__setattr__(self, "seeds", _seeds("seeds", self.seeds))
        self._set_grid()
        usual = "nope" if "nope" in self.encodings else next(iter(self.encodings))
        object.__setattr__(self, "baseline", usual if self.baseline is None else self.baseline)
        if self.baseline not in self.encodings:
            known = nearest(self.baseline, self.encodings)
            raise ValueError(f"baseline must be one of the encodings, not {shown(self.baseline)}; {known}")
        if self.preset is not None and self.preset not in PRESETS:
            raise ValueError(f"preset must be {' or '.join(PRESETS)}, not {shown(self.preset)}")
        if self.margin is not None:
            object.__setattr__(self, "margin", real("margin", self.margin))
            if not self.margin > 0:
                raise ValueError(f"margin must be above 0, not {self.margin}")
        object.__setattr__(self, "threshold", real("threshold", self.threshold))
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must lie in (0, 1], not {self.threshold}")
        candidates = self.candidates
        if (cells := len(self.tasks) * len(self.encodings) * len(candidates)) > MOST_CANDIDATES:
            raise ValueError(f"a study must have at most {MOST_CANDIDATES} encodings x tasks x choices, not {cells}")
        for task, encoding in itertools.product(self.tasks, self.encodings):
            for candidate in candidates:
                config = self.config(RunKey(task, encoding, self.each_seed[0]), candidate)
                _check(describe(encoding, task, candidate), config)
        if self.claims is not None:
            self._check_claims()

    def _set_grid(self) -> None:
        if not isinstance(self.choose, Mapping):
            raise TypeError(f"choose must be a dict of settings to values, not {shown(self.choose)}")
        for name, values in self.choose.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise TypeError(f"choose {name!r} must be a list of values, not {shown(values)}")
        if (combinations := math.prod(map(count, self.choose.values()))) > MOST_CANDIDATES:
            raise ValueError(f"choose must have at most {MOST_CANDIDATES} combinations of values, not {combinations}")
        object.__setattr__(self, "choose", {name: _plain(list(values)) for name, values in self.choose.items()})
        if self.choose:
            seeds = TUNING_SEEDS if self.choose_seeds is None else self.choose_seeds
            object.__setattr__(self, "choose_seeds", _seeds("choose_seeds", seeds, FIRST_TUNING_SEED))
            self._check_choose()
        elif self.choose_seeds is not None:
            raise ValueError(f"choose_seeds needs choose, a grid of settings, not {shown(self.choose_seeds)} alone")

    def _check_choose(self) -> None:
        """Check that there is something to choose, and that nothing else sets it."""
        if self.claims is not None:
            raise ValueError(f"choose does not go with claims {self.claims!r}, whose settings are a paper's")
        if both := sorted(set(self.tuning_seeds) & set(self.each_seed)):
            raise ValueError(f"choose_seeds must not be among seeds, as {both[0]} is: tuning runs are not reported")
        for name, values in self.choose.items():
            if len(values) < 2 or any(value in values[:place] for place, value in enumerate(values)):
                raise ValueError(f"choose {name!r} must have at least two different values, not {list(values)}")
            if name in _NEVER_CHOSEN:
                raise ValueError(
                    f"choose {name!r}: it defines the question or its measurement, so that results cannot choose it"
                )
            self._check_unset(name)
            if name not in SETTINGS:
                self._check_option(name)
        for label, entry in self.tasks.items():
            if entry.get("options", {}).get("tuning"):
                raise ValueError(f"option 'tuning' of task {label!r} is that of the runs that choose: leave it out")

    def _check_unset(self, name: str) -> None:
        """Refuse to choose a setting that the study, a task or an encoding sets."""
        encodings = ((label, {**entry.get("options", {}), **entry}) for label, entry in self.encodings.items())
        for owner, own in (("settings", self.settings), *self.tasks.items(), *encodings):
            if name in own:
                raise ValueError(
                    f"choose {name!r}: it is set already, {name}={own[name]} of {owner}; leave one of them out"
                )

    def _check_option(self, name: str) -> None:
        """Check that a name that is no setting is an option of every encoding."""
        known = {label: registry.option_values(entry["encoding"]) for label, entry in self.encodings.items()}
        if not any(name in options for options in known.values()):
            near = nearest(name, SETTINGS.union(*known.values()), SETTINGS_HELP)
            raise ValueError(f"choose: setting {name!r} is unknown; {near}")
        for label, options in known.items():
            if name not in options:
                raise ValueError(f"choose {name!r} must be an option of every encoding, and {label} has no such option")

    def _check_claims(self) -> None:
        """Check that the study has the encodings, tasks and lengths that its claims are about."""
        if self.claims not in table5_facts.NAMES:
            raise ValueError(f"claims must be {' or '.join(table5_facts.NAMES)}, not {shown(self.claims)}")
        needed = ("encodings", table5_facts.PAPER, self.encodings), ("tasks", table5_facts.READINGS, self.tasks)
        for what, names, there in needed:
            if lacking := [name for name in names if name not in there]:
                needs = f"claims {self.claims!r} need the {what} {', '.join(names)}"
                raise ValueError(f"{needs}: {lacking[0]!r} is missing")
        for reading in table5_facts.READINGS:
            config = self.config_of(reading, "wavelet")
            if config.task != "running_sum" or not {*table5_facts.LENGTHS} <= {*config.test_lengths}:
                lengths = ", ".join(map(str, table5_facts.LENGTHS))
                raise ValueError(f"claims {self.claims!r} need running_sum at the lengths {lengths}")

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """All combinations of the values of `choose`; without `choose` one empty candidate."""
        return combinations(self.choose)

    @property
    def tuning_seeds(self) -> Sequence[int]:
        """The seeds of the tuning runs."""
        counted = self.choose_seeds or 0
        return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + counted) if isinstance(counted, int) else counted

    @property
    def each_seed(self) -> Sequence[int]:
        """The seeds of the runs."""
        return range(self.seeds) if isinstance(self.seeds, int) else self.seeds

    @property
    def count(self) -> int:
        """Number of seeds."""
        return len(self.each_seed)

    def run_keys(self) -> Iterator[RunKey]:
        """All runs, seed by seed, so that a study that is stopped early has about as many runs of every encoding."""
        for seed, task, encoding in itertools.product(self.each_seed, self.tasks, self.encodings):
            yield RunKey(task, encoding, seed)

    def trials(self, keys: Iterable[RunKey] | None = None) -> Iterator[Trial]:
        """All tuning runs, or only those that some runs need; none if the study chooses nothing."""
        wanted = None if keys is None else {(key.task, key.encoding) for key in keys}
        if self.choose:
            numbers = range(len(self.candidates))
            for seed, task, encoding, number in itertools.product(
                self.tuning_seeds, self.tasks, self.encodings, numbers
            ):
                if wanted is None or (task, encoding) in wanted:
                    yield Trial(task, encoding, number, seed)

    def trial_config(self, trial: Trial) -> TrainConfig:
        """The settings of a tuning run: those of the study with this candidate, with validation in place of tests.

        The number of validation sequences is that of the study's settings; if they do not state it, that of a test.
        """
        config = self.config(trial, self.candidates[trial.candidate])
        if config.symbols is not None:
            return replace(config, test_lengths=(), task_options={**config.task_options, "tuning": True})
        return replace(config, test_lengths=(), validation=config.validation or config.test_sequences)

    def config(self, key: RunKey | Trial, candidate: Mapping[str, Any] | None = None) -> TrainConfig:
        """The settings of a run with one of the `candidates`, by default the first."""
        encoding, task = self.encodings[key.encoding], self.tasks[key.task]
        candidate = self.candidates[0] if candidate is None else candidate
        own = {**self.settings, **_own(task), **_own(encoding), **_settings_of(candidate), "seed": key.seed}
        options = {**encoding.get("options", {}), **_options_of(candidate)}
        chosen = {"task": task["task"], "task_options": dict(task.get("options", {}))}
        try:
            if self.preset is not None:
                return preset(self.preset, encoding["encoding"], options, **{**chosen, **own}).tested()
            if "causal" not in own and TASKS.get(task["task"]).kind != "numbers":
                own["causal"] = True
            config = TrainConfig(encoding["encoding"], options, **chosen, **own)
            return (config if "causal" in own else config.causal_where_needed()).tested()
        except (TypeError, ValueError) as error:
            raise type(error)(f"{describe(key.encoding, key.task, candidate)}: {error}") from error

    def config_of(self, task: str, encoding: str | None = None) -> TrainConfig:
        """The settings of the run of a task and an encoding, by default the baseline, with the first seed."""
        return self.config(RunKey(task, self.baseline if encoding is None else encoding, self.each_seed[0]))

    def with_texts(self) -> "Study":
        """The study with the SHA-256 and the characters of its texts, so that it can be reported without the texts."""
        tasks = {}
        for task, entry in self.tasks.items():
            configs = [self.config_of(task, encoding) for encoding in self.encodings]
            found = {(config.digest, config.alphabet) for config in configs}
            digest, alphabet = found.pop()
            known = digest is not None and not found  # encodings with different texts have several digests
            tasks[task] = {**entry, "digest": digest, "alphabet": alphabet} if known else entry
        return replace(self, tasks=tasks)

    def part(self, number: int, of: int) -> list[RunKey]:
        """The runs of one shard; shards are counted from 1.

        A shard has every `of`-th run. In a study that chooses settings it has all runs of every `of`-th pair of task
        and encoding, because these need the same tuning runs.
        """
        if not 1 <= number <= of:
            raise ValueError(f"shard must be 1/N to N/N, not {number}/{of}")
        if self.choose:
            pairs = list(itertools.product(self.tasks, self.encodings))[number - 1 :: of]
            return [key for key in self.run_keys() if (key.task, key.encoding) in pairs]
        return [key for place, key in enumerate(self.run_keys()) if place % of == number - 1]

    def to_toml(self) -> str:
        """The study as TOML; `from_toml` is its inverse."""
        facts = {name: getattr(self, name) for name in _OF_STUDY if getattr(self, name) is not None}
        lines = [f"{name} = {_value(value)}" for name, value in facts.items()]
        for title, entries in (("encoding", self.encodings), ("task", self.tasks)):
            for label, entry in entries.items():
                lines += ["", f"[{title}.{_quoted(label)}]"]
                lines += [f"{name} = {_value(value)}" for name, value in entry.items() if value != {}]
        if self.settings:
            lines += ["", "[settings]", *(f"{name} = {_value(value)}" for name, value in self.settings.items())]
        if self.choose:
            lines += ["", "[choose]", *(f"{_quoted(name)} = {_value(value)}" for name, value in self.choose.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> "Study":
        """Make a study from TOML, as `to_toml` writes it.

        Encodings and tasks are named by their keys. Paths are refused; register such a file first.

        Raises
        ------
        ValueError, TypeError
            If it is not TOML, names something unknown, or as `Study` does.
        """
        found = parse_toml(text)
        known = (*_OF_STUDY, "encoding", "task", "settings", "choose")
        for name in found:
            if name not in known:
                raise ValueError(f"the study names {name!r}, which is unknown; {nearest(name, known)}")
        for name in ("encoding", "task"):
            if not isinstance(found.get(name), dict) or not found[name]:
                raise ValueError(f"the study lacks [{name}.NAME]: one table for each")
        own = {name: found[name] for name in (*_OF_STUDY, "settings", "choose") if name in found}
        encodings = _known_names(found["encoding"], registry.ENCODINGS, registry.canonical)
        return cls(encodings, _known_names(found["task"], TASKS, TASKS.known), **own)

    @classmethod
    def read(cls, path: str | Path) -> "Study":
        """Read a study from a TOML file, see `from_toml`.

        Raises ValueError that names the file, also for a value of the wrong type.
        """
        content = files.read_file(Path(path))
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: the study is not UTF-8: {error}") from error
        try:
            return cls.from_toml(text)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error


def varied(study: Study, choices: Mapping[str, Sequence[Any]]) -> Study:
    """A study in which every encoding is repeated with every combination of some settings' values.

    Examples
    --------
    >>> list(varied(Study(["nope"], ["reverse"], seeds=1), {"heads": [1, 2]}).encodings)
    ['nope heads=1', 'nope heads=2']
    """
    _known("vary", choices)
    found, baselines = {}, []
    for label, entry in study.encodings.items():
        for values in itertools.product(*choices.values()):
            own = dict(zip(choices, values, strict=True))
            name = " ".join([label, *(f"{key}={value}" for key, value in own.items())])
            found[name] = {**entry, **own}
            baselines += [name] * (label == study.baseline)
    return replace(study, encodings=found, baseline=baselines[0])


def combinations(choose: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the values; without values one empty combination.

    >>> combinations({"lr": [0.1, 0.2], "heads": [1]}), combinations({})
    ([{'lr': 0.1, 'heads': 1}, {'lr': 0.2, 'heads': 1}], [{}])
    """
    return [dict(zip(choose, values, strict=True)) for values in itertools.product(*choose.values())]


def candidate_name(candidate: Candidate) -> str:
    """A candidate as text.

    >>> candidate_name({"lr": 0.001, "heads": 2})
    'lr=0.001 heads=2'
    """
    return " ".join(f"{name}={shown(value) if isinstance(value, int) else value}" for name, value in candidate.items())


def describe(encoding: str, task: str, candidate: Candidate) -> str:
    """The encoding, the task and the candidate of a run, for error messages.

    >>> describe("alibi", "sort", {"heads": 3}), describe("alibi", "sort", {})
    ('alibi on sort, heads=3', 'alibi on sort')
    """
    return ", ".join(each for each in (f"{encoding} on {task}", candidate_name(candidate)) if each)


def _settings_of(candidate: Candidate) -> dict[str, Any]:
    """The part of a candidate that sets `TrainConfig`."""
    return {name: value for name, value in candidate.items() if name in SETTINGS}


def _options_of(candidate: Candidate) -> dict[str, Any]:
    """The part of a candidate that sets options of the encoding."""
    return {name: value for name, value in candidate.items() if name not in SETTINGS}


def _check(whose: str, config: TrainConfig) -> None:
    """Let every encoding check its options, so that an impossible combination is refused before any run."""
    for part in registry.parse_all(config.encoding, config.options):
        try:
            part.encoding.check(config.model.spec(config.model.train_length), **part.options)
        except ValueError as error:
            raise ValueError(f"{whose}: {error}") from error


def _seeds(name: str, value: int | Sequence[int], first: int = 0) -> int | tuple[int, ...]:
    """The number of seeds if they are counted from `first`, else all of them."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return whole(name, value, 1, MOST_SEEDS)
    if count(value) > MOST_SEEDS:
        raise ValueError(f"{name} must be distinct, 1 to {MOST_SEEDS} of them, not {count(value)}")
    each = tuple(validation.seed(name, seed) for seed in value)
    if not each or len(set(each)) < len(each):
        raise ValueError(f"{name} must be distinct, 1 to {MOST_SEEDS} of them, not {list(value)}")
    return len(each) if each == tuple(range(first, first + len(each))) else each


def _entries(name: str, key: str, value: object) -> dict[str, dict[str, Any]]:
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        example = "['alibi', 'nope']" if key == "encoding" else "['reverse']"
        raise TypeError(f"{name} must be a list of names, as in {example}, or a dict of them, not {shown(value)}")
    if count(value) > MOST_CANDIDATES:
        raise ValueError(f"{name} must have at most {MOST_CANDIDATES} entries, not {count(value)}")
    given = value if isinstance(value, Mapping) else {each: {} for each in value}
    if not given:
        raise ValueError(f"{name} must have at least one name")
    if len(given) < len(value):
        raise ValueError(f"{name} must be distinct, not {list(value)}")
    found = {}
    for label, entry in given.items():
        if not isinstance(label, str) or not label or not isinstance(entry, Mapping):
            raise TypeError(f"{name} must be a dict of names to settings, not {shown(label)}: {shown(entry)}")
        if not isinstance(entry.get("options", {}), Mapping):
            raise TypeError(f"options of {label!r} must be a dict, not {shown(entry['options'])}")
        if label != printable(label):
            raise ValueError(f"{name} must have names of one line without control characters, not {label!r}")
        _known(label, {each: entry[each] for each in entry if each not in (key, "options")})
        given = entry.get(key, label)
        known = registry.canonical(registry.resolve(given)) if key == "encoding" else TASKS.known(TASKS.resolve(given))
        label = known if label.endswith(".py") else label
        found[label] = {**{each: value for each, value in entry.items() if each != "options" or value}, key: known}
    return found


def _plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to Python values for TOML; times, which are no valid settings, are kept."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        found = map(_plain, value)
        return list(found) if isinstance(value, list) else tuple(found)
    return value.tolist() if hasattr(value, "tolist") and not is_time(value) else value


def _known_names(entries: Mapping[str, Any], of: Registry[Any], known: Callable[[str], str]) -> dict[str, Any]:
    """Entries of a file, after a check that their names are keys, because making a study would resolve paths."""
    key = of.kind.word
    try:
        return {
            label: {**entry, key: known(entry.get(key, label))} if isinstance(entry, Mapping) else entry
            for label, entry in entries.items()
        }
    except ValueError as error:
        raise ValueError(f"{error}; name your own file {of.kind.how}") from error


def _own(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in the entry of an encoding or a task."""
    return {name: value for name, value in entry.items() if name not in ("encoding", "task", "options")}


def _known(whose: str, settings: object) -> None:
    if not isinstance(settings, Mapping):
        raise TypeError(f"{whose} must be a dict of settings, not {shown(settings)}")
    for name in settings:
        if name not in SETTINGS:
            raise ValueError(f"{whose}: setting {name!r} is unknown; {nearest(str(name), SETTINGS, SETTINGS_HELP)}")


def _quoted(text: str) -> str:
    """A text as TOML, with control characters escaped."""
    written = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in written)


def _value(value: Any) -> str:
    """A value as TOML; numbers, booleans and most texts are the same in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_quoted(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Path):
        return _quoted(str(value))
    return _quoted(value) if isinstance(value, str) else json.dumps(value)
