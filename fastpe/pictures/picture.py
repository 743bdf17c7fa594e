"""The figure that `fastpe.show` returns. Importing this module needs matplotlib."""

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from fastpe.pictures import canvas

_PIXELS = 96  # pixels per inch in a notebook


class Picture(Figure):
    """A figure that a notebook displays once. It is not registered with pyplot, which would display it again."""

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        with matplotlib.rc_context(canvas.STYLE):
            return canvas.content(self, "png"), {"width": int(self.get_figwidth() * _PIXELS)}
