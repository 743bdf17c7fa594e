"""The settings of a run, of the model, its training and its tests, as a frozen dataclass that checks them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from fastpe.base.validation import at_least_zero, choice, named_arguments, path, positive, shown, truth, whole
from fastpe.encodings import combined, registry
from fastpe.encodings.needed import needed
from fastpe.model.config import IF_SET, ModelConfig, Options
from fastpe.model.positions import canonical, completed
from fastpe.tasks import sizes
from fastpe.tasks.registry import TASKS, choose, load_task
from fastpe.tasks.targets import SCALES
from fastpe.tasks.task import Chosen
from fastpe.training.lengths import checked_lengths, positions_of, usual_lengths

if TYPE_CHECKING:
    from fastpe.text.corpus import Corpus
    from fastpe.text.vocabulary import Vocabulary

_MOST = 2**40  # sequences or epochs: a larger number is a mistake
DATA = ("fixed", "fresh")
LENGTHS = ("fixed", "uniform")
DECAYS = ("constant", "linear", "cosine")
KEEPS = ("last", "best")
_FIXED = ("bytes", "characters")  # tokens whose number follows from the text


@named_arguments
@dataclass(frozen=True)
class TrainConfig(ModelConfig):
    """Settings of a model, its training and its tests; the defaults are the protocol of Li (2025), the source paper.

    By default, an encoding has the options of its own authors. `TrainConfig.paper` uses the options of the source
    paper.

    Parameters
    ----------
    task : str
        Name of the task (see `fastpe.tasks.list_tasks`). ``"running_sum"`` is regression on the partial sums of a
        random sequence.
    task_options : dict
        Options of the task. Options that are not given have their defaults.
    samples : int
        Number of training sequences.
    epochs : int
        Number of passes over the training sequences.
    batch : int
        Number of sequences per update; the last batch of an epoch may be smaller.
    lr, beta1, beta2, eps : float
        Learning rate of Adam, decay rates of its two moments, and the constant in its denominator.
    weight_decay : float
        Weight decay of AdamW; only matrices and tables decay (see `Adam`).
    clip : float, optional
        Gradients are clipped to this norm, taken over all parameters (see `Adam`). By default they are not clipped.
    warmup : int
        Number of updates over which the learning rate rises (see `fastpe.training.schedule.rate`).
    decay : {"constant", "linear", "cosine"}
        Learning rate after the warm-up: constant, or falling to `min_lr`, linearly or as a cosine.
    min_lr : float
        Learning rate at the end of the decay, at most `lr`.
    validation : int
        Number of validation sequences, used after every epoch; 0: no validation.
    patience : int
        Training ends after this number of successive epochs without a lower validation loss; 0: it never ends early.
    stop_solved : bool
        Whether training ends once all validation answers are right.
    keep : {"last", "best"}
        Which model is saved and tested: the model of the last epoch, or the model with the lowest validation loss.
    test_lengths : tuple of int or str, optional
        Lengths at which the trained model is tested. For tasks of tokens, they may also be ranges: "51-100" stands for
        lengths that are drawn uniformly from 51 to 100. The default for tasks of numbers is 50, 100, 200. The default
        for a text is one, two and four times `train_length`. The default for other tasks is the range of training
        lengths and the next two ranges of the same size, such as "1-50", "51-100", "101-150". A range is left out if
        the task has no inputs of these lengths.
    test_sequences : int
        Number of test sequences for each test length.
    data : {"fixed", "fresh"} or str, optional
        ``"fixed"``: one training set for all epochs (the default for tasks of numbers). ``"fresh"``: a new training set
        in each epoch (the default for tasks of tokens). For the task ``"text"``: the path of a file, or of a folder of
        files, or of a .bin or .npy file of tokens. The text is read when this object is made.
    lengths : {"fixed", "uniform"}, optional
        Lengths of the training inputs. ``"fixed"``: all have the length `train_length` (the default for tasks of
        numbers and for text). ``"uniform"``: lengths are drawn uniformly from 1 to `train_length`, without lengths that
        the task cannot have (the default for other tasks).
    target_scale : {"one", "train", "root_train", "position", "length"}
        Which factor the targets are multiplied by (see `fastpe.tasks.targets.factors`). Errors are those of the
        multiplied targets.
    digest, alphabet : str, optional
        The SHA-256 of a text, and its characters. By default, both are taken from the text at `data`. If only
        `alphabet` is given, the text must not contain other characters.
    tokenizer : str, optional
        The SHA-256 of a tokenizer's file, if the task option `tokens` is the path of a tokenizer.json or "bpe:N". The
        path is stored as the word "tokenizer", because the run folder has a copy of the file.
    The content of this file, which is neither stored nor compared. By default, it is read from the path, or the
    tokenizer is trained on the text.
    text_places : tuple of str, optional
        Paths at which the text is searched for, in this order; by default only `data`. The text must have the SHA-256
        `digest`. The paths are neither stored nor compared, because they do not change the results of a run.
    start_from, start_digest : str, optional
        For training that starts with the weights of another run: the path of its run folder or model file, and the
        SHA-256 of the weights. `TrainConfig.starting_from` sets both.

    positions : str, optional
        As in `ModelConfig`. The default is what the encoding needs, for example ``"digits:99"`` for ``"abacus"`` (see
        `fastpe.Needs`). If the encoding has no such needs, it is ``"usual"``.

    All other parameters are those of `ModelConfig`, with two differences. `train_length` is the length of the longest
    training input; the number of positions of the model follows from it. `vocabulary` must be None, because the task
    determines it. The exception is a text with tokens of a tokenizer or of a file: its `vocabulary` may be any number
    that is at least the number of these tokens.

    An encoding that needs several coordinates or a graph raises an error, unless its options provide them or its file
    states a default for sequences.

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
    tokenizer: str | None = field(default=None, metadata=IF_SET)
    tokenizer_content: bytes = field(default=b"", compare=False, repr=False)
    start_from: str | None = field(default=None, metadata=IF_SET)
    start_digest: str | None = field(default=None, metadata=IF_SET)

    def __post_init__(self) -> None:
        asked = self.positions
        if asked is None:
            self._set("positions", "usual")  # changed below, once the task is known
        super().__post_init__()
        self._set("task", TASKS.resolve(self.task))
        chosen = choose(self.task, self.task_options)
        self._set("task_options", Options({name: chosen.options[name] for name in self.task_options or {}}))
        if self.vocabulary is not None and (chosen.task.kind != "text" or self._tokens in _FIXED):
            raise ValueError(f"vocabulary must be None for task {self.task!r}, which sets it, not {self.vocabulary}")
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
        _ = self.model  # checks the sizes that follow from the task

    def _check_tokens(self) -> None:
        """Do nothing: the tokens are not known yet. They are known with the task, and `model` checks them then."""

    def _check_needs(self, chosen: Chosen, asked: str | None) -> None:
        """Provide what each term of the encoding needs, or raise ValueError; `asked` is the given `positions`."""
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
            raise ValueError("min_lr needs a decay: choose decay 'linear' or 'cosine', not 'constant'")

    def _check_sequences(self, kind: str) -> None:
        """Check the settings of the training sequences."""
        fixed = kind in ("numbers", "text")
        lengths = self.lengths if self.lengths is not None else "fixed" if fixed else "uniform"
        self._set("lengths", choice("lengths", lengths, LENGTHS))
        if fixed and self.lengths != "fixed":
            raise ValueError(f"lengths must be 'fixed' for task {self.task!r}, not {self.lengths!r}")
        self._set("target_scale", choice("target_scale", self.target_scale, SCALES))
        if kind != "numbers" and self.target_scale != "one":
            raise ValueError(f"target_scale must be 'one' for task {self.task!r} of tokens, not {self.target_scale!r}")
        if kind == "text":
            self._check_text()
            return
        data = self.data if self.data is not None else "fixed" if kind == "numbers" else "fresh"
        self._set("data", choice("data", data, DATA))
        for name in ("digest", "alphabet", "text_places", "tokenizer", "tokenizer_content"):
            if getattr(self, name):
                raise ValueError(f"{name} needs task 'text', not {self.task!r}: it was {shown(getattr(self, name))}")

    @property
    def _tokens(self) -> str:
        """The option `tokens` of a text. For a file of tokens, the default is "ids", except in runs made before "ids"
        existed.
        """
        if "tokens" in self.task_options or (self.digest is not None and self.vocabulary is None):
            return str(self.chosen.options["tokens"])
        from fastpe.text import token_files

        return "ids" if token_files.holds(path("data", self.data)) else str(self.chosen.options["tokens"])

    def _check_text(self) -> None:
        """Find the digest of the text and its vocabulary, unless both are given."""
        if self.data is None:
            raise ValueError("data must be a file, or a folder of files, for task 'text', not None")
        self._set("data", str(path("data", self.data)))
        self._set("text_places", tuple(str(path("text_places", each)) for each in self.text_places))
        if self._tokens not in _FIXED:
            self._find_tokenizer()
        elif self.tokenizer is not None:
            raise ValueError(f"tokenizer must be None for tokens {self._tokens!r}, not {shown(self.tokenizer)}")
        if self.digest is None or self.alphabet is None:
            found = self.read_text()
            self._set("digest", found.digest)
            self._set("alphabet", found.vocabulary.alphabet)
            if self._tokens not in _FIXED:
                self._take(found.vocabulary)
        if not isinstance(self.digest, str) or not isinstance(self.alphabet, str):
            raise TypeError(f"digest and alphabet must be str, not {shown(self.digest)}, {shown(self.alphabet)}")
        if self._tokens not in _FIXED and self.vocabulary is None:
            raise ValueError(f"vocabulary must be given with digest and alphabet for tokens {self._tokens!r}, not None")

    def _find_tokenizer(self) -> None:
        """Read the tokenizer whose path is the option `tokens`, and replace the path by the word "tokenizer"."""
        from fastpe.text import subwords
        from fastpe.text.vocabulary import Vocabulary

        tokens = self._tokens
        trained = subwords.specified(tokens) is not None
        known = self.tokenizer is not None and self.vocabulary is not None
        if trained and self.vocabulary is not None and self.tokenizer is None:
            raise ValueError(f"vocabulary must be None for tokens {tokens!r}, which set it, not {self.vocabulary}")
        if tokens not in ("ids", "tokenizer") and not trained:
            try:
                self._set("tokenizer_content", subwords.read(path("tokens", tokens), self.tokenizer))
            except FileNotFoundError:
                if not known:  # the settings of a finished run do not need the file
                    raise ValueError(
                        "option 'tokens' of task 'text' must be bytes, characters, ids, bpe:N or the path of a "
                        f"{subwords.NAME}, not {tokens!r}, which does not exist"
                    ) from None
            tokens = "tokenizer"
        self._set("task_options", Options({**self.task_options, "tokens": tokens}))
        if known and subwords.digest_of(self.tokenizer_content) == self.tokenizer:
            return  # it was opened when the settings were made: the package `tokenizers` is needed only for text
        if self.tokenizer_content:
            self._take(Vocabulary.of_tokenizer(self.tokenizer_content, self.vocabulary))
        elif tokens == "tokenizer" and self.tokenizer is None:
            raise ValueError(f"option 'tokens' of task 'text' must be the path of a {subwords.NAME}, not 'tokenizer'")

    def _take(self, found: "Vocabulary") -> None:
        """Take the tokens of a vocabulary; raise ValueError if its tokenizer is not that of the settings."""
        if self.tokenizer not in (None, found.digest):
            raise ValueError(
                f"tokens must be those of the tokenizer with the SHA-256 {self.tokenizer}, not of one with the SHA-256 "
                f"{found.digest}"
            )
        self._set("tokenizer", found.digest or None)
        self._set("tokenizer_content", found.content)
        self._set("vocabulary", found.size)

    def read_text(self) -> "Corpus":
        """Read the text. Errors are those of `fastpe.text.corpus.read`, or of `read_known` if `digest` is known."""
        from fastpe.text import corpus  # imports NumPy

        options, tokens = self.chosen.options, self._tokens
        known = (self.alphabet if tokens in _FIXED else self.vocabulary) is not None
        if tokens.startswith("bpe:"):  # without its file, the tokenizer is trained again
            known = bool(self.tokenizer_content)
        how = tokens, options["separator"], self.symbols if known else None, options["share"], options["tuning"]
        if self.digest is None:
            return corpus.read(self.data, *how)
        found = corpus.read_known(self.text_places or (self.data,), self.digest, *how)
        if self.tokenizer not in (None, found.vocabulary.digest):
            raise ValueError(
                f"tokens {tokens!r} must have the SHA-256 {self.tokenizer} of the settings, not "
                f"{found.vocabulary.digest}: another version of the package tokenizers made them"
            )
        return found

    def with_tokenizer(self) -> Self:
        """Return a copy that has the content of its tokenizer, trained again on the text if its file is missing.

        >>> TrainConfig("nope").with_tokenizer() == TrainConfig("nope")
        True
        """
        if self.tokenizer is None or self.tokenizer_content or not self._tokens.startswith("bpe:"):
            return self
        return replace(self, tokenizer_content=self.read_text().vocabulary.content)

    @property
    def symbols(self) -> "Vocabulary | None":
        """The vocabulary of the text; None if the task has no text."""
        if self.chosen.task.kind != "text":
            return None
        from fastpe.text.vocabulary import Vocabulary

        tokens = self._tokens
        if tokens in _FIXED:
            assert self.alphabet is not None
            return Vocabulary(tokens, self.alphabet)
        assert self.vocabulary is not None
        kind = "ids" if tokens == "ids" else "tokenizer"
        return Vocabulary(kind, "", self.vocabulary, self.tokenizer or "", self.tokenizer_content)

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
            raise ValueError(f"stop_solved needs a task whose answers are right or wrong: task {self.task!r} has none")

    def _check_train_length(self, chosen: Chosen) -> None:
        if self.lengths == "fixed":
            sizes.check_length(chosen, self.train_length, "train_length")
        elif not len(chosen.lengths.within(1, self.train_length)):
            least = chosen.lengths.least
            raise ValueError(f"train_length must be at least {least} for task {self.task!r}, not {self.train_length}")

    @classmethod
    def paper(cls, encoding: str, options: Mapping[str, Any] | None = None, **settings: Any) -> Self:
        """Return the settings of the source paper's experiment (Li 2025, section 7.1).

        The protocol consists of the default settings. The encoding's options that the paper names are used unless
        `options` contains or contradicts them. For ALiBi, `alpha0` is 0.1: one slope, 0.1 / train_length.

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
        """Return the settings of a new run that starts with the weights of another run.

        Settings of the model, its encoding, the task, its lengths or its text that you do not give have the values of
        `run`. All other settings, such as `epochs`, `lr` and `seed`, have the defaults of `TrainConfig`. The optimizer
        starts at step 0.

        These settings may change: `encoding`, `options`, `train_length`, `positions`, `sight`, `dropout`, `precision`,
        and all settings that are not the model's. All parameters of the model are carried over, and those parameters of
        the encoding that fit. Other parameters are left out, or start with their initial values; the run's notes and
        its config.json name them. Encodings that are in both the old and the new sum keep their options. If `rope` is
        replaced by `rope_yarn` or a similar encoding, the new encoding has the same `base`, `pairs` and `rotated`. The
        encoding is built for the same length as in `run` (`encoding_length`); the `factor` of `rope_yarn` and similar
        encodings is relative to this length. If the new length is longer, the table of `learned` is resized as by
        `fastpe.resize`.

        If `rope` is replaced by ``"nope"``, training continues without position encoding (DroPE, Gelberg et al. 2025,
        arXiv:2512.12167).

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
            If a setting contradicts the weights, if the model file is damaged, or if `TrainConfig` raises.
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
        from fastpe.training import starting_weights  # imports NumPy

        return starting_weights.settings(starting_weights.read(path("run", run)), encoding, options or {}, settings)

    @classmethod
    def _known_names(cls, settings: Mapping[str, Any]) -> dict[str, str]:
        task = TASKS.known(settings["task"])
        if load_task(task).kind == "text":
            from fastpe.text import subwords

            tokens = dict(settings["task_options"]).get("tokens", "bytes")
            if tokens not in (*_FIXED, "ids", "tokenizer") and subwords.specified(str(tokens)) is None:
                raise ValueError(f"stored tokens cannot be a path, as {shown(tokens)} is")
        return {**super()._known_names(settings), "task": task}

    def tested(self) -> Self:
        """Return a copy of these settings that also has the options needed in tests beyond the training length.

        Options that are given keep their values. For example, the encoding `learned` gets the option
        ``beyond="clip"``: positions beyond the table use its last row. By default, `learned` raises an error there.

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
        """Return a copy of these settings, with causal=True if the encoding or the task accepts only causal models.

        Examples
        --------
        >>> TrainConfig("xpos").causal_where_needed().causal, TrainConfig("alibi").causal_where_needed().causal
        (True, False)
        """
        parts = registry.parse_all(self.encoding, self.options)
        made_for_it = self.chosen.task.causal or any(part.encoding.direction == "causal" for part in parts)
        return replace(self, causal=True) if made_for_it and not self._accepted() else self

    def _part_accepted(self, number: int, causal: bool) -> bool:
        """Return whether this term of a sum accepts its options; the other terms are not checked."""
        part, model = registry.parse_all(self.encoding, self.options)[number], replace(self.model, causal=causal)
        try:
            part.encoding.check(model.spec(model.train_length), **part.options)
        except ValueError:
            return False
        return True

    def _accepted(self) -> bool:
        """Return whether the encoding accepts these options and sizes."""
        try:
            combined.check(registry.parse_all(self.encoding, self.options), self.model.spec(self.model.train_length))
        except ValueError:
            return False
        return True

    def met_needs(self) -> list[str]:
        """Describe what the run provides for encodings that need more than a sequence, for example a graph.

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
        """The settings of the model, with the positions and the vocabulary that the task needs."""
        own, chosen, symbols = {f.name: getattr(self, f.name) for f in fields(ModelConfig)}, self.chosen, self.symbols
        own["train_length"] = sizes.positions(chosen, self.train_length, self.causal)
        own["positions"] = _with_tokens(self.positions, chosen, symbols)
        return ModelConfig(**{**own, "vocabulary": symbols.size if symbols else sizes.vocabulary(chosen)})

    @property
    def steps_per_epoch(self) -> int:
        """Number of updates in one epoch."""
        return -(-self.samples // self.batch)

    @property
    def steps(self) -> int:
        """Number of updates in the run."""
        return self.epochs * self.steps_per_epoch


def _count(name: str, value: Any, least: int = 1) -> int:
    return whole(name, value, least, _MOST)


def _with_tokens(positions: str, chosen: Chosen, symbols: "Vocabulary | None") -> str:
    """Complete the rule of `positions` with the tokens of the task or of the text.

    >>> _with_tokens("digits:20", choose("addition", {"base": 10}), None)
    'digits:20:0-9'
    """
    if symbols is not None:
        return completed(positions, "the text", _digits(symbols))
    if chosen.task.kind == "numbers":
        return positions
    equals = chosen.symbols + sizes.FRAME.index("separator")
    return completed(positions, chosen.whose, chosen.digits, equals, chosen.digit_order)


def _digits(symbols: "Vocabulary") -> Iterator[int]:
    """Yield the tokens of digits. A tokenizer is opened only if they are needed."""
    yield from symbols.digits
