"""The settings of a run: a model's and how it is trained and tested; a frozen dataclass, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from fastpe.base.validation import at_least_zero, choice, named_arguments, path, positive, shown, truth, whole
from fastpe.encodings import combined, registry
from fastpe.encodings.needed import needed
from fastpe.model.config import IF_SET, ModelConfig, Options
from fastpe.model.positions import canonical
from fastpe.tasks import sizes
from fastpe.tasks.registry import TASKS, choose
from fastpe.tasks.targets import SCALES
from fastpe.tasks.task import Chosen
from fastpe.training.lengths import checked_lengths, positions_of, usual_lengths
from fastpe.training.token_positions import with_tokens

if TYPE_CHECKING:
    from fastpe.text.corpus import Corpus
    from fastpe.text.vocabulary import Vocabulary

_MOST = 2**40  # of sequences or epochs: more is a slip
DATA = ("fixed", "fresh")
LENGTHS = ("fixed", "uniform")
DECAYS = ("constant", "linear", "cosine")
KEEPS = ("last", "best")


@named_arguments
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
    weight_decay : float
        That of AdamW, of matrices and tables alone, see `Adam`.
    clip : float, optional
        Largest norm of all gradients together, see `Adam`. By default there is none.
    warmup : int
        Updates over which the learning rate rises, see `fastpe.training.schedule.rate`.
    decay : {"constant", "linear", "cosine"}
        How it goes on after them: it stays, or falls to `min_lr`.
    min_lr : float
        Where it falls to, at most `lr`.
    validation : int
        Sequences on which the model is validated after every epoch; 0: none.
    patience : int
        Epochs in a row without a lower loss in validation, after which training ends; 0: it goes on.
    stop_solved : bool
        Whether training ends once every answer in validation is right.
    keep : {"last", "best"}
        Which epoch's model is saved and tested: the last, or the one whose loss in validation is the least.
    test_lengths : tuple of int or str, optional
        Lengths that the trained model is tested at: 100, or for tokens also "51-100", uniform lengths from 51 to 100.
        By default 50, 100, 200 for numbers, and for tokens as many lengths as in training, once, twice and three times,
        as far as the task has such: "1-50", "51-100", "101-150".
    test_sequences : int
        Number of test sequences at each of them.
    data : {"fixed", "fresh"} or str, optional
        One training set for all epochs, or a new one in each. By default fixed for numbers, fresh for tokens. Of a text
        the file, or the folder of files, which is read as the settings are made.
    lengths : {"fixed", "uniform"}, optional
        Lengths of the inputs of training sequences: all `train_length`, or uniform from 1 (from what the task can have)
        to it. By default fixed for numbers, uniform for tokens.
    target_scale : {"one", "train", "root_train", "position", "length"}
        What the targets are multiplied by, see `fastpe.tasks.targets.factors`; errors are in that unit.
    digest, alphabet : str, optional
        SHA-256 and characters of a text. By default those of the text that `data` names. With an `alphabet` alone, the
        text may have no other characters.
    text_places : tuple of str, optional
        Where to look for the text with this `digest`, in this order. By default `data` alone. The places are not stored
        and not compared: they do not change what a run computes.
    start_from, start_digest : str, optional
        The run folder or the model file whose weights the training starts with, as it was named, and the SHA-256 of
        these weights. `TrainConfig.starting_from` sets both.

    positions : str, optional
        As in `ModelConfig`. By default what the encoding needs, see `fastpe.Needs` (of ``"abacus"`` that is
        ``"digits:99"``), or ``"usual"``.

    All other parameters are those of `ModelConfig`, but for two: `train_length` is the length of a task's longest
    training input, from which the model's positions follow, and `vocabulary`, which follows from the task, is None.

    An encoding that needs several coordinates or a graph is refused unless its options give them or its file has a
    default for sequences.

    Examples
    --------
    >>> config = TrainConfig(encoding="sinusoidal", samples=100, batch=32, epochs=3)
    >>> config.steps_per_epoch, config.steps
    (4, 12)
    >>> config = TrainConfig("rope", task="reverse", causal=True)
    >>> config.test_lengths, config.model.train_length, config.model.vocabulary
    (('1-50', '51-100', '101-150'), 102, 6)
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
    weight_decay: float = 0.0
    clip: float | None = None
    warmup: int = 0
    decay: str = "constant"
    min_lr: float = 0.0
    validation: int = 0
    patience: int = 0
    stop_solved: bool = False
    keep: str = "last"
    test_lengths: tuple[int | str, ...] = None  # type: ignore[assignment] # by the task, see __post_init__
    test_sequences: int = 1000
    data: str = None  # type: ignore[assignment]
    lengths: str = None  # type: ignore[assignment]
    target_scale: str = "one"
    digest: str | None = None
    alphabet: str | None = None
    positions: str = None  # type: ignore[assignment] # by the encoding, see `_check_needs`
    text_places: tuple[str, ...] = field(default=(), compare=False, repr=False)
    start_from: str | None = field(default=None, metadata=IF_SET)
    start_digest: str | None = field(default=None, metadata=IF_SET)

    def __post_init__(self) -> None:
        asked = self.positions
        if asked is None:
            self._set("positions", "usual")  # until the task is known
        super().__post_init__()
        self._set("task", TASKS.resolve(self.task))
        chosen = choose(self.task, self.task_options)
        self._set("task_options", Options({name: chosen.options[name] for name in self.task_options or {}}))
        if self.vocabulary is not None:
            raise ValueError(f"vocabulary must be None: that of task {self.task!r} is taken, not {self.vocabulary}")
        if chosen.task.causal and not self.causal:
            raise ValueError(f"task {self.task!r} is made for causal models: it needs causal=True")
        for name in ("samples", "epochs", "batch", "test_sequences"):
            self._set(name, _count(name, getattr(self, name)))
        for name in ("lr", "eps"):
            self._set(name, positive(name, getattr(self, name), self.dtype))
        for name in ("beta1", "beta2"):
            self._set(name, at_least_zero(name, getattr(self, name), 1.0))
        self._check_schedule()
        self._check_validation(chosen.task.kind)
        self._check_sequences(chosen.task.kind)
        self._check_train_length(chosen)
        self._check_needs(chosen, asked)
        given = usual_lengths(chosen, self.train_length) if self.test_lengths is None else self.test_lengths
        self._set("test_lengths", checked_lengths("test_lengths", given, chosen))
        longest = max((positions_of(chosen, length, self.causal) for length in self.test_lengths), default=0)
        if self.position_range is not None and longest > self.position_range:
            raise ValueError(
                f"test_lengths must have at most {self.position_range} positions, from which "
                f"positions={self.positions!r} draws, not {longest}"
            )
        if (self.start_from is None) != (self.start_digest is None):
            raise ValueError("start_from needs start_digest: TrainConfig.starting_from sets both")
        if self.start_from is not None:
            self._set("start_from", str(path("start_from", self.start_from)))
        _ = self.model  # the sizes that follow from the task

    def _check_tokens(self) -> None:
        """Which tokens there are is known once the task is: the model says what it lacks."""

    def _check_needs(self, chosen: Chosen, asked: str | None) -> None:
        """Give every term of the encoding what it needs, or refuse it; asked: `positions` as they were given."""
        for each in needed(self.encoding, self.options):
            if each.needs.what != "digits":
                if not each.given and not each.needs.default:
                    raise ValueError(each.refusal())
                continue
            if asked is None:
                if not (chosen.digits if self.symbols is None else self.symbols.digits):
                    raise ValueError(each.refusal(f"and task {self.task!r} has no tokens that are digits"))
                self._set("positions", canonical(each.needs.default, self.train_length))
            if self.positions.partition(":")[0] != "digits":
                raise ValueError(each.refusal(f"not {self.positions!r}"))

    def _check_schedule(self) -> None:
        for name in ("weight_decay", "min_lr"):
            self._set(name, at_least_zero(name, getattr(self, name)))
        if self.clip is not None:
            self._set("clip", positive("clip", self.clip, self.dtype))
        self._set("decay", choice("decay", self.decay, DECAYS))
        self._set("warmup", whole("warmup", self.warmup, 0))
        if self.warmup > self.steps:
            raise ValueError(f"warmup must be at most the number of updates, {self.steps}, not {self.warmup}")
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr must be at most lr={self.lr}, not {self.min_lr}")
        if self.min_lr and self.decay == "constant":
            raise ValueError("min_lr needs a decay to it: choose decay 'linear' or 'cosine', not 'constant'")

    def _check_sequences(self, kind: str) -> None:
        """What the training sequences are."""
        fixed = kind in ("numbers", "text")
        lengths = self.lengths if self.lengths is not None else "fixed" if fixed else "uniform"
        self._set("lengths", choice("lengths", lengths, LENGTHS))
        if fixed and self.lengths != "fixed":
            raise ValueError(f"lengths must be 'fixed' for task {self.task!r}, not {self.lengths!r}")
        self._set("target_scale", choice("target_scale", self.target_scale, SCALES))
        if kind != "numbers" and self.target_scale != "one":
            raise ValueError(f"target_scale is of numbers: task {self.task!r} has none, not {self.target_scale!r}")
        if kind == "text":
            self._check_text()
            return
        data = self.data if self.data is not None else "fixed" if kind == "numbers" else "fresh"
        self._set("data", choice("data", data, DATA))
        for name in ("digest", "alphabet", "text_places"):
            if getattr(self, name):
                raise ValueError(f"{name} is of a text: task {self.task!r} has none, not {shown(getattr(self, name))}")

    def _check_text(self) -> None:
        """Find out which text it is and which characters it has, unless both are known."""
        if self.data is None:
            raise ValueError("data must be a file, or a folder of files, for task 'text', not None")
        self._set("data", str(path("data", self.data)))
        self._set("text_places", tuple(str(path("text_places", each)) for each in self.text_places))
        if self.digest is None or self.alphabet is None:
            found = self.read_text()
            self._set("digest", found.digest)
            self._set("alphabet", found.vocabulary.alphabet)
        if not isinstance(self.digest, str) or not isinstance(self.alphabet, str):
            raise TypeError(f"digest and alphabet must be str, not {shown(self.digest)}, {shown(self.alphabet)}")

    def read_text(self) -> "Corpus":
        """The text. Raises as `fastpe.text.corpus.read` and, where `digest` is known, `read_known` do."""
        from fastpe.text import corpus  # NumPy comes with it

        options = self.chosen.options
        how = options["tokens"], options["separator"], None if self.alphabet is None else self.symbols
        if self.digest is None:
            return corpus.read(self.data, *how)
        return corpus.read_known(self.text_places or (self.data,), self.digest, *how)

    @property
    def symbols(self) -> "Vocabulary | None":
        """What the tokens of a text stand for; None where there is no text."""
        if self.chosen.task.kind != "text":
            return None
        from fastpe.text.vocabulary import Vocabulary

        assert self.alphabet is not None
        return Vocabulary(self.chosen.options["tokens"], self.alphabet)

    def _check_validation(self, kind: str) -> None:
        for name in ("validation", "patience"):
            self._set(name, _count(name, getattr(self, name), least=0))
        self._set("stop_solved", truth("stop_solved", self.stop_solved))
        self._set("keep", choice("keep", self.keep, KEEPS))
        needing = {"patience": self.patience, "stop_solved": self.stop_solved, "keep 'best'": self.keep == "best"}
        for name, asked in needing.items():
            if asked and not self.validation:
                raise ValueError(f"{name} needs validation: a number of sequences, not 0")
        if kind in ("numbers", "text") and self.stop_solved:
            raise ValueError(f"stop_solved is of answers that are right or wrong: task {self.task!r} has none")

    def _check_train_length(self, chosen: Chosen) -> None:
        if self.lengths == "fixed":
            sizes.check_length(chosen, self.train_length, "train_length")
        elif not len(chosen.lengths.within(1, self.train_length)):
            least = chosen.lengths.least
            raise ValueError(f"train_length must be at least {least} for task {self.task!r}, not {self.train_length}")

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

    @classmethod
    def starting_from(
        cls, run: Any, encoding: str | None = None, options: Mapping[str, Any] | None = None, **settings: Any
    ) -> "TrainConfig":
        """The settings of a new run that starts with the weights of another run.

        Settings that are not given are chosen as follows. The model and its encoding are those of `run`, and so are the
        task and its lengths, and the text with its characters. All other settings, such as `epochs`, `lr` and `seed`,
        have the defaults of `TrainConfig`. The optimizer starts at step 0.

        These settings may change: `encoding`, `options`, `train_length`, `positions`, `sight`, `dropout`, `precision`,
        and all settings that are not the model's. A new encoding must have parameters with the same names and shapes;
        so `rope` may become `rope_yarn`, which then has the same `base`, `pairs` and `rotated`. The encoding stays made
        for the length that it is made for in `run` (`encoding_length`): the `factor` of `rope_yarn` and its kind counts
        from there. The table of `learned` is resized if the new length is longer, as `fastpe.resize` does it.

        Parameters
        ----------
        run : str or pathlib.Path
            A run folder whose training is finished, or a model file.
        encoding, options, **settings
            As for `TrainConfig`.

        Returns
        -------
        TrainConfig

        Raises
        ------
        ValueError, TypeError
            If a setting contradicts the weights, the model file is damaged, or as `TrainConfig` does.
        OSError
            If `run` does not exist, or its training is not finished.

        Examples
        --------
        >>> import tempfile, fastpe
        >>> small = {"width": 8, "hidden": 8, "samples": 64, "epochs": 1, "test_sequences": 10}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = fastpe.train(TrainConfig("rope", train_length=8, **small), out=f"{folder}/short", progress=False)
        ...     config = TrainConfig.starting_from(
        ...         f"{folder}/short", "rope_yarn", {"factor": 4.0}, train_length=32, samples=64, epochs=1
        ...     )
        ...     long = fastpe.train(config, progress=False)
        >>> config.width, config.train_length, config.encoding_length, config.options
        (8, 32, 8, {'pairs': 'interleaved', 'factor': 4.0})
        """
        from fastpe.training import starting_weights  # NumPy comes with it

        return starting_weights.settings(starting_weights.read(path("run", run)), encoding, options or {}, settings)

    @classmethod
    def _known_names(cls, settings: Mapping[str, Any]) -> dict[str, str]:
        return {**super()._known_names(settings), "task": TASKS.known(settings["task"])}

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
        parts = registry.parse_all(self.encoding, self.options)
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
        parts = registry.parse_all(self.encoding, self.options)
        made_for_it = self.chosen.task.causal or any(part.encoding.direction == "causal" for part in parts)
        return replace(self, causal=True) if made_for_it and not self._accepted() else self

    def _part_accepted(self, number: int, causal: bool) -> bool:
        """Whether this part of a sum takes its options: what another part refuses says nothing of them."""
        part, model = registry.parse_all(self.encoding, self.options)[number], replace(self.model, causal=causal)
        try:
            part.encoding.check(model.spec(model.train_length), **part.options)
        except ValueError:
            return False
        return True

    def _accepted(self) -> bool:
        """Whether the encoding takes these options and sizes."""
        try:
            combined.check(registry.parse_all(self.encoding, self.options), self.model.spec(self.model.train_length))
        except ValueError:
            return False
        return True

    def met_needs(self) -> list[str]:
        """What the encoding needs beside a plain sequence and does not get by its options, as this run gives it.

        Examples
        --------
        >>> TrainConfig("laplacian").met_needs(), TrainConfig("rope").met_needs()
        (['laplacian: the graph is the path from the first token to the last'], [])
        """
        found = []
        for each in needed(self.encoding, self.options):
            if each.needs.what == "digits":
                found.append(f"{each.term}: positions={self.model.positions!r}, the places of digits in their numbers")
            elif not each.given:
                found.append(f"{each.term}: {each.needs.default}")
        return found

    @property
    def chosen(self) -> Chosen:
        """The task with all its options."""
        return choose(self.task, self.task_options)

    @property
    def model(self) -> ModelConfig:
        """The part that determines the model, with the positions and the vocabulary that the task needs."""
        own, chosen, symbols = {f.name: getattr(self, f.name) for f in fields(ModelConfig)}, self.chosen, self.symbols
        own["train_length"] = sizes.positions(chosen, self.train_length, self.causal)
        own["positions"] = with_tokens(self.positions, chosen, symbols)
        return ModelConfig(**{**own, "vocabulary": symbols.size if symbols else sizes.vocabulary(chosen)})

    @property
    def steps_per_epoch(self) -> int:
        """Updates in one pass over the training sequences."""
        return -(-self.samples // self.batch)

    @property
    def steps(self) -> int:
        """Updates in the whole run."""
        return self.epochs * self.steps_per_epoch


def _count(name: str, value: Any, least: int = 1) -> int:
    return whole(name, value, least, _MOST)
