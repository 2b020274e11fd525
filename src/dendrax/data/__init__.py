"""Data to learn from. What ships with the package needs no download; `get` brings the rest.

For other folders of dendrax: `PACKAGES` and `Watch` (of `get`), `standardised`.
"""

from dendrax.data._cifar10 import cifar10 as cifar10
from dendrax.data._fashion_mnist import fashion_mnist as fashion_mnist
from dendrax.data._get import PACKAGES as PACKAGES
from dendrax.data._get import Watch as Watch
from dendrax.data._get import get as get
from dendrax.data._image_folder import ImageFolder as ImageFolder
from dendrax.data._images import Images as Images
from dendrax.data._images import standardised as standardised
from dendrax.data._mnist import mnist as mnist
from dendrax.data._photographs import Photographs as Photographs
from dendrax.data._photographs import imagenet_photographs as imagenet_photographs
from dendrax.data._sources import Source as Source
from dendrax.data._sources import sources as sources
from dendrax.data._text import Text as Text
from dendrax.data._text import moby_dick as moby_dick
from dendrax.data._text import sequences as sequences
from dendrax.data._text import text as text
