"""The colours of lines and maps. A colour map runs from the smallest to the largest value, or has white at 0."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

_ONE_SIGN = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))  # viridis
_TWO_SIGNS = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))  # ColorBrewer's RdBu

# Okabe and Ito's colours and four of Tol's, which are distinguishable with any colour vision; dashes help in print
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#555555", "#000000", "#882255", "#44aa99",
    "#999933", "#661100",
)  # fmt: skip
DASHES = ("", "6 3", "2 2", "8 2 2 2")


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


def styles(labels: Iterable[str]) -> dict[str, tuple[Colour, str]]:
    """Return the colour and the dashes of each encoding in a figure. Dashes distinguish lines of the same colour.

    >>> styles(["rope", "alibi"])["alibi"]
    (Colour(light='#c44e00', dark='#ff8a3d'), '')
    """
    found: dict[str, tuple[Colour, str]] = {}
    for label in labels:
        colour = of_encoding(label)
        used = sum(each == colour for each, _ in found.values())
        found[label] = colour, DASHES[used % len(DASHES)]
    return found


def style(place: int) -> tuple[str, str]:
    """Return colour and dashes of the line with this number.

    >>> style(1)
    ('#d55e00', '6 3')
    """
    return COLOURS[place % len(COLOURS)], DASHES[(place + place // len(COLOURS)) % len(DASHES)]


def rgb(share: float, signed: bool) -> bytes:
    """Return red, green and blue for a share from 0 (the smallest value) to 1 (the largest).

    >>> rgb(0.0, False).hex(), rgb(0.5, True).hex()
    ('440154', 'f7f7f7')
    """
    anchors = np.array(_TWO_SIGNS if signed else _ONE_SIGN)
    places = range(len(anchors))
    return bytes(round(np.interp(share * (len(anchors) - 1), places, part)) for part in anchors.T)
