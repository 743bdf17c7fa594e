"""Bands: attention whose rotations are chosen by how far a key lies back, for the arguments `bands` and `theta` of
`fastpe.attention`. Trained weights stay as they are, and read texts longer than those they were trained on.

    self_extend         beyond a window, groups of neighbours share one place
    rerope              beyond a window, all keys are as far as its edge
    leaky_rerope        beyond a window, places are closer together
    dual_chunk          places start anew in every chunk
    lm_infinite         a window, and the first keys at its edge
    streaming           a window, and the first keys right behind it
    frequencies         theta of a rotary encoding
    look_back           a picture of it all: how far every key seems to lie behind every query

A band is a place for every query and for every key, and the keys of each query that are its own; they meet at the
look-back queries[i] - keys[j]. Attention costs as many tiles as without bands, and O(N) memory; keys of no band are not
seen, and cost nothing. Positions are true ones: keys are handed over unturned, from a cache as well. Places are
multiplied by theta in float64, which at place p leaves an error of about 1e-16 p theta radians.

A model of `fastpe` that was trained with rope reads longer inputs so as `fastpe.Banded`, and on the command line by
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
    "Band", "dual_chunk", "frequencies", "leaky_rerope", "lm_infinite", "look_back", "rerope", "self_extend",
    "streaming",
]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Schemes; m = i - j, the look-back from position i to position j


def self_extend(
    queries: int, keys: int | None = None, *, group: int = 8, window: int = 1024, offset: Any = None
) -> tuple[Band, ...]:
    """Self-Extend: m itself within a window; beyond, floor(i / G) - floor(j / G) + w - floor(w / G). Causal.

    A model trained on L0 positions sees (L0 - w) G + w of them without meeting a look-back that it was not trained on.
    Past the window look-backs depend on i modulo G too, and at its edge one may come twice.

    Parameters
    ----------
    queries, keys : int
        How many there are; by default as many keys as queries.
    group : int
        G, how many neighbours share a place. With 1 it is rotary attention as ever.
    window : int
        w: look-backs below it stay.
    offset : int or (B,) int, optional
        The position of the first query; by default keys - queries, so that the last query stands at the last key.

    Returns
    -------
    tuple of Band

    Raises
    ------
    TypeError, ValueError
        If a size or an offset is no integer, or too small.

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
    """ReRoPE: min(m, w). The authors sharpen rows as well, by `fastpe.temperatures.log_n`.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    window : int
        w: look-backs below it stay, and all others are w.
    causal : bool
        Whether queries see keys up to their own position; if not, keys ahead of them mirror those behind:
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
    """Leaky ReRoPE: m within a window; beyond, w + (m - w) / s. The authors sharpen rows as well, as for `rerope`.

    Parameters
    ----------
    queries, keys, window, causal, offset
        As for `rerope`.
    step : int
        s: how many positions beyond the window make one. With 1 it is rotary attention as ever.

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
    """Dual chunk attention (DCA): with c = chunk - local, chunks of c keys stand at 0 .. c - 1 each. Causal.

    A query meets its own chunk at m, the one before at min(i mod c + c, chunk) - j mod c, and earlier ones at
    min(2 c - 1, chunk) - j mod c: those are no farther than the one before. The authors take chunk = 3/4 L0 and local =
    L0 / 8, L0 being the training length (here 4096); past it they sharpen rows by `fastpe.temperatures.dual_chunk`.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    chunk : int
        The largest look-back but for those of the chunk itself.
    local : int
        By how much a chunk is shorter, so that look-backs just before its start go on from those within.

    Returns
    -------
    tuple of Band
        The own chunk's, the one before's and that of all earlier ones.

    Raises
    ------
    TypeError, ValueError
        As `self_extend` does; also if `chunk` is not above `local`.

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


def lm_infinite(
    queries: int, keys: int | None = None, *, window: int = 4096, start: int = 10, offset: Any = None
) -> tuple[Band, ...]:
    """LM-Infinite: keys with m < w, and the first ones at look-back w; no others are seen. Causal, O(N (w + start)).

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    window : int
        w, the authors' training length.
    start : int
        How many of the first keys stay in sight; 10 to 100.

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
    """StreamingLLM: the latest keys, and the first ones as if they stood right before these; no others. Causal.

    It is what its cache gives, which drops the keys between and counts places in what is left, in one pass over a whole
    text. With that cache itself, of start + recent keys handed over unturned, plain rotary attention is the same.

    Parameters
    ----------
    queries, keys, offset
        As for `self_extend`.
    start : int
        How many of the first keys stay in sight ("attention sinks"; the argument `sinks` is another thing).
    recent : int
        How many of the latest do.

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
    """The positions of queries, (B or 1, N) int64, and of keys, (M,) float64."""
    places = positions(queries, keys, offset=offset)
    count = whole("keys", queries if keys is None else keys)
    validation.room(f"bands of keys={count}", 24 * count, "need")
    return places, np.arange(float(count))


def _near(
    queries: int, keys: int | None, window: int, offset: Any, *, causal: bool = True, name: str = "window"
) -> tuple[Array, Array, Band, int]:
    """The positions of queries and keys, the band of look-backs below the window, at which they keep their positions,
    and the window."""
    window = whole(name, window, 1, FARTHEST)
    back = window - 1
    ahead = 0 if truth("causal", causal) else back
    places, own = _places(queries, keys, offset)
    spans = near_spans(queries, keys, back=back, ahead=ahead, offset=offset)
    return places, own, Band(places.astype(np.float64), own, spans), window


def _before(near: Band, most: int | None = None) -> Array:
    """The spans of all keys before a band's own, or of the first `most` of them."""
    last = near.spans[..., 0]
    if most is not None:
        last = np.minimum(last, most)
    return np.stack([np.zeros_like(last), last], axis=-1)


def _after(near: Band, keys: int) -> Array:
    first = near.spans[..., 1]
    return np.stack([first, np.full_like(first, keys)], axis=-1)
