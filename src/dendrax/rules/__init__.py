"""The learning rules."""

from dendrax.rules._base import Rule as Rule
from dendrax.rules.bp import BP as BP
from dendrax.rules.zil import ZIL as ZIL
