"""Pictures: graphs in levels, circuits, plots over time, and the explorer.

- `graph`, `circuit`: drawings of a `Graph` or `LevelledGraph`, as SVG, PNG or PDF.
- `energy`, `wave`, `traces`, `compare`, `distances`: plots of what `dendrax.run` and
  `dendrax.check` found.
- `explore`: one page on which errors run through the graph of a function.
"""

from dendrax.draw._explore import explore as explore
from dendrax.draw._picture import Picture as Picture
from dendrax.draw._picture import circuit as circuit
from dendrax.draw._picture import graph as graph
from dendrax.draw._picture import notebook_svg
from dendrax.draw._plots import compare as compare
from dendrax.draw._plots import distances as distances
from dendrax.draw._plots import energy as energy
from dendrax.draw._plots import traces as traces
from dendrax.draw._plots import wave as wave
from dendrax.graph import Pictured

Pictured.picture = notebook_svg
