"""The colours of lines and maps. A colour map runs from the smallest to the largest value, or has white at 0."""

import colorsys
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_ONE_SIGN = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))  # viridis
_TWO_SIGNS = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))  # ColorBrewer's RdBu

WHITE, BLACK = "#ffffff", "#151515"
"""The light and the dark background of pages and figures."""
DASHES = ("", "6 3", "2 2", "8 2 2 2")
_STRONGEST, _WEAKEST = 14.0, 3.2  # contrasts of the first and the last head with the background
_NUMBERED = re.compile(r"\b(head|channel|pair) \d+$")


class Colour(NamedTuple):
    """A colour of lines and text on a light and on a dark background, with a contrast of at least 4:1 on each."""

    light: str
    dark: str


PALETTE = (
    Colour("#666666", "#a6a6a6"),  # grey, for baselines
    Colour("#0072b2", "#4ea8de"), Colour("#c44e00", "#ff8a3d"), Colour("#007d5a", "#2fc296"),
    Colour("#b3478a", "#e38bc0"), Colour("#8a6500", "#d9a521"), Colour("#6a4fb3", "#a894f0"),
    Colour("#a11a3e", "#f0758f"), Colour("#1f8a9c", "#4fc3d5"), Colour("#5c7a12", "#a3c63f"),
    Colour("#7a3b12", "#c98a5e"), Colour("#23408f", "#7f9cf0"),
)  # fmt: skip
_OF_ENCODING = {
    "nope": 0, "rope": 1, "alibi": 2, "wavelet": 3, "t5": 4, "sinusoidal": 5, "fox": 6, "fire": 7, "learned": 8,
    "legendre": 9, "kerple_log": 10, "cope": 11,
}  # fmt: skip
"""Places in the palette of the encodings that are compared most; each other label has a place that follows from it."""


def of_encoding(label: str) -> Colour:
    """Return the colour of an encoding, which is the same in every figure, page and terminal plot.

    >>> of_encoding("nope").light, of_encoding("alibi").dark
    ('#666666', '#ff8a3d')
    """
    place = _OF_ENCODING.get(label)
    if place is None:
        place = 1 + int.from_bytes(hashlib.sha256(label.encode()).digest()[:4]) % (len(PALETTE) - 1)
    return PALETTE[place]


def styles(labels: Iterable[str] | Mapping[str, str]) -> dict[str, tuple[Colour, str]]:
    """Return the colour and the dashes of each encoding in a figure. Dashes distinguish lines of the same colour.

    A mapping from labels to encodings is for lines that are not named as their encodings, such as runs.

    >>> styles(["rope", "alibi"])["alibi"]
    (Colour(light='#c44e00', dark='#ff8a3d'), '')
    >>> styles({"run 1": "alibi", "run 2": "alibi"})["run 2"]
    (Colour(light='#c44e00', dark='#ff8a3d'), '6 3')
    """
    encodings = labels if isinstance(labels, Mapping) else {label: label for label in labels}
    found: dict[str, tuple[Colour, str]] = {}
    for label, encoding in encodings.items():
        colour = of_encoding(encoding)
        used = sum(each == colour for each, _ in found.values())
        found[label] = colour, DASHES[used % len(DASHES)]
    return found


def in_order(names: Iterable[str]) -> dict[str, tuple[Colour, str]]:
    """Return the colour and the dashes of each line that is not an encoding, by its place. Grey is left out.

    >>> in_order(["first 50", "all 100"])["all 100"]
    (Colour(light='#c44e00', dark='#ff8a3d'), '6 3')
    """
    count = len(PALETTE) - 1
    return {
        name: (PALETTE[1 + place % count], DASHES[(place + place // count) % len(DASHES)])
        for place, name in enumerate(names)
    }


def heads(colour: Colour, count: int) -> list[Colour]:
    """Return a colour for each head of an encoding: the same hue, from strong to weak contrast with the background.

    >>> [each.light for each in heads(of_encoding("alibi"), 3)]
    ['#4c1e00', '#9c3e00', '#f26000']
    """
    if count == 1:
        return [colour]
    steps = np.geomspace(_STRONGEST, _WEAKEST, count).tolist()
    return [Colour(_shade(colour.light, step, WHITE), _shade(colour.dark, step, BLACK)) for step in steps]


def of_lines(encoding: str, names: Sequence[str]) -> dict[str, tuple[Colour, str]]:
    """Return the colour and the dashes of each line in a panel of one encoding.

    A single line has the colour of the encoding. Heads, channels and pairs have its shades. Other lines have colours by
    their place, and "no bias" is grey.

    >>> of_lines("nope", ["a"]), of_lines("rope", ["head 0", "head 1"])["head 0"][0].light
    ({'a': (Colour(light='#666666', dark='#a6a6a6'), '')}, '#002e47')
    """
    own = of_encoding(encoding)
    named = [name for name in names if name != "no bias"]
    if len(named) == 1 or all(_NUMBERED.search(name) for name in named):
        found = {name: (shade, "") for name, shade in zip(named, heads(own, len(named)), strict=True)}
    else:
        found = in_order(named)
    return {name: found.get(name, (PALETTE[0], DASHES[1])) for name in names}


def contrast(colour: str, background: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2), from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"), 6)
    21.0
    """
    low, high = sorted((_luminance(colour), _luminance(background)))
    return (high + 0.05) / (low + 0.05)


def css(colour: Colour) -> str:
    """Return a CSS value that is the light or the dark colour, by the reader's colour scheme.

    >>> css(of_encoding("nope"))
    'light-dark(#666666, #a6a6a6)'
    """
    return f"light-dark({colour.light}, {colour.dark})"


def _luminance(colour: str) -> float:
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def _shade(colour: str, wanted: float, background: str) -> str:
    """Return the colour with another lightness, so that it has a contrast with the background."""
    hue, _, strength = colorsys.rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    every = ["#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, k / 200, strength))
             for k in range(201)]  # fmt: skip
    return min((each for each in every if contrast(each, background) >= wanted),
               key=lambda each: contrast(each, background))  # fmt: skip


def rgb(share: float, signed: bool) -> bytes:
    """Return red, green and blue for a share from 0 (the smallest value) to 1 (the largest).

    >>> rgb(0.0, False).hex(), rgb(0.5, True).hex()
    ('440154', 'f7f7f7')
    """
    anchors = np.array(_TWO_SIGNS if signed else _ONE_SIGN)
    places = range(len(anchors))
    return bytes(round(np.interp(share * (len(anchors) - 1), places, part)) for part in anchors.T)
