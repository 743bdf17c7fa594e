"""Writing: token after token, each drawn from what the model expects after those before.

Keys and values of a sequence stay in memory, so that every token goes through the model once. That gives what a model
gives that reads all of the sequence anew for every token, as long as what the encoding fills for a longer sequence
begins with what it fills for a shorter one. Where it does not (positions that are scaled by the length, say), all is
read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.random import Stream
from fastpe.kernels.attention.tile import TILE_QUERIES
from fastpe.kernels.threads.team import threads_for
from fastpe.model.passes import Passes
from fastpe.text.vocabulary import UnknownSymbols, Vocabulary

Array = np.ndarray[Any, Any]

_ROWS = 4 * int(TILE_QUERIES)  # tokens of a prompt that go through the model at a time
_MOST = 2**27
_ROUNDINGS = 4


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits.

    Parameters
    ----------
    temperature : float
        What the logits are divided by; 0: the likeliest token, always.
    top_k : int, optional
        How many of the likeliest tokens may be drawn.
    top_p : float, optional
        In (0, 1]: only the likeliest tokens may be drawn, as few as have this probability together (Holtzman et al.
        2020, arXiv:1904.09751); of those that top_k leaves.
    seed : int
        The token at a place follows from the seed, the place and the logits.

    Raises
    ------
    ValueError, TypeError
        If one is out of range or of the wrong type.

    Examples
    --------
    >>> logits = np.log([0.5, 0.3, 0.2])
    >>> [Sampling(temperature=0.0).draw(logits, place) for place in range(4)]
    [0, 0, 0, 0]
    >>> {Sampling(top_p=0.7).draw(logits, place) for place in range(40)}
    {0, 1}
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", validation.at_least_zero("temperature", self.temperature))
        if self.top_k is not None:
            object.__setattr__(self, "top_k", validation.whole("top_k", self.top_k, 1))
        if self.top_p is not None:
            object.__setattr__(self, "top_p", validation.real("top_p", self.top_p))
            if not 0.0 < self.top_p <= 1.0:
                raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")
        object.__setattr__(self, "seed", validation.seed("seed", self.seed))

    def draw(self, logits: Array, place: int) -> int:
        """The token at a place, of logits (V,)."""
        if self.temperature == 0.0:
            return int(np.argmax(logits))
        order = np.argsort(-logits, kind="stable")[: self.top_k]
        with np.errstate(over="ignore"):  # next to no temperature: all but the likeliest have no chance
            scaled = (logits[order].astype(np.float64) - float(logits[order[0]])) / self.temperature
        reached = np.cumsum(np.exp(scaled))
        if self.top_p is not None:
            reached = reached[: int(np.searchsorted(reached, self.top_p * reached[-1])) + 1]
        drawn = float(Stream(self.seed, "generate", place).uniform(1)[0]) * reached[-1]
        return int(order[np.searchsorted(reached, drawn, side="right").clip(max=len(reached) - 1)])


class Generation:
    """A model that writes after a prompt: an iterator over the new tokens.

    Parameters
    ----------
    model : Transformer
        A causal one, of tokens.
    prompt : (n,) integers
        At least one token.
    length : int
        How many tokens are to be written.
    sampling : Sampling
    cache : bool
        Whether keys and values are kept where they can be.
    threads : int, optional
        For what is read anew.

    Attributes
    ----------
    cached : bool
        Whether keys and values are kept.

    Raises
    ------
    ValueError, TypeError
        If the model cannot write, the prompt is none of its tokens, or (`fastpe.BeyondTrainingLength`) its encoding is
        undefined at this length.
    """

    def __init__(
        self, model: Passes, prompt: Any, length: int, sampling: Sampling, *, cache: bool = True,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        config = model.config
        if config.vocabulary is None:
            raise ValueError("a model of numbers writes no tokens: model must have a vocabulary")
        if not config.causal:
            raise ValueError("model must be causal: what others give at a place depends on what follows")
        threads_for(threads)  # refuses what is no number of them
        self.model, self.sampling, self._threads = model, sampling, threads
        self.prompt = _tokens(prompt, config.vocabulary)
        self._length = validation.whole("length", length, 1)
        total = len(self.prompt) + self._length
        if total > _MOST:
            raise ValueError(f"length must be at most 2**27 with the prompt, not {total}")
        model.slots(total - 1)  # refuses a length at which the encoding is undefined
        self.cached = validation.truth("cache", cache) and begins_alike(model, len(self.prompt), total - 1)

    def __iter__(self) -> Iterator[int]:
        """The tokens, each as soon as it is drawn."""
        step = self._kept if self.cached else self._anew
        text = self.prompt.tolist()
        for place, logits in zip(range(self._length), step(text), strict=False):
            if not np.isfinite(logits).all():
                raise ArithmeticError("the outputs of the model are not finite: there is no token to draw")
            token = self.sampling.draw(logits, place)
            text.append(token)
            yield token

    def _kept(self, text: list[int]) -> Iterator[Array]:
        """The logits after a text that grows, with keys and values kept."""
        model, done, state = self.model, 0, None
        with model._lock:
            writer = model._writer(len(text) + self._length - 1, min(len(text), _ROWS))
        while True:
            new = np.array(text[done:])
            with model._lock:
                rows, state = model._place(writer, new, done, state)
            for start in range(0, len(new), _ROWS):
                some = slice(start, start + _ROWS)
                with model._lock:
                    logits = model._extend(writer, new[some], rows[..., some], done + start)
            done += len(new)
            yield logits

    def _anew(self, text: list[int]) -> Iterator[Array]:
        while True:
            yield self.model(np.array(text), threads=self._threads)[-1]


def _tokens(prompt: Any, vocabulary: int) -> Array:
    array = validation.integers("prompt", prompt, 0, vocabulary - 1)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"prompt must hold one token at least, in one row, not {array.shape}")
    return array


class Writing(Passes):
    """The part of a `Transformer` that writes: its vocabulary, and `generate`."""

    _vocabulary: Vocabulary | None = None

    @property
    def vocabulary(self) -> Vocabulary | None:
        """What the tokens stand for, where a model was trained on a text; None where that is not known."""
        return self._vocabulary

    @vocabulary.setter
    def vocabulary(self, value: Vocabulary | None) -> None:
        if value is not None:
            validation.instance("vocabulary", value, Vocabulary, "model.vocabulary = Vocabulary('bytes')")
            if value.size != self.config.vocabulary:
                raise ValueError(f"vocabulary must have {self.config.vocabulary} tokens, not {value.size}")
        self._vocabulary = value

    def generate(
        self,
        prompt: Any,
        length: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        cache: bool = True,
        threads: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Any:
        """Write after a prompt, token after token.

        Parameters
        ----------
        prompt : str or array_like (n,) of int
            At least one token. Text is for a model that was trained on one, which knows its `vocabulary`.
        length : int
            How many tokens to write.
        temperature : float
            What logits are divided by before a token is drawn; 0: the likeliest one, always.
        top_k : int, optional
            How many of the likeliest tokens may be drawn.
        top_p : float, optional
            In (0, 1]: only the likeliest ones may, as few as have this probability together.
        seed : int
            Which text it is, of those that could be drawn.
        cache : bool
            Whether keys and values of earlier positions are kept, where the encoding allows it: what is written is the
            same, at a fraction of the time.
        threads : int, optional
            Threads at most, where all is read anew for every token; with a cache there is one.
        progress : callable, optional
            Called with every token as it is drawn.

        Returns
        -------
        str or array (length,) of int64
            What was written, without the prompt: text after a text.

        Raises
        ------
        TypeError, ValueError
            If the model is none of tokens or not causal, an argument is out of range, or
            (`fastpe.text.vocabulary.UnknownSymbols`) the prompt has characters that the model does not know.
        fastpe.BeyondTrainingLength
            If the encoding is undefined at this length.

        Examples
        --------
        >>> from fastpe import ModelConfig, Transformer
        >>> model = Transformer(ModelConfig("alibi", width=16, causal=True, vocabulary=65, train_length=8))
        >>> written = model.generate([1, 2, 3], 20, seed=4)
        >>> written.shape, bool((written == model.generate([1, 2, 3], 20, seed=4, cache=False)).all())
        ((20,), True)
        """
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function of one token, not {validation.shown(progress)}")
        sampling = Sampling(temperature, top_k, top_p, seed)
        given = self.encoded("prompt", prompt) if isinstance(prompt, str) else prompt
        written = []
        for token in Generation(self, given, length, sampling, cache=cache, threads=threads):
            written.append(token)
            if progress is not None:
                progress(token)
        if not isinstance(prompt, str) or self._vocabulary is None:
            return np.array(written)
        return self._vocabulary.decode(written)

    def encoded(self, name: str, text: str) -> Array:
        """The tokens of a text, which errors call `name`.

        Raises
        ------
        ValueError
            If the model was not trained on a text, there is no character, or (`UnknownSymbols`) one it does not know.
        """
        if self._vocabulary is None:
            raise ValueError(f"{name} must be tokens, not text: this model was not trained on one")
        if not text:
            raise ValueError(f"{name} must not be empty")
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise ValueError(f"{name} must be text, and holds what is no UTF-8")
        try:
            return self._vocabulary.encode(text)
        except UnknownSymbols as error:
            raise UnknownSymbols(f"{name}: {error}") from None


# ---------------------------------------------------------------------------------------------------------------------
# Whether keys and values may be kept


def begins_alike(model: Passes, first: int, last: int) -> bool:
    """Whether what an encoding fills for `last` positions begins with what it fills for fewer, from `first` on.

    Looked at are the first ones, the last ones, those around the training length and those between: an encoding that
    scales positions by the length does so everywhere, or from the training length on.
    """
    edges = {first, first + 1, first + 2, (first + last) // 2, last - 1}
    edges |= {made_for + i for made_for in (model.config.train_length, model.config.made_for) for i in (-1, 0, 1, 2)}
    longest = model.slots(last)
    return all(_begins(model.slots(length), longest, length) for length in sorted(edges) if first <= length < last)


def _begins(shorter: Mapping[str, Any], longer: Mapping[str, Any], length: int) -> bool:
    return shorter.keys() == longer.keys() and all(
        _alike(_seen(slot, shorter[slot], length), _seen(slot, longer[slot], length)) for slot in shorter
    )


def _alike(x: Any, y: Any) -> bool:
    """Whether two arrays are the same; real numbers up to a few roundings: a fill may cut other runs of offsets."""
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
        return np.array_equal(x, y)
    return x.shape == y.shape and bool(np.abs(x - y).max() <= _ROUNDINGS * np.finfo(x.dtype).eps * np.abs(y).max())


def _seen(slot: str, array: Any, length: int) -> Any:
    """What the first `length` positions of a causal model read of a slot."""
    if slot in ("table", "qk_table", "angles", "growth"):
        return array[..., :length, :]
    if slot == "row_scale":
        return array[..., :length]
    if slot == "rotors":
        return array[..., :length, :, :, :]
    if slot in ("scores", "index"):
        return np.where(np.tri(length, dtype=bool), array[..., :length, :length], 0)
    if slot in ("bias", "gain", "rel_key", "rel_query", "rel_value", "rel_gain"):
        axis = -1 if slot in ("bias", "gain") else -2
        reach = array.shape[axis] // 2
        return np.take(array, np.maximum(np.arange(1 - length, 1), -reach) + reach, axis=axis)
    return array
