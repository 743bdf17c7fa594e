"""Studies: the encodings, tasks, settings and seeds of a set of runs, as an object and as a TOML file.

A study may choose settings from a grid (`Study.choose`). Every candidate of the grid is then trained for every task and
encoding. These tuning runs (`Trial`) have other seeds than the study, so that the reported results are not biased by
the choice. They are validated and never tested. Validation uses sequences of the training lengths from a separate
random stream (`fastpe.training.validation`), or the last part of the training text (option ``tuning`` of the task).
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
from fastpe.base.validation import choice, count, is_time, named_arguments, nearest, real, shown, whole
from fastpe.encodings import registry
from fastpe.experiments import table5_facts
from fastpe.tasks.registry import TASKS
from fastpe.training.config import TrainConfig
from fastpe.training.presets import PRESETS, preset

MOST_SEEDS = 10_000
MOST_CANDIDATES = 10_000  # all candidates of a grid are listed in memory, and a short file could ask for 10**12
FIRST_TUNING_SEED = 10_000
"""The first tuning seed, if only the number of tuning seeds is given. Counted seeds of a study are below it."""
TUNING_SEEDS = 3
"""The default number of tuning seeds."""

SETTINGS = {f.name for f in fields(TrainConfig) if f.compare} - {
    "encoding", "options", "task", "task_options", "seed",
}  # fmt: skip
"""The settings that a study may set for its runs."""
SETTINGS_HELP = "help(fastpe.TrainConfig) lists them"
_NEVER_CHOSEN = {
    "train_length", "lengths", "target_scale", "data", "digest", "alphabet", "tokenizer", "test_lengths",
    "test_sequences", "validation",
}  # fmt: skip
"""Settings that define the task or how it is measured: validation scores for different values are not comparable."""
_OF_TEXT = ("digest", "alphabet", "tokenizer", "vocabulary")
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
        A dict maps each label to a dict with these keys, all optional: ``encoding`` or ``task`` (by default the label),
        ``options``, and settings for the runs of this encoding or task. In a sequence, the names are the labels.
    seeds : int or sequence of int
        The number of seeds (0 .. seeds - 1), or the seeds themselves. All encodings and tasks have the same seeds.
    baseline : str, optional
        The encoding that the others are compared with. The default is nope if it is among them, else the first.
    settings : dict
        Settings of all runs, as in `TrainConfig`.
    preset : str, optional
        The name of a protocol (`fastpe.training.presets`), which sets the defaults of `settings`; by default
        ``"li2025"``, the defaults of `TrainConfig`. `fastpe.compare` uses ``"recipe"`` by default.
    margin : float, optional
        Differences within the margin count as equivalent. Its unit is that of scores; for errors it is relative (0.1 is
        ten percent).
    threshold : float
        The score that defines the effective length: the longest length up to which all scores are at least this.
    claims : str, optional
        The claims of a paper that the report judges: "table5", see `fastpe.experiments.claims`.
    choose : dict of str to list
        Settings, or options that every encoding has, and their candidate values. For every task and encoding, all
        combinations are trained, and the study uses the one that is best in validation.
    choose_seeds : int or sequence of int, optional
        The number of tuning seeds, counted from 10000, or the seeds themselves; by default 3. None of them may be in
        `seeds`.

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
        if self.preset is not None:
            choice("preset", self.preset, tuple(PRESETS))
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
            raise ValueError(
                f"choose_seeds needs choose, a grid of settings; only choose_seeds={shown(self.choose_seeds)} is given"
            )

    def _check_choose(self) -> None:
        """Check that every setting of `choose` can be chosen, has several values, and is not set elsewhere."""
        if self.claims is not None:
            raise ValueError(
                f"choose cannot be combined with claims {self.claims!r}: a paper determines their settings"
            )
        if both := sorted(set(self.tuning_seeds) & set(self.each_seed)):
            raise ValueError(
                f"choose_seeds must not contain seeds of the study, such as {both[0]}: tuning runs are not reported"
            )
        for name, values in self.choose.items():
            if len(values) < 2 or any(value in values[:place] for place, value in enumerate(values)):
                raise ValueError(f"choose {name!r} must have at least two different values, not {list(values)}")
            if name in _NEVER_CHOSEN:
                raise ValueError(f"choose {name!r} cannot be used: this setting defines the task or how it is measured")
            self._check_unset(name)
            if name not in SETTINGS:
                self._check_option(name)
        for label, entry in self.tasks.items():
            if entry.get("options", {}).get("tuning"):
                raise ValueError(f"option 'tuning' of task {label!r} is set for tuning runs only: leave it out")

    def _check_unset(self, name: str) -> None:
        """Raise if the study, a task or an encoding already sets a setting that is to be chosen."""
        encodings = ((label, {**entry.get("options", {}), **entry}) for label, entry in self.encodings.items())
        for owner, own in (("settings", self.settings), *self.tasks.items(), *encodings):
            if name in own:
                raise ValueError(
                    f"choose {name!r} cannot be used: {name}={own[name]} is already set by {owner}; leave one out"
                )

    def _check_option(self, name: str) -> None:
        """Check that a name that is not a setting is an option of every encoding."""
        known = {label: registry.option_values(entry["encoding"]) for label, entry in self.encodings.items()}
        if not any(name in options for options in known.values()):
            near = nearest(name, SETTINGS.union(*known.values()), SETTINGS_HELP)
            raise ValueError(f"choose: setting {name!r} is unknown; {near}")
        for label, options in known.items():
            if name not in options:
                raise ValueError(f"choose {name!r} must be an option of every encoding, but {label} has no such option")

    def _check_claims(self) -> None:
        """Check that the study has the encodings, tasks and lengths that its claims need."""
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
        """All combinations of the values of `choose`, or one empty candidate if nothing is chosen."""
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
        """All runs, seed by seed. A study that is stopped early has about equally many runs of every encoding."""
        for seed, task, encoding in itertools.product(self.each_seed, self.tasks, self.encodings):
            yield RunKey(task, encoding, seed)

    def trials(self, keys: Iterable[RunKey] | None = None) -> Iterator[Trial]:
        """All tuning runs, or only those that the runs `keys` need; none if the study chooses nothing."""
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

        The number of validation sequences is `validation` of the study's settings, or `test_sequences` if it is 0.
        """
        config = self.config(trial, self.candidates[trial.candidate])
        if config.symbols is not None:
            return replace(config, test_lengths=(), task_options={**config.task_options, "tuning": True})
        return replace(config, test_lengths=(), validation=config.validation or config.test_sequences)

    def config(self, key: RunKey | Trial, candidate: Mapping[str, Any] | None = None) -> TrainConfig:
        """The settings of a run with a candidate, by default the first of `candidates`."""
        encoding, task = self.encodings[key.encoding], self.tasks[key.task]
        candidate = self.candidates[0] if candidate is None else candidate
        own = {**self.settings, **_own(task), **_own(encoding), **_settings_of(candidate), "seed": key.seed}
        options = {**encoding.get("options", {}), **_options_of(candidate)}
        chosen = {"task": task["task"], "task_options": dict(task.get("options", {}))}
        try:
            return preset(self.preset or "li2025", encoding["encoding"], options, **{**chosen, **own}).tested()
        except (TypeError, ValueError) as error:
            raise type(error)(f"{describe(key.encoding, key.task, candidate)}: {error}") from error

    def config_of(self, task: str, encoding: str | None = None) -> TrainConfig:
        """The settings of the run with the first seed, for a task and an encoding (by default the baseline)."""
        return self.config(RunKey(task, self.baseline if encoding is None else encoding, self.each_seed[0]))

    def with_texts(self) -> "Study":
        """A copy that records the SHA-256 and the characters of its texts, so that reports do not need the texts."""
        tasks = {}
        for task, entry in self.tasks.items():
            configs = [self.config_of(task, encoding) for encoding in self.encodings]
            found = {tuple(getattr(config, name) for name in _OF_TEXT) for config in configs}
            facts = dict(zip(_OF_TEXT, found.pop(), strict=True))
            known = facts["digest"] is not None and not found  # several digests: the encodings use different texts
            stated = {name: fact for name, fact in facts.items() if known and fact is not None}
            tasks[task] = {**entry, **stated}
        return replace(self, tasks=tasks)

    def part(self, number: int, of: int) -> list[RunKey]:
        """The runs of one shard; shards are counted from 1.

        A shard contains every `of`-th run. In a study that chooses settings, it contains all runs of every `of`-th pair
        of task and encoding, because the runs of a pair need the same tuning runs.
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

        Encodings and tasks are named by their keys. Paths are refused: register your own files first.

        Raises
        ------
        ValueError, TypeError
            If `text` is not TOML or contains an unknown name, or for the same reasons as `Study`.
        """
        found = parse_toml(text)
        known = (*_OF_STUDY, "encoding", "task", "settings", "choose")
        for name in found:
            if name not in known:
                raise ValueError(f"the study contains the unknown name {name!r}; {nearest(name, known)}")
        for name in ("encoding", "task"):
            if not isinstance(found.get(name), dict) or not found[name]:
                raise ValueError(f"the study lacks {name}s: add a table [{name}.NAME] for each {name}")
        own = {name: found[name] for name in (*_OF_STUDY, "settings", "choose") if name in found}
        encodings = _known_names(found["encoding"], registry.ENCODINGS, registry.canonical)
        return cls(encodings, _known_names(found["task"], TASKS, TASKS.known), **own)

    @classmethod
    def read(cls, path: str | Path) -> "Study":
        """Read a study from a TOML file, see `from_toml`.

        Raises
        ------
        ValueError
            If the file is not a valid study, even if a value has the wrong type. The message names the file.
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
    """A study in which every encoding is repeated with every combination of the values in `choices`.

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
    """All combinations of the values, or one empty combination if `choose` is empty.

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
    """The part of a candidate that sets fields of `TrainConfig`."""
    return {name: value for name, value in candidate.items() if name in SETTINGS}


def _options_of(candidate: Candidate) -> dict[str, Any]:
    """The part of a candidate that sets options of the encoding."""
    return {name: value for name, value in candidate.items() if name not in SETTINGS}


def _check(whose: str, config: TrainConfig) -> None:
    """Check the options of every term of the encoding, so that impossible settings are refused before any run."""
    for part in registry.parse_all(config.encoding, config.options):
        try:
            part.encoding.check(config.model.spec(config.model.train_length), **part.options)
        except ValueError as error:
            raise ValueError(f"{whose}: {error}") from error


def _seeds(name: str, value: int | Sequence[int], first: int = 0) -> int | tuple[int, ...]:
    """Check seeds. The result is their number if they are `first`, `first` + 1 and so on, otherwise a tuple."""
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
    """Convert NumPy numbers and arrays to Python values for TOML. Times are kept, and refused later."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        found = map(_plain, value)
        return list(found) if isinstance(value, list) else tuple(found)
    return value.tolist() if hasattr(value, "tolist") and not is_time(value) else value


def _known_names(entries: Mapping[str, Any], of: Registry[Any], known: Callable[[str], str]) -> dict[str, Any]:
    """The entries of a file, checked to contain keys only, because `Study` would resolve paths."""
    key = of.kind.word
    try:
        return {
            label: {**entry, key: known(entry.get(key, label))} if isinstance(entry, Mapping) else entry
            for label, entry in entries.items()
        }
    except ValueError as error:
        raise ValueError(f"{error}; name your own file {of.kind.how}") from error


def _own(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in the entry of an encoding or a task, without its key and options."""
    return {name: value for name, value in entry.items() if name not in ("encoding", "task", "options")}


def _known(whose: str, settings: object) -> None:
    if not isinstance(settings, Mapping):
        raise TypeError(f"{whose} must be a dict of settings, not {shown(settings)}")
    for name in settings:
        if name not in SETTINGS:
            raise ValueError(f"{whose}: setting {name!r} is unknown; {nearest(str(name), SETTINGS, SETTINGS_HELP)}")


def _quoted(text: str) -> str:
    """A string as TOML, with control characters escaped."""
    written = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in written)


def _value(value: Any) -> str:
    """A value as TOML. Numbers and booleans are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_quoted(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Path):
        return _quoted(str(value))
    return _quoted(value) if isinstance(value, str) else json.dumps(value)
