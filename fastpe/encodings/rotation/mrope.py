"""Multimodal RoPE: one ladder of frequencies, of which time, height and width each turn a section.

    theta_t = base^(-2t/D),  t = 0 .. D/2 - 1
    angle of pair t = theta_t times the time of the token for t < n_t, its row for the next n_h, its column for the rest

Source: Wang et al. 2024, "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution"
(arXiv:2409.12191), section 2.1; huggingface/transformers, models/qwen2_vl/modeling_qwen2_vl.py,
apply_multimodal_rotary_pos_emb, and, for the base, configuration_qwen2_vl.py.

**Slots**: `angles` (1, N, D/2), `pairs`. **Learns**: nothing.

**Options**
- `sections`: (n_t, n_h, n_w), with the sum D/2. By default 3/8 of the pairs, rounded down, for height and for width
  each, the rest for time: (16, 24, 24) for D = 128, as the authors have it.
- `grid`: frames, rows and columns, whose product is N; tokens in raster order, columns fastest. By default tokens are
  those of a text: all three coordinates are the index, which is `rope` of the same base exactly.
- `base`: the slowest frequency is about 1/base; 1000000 in Qwen2-VL. `pairs`: as for `rope`; `half` in the code.

Positions, where given, are (time, row, column), reals.

**Past the training length**: defined, as for `rope`.

**Traps.** The axes see different bands of frequencies, time the fastest: it is not `rope_2d` with one axis more. Later
models deal the pairs out to the axes in turn.
"""

from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import Array, exact_angles, fill_line, fill_sections, precise
from fastpe.encodings.parts.grids import axis_places, chosen_sides, coordinates
from fastpe.encodings.parts.rotary import base_option, ladder, pairs_option, plain_pairs, rotated_width, shapes
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, sections: tuple[int, ...] | None, grid: tuple[int, ...] | None, **options: Any) -> None:
    """Every pair must belong to one section, and the grid must be made of all tokens."""
    pairs = rotated_width(spec, None) // 2
    if sections is not None and (len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs):
        raise ValueError(f"option 'sections' must be 3 numbers >= 0 with the sum {pairs}, not {sections}")
    if grid is not None and spec.positions is None:
        chosen_sides(spec, grid, 3)


def chosen_sections(spec: Spec, sections: tuple[int, ...] | None) -> tuple[int, ...]:
    """How many pairs turn with time, row and column."""
    pairs = rotated_width(spec, None) // 2
    side = 3 * pairs // 8
    return (pairs - 2 * side, side, side) if sections is None else sections


def _points(spec: Spec, grid: tuple[int, ...] | None) -> Array:
    if spec.positions is None and grid is None:
        return np.repeat(spec.points()[:, None], 3, axis=1)
    return coordinates(spec, grid, 3)


def reference(
    spec: Spec, params: dict[str, Any], *, sections: tuple[int, ...] | None, grid: tuple[int, ...] | None, base: float,
    pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """theta_t times the coordinate of its section."""
    width, points = rotated_width(spec, None), _points(spec, grid)
    with precise():
        theta = [1 / Decimal(base) ** (Decimal(2 * t) / width) for t in range(width // 2)]
    axis = np.repeat([0, 1, 2], chosen_sections(spec, sections))
    angles = [exact_angles(points[..., axis[t]], theta[t : t + 1]) for t in range(width // 2)]
    return {"angles": np.concatenate(angles, axis=-1)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, sections: tuple[int, ...] | None,
    grid: tuple[int, ...] | None, base: float, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    theta, angles = ladder(base, rotated_width(spec, None)), out["angles"]
    if spec.positions is None and grid is None:
        fill_line(spec, theta, angles)
        return
    places = axis_places(spec, (1, 1, 1) if spec.positions is not None else chosen_sides(spec, grid, 3))
    ends = np.cumsum([0, *chosen_sections(spec, sections)])
    fill_sections(spec, places, [(axis, theta[ends[axis] : ends[axis + 1]]) for axis in range(3)], angles)


ENCODING = Encoding(
    summary="rotary, with pairs for time, height and width",
    slots=("angles", "pairs"),
    options={
        "sections": Option(
            None, "pairs for time, height and width", tuple, optional=True, samples=((2, 3, 3), (0, 8, 0))
        ),
        "grid": Option(None, "frames, rows and columns; none: a text", tuple, optional=True),
        "base": base_option(1000000.0),
        "pairs": pairs_option("half"),
    },
    beyond="defined",
    direction="yes",
    source="Wang et al. 2024, arXiv:2409.12191, section 2.1",
    reported=Reported(
        "partly",
        "Trained with at most 16K tokens a video, Qwen2-VL 72B is reported to do well at up to 80K tokens.",
        "Wang et al. 2024, arXiv:2409.12191, section 3.3.2 and fig. 5",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    axes=lambda **options: 3,
)
