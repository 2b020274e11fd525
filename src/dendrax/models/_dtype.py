"""Change the precision of a model: drawn in float32, used in any floating-point type."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from numpy.typing import DTypeLike

T = TypeVar("T")


def astype(model: T, dtype: DTypeLike) -> T:
    """Casts every leaf of a model.

    **Arguments:**

    - `model`: a pytree of floating-point arrays, such as any module of `dendrax.models`.
    - `dtype`: the floating-point type to cast to.

    **Returns:**

    A model of the same structure, whose leaves have type `dtype`.

    !!! Example

        ```python
        import jax, jax.numpy as jnp
        from dendrax.models import MLP, astype

        model = MLP(4, (3,), 2, key=jax.random.key(0))
        half = astype(model, jnp.bfloat16)
        half(jnp.ones((5, 4), jnp.bfloat16)).dtype  # -> bfloat16
        ```
    """
    checked = _checked_dtype(dtype)
    return jax.tree.map(lambda leaf: leaf.astype(checked), model)


def _checked_dtype(dtype: DTypeLike) -> jnp.dtype:
    found = _dtype(dtype)
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise ValueError(
            "dendrax.models.astype: parameters are real floating-point numbers, got "
            f"{found or repr(dtype)}. Pass a type such as jnp.float32."
        )
    if jax.dtypes.canonicalize_dtype(found) != found:
        raise ValueError(
            f"dendrax.models.astype: JAX would truncate {found}, because 64-bit types are off. "
            'Call jax.config.update("jax_enable_x64", True) first.'
        )
    return found


def _dtype(dtype: DTypeLike) -> jnp.dtype | None:
    try:
        return None if dtype is None else jnp.dtype(dtype)  # jnp.dtype(None) is float64
    except (TypeError, ValueError):
        return None
