"""A study: encodings, tasks and seeds, all with the same settings; as an object, and as TOML that a paper can print."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpe.base import files, validation
from fastpe.base.registry import Registry
from fastpe.base.stored import parse_toml, printable
from fastpe.base.validation import count, is_time, named_arguments, nearest, real, shown, whole
from fastpe.encodings import registry
from fastpe.experiments import claims, grid
from fastpe.tasks.registry import TASKS
from fastpe.training.config import TrainConfig
from fastpe.training.presets import PRESETS, preset

MOST_SEEDS = 10_000
MOST_CANDIDATES = 10_000  # of a grid, all of which are listed: a short file may ask for 10**12
_OF_STUDY = ("seeds", "baseline", "margin", "threshold", "preset", "claims", "choose_seeds")


class Cell(NamedTuple):
    """One run of a study: its task and encoding as the study calls them, and its seed."""

    task: str
    encoding: str
    seed: int


@named_arguments
@dataclass(frozen=True)
class Study:
    """Encodings times tasks times seeds.

    Parameters
    ----------
    encodings, tasks : dict of str to dict, or sequence of str
        By what the study calls them: ``encoding`` or ``task`` (by default that name), ``options``, and settings of its
        own. Of a sequence the names themselves.
    seeds : int or sequence of int
        How many, 0 .. seeds - 1, or which; the same for all.
    baseline : str, optional
        What the others are compared with. By default nope, where it is among them, or the first.
    settings : dict
        Settings of all runs, by their names in `TrainConfig`.
    preset : str, optional
        A protocol, see `fastpe.training.presets`, from which settings depart.
    margin : float, optional
        Differences within it count as none: of scores in their units, of errors as a part (0.1: ten percent).
    threshold : float
        The score that an effective length keeps.
    claims : str, optional
        A paper's claims that are set beside the results and judged, see `fastpe.experiments.claims`: "table5".
    choose : dict of str to list
        Settings, or options that every encoding has, and the values to choose from, see `fastpe.experiments.grid`: for
        every task and encoding all combinations are trained, and the one that is best in validation is the study's.
    choose_seeds : int or sequence of int, optional
        The seeds that choose, none of which is the study's: how many, 10000 and those after it, or which. By default 3.

    Raises
    ------
    ValueError, TypeError
        If a name is unknown, or a setting does not go with an encoding or a task; the message names it.

    Examples
    --------
    >>> study = Study(["alibi", "nope"], ["reverse"], seeds=3, settings={"train_length": 8, "samples": 640})
    >>> study.baseline, len(list(study.cells()))
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
                config = self.config(Cell(task, encoding, self.each_seed[0]), candidate)
                _check(grid.whose(encoding, task, candidate), config)
        if self.claims is not None:
            claims.check(self)

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
            seeds = grid.SEEDS if self.choose_seeds is None else self.choose_seeds
            object.__setattr__(self, "choose_seeds", _seeds("choose_seeds", seeds, grid.FIRST_SEED))
            grid.check(self)
        elif self.choose_seeds is not None:
            raise ValueError(f"choose_seeds needs choose, a grid of settings, not {shown(self.choose_seeds)} alone")

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """What is chosen from; of a study that chooses nothing the one candidate that sets nothing."""
        return grid.candidates(self.choose)

    @property
    def tuning_seeds(self) -> Sequence[int]:
        """The seeds that choose."""
        counted = self.choose_seeds or 0
        return range(grid.FIRST_SEED, grid.FIRST_SEED + counted) if isinstance(counted, int) else counted

    @property
    def each_seed(self) -> Sequence[int]:
        """The seeds themselves."""
        return range(self.seeds) if isinstance(self.seeds, int) else self.seeds

    @property
    def count(self) -> int:
        """How many seeds there are."""
        return len(self.each_seed)

    def cells(self) -> Iterator[Cell]:
        """All runs, seed by seed: where a study is stopped, all encodings have about as many."""
        for seed, task, encoding in itertools.product(self.each_seed, self.tasks, self.encodings):
            yield Cell(task, encoding, seed)

    def config(self, cell: Cell | grid.Trial, candidate: Mapping[str, Any] | None = None) -> TrainConfig:
        """The settings of a run, with a candidate of those to choose from: by default the first."""
        encoding, task = self.encodings[cell.encoding], self.tasks[cell.task]
        candidate = self.candidates[0] if candidate is None else candidate
        own = {**self.settings, **_own(task), **_own(encoding), **grid.settings_of(candidate), "seed": cell.seed}
        options = {**encoding.get("options", {}), **grid.options_of(candidate)}
        chosen = {"task": task["task"], "task_options": dict(task.get("options", {}))}
        try:
            if self.preset is not None:
                return preset(self.preset, encoding["encoding"], options, **{**chosen, **own}).tested()
            if "causal" not in own and TASKS.get(task["task"]).kind != "numbers":
                own["causal"] = True
            config = TrainConfig(encoding["encoding"], options, **chosen, **own)
            return (config if "causal" in own else config.causal_where_needed()).tested()
        except (TypeError, ValueError) as error:
            whose = grid.whose(cell.encoding, cell.task, candidate)
            raise type(error)(f"{whose}: {error}") from error

    def config_of(self, task: str, encoding: str | None = None) -> TrainConfig:
        """The settings of the runs of a task and an encoding, by default the baseline: those of its first seed."""
        return self.config(Cell(task, self.baseline if encoding is None else encoding, self.each_seed[0]))

    def with_texts(self) -> "Study":
        """The study with the SHA-256 and the characters of its texts, so that it can be reported without the texts."""
        tasks = {}
        for task, entry in self.tasks.items():
            configs = [self.config_of(task, encoding) for encoding in self.encodings]
            found = {(config.digest, config.alphabet) for config in configs}
            digest, alphabet = found.pop()
            known = digest is not None and not found  # of encodings with texts of their own, there are several
            tasks[task] = {**entry, "digest": digest, "alphabet": alphabet} if known else entry
        return replace(self, tasks=tasks)

    def part(self, number: int, of: int) -> list[Cell]:
        """The runs of one of several shards, from 1 on: every `of`-th, or where settings are chosen all those of every
        `of`-th task and encoding, which wait for the same tuning runs."""
        if not 1 <= number <= of:
            raise ValueError(f"shard must be 1/N to N/N, not {number}/{of}")
        if self.choose:
            pairs = list(itertools.product(self.tasks, self.encodings))[number - 1 :: of]
            return [cell for cell in self.cells() if (cell.task, cell.encoding) in pairs]
        return [cell for place, cell in enumerate(self.cells()) if place % of == number - 1]

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
        """A study from what `to_toml` wrote, or anybody else.

        Encodings and tasks are named by their keys. A path is refused: register the file first.

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
        """A study from a file of TOML, as `from_toml` takes it.

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
    """The study with every encoding in every combination of some settings' values, as encodings of their own.

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


def _check(whose: str, config: TrainConfig) -> None:
    """Let every encoding look at its options together, so that what does not go together is said before any run."""
    for part in registry.parse_all(config.encoding, config.options):
        try:
            part.encoding.check(config.model.spec(config.model.train_length), **part.options)
        except ValueError as error:
            raise ValueError(f"{whose}: {error}") from error


def _seeds(name: str, value: int | Sequence[int], first: int = 0) -> int | tuple[int, ...]:
    """How many, where they are counted from the first; else each of them."""
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
        raise ValueError(f"{name} must name one at least")
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
    """Numbers and arrays of NumPy as Python's own, which TOML has; times, which no setting may be, as they are."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        found = map(_plain, value)
        return list(found) if isinstance(value, list) else tuple(found)
    return value.tolist() if hasattr(value, "tolist") and not is_time(value) else value


def _known_names(entries: Mapping[str, Any], of: Registry[Any], known: Callable[[str], str]) -> dict[str, Any]:
    """Entries out of a file, once their names are found to consist of keys: making a study resolves paths."""
    key = of.kind.word
    try:
        return {
            label: {**entry, key: known(entry.get(key, label))} if isinstance(entry, Mapping) else entry
            for label, entry in entries.items()
        }
    except ValueError as error:
        raise ValueError(f"{error}; name your own file {of.kind.how}") from error


def _own(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an encoding's or a task's own."""
    return {name: value for name, value in entry.items() if name not in ("encoding", "task", "options")}


def _known(whose: str, settings: object) -> None:
    if not isinstance(settings, Mapping):
        raise TypeError(f"{whose} must be a dict of settings, not {shown(settings)}")
    for name in settings:
        if name not in grid.SETTINGS:
            raise ValueError(f"{whose}: setting {name!r} is unknown; {nearest(str(name), grid.SETTINGS, grid.LISTED)}")


def _quoted(text: str) -> str:
    """A text as TOML, its control characters escaped."""
    written = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in written)


def _value(value: Any) -> str:
    """A value as TOML; what JSON and TOML write alike is most of it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_quoted(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Path):
        return _quoted(str(value))
    return _quoted(value) if isinstance(value, str) else json.dumps(value)
