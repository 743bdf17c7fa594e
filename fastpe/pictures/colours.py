"""The colours of lines and maps. A colour map runs from the smallest to the largest value, or has white at 0."""

import numpy as np

_ONE_SIGN = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))  # viridis
_TWO_SIGNS = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))  # ColorBrewer's RdBu

# Okabe and Ito's colours and four of Tol's, which are distinguishable with any colour vision; dashes help in print
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#555555", "#000000", "#882255", "#44aa99",
    "#999933", "#661100",
)  # fmt: skip
DASHES = ("", "6 3", "2 2", "8 2 2 2")


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
