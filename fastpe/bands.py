"""Bands: rotary angles that depend on the distance between query and key, for the arguments `bands` and `theta` of
`fastpe.attention`. With them, a trained model reads texts longer than those it was trained on, with unchanged weights.

    self_extend         beyond a window, groups of adjacent positions share one rotary position
    rerope              beyond a window, all keys have the offset of the window's edge
    leaky_rerope        beyond a window, rotary positions are closer together
    dual_chunk          rotary positions restart in every chunk
    shifted             beyond a distance, rotary offsets start again at a small number: STRING
    lampe               rotary offsets are compressed, except the nearest and the farthest
    lm_infinite         only a window and the first keys; the first keys have the offset of the window's edge
    streaming           only a window and the first keys; the first keys are placed directly before the window
    frequencies         theta of a rotary encoding
    look_back           the rotary offset of every query and key, as an array for inspection

A band has a rotary position for every query and every key. For each query it also has the range of keys to which it
applies. The rotary offset of query i and key j is queries[i] - keys[j]. Attention with bands computes about as many
tiles as attention without them, and uses O(N) memory. Keys that are in no band are hidden, and take no time. Pass keys
that are not rotated; a key/value cache must also store keys that are not rotated. Rotary positions are multiplied by
theta in float64, so at position p the rounding error of the angles is about 1e-16 p theta radians.

To let a fastpe model that was trained with `rope` read longer inputs, use `fastpe.Banded`, or on the command line
``fastpe evaluate RUN --bands self_extend:group=4,window=32``.

>>> import fastpe
>>> bands, theta = self_extend(6, group=2, window=2), frequencies("rope", 6, dim=4)
>>> look_back(bands)[0, 5].tolist()
[3.0, 3.0, 2.0, 2.0, 1.0, 0.0]
>>> q = np.ones((1, 6, 4))
>>> fastpe.attention(q, q, q, bands=bands, theta=theta).shape
(1, 6, 4)
"""

from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.validation import FARTHEST, truth, whole
from fastpe.encodings.build import frequencies
from fastpe.functional.bands import Array, Band, look_back
from fastpe.spans import positions
from fastpe.spans import window as near_spans

__all__ = [
    "Band", "dual_chunk", "frequencies", "lampe", "leaky_rerope", "lm_infinite", "look_back", "rerope", "self_extend",
    "shifted", "streaming",
]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Schemes; m = i - j is the offset from query position i back to key position j


def self_extend(
    queries: int, keys: int | None = None, *, group: int = 8, window: int = 1024, offset: Any = None
) -> tuple[Band, ...]:
    """Self-Extend: beyond a window, each group of G adjacent positions shares one rotary position. Causal.

    The rotary offset of query i and key j is m = i - j if m < w. Otherwise it is
    floor(i / G) - floor(j / G) + w - floor(w / G).

    A model trained on L0 > w positions can read (L0 - w + floor(w / G)) G positions without any offset that it was not
    trained on. If G divides w, this number is (L0 - w) G + w. Beyond the window, the offset depends on i modulo G as
    well as on m. At m = w, the offset is w if G divides w. Otherwise it is w or w + 1, depending on i, so the offset w
    does not occur for every query.

    Parameters
    ----------
    queries, keys : int
        Number of queries and of keys; by default as many keys as queries.
    group : int
        G, the number of adjacent positions that share one rotary position. 1 gives ordinary rotary attention.
    window : int
        The window size w: offsets below it are unchanged.
    offset : int or (B,) int, optional
        The position of the first query. By default keys - queries, so that the last query has the position of the last
        key.

    Returns
    -------
    tuple of Band

    Raises
    ------
    TypeError, ValueError
        If a size or an offset is not an integer, or is too small.

    References
    ----------
    Jin et al. 2024, "LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning" (arXiv:2401.01325), algorithm 1;
    datamllab/LongLM, self_extend_patch.

    Examples
    --------
    >>> look_back(self_extend(12, group=3, window=4))[0, 11].tolist()
    [6.0, 6.0, 6.0, 5.0, 5.0, 5.0, 4.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    """
    places, own, near, window = _near(queries, keys, window, offset)
    group = whole("group", group, 1, FARTHEST)
    far = Band((places // group + window - window // group).astype(np.float64), own // group, _before(near))
    return near, far


def rerope(
    queries: int, keys: int | None = None, *, window: int = 512, causal: bool = True, offset: Any = None
) -> tuple[Band, ...]:
    """ReRoPE: the rotary offset of query i and key j is min(m, w), where m = i - j.

    The authors also multiply queries by `fastpe.temperatures.log_n`.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    window : int
        The window size w: offsets below it are unchanged, and all others become w.
    causal : bool
        Whether queries see only keys up to their position. If not, queries also see later keys, and the offset is
        sign(m) min(abs(m), w).

    Returns
    -------
    tuple of Band

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does.

    References
    ----------
    Su 2023, "Rectified Rotary Position Embeddings", posts 9706 and 9708 of kexue.fm; bojone/rerope, rerope_patch.py.

    Examples
    --------
    >>> look_back(rerope(5, window=2))[0, 4].tolist(), look_back(rerope(5, window=2, causal=False))[0, 1].tolist()
    ([2.0, 2.0, 2.0, 1.0, 0.0], [1.0, 0.0, -1.0, -2.0, -2.0])
    """
    places, own, near, window = _near(queries, keys, window, offset, causal=causal)
    edge = np.full(places.shape, float(window))
    far = Band(edge, np.zeros_like(own), _before(near))
    return (near, far) if causal else (near, far, Band(-edge, np.zeros_like(own), _after(near, len(own))))


def leaky_rerope(
    queries: int, keys: int | None = None, *, window: int = 512, step: int = 16, causal: bool = True, offset: Any = None
) -> tuple[Band, ...]:
    """Leaky ReRoPE: the rotary offset is m = i - j within a window of size w, and w + (m - w) / s beyond it.

    The authors also multiply queries by `fastpe.temperatures.log_n`.

    Parameters
    ----------
    queries, keys, window, causal, offset
        As for `rerope`.
    step : int
        The divisor s in the formula. 1 gives ordinary rotary attention.

    Returns
    -------
    tuple of Band

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does.

    References
    ----------
    Su 2023, as for `rerope`; bojone/rerope, leaky_rerope_patch.py.

    Examples
    --------
    >>> look_back(leaky_rerope(6, window=2, step=2))[0, 5].tolist()
    [3.5, 3.0, 2.5, 2.0, 1.0, 0.0]
    """
    places, own, near, window = _near(queries, keys, window, offset, causal=causal)
    step = whole("step", step, 1, FARTHEST)
    gap = float(window * (step - 1))
    far = Band((places + gap) / step, own / step, _before(near))
    return (near, far) if causal else (near, far, Band((places - gap) / step, own / step, _after(near, len(own))))


def dual_chunk(
    queries: int, keys: int | None = None, *, chunk: int = 3072, local: int = 512, offset: Any = None
) -> tuple[Band, ...]:
    """Dual chunk attention (DCA): the rotary positions of keys restart at 0 in each chunk. Causal.

    A chunk has c = chunk - local keys, at the rotary positions 0 .. c - 1. The rotary offset of query i and key j
    depends on the chunk of the key:

    - i - j, if the key is in the chunk of the query;
    - min(i mod c + c, chunk) - j mod c, if it is in the chunk before;
    - min(2 c - 1, chunk) - j mod c, if it is in an earlier chunk.

    The authors use chunk = 3/4 L0 and local = L0 / 8, where L0 is the training length. The default values are for
    L0 = 4096. For texts longer than L0, the authors also use the scale of `fastpe.temperatures.dual_chunk`.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    chunk : int
        The largest rotary offset between a query and a key in different chunks.
    local : int
        The number of positions by which chunks are shorter than `chunk`. Queries up to this many positions after the
        start of their chunk have the offset i - j to keys of the chunk before, too.

    Returns
    -------
    tuple of Band
        Three bands: for the query's chunk, for the chunk before, and for all earlier chunks.

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does; also if `chunk` is not greater than `local`.

    References
    ----------
    An et al. 2024, "Training-Free Long-Context Scaling of Large Language Models" (arXiv:2402.17463), section 3;
    HKUNLP/ChunkLlama, chunkllama_attn_replace.py.

    Examples
    --------
    >>> look_back(dual_chunk(12, chunk=6, local=2))[0, 11].tolist()
    [6.0, 5.0, 4.0, 3.0, 6.0, 5.0, 4.0, 3.0, 3.0, 2.0, 1.0, 0.0]
    """
    places, own = _places(queries, keys, offset)
    chunk, local = whole("chunk", chunk, 1, FARTHEST), whole("local", local, 0, FARTHEST)
    if local >= chunk:
        raise ValueError(f"local must be below chunk = {chunk}, not {local}")
    size = chunk - local
    begins, within = places // size * size, (places % size).astype(np.float64)
    most = np.full(places.shape, min(2.0 * size - 1, chunk))
    edges = [np.clip(edge, 0, len(own)) for edge in (places + 1, begins, begins - size, np.zeros_like(begins))]
    return tuple(
        Band(of_queries, own % size, np.stack([first, last], axis=-1))
        for of_queries, last, first in zip(
            (within, np.minimum(within + size, chunk), most), edges[:-1], edges[1:], strict=True
        )
    )


def shifted(
    queries: int, keys: int | None = None, *, shift: int = 1352, window: int = 128, offset: Any = None
) -> tuple[Band, ...]:
    """STRING: the rotary offset is m = i - j if m < S, and m - S + w otherwise. Causal.

    Offsets above L - 1 - S + w do not occur in a text of length L. A model sees the largest offsets of its training
    length L0 seldom in training. With this scheme it reads L0 positions with offsets that it knows well.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    shift : int
        S. The authors use about a third of the training length, 0.25 L0 to 0.4 L0. The default value is for L0 = 4096.
    window : int
        w, at most S: the rotary offset at m = S. The authors use 128, and up to 512.

    Returns
    -------
    tuple of Band

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does; also if `window` is greater than `shift`.

    References
    ----------
    An et al. 2024, "Why Does the Effective Context Length of LLMs Fall Short?" (arXiv:2410.18745); HKUNLP/STRING,
    string_for_llama.py, where keys at m = S are counted twice while a text is read, but not in generation. The
    encoding "string" has the same name and is different.

    Examples
    --------
    >>> look_back(shifted(9, shift=5, window=2))[0, 8].tolist()
    [5.0, 4.0, 3.0, 2.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    """
    places, own, near, shift = _near(queries, keys, shift, offset, name="shift")
    window = whole("window", window, 0, FARTHEST)
    if window > shift:
        raise ValueError(f"window must be at most shift = {shift}, not {window}")
    return near, Band(places - float(shift - window), own, _before(near))


def lampe(
    queries: int, keys: int | None = None, *, near: int = 512, far: int = 200, length: int = 1536, offset: Any = None
) -> tuple[Band, ...]:
    """LaMPE: the rotary offsets of L keys are compressed to about l, except the nearest s1 and the farthest s2. Causal.

    With a_p = floor(l p / (L - 1)), the rotary offset of query i and key j is, for m = i - j,

    - m, if m <= s1;
    - a_i - a_j + b1 with b1 = s1 - a_{s1} - 1, if s1 < m < L - s2;
    - m - b2 with b2 = L - 1 - s2 - a_{L-1-s2} - b1, if m >= L - s2.

    Here s2 is `far`, enlarged until a_{s2+1} differs from a_{s2}. If L < 2 s1, all offsets are m. The authors also
    multiply cosines and sines by 1 + 0.1 ln 2, that is, scores by the square of it.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`. L is the number of keys, so the offsets of all keys change when a text grows. The authors'
        code keeps the L of the prompt while it generates.
    near : int
        s1.
    far : int
        At most s1.
    length : int
        l. The authors let it grow with L on a logistic curve, which they fit for each model.

    Returns
    -------
    tuple of Band
        Three bands, or a single one if L < 2 s1.

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does; also if `far` is greater than `near`.

    References
    ----------
    Zhang et al. 2025, "LaMPE: Length-aware Multi-grained Positional Encoding for Adaptive Long-context Scaling Without
    Training" (arXiv:2508.02308); scar-on/LaMPE, llama_cache1.py. Its code counts keys at the two seams twice.

    Examples
    --------
    >>> look_back(lampe(24, near=4, far=3, length=12))[0, 23, ::-1].astype(int).tolist()
    [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 14]
    """
    near, far = whole("near", near, 1, FARTHEST - 1), whole("far", far, 0, FARTHEST)
    length = whole("length", length, 1, 2**22)
    if far > near:
        raise ValueError(f"far must be at most near = {near}, not {far}")
    places, own, first, _ = _near(queries, keys, near + 1, offset, name="near")
    last = len(own) - 1
    if len(own) < 2 * near:
        return _near(queries, keys, max(len(own), 1), offset)[2:3]

    def group(place: Any) -> Any:
        return length * place // last

    while far < last and group(far) == group(far + 1):
        far += 1
    gain = near - group(near) - 1
    loss = last - far - group(last - far) - gain
    ends = np.minimum(first.spans[..., 0], np.clip(places - last + far, 0, len(own)))
    middle = Band(
        (group(places) + gain).astype(np.float64),
        group(own.astype(np.int64)).astype(np.float64),
        np.stack([ends, first.spans[..., 0]], axis=-1),
    )
    return first, middle, Band(places - float(loss), own, np.stack([np.zeros_like(ends), ends], axis=-1))


def lm_infinite(
    queries: int, keys: int | None = None, *, window: int = 4096, start: int = 10, offset: Any = None
) -> tuple[Band, ...]:
    """LM-Infinite: a query sees the keys within a window, and the first keys at the rotary offset w. Causal.

    The window of query i contains the keys j with i - j < w, at the rotary offset i - j. All keys between the first
    ones and the window are hidden, so attention takes O(N (w + start)) time.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    window : int
        The window size w. The authors use the training length.
    start : int
        Number of keys at the beginning that stay visible, usually 10 to 100.

    Returns
    -------
    tuple of Band

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does.

    References
    ----------
    Han et al. 2023, "LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language Models"
    (arXiv:2308.16137), section 4; Glaciohound/LM-Infinite, models/lambda_attention.py.

    Examples
    --------
    >>> look_back(lm_infinite(6, window=2, start=1))[0, 5].tolist()
    [2.0, nan, nan, nan, 1.0, 0.0]
    """
    places, own, near, window = _near(queries, keys, window, offset)
    start = whole("start", start, 0, FARTHEST)
    return near, Band(np.full(places.shape, float(window)), np.zeros_like(own), _before(near, start))


def streaming(
    queries: int, keys: int | None = None, *, start: int = 4, recent: int = 2000, offset: Any = None
) -> tuple[Band, ...]:
    """StreamingLLM: a query sees the latest keys, and the first keys at positions directly before them. Causal.

    The keys in between are hidden. StreamingLLM drops them from its key/value cache, and numbers the remaining
    start + recent keys consecutively. Ordinary rotary attention on such a cache gives the same result as these bands,
    if the keys in the cache are rotated only when they are used. Attention with the bands computes this result in one
    pass over a whole text.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    start : int
        Number of keys at the beginning that stay visible ("attention sinks", unrelated to the argument `sinks`).
    recent : int
        Number of latest keys that stay visible.

    Returns
    -------
    tuple of Band

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does.

    References
    ----------
    Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks" (arXiv:2309.17453), section 3.2;
    mit-han-lab/streaming-llm, pos_shift/modify_llama.py.

    Examples
    --------
    >>> look_back(streaming(6, start=1, recent=2))[0, 5].tolist()
    [2.0, nan, nan, nan, 1.0, 0.0]
    """
    places, own, near, recent = _near(queries, keys, recent, offset, name="recent")
    start = whole("start", start, 0, FARTHEST)
    return near, Band(np.minimum(places, start + recent - 1.0), own, _before(near, start))


# ---------------------------------------------------------------------------------------------------------------------


def _places(queries: int, keys: int | None, offset: Any) -> tuple[Array, Array]:
    """Return the positions of queries, (B or 1, N) int64, and of keys, (M,) float64."""
    places = positions(queries, keys, offset=offset)
    count = whole("keys", queries if keys is None else keys)
    validation.room(f"bands of keys={count}", 24 * count, "need")
    return places, np.arange(float(count))


def _near(
    queries: int, keys: int | None, window: int, offset: Any, *, causal: bool = True, name: str = "window"
) -> tuple[Array, Array, Band, int]:
    """Return the positions of queries and keys; the band of offsets below the window, with unchanged positions; and the
    window."""
    window = whole(name, window, 1, FARTHEST)
    back = window - 1
    ahead = 0 if truth("causal", causal) else back
    places, own = _places(queries, keys, offset)
    spans = near_spans(queries, keys, back=back, ahead=ahead, offset=offset)
    return places, own, Band(places.astype(np.float64), own, spans), window


def _before(near: Band, most: int | None = None) -> Array:
    """Return the spans of all keys before those of a band, or of the first `most` of them."""
    last = near.spans[..., 0]
    if most is not None:
        last = np.minimum(last, most)
    return np.stack([np.zeros_like(last), last], axis=-1)


def _after(near: Band, keys: int) -> Array:
    """Return the spans of all keys after those of a band."""
    first = near.spans[..., 1]
    return np.stack([first, np.full_like(first, keys)], axis=-1)
