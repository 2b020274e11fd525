"""A model as one number: equal if and only if every bit of every weight is."""

import hashlib
import json
from typing import Any

import jax
import numpy as np


def digest(model: Any) -> str:
    """The SHA-256 of all bits of a model.

    Two training runs can be compared by it, and the comparison can be written down.

    **Arguments:**

    - `model`: a pytree of arrays.

    **Returns:**

    64 hexadecimal digits, different for different dtypes, shapes or bits.

    !!! Example

        ```python
        import jax.numpy as jnp
        from dendrax.models import digest

        digest({"w": jnp.zeros(2)}) == digest({"w": -jnp.zeros(2)})  # -> False
        ```
    """
    sha = hashlib.sha256()
    for leaf in jax.tree.leaves(model):
        array = np.asarray(leaf)
        sha.update(json.dumps([str(array.dtype), array.shape]).encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
