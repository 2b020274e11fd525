"""The class of all figures. Imported when one is made: it needs matplotlib, which is an extra."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from dendrax.draw._figures import figure_bytes

DOTS_PER_INCH = 200  # as many as a fine screen shows, at half the size


class NotebookFigure(Figure):
    """A matplotlib figure that shows itself in a notebook, without ``%matplotlib inline``.

    With ``%matplotlib inline`` the settings of its backend override these.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        width, height = (round(inches * DOTS_PER_INCH / 2) for inches in self.get_size_inches())
        return figure_bytes(self, "png"), {"width": width, "height": height}
