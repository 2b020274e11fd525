"""Data to learn from. What ships with the package needs no download."""

from dendrax.data._fashion_mnist import Images as Images
from dendrax.data._fashion_mnist import fashion_mnist as fashion_mnist
