"""The figure that `fastpe.show` returns. Importing this module needs matplotlib."""

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from fastpe.pictures import canvas

_PIXELS = 96  # of a notebook, to an inch


class Picture(Figure):
    """A figure that a notebook displays exactly once, since it is not registered with pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        with matplotlib.rc_context(canvas.STYLE):
            return canvas.content(self, "png"), {"width": int(self.get_figwidth() * _PIXELS)}
