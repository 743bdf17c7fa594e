"""Common code of all matplotlib figures: the check for matplotlib, settings, and files that depend on the data only."""

import io
from importlib.util import find_spec
from typing import Any

from fastpe.pictures.colours import Colour

MISSING = (
    "figures as .png and .pdf need matplotlib: pip install matplotlib; a name that ends in .svg works without it, "
    "such as --out figure.svg"
)
KINDS = ("svg", "png", "pdf")

_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None},
}  # fmt: skip
STYLE: dict[Any, Any] = {
    "font.size": 9, "pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "fastpe",
}  # fmt: skip


def stroke(colour: Colour, dashes: str) -> dict[str, Any]:
    """Return colour and dashes of a line as keywords of matplotlib's `plot`."""
    return {"color": colour.light, "linestyle": (0, tuple(map(float, dashes.split()))) if dashes else "-"}


def available() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def need() -> None:
    """Raise ModuleNotFoundError if matplotlib is not installed."""
    if not available():
        raise ModuleNotFoundError(MISSING)


def content(figure: Any, kind: str) -> bytes:
    """Return the figure as the content of a file of this format."""
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=200, metadata=_METADATA[kind])
    return stream.getvalue()
