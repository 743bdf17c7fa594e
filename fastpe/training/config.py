"""The settings of a run: a model's and how it is trained and tested; a frozen dataclass, checked when it is made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from fastpe.base.validation import below_one, choice, positive, unmasked, whole
from fastpe.encodings import combined, registry
from fastpe.encodings.slots import MAX_POSITION
from fastpe.model.config import ModelConfig, Options
from fastpe.tasks.registry import choose
from fastpe.tasks.targets import SCALES
from fastpe.tasks.task import Chosen

_MOST = 2**40  # of sequences or epochs: more is a slip
DATA = ("fixed", "fresh")


@dataclass(frozen=True)
class TrainConfig(ModelConfig):
    """A model and how it is trained and tested; the defaults are the source paper's protocol.

    An encoding's options are its own authors'; `TrainConfig.paper` takes those that the source paper names.

    Parameters
    ----------
    task : str
        Key of the task (`fastpe.tasks.list_tasks`); ``"running_sum"`` is regression on the partial sums of a random
        sequence.
    task_options : dict
        The task's options; those that are not named have their defaults.
    samples : int
        Number of training sequences, each of `train_length` positions.
    epochs : int
        Number of passes over them.
    batch : int
        Sequences per update; the last batch of an epoch may be smaller.
    lr, beta1, beta2, eps : float
        Adam's learning rate, decay rates of the two moments, and the constant in its denominator.
    test_lengths : tuple of int
        Lengths, in positions, that the trained model is tested at.
    test_sequences : int
        Number of test sequences at each length.
    data : {"fixed", "fresh"}
        One training set for all epochs, or a new one in each.
    target_scale : {"one", "train", "root_train", "position", "length"}
        What the targets are multiplied by, see `fastpe.tasks.targets.factors`; errors are in that unit.

    All other parameters are those of `ModelConfig`.

    Examples
    --------
    >>> config = TrainConfig(encoding="sinusoidal", samples=100, batch=32, epochs=3)
    >>> config.steps_per_epoch, config.steps
    (4, 12)
    """

    task: str = "running_sum"
    task_options: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 10_000
    epochs: int = 20
    batch: int = 32
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    test_lengths: tuple[int, ...] = (50, 100, 200)
    test_sequences: int = 1000
    data: str = "fixed"
    target_scale: str = "one"

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = choose(self.task, self.task_options)
        self._set("task", chosen.name)
        self._set("task_options", Options({name: chosen.options[name] for name in self.task_options}))
        if chosen.task.kind != "numbers":
            raise ValueError(f"task {self.task!r} is one of tokens: it cannot be trained yet")
        if self.vocabulary is not None:
            raise ValueError(
                f"task {self.task!r} has numbers as inputs: vocabulary must be None, not {self.vocabulary}"
            )
        for name in ("samples", "epochs", "batch", "test_sequences"):
            self._set(name, _count(name, getattr(self, name)))
        for name in ("lr", "eps"):
            self._set(name, positive(name, getattr(self, name)))
        for name in ("beta1", "beta2"):
            self._set(name, below_one(name, getattr(self, name)))
        self._set("test_lengths", checked_lengths("test_lengths", self.test_lengths))
        if self.position_range is not None and max(self.test_lengths, default=0) > self.position_range:
            raise ValueError(
                f"test_lengths must be at most {self.position_range}, from which positions={self.positions!r} draws, "
                f"not {max(self.test_lengths)}"
            )
        self._set("data", choice("data", self.data, DATA))
        self._set("target_scale", choice("target_scale", self.target_scale, SCALES))

    @classmethod
    def paper(cls, encoding: str, options: Mapping[str, Any] | None = None, **settings: Any) -> Self:
        """The source paper's experiment (Li 2025, section 7.1): its protocol, and the options that it names.

        The protocol is that of the defaults. Options of an encoding that the paper names (ALiBi: `alpha0` 0.1, one
        slope 0.1 / train_length) are taken where `options` neither gives them nor rules them out.

        Parameters
        ----------
        encoding, options, **settings
            As for `TrainConfig`.

        Returns
        -------
        TrainConfig

        Raises
        ------
        ValueError, TypeError
            As `TrainConfig` does.

        Examples
        --------
        >>> TrainConfig.paper("alibi").options
        {'alpha0': 0.1}
        >>> TrainConfig.paper("alibi", {"slope": 0.5}).options
        {'slope': 0.5}
        """
        return cls(encoding, dict(options or {}), **settings)._with_preset("paper")

    def tested(self) -> Self:
        """These settings, with what tests beyond the training length need where no option says otherwise.

        A `learned` table then uses its last row (`beyond` is "clip"), where its own default is an error.

        Examples
        --------
        >>> TrainConfig("learned").tested().options, TrainConfig("learned", {"beyond": "error"}).tested().options
        ({'beyond': 'clip'}, {'beyond': 'error'})
        """
        return self._with_preset("tested")

    def _with_preset(self, preset: str) -> Self:
        config, causal = self, self.causal_where_needed().causal
        parts = registry.parse(self.encoding, self.options)
        for number, part in enumerate(parts):
            for option, value in getattr(part.encoding, preset).items():
                wider = replace(config, options={combined.key(parts, part, option): value, **config.options})
                config = wider if wider._part_accepted(number, causal) else config
        return config

    def causal_where_needed(self) -> Self:
        """These settings, made causal if they are not, and an encoding made for causal models refuses them so.

        Examples
        --------
        >>> TrainConfig("xpos").causal_where_needed().causal, TrainConfig("alibi").causal_where_needed().causal
        (True, False)
        """
        parts = registry.parse(self.encoding, self.options)
        made_for_it = any(part.encoding.direction == "causal" for part in parts)
        return replace(self, causal=True) if made_for_it and not self._accepted() else self

    def _part_accepted(self, number: int, causal: bool) -> bool:
        """Whether this part of a sum takes its options: what another part refuses says nothing of them."""
        part, spec = registry.parse(self.encoding, self.options)[number], replace(self, causal=causal).spec
        try:
            part.encoding.check(spec(self.train_length), **part.options)
        except ValueError:
            return False
        return True

    def _accepted(self) -> bool:
        """Whether the encoding takes these options and sizes."""
        try:
            combined.check(registry.parse(self.encoding, self.options), self.spec(self.train_length))
        except ValueError:
            return False
        return True

    @property
    def chosen(self) -> Chosen:
        """The task with all its options."""
        return choose(self.task, self.task_options)

    @property
    def model(self) -> ModelConfig:
        """The part that determines the model."""
        return ModelConfig(**{f.name: getattr(self, f.name) for f in fields(ModelConfig)})

    @property
    def steps_per_epoch(self) -> int:
        """Updates in one pass over the training sequences."""
        return -(-self.samples // self.batch)

    @property
    def steps(self) -> int:
        """Updates in the whole run."""
        return self.epochs * self.steps_per_epoch


def _count(name: str, value: Any) -> int:
    number = whole(name, value, 1)
    if number > _MOST:
        raise ValueError(f"{name} must be at most 2**40, not {number}")
    return number


def checked_lengths(name: str, lengths: object) -> tuple[int, ...]:
    """Distinct lengths of sequences, or an error that names the argument."""
    unmasked(name, lengths)
    if isinstance(lengths, str) or not isinstance(lengths, Iterable) or getattr(lengths, "ndim", 1) != 1:
        raise TypeError(f"{name} must be a sequence of integers, not {lengths!r}")
    checked = tuple(whole(name, length, 1) for length in lengths)
    if max(checked, default=0) > MAX_POSITION:
        raise ValueError(f"{name} must be at most 2**27, not {max(checked)}")
    if len(set(checked)) < len(checked):
        raise ValueError(f"{name} must be distinct, not {checked}")
    return checked
