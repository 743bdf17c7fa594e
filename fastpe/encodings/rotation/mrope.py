"""Multimodal RoPE: some pairs rotate with the time of a token, others with its row, and the rest with its column.

    theta_t = base^(-2t/D),  t = 0 .. D/2 - 1
    angle of pair t = theta_t times the time of the token for t < n_t, its row for the next n_h, its column for the rest

Later models assign the pairs to the axes in other ways (option `deal`).

Source: Wang et al. 2024, "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution"
(arXiv:2409.12191), section 2.1; huggingface/transformers, models/qwen2_vl/modeling_qwen2_vl.py,
apply_multimodal_rotary_pos_emb. The base is from configuration_qwen2_vl.py of the same folder. The layout `interleaved`
is from models/qwen3_vl/modeling_qwen3_vl.py, apply_interleaved_mrope, of the same library. The layout `time_last` is
from VideoRoPE: Wei et al. 2025 (arXiv:2502.05173); Wiselnn570/VideoRoPE, modeling_videorope.py,
apply_m_modify_multimodal_rotary_pos_emb.

**Slots**: `angles` (1, N, D/2), `pairs`. **Learns**: nothing.

**Options**
- `sections`: (n_t, n_h, n_w), the numbers of pairs for time, row and column. Their sum is D/2. By default row and
  column each have 3/8 of the pairs, rounded down, and time has the rest: (16, 24, 24) for D = 128, as in the authors'
  model. If `deal` is `interleaved`, row and column by default have 5/16 each: (24, 20, 20).
- `deal`: which pairs belong to which axis. `sections` (Qwen2-VL, Qwen2.5-VL, Qwen2.5-Omni): as in the formula above.
  `interleaved` (Qwen3-VL, Qwen3-Omni): pairs belong to time, row and column in turn, until row and column have all
  theirs; the rest belong to time. Each axis then has fast and slow pairs. `time_last` (VideoRoPE): the first pairs
  belong to row and column in turn, and the others, which are the slowest, to time.
- `grid`: the numbers of frames, rows and columns, whose product is N. Tokens are in raster order: the column changes
  fastest. By default the tokens form a text: all three coordinates of a token are its index, and the encoding is
  exactly `rope` with the same base.
- `base`: the slowest frequency is about 1/base. Qwen2-VL has the base 1000000.
- `pairs`: as for `rope`; the code uses `half`.

If positions are given, they are (time, row, column) and may be real numbers. In a text, the three coordinates of a
token are equal. Each text, image or video starts at one plus the largest coordinate before it (VideoRoPE: one plus the
largest time). The time of a token, counted from this start, is

- the number of its frame (Qwen2-VL);
- the time of its frame in ticks of 1/25 second, rounded down (Qwen2.5-Omni's TM-RoPE);
- twice the number of its frame (VideoRoPE). If this time is T, a patch of a frame with Ny rows and Nx columns is at (T,
  T + row - (Ny - 1) // 2, T + column - (Nx - 1) // 2).

The function `positions` of this module computes the coordinates of all three variants.

**Past the training length**: defined, as for `rope`.

**Traps.** If `deal` is `sections`, each axis has its own range of frequencies, and the time has the fastest. In
`rope_2d`, both axes have the same frequencies. In VideoRoPE's layout, the row and column coordinates of a video can be
smaller than the coordinates of the text before the video.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.parts.angles import Array, exact_angles, fill_line, fill_sections
from fastpe.encodings.parts.grids import axis_places, chosen_sides, coordinates, raster
from fastpe.encodings.parts.rotary import (
    base_option,
    ladder,
    pairs_option,
    plain_pairs,
    printed_ladder,
    rotated_width,
    shapes,
)
from fastpe.encodings.slots import Spec


def check(
    spec: Spec, *, sections: tuple[int, ...] | None, deal: str, grid: tuple[int, ...] | None, **options: Any
) -> None:
    """Require sections that cover all pairs, and a grid with one cell for each token."""
    pairs = rotated_width(spec, None) // 2
    if sections is not None:
        if len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
            raise ValueError(f"option 'sections' must be 3 numbers >= 0 with the sum {pairs}, not {sections}")
        if deal == "interleaved" and max(3 * sections[1] - 1, 3 * sections[2]) > pairs:
            raise ValueError(
                f"option 'sections' must give rows and columns at most a third of {pairs} pairs each if they are "
                f"interleaved, not {sections}"
            )
        if deal == "time_last" and sections[1] != sections[2]:
            raise ValueError(
                f"option 'sections' must give rows and columns equally many pairs with deal='time_last', not {sections}"
            )
    if grid is not None and spec.positions is None:
        chosen_sides(spec, grid, 3)


def axis_of_pairs(spec: Spec, sections: tuple[int, ...] | None, deal: str) -> Array:
    """The coordinate that each pair rotates with: 0 time, 1 row, 2 column.

    >>> from fastpe.encodings.slots import make_spec
    >>> axis_of_pairs(make_spec(1, dim=16), (4, 2, 2), "interleaved").tolist()
    [0, 1, 2, 0, 1, 2, 0, 0]
    """
    pairs = rotated_width(spec, None) // 2
    side = (5 * pairs // 16) if deal == "interleaved" else 3 * pairs // 8
    chosen = (pairs - 2 * side, side, side) if sections is None else sections
    t = np.arange(pairs)
    if deal == "interleaved":
        return np.where((t % 3 > 0) & (t < 3 * np.array(chosen)[t % 3]), t % 3, 0)
    if deal == "time_last":
        return np.where(t < 2 * chosen[1], 1 + t % 2, 0)
    return np.repeat([0, 1, 2], chosen)


def positions(
    parts: Sequence[int | tuple[int, ...]], *, seconds: float = 0.0, per_second: float = 25.0, centred: bool = False
) -> Array:
    """Compute time, row and column of the tokens of a sequence of texts, images and videos.

    Parameters
    ----------
    parts : sequence of int or tuple
        The parts of the sequence in order: the number of tokens of a text, or (frames, rows, columns) of an image or
        video, whose tokens are in raster order.
    seconds : float
        Seconds from one frame to the next. If not 0, time is in whole ticks, `floor(frame * seconds * per_second)`, as
        in Qwen2.5. If 0, time is the number of the frame, as in Qwen2-VL, or twice this number if `centred`.
    per_second : float
        Ticks per second: 25 in Qwen2.5-Omni (TM-RoPE), 4 in Qwen2.5-VL.
    centred : bool
        If True, use VideoRoPE's layout: the row and the column of the middle of a frame equal the frame's time, and a
        following text continues after the time of the last frame. If False, rows and columns are counted from the time
        of the first frame, and a following text continues after the largest time, row or column of the part.

    Returns
    -------
    array of shape (N, 3)
        Time, row and column of each token, float64, for the argument `positions` of `fastpe.build`.

    Raises
    ------
    ValueError
        If a part is neither a number of tokens nor three sides, all at least 1.

    Examples
    --------
    >>> positions([2, (1, 2, 2), 1]).T.tolist()
    [[0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 4.0], [0.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0, 2.0, 3.0, 4.0]]
    """
    start, blocks = 0.0, [np.empty((0, 3))]
    for part in parts:
        sides = (part,) if isinstance(part, int) else tuple(part)
        if len(sides) not in (1, 3) or min(sides) < 1:
            raise ValueError(f"a part must be a number of tokens or 3 sides, all at least 1, not {part}")
        cells = raster(sides)
        if len(sides) == 1:
            blocks.append(start + np.repeat(cells, 3, axis=1))
            start += sides[0]
            continue
        time = np.floor(cells[:, 0] * seconds * per_second) if seconds else cells[:, 0] * (2 if centred else 1)
        cells[:, 0] = time
        if centred:
            cells[:, 1:] += time[:, None] - (np.array(sides[1:]) - 1) // 2
        blocks.append(start + cells)
        start += (time.max() if centred else cells.max()) + 1
    return np.concatenate(blocks)


def _points(spec: Spec, grid: tuple[int, ...] | None) -> Array:
    if spec.positions is None and grid is None:
        return np.repeat(spec.points()[:, None], 3, axis=1)
    return coordinates(spec, grid, 3)


def reference(
    spec: Spec, params: dict[str, Any], *, sections: tuple[int, ...] | None, deal: str,
    grid: tuple[int, ...] | None, base: float, pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """theta_t times the coordinate of the section of pair t."""
    width, points = rotated_width(spec, None), _points(spec, grid)
    theta = list(printed_ladder(base, width))
    axis = axis_of_pairs(spec, sections, deal)
    angles = [exact_angles(points[..., axis[t]], theta[t : t + 1]) for t in range(width // 2)]
    return {"angles": np.concatenate(angles, axis=-1)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, sections: tuple[int, ...] | None, deal: str,
    grid: tuple[int, ...] | None, base: float, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    theta, angles = ladder(base, rotated_width(spec, None)), out["angles"]
    if spec.positions is None and grid is None:
        fill_line(spec, theta, angles)
        return
    places = axis_places(spec, (1, 1, 1) if spec.positions is not None else chosen_sides(spec, grid, 3))
    pairs_of = [np.flatnonzero(axis_of_pairs(spec, sections, deal) == axis) for axis in range(3)]
    order = np.concatenate(pairs_of)
    in_order = bool((np.diff(order) > 0).all())
    target = angles if in_order else np.empty(angles.shape)
    fill_sections(spec, places, [(axis, tuple(theta[t] for t in pairs_of[axis])) for axis in range(3)], target)
    if not in_order:
        angles[..., order] = target


ENCODING = Encoding(
    summary="rotary, with pairs for time, height and width",
    formula=r"""
        \theta_t &= \mathrm{base}^{-2t/D}, \quad t = 0, \dots, D/2 - 1 \\
        \text{angle of pair } t &= \theta_t \cdot \begin{cases}
        \text{time of the token} & t < n_t \\
        \text{its row} & n_t \le t < n_t + n_h \\
        \text{its column} & \text{for the rest}
        \end{cases}
    """,
    use_when="one sequence mixes text with images or video, as in the Qwen-VL models",
    also_called=("M-RoPE", "multimodal RoPE", "interleaved MRoPE", "TM-RoPE", "VideoRoPE"),
    not_to_be_confused={
        "rope_2d": "images only: half of the pairs for columns, half for rows",
        "HoPE (arXiv:2505.20444)": "another encoding for vision-language models",
        "rope_mixed_radix": "MrRoPE, which extends RoPE of one axis to longer texts",
    },
    use="images",
    needs=Needs("coordinates", "all three coordinates are the index, as in a text: this is rope of the same base"),
    slots=("angles", "pairs"),
    options={
        "sections": Option(
            None, "pairs for time, height and width", tuple, optional=True, samples=((2, 3, 3), (0, 8, 0))
        ),
        "deal": Option("sections", "how pairs are assigned to the axes", str, ("sections", "interleaved", "time_last")),
        "grid": Option(None, "frames, rows and columns; none: a text", tuple, optional=True),
        "base": base_option(1000000.0),
        "pairs": pairs_option("half"),
    },
    beyond="defined",
    direction="yes",
    source="Wang et al. 2024, arXiv:2409.12191, section 2.1",
    reported=Reported(
        "partly",
        "Trained with at most 16K tokens per video, Qwen2-VL 72B is reported to do well at up to 80K tokens.",
        "Wang et al. 2024, arXiv:2409.12191, section 3.3.2 and fig. 5",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    axes=lambda **options: 3,
)
