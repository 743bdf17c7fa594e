"""Common code of all figures: the check for matplotlib, settings, and files whose bytes depend on the data only."""

import io
from importlib.util import find_spec
from typing import Any

from fastpe.pictures.colours import style

MISSING = "plots need matplotlib: pip install -e '.[plots]' from a clone of fastpe"
KINDS = ("png", "svg", "pdf")

_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None},
}  # fmt: skip
STYLE: dict[Any, Any] = {
    "font.size": 9, "pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "fastpe",
}  # fmt: skip


def stroke(place: int) -> dict[str, Any]:
    """Return colour and dashes of the line with this number as keywords of matplotlib's `plot`."""
    colour, dashes = style(place)
    return {"color": colour, "linestyle": (0, tuple(map(float, dashes.split()))) if dashes else "-"}


def available() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def content(figure: Any, kind: str) -> bytes:
    """Return the figure as the content of a file of this format."""
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=200, metadata=_METADATA[kind])
    return stream.getvalue()
