"""Text generation: token after token, each drawn from the model's prediction.

Keys and values of the sequence are cached, so that every token passes through the model once. If the encoding's slots
for a longer sequence begin with its slots for a shorter one, the result is the same as without a cache. Otherwise (for
example, if positions are scaled by the length), no cache is used: the whole sequence is read again for each token.
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

_ROWS = 4 * int(TILE_QUERIES)  # number of tokens of a prompt that pass through the model at a time
_MOST = 2**27  # tokens of prompt and generated text together
_ROUNDINGS = 4


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from logits.

    Parameters
    ----------
    temperature : float
        Divides the logits; 0: always the likeliest token.
    top_k : int, optional
        Draw only from this number of likeliest tokens.
    top_p : float, optional
        Draw only from the smallest set of likeliest tokens that together have at least this probability, in (0, 1]
        (Holtzman et al. 2020, arXiv:1904.09751). Applied after `top_k`.
    seed : int
        Seed of the random numbers. A drawn token depends only on the seed, its position and the logits.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or has the wrong type.

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
        """Draw the token at a position, from logits (V,)."""
        if self.temperature == 0.0:
            return int(np.argmax(logits))
        order = np.argsort(-logits, kind="stable")[: self.top_k]
        with np.errstate(over="ignore"):  # near temperature 0, all but the likeliest token have probability 0
            scaled = (logits[order].astype(np.float64) - float(logits[order[0]])) / self.temperature
        reached = np.cumsum(np.exp(scaled))
        if self.top_p is not None:
            reached = reached[: int(np.searchsorted(reached, self.top_p * reached[-1])) + 1]
        drawn = float(Stream(self.seed, "generate", place).uniform(1)[0]) * reached[-1]
        return int(order[np.searchsorted(reached, drawn, side="right").clip(max=len(reached) - 1)])


class Generation:
    """A model that continues a prompt: an iterator over the new tokens.

    Parameters
    ----------
    model : Transformer
        A causal model with a vocabulary.
    prompt : (n,) integers
        At least one token.
    length : int
        Number of tokens to generate.
    sampling : Sampling
    cache : bool
        Whether to cache keys and values if the encoding allows it.
    threads : int, optional
        Number of threads, if the sequence is read again for each token.

    Attributes
    ----------
    cached : bool
        Whether keys and values are cached.

    Raises
    ------
    ValueError, TypeError
        If the model cannot generate, the prompt holds anything but the model's tokens, or the model's encoding is
        undefined at this length (`fastpe.BeyondTrainingLength`).
    """

    def __init__(
        self, model: Passes, prompt: Any, length: int, sampling: Sampling, *, cache: bool = True,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        config = model.config
        if config.vocabulary is None:
            raise ValueError("model must have a vocabulary to generate text: this model returns numbers, not tokens")
        if not config.causal:
            raise ValueError("model must be causal: outputs of other models depend on later tokens")
        threads_for(threads)  # checks the number of threads
        self.model, self.sampling, self._threads = model, sampling, threads
        self.prompt = _tokens(prompt, config.vocabulary)
        self._length = validation.whole("length", length, 1)
        total = len(self.prompt) + self._length
        if total > _MOST:
            raise ValueError(f"prompt and length must be at most 2**27 tokens in all, not {total}")
        model.slots(total - 1)  # raises an error if the encoding is undefined at this length
        self.cached = validation.truth("cache", cache) and begins_alike(model, len(self.prompt), total - 1)

    def __iter__(self) -> Iterator[int]:
        """Yield the tokens, each as soon as it is drawn."""
        step = self._kept if self.cached else self._uncached
        text = self.prompt.tolist()
        for place, logits in zip(range(self._length), step(text), strict=False):
            if not np.isfinite(logits).all():
                raise ArithmeticError("the outputs of the model are not finite: there is no token to draw")
            token = self.sampling.draw(logits, place)
            text.append(token)
            yield token

    def _kept(self, text: list[int]) -> Iterator[Array]:
        """Yield the logits after a growing text, which the caller extends after each step. Keys and
        values are cached.
        """
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

    def _uncached(self, text: list[int]) -> Iterator[Array]:
        while True:
            last = np.arange(len(text)) == len(text) - 1
            found = np.empty((1, self.model.config.vocabulary or 1), self.model.dtype)
            self.model.logits_by_rows(np.array(text), last, found.__setitem__, threads=self._threads)
            yield found[0]


def _tokens(prompt: Any, vocabulary: int) -> Array:
    array = validation.integers("prompt", prompt, 0, vocabulary - 1)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"prompt must have the shape (n,) with at least one token, not {array.shape}")
    return array


class Writing(Passes):
    """The part of `Transformer` that generates text."""

    _vocabulary: Vocabulary | None = None

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary, which converts tokens to text, of a model that was trained on text; None if unknown."""
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
        """Continue a prompt, token after token.

        Parameters
        ----------
        prompt : str or array_like (n,) of int
            At least one token. Text needs a model that was trained on text, which has a `vocabulary`.
        length : int
            Number of tokens to generate.
        temperature : float
            Divides the logits before a token is drawn; 0: always the likeliest token.
        top_k : int, optional
            Draw only from this number of likeliest tokens.
        top_p : float, optional
            Draw only from the smallest set of likeliest tokens that together have at least this probability, in (0, 1].
            Applied after `top_k`.
        seed : int
            Seed of the random numbers.
        cache : bool
            Whether to cache keys and values of earlier positions if the encoding allows it. With a cache, the text is
            the same, and generating it takes a fraction of the time.
        threads : int, optional
            Largest number of threads, if the sequence is read again for each token; with a cache one thread is used.
        progress : callable, optional
            Called with every token as it is drawn.

        Returns
        -------
        str or array (length,) of int64
            The generated text without the prompt; text if the prompt is text.

        Raises
        ------
        TypeError, ValueError
            If the model has no vocabulary or is not causal, an argument is out of range, or
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
        return self._vocabulary.continuation(written)

    def encoded(self, name: str, text: str) -> Array:
        """Return the tokens of a text, (n,) integers. name: name of the argument, for errors.

        Raises
        ------
        ValueError
            If the model was not trained on text, the text is empty, or the text has unknown characters
            (`UnknownSymbols`).
        """
        if self._vocabulary is None:
            raise ValueError(f"{name} must be tokens, not text: this model was not trained on text")
        if not text:
            raise ValueError(f"{name} must not be empty")
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise ValueError(f"{name} must be text that can be encoded as UTF-8")
        try:
            return self._vocabulary.encode(text)
        except UnknownSymbols as error:
            raise UnknownSymbols(f"{name}: {error}") from None


# ---------------------------------------------------------------------------------------------------------------------
# Whether keys and values may be cached


def begins_alike(model: Passes, first: int, last: int) -> bool:
    """Whether the slots for `last` positions begin with the slots for fewer positions, for any number from `first` on.

    Only some lengths are compared: the shortest ones, the longest, those near the training length, and one in between.
    They are enough, because an encoding that scales positions by the length does so at all lengths, or at all lengths
    beyond the training length.
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
    """Whether two arrays are equal. Real numbers may differ by a few rounding errors, as fills for two lengths do."""
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
        return np.array_equal(x, y)
    return x.shape == y.shape and bool(np.abs(x - y).max() <= _ROUNDINGS * np.finfo(x.dtype).eps * np.abs(y).max())


def _seen(slot: str, array: Any, length: int) -> Any:
    """Return the entries of a slot that the first `length` positions of a causal model read."""
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
