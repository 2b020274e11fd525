"""A name enters; a model, a batch of random data of the paper's size, and a loss leave."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from numpy.typing import DTypeLike

from dendrax.support import PROBLEM_NAMES, ProblemName, nearest

from ._cnn import CNN
from ._dtype import astype
from ._layers import normal
from ._mlp import MLP
from ._resnet import FCResNet, ResNet18
from ._rnn import RNN
from ._transformer import Transformer

Loss: TypeAlias = Callable[[Any, jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, a batch to learn from and the loss to reduce.

    **Attributes:**

    - `name`: the name given to [`dendrax.models.problem`][].
    - `model`: a batched Equinox module.
    - `inputs`: the first axis is the batch.
    - `target`: what `predict(model, inputs)` should be.
    - `loss`: `loss(model, inputs, target)` is a scalar, the mean over the batch.

    !!! Example

        ```python
        import jax
        from dendrax.models import problem

        p = problem("mlp", small=True)
        value, gradient = jax.value_and_grad(p.loss)(p.model, p.inputs, p.target)
        ```
    """

    name: str
    model: Any
    inputs: jax.Array
    target: jax.Array
    loss: Loss

    @staticmethod
    def predict(model: Any, inputs: jax.Array) -> jax.Array:
        """The model's output, of the same shape as the target."""
        return model(inputs)


def cross_entropy_loss(model: Any, inputs: jax.Array, target: jax.Array) -> jax.Array:
    """Softmax cross entropy, summed over classes, and its mean over all other axes.

    **Arguments:**

    - `model`: any callable on a batch, such as a module of `dendrax.models`.
    - `inputs`: what the model takes.
    - `target`: probabilities, for instance one-hot, of the shape of the model's output.

    **Returns:**

    A scalar.

    !!! Example

        ```python
        import jax, jax.numpy as jnp
        from dendrax.models import cross_entropy_loss

        logits, classes = jnp.zeros((5, 4)), jax.nn.one_hot(jnp.arange(5) % 4, 4)
        cross_entropy_loss(lambda x: x, logits, classes)  # -> 1.386
        jnp.log(4)  # -> 1.386
        ```
    """
    logits = model(inputs)
    _check_target("cross_entropy_loss", logits, target, "For labels, use jax.nn.one_hot.")
    return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits), axis=-1))


def squared_error_loss(model: Any, inputs: jax.Array, target: jax.Array) -> jax.Array:
    """Half the squared distance, `1/2 |output - target|^2`, and its mean over the batch.

    This is the paper's quadratic energy of the output, and the loss of an agent that learns
    action values.

    **Arguments:**

    - `model`: any callable on a batch, such as a module of `dendrax.models`.
    - `inputs`: what the model takes.
    - `target`: the shape of the model's output.

    **Returns:**

    A scalar.

    !!! Example

        ```python
        import jax.numpy as jnp
        from dendrax.models import squared_error_loss

        x = jnp.ones((5, 4))
        squared_error_loss(lambda x: x, x, 2 * x)  # -> 2.0
        ```
    """
    output = model(inputs)
    _check_target("squared_error_loss", output, target, "Reshape one of them.")
    return jnp.sum(jnp.square(output - target)) / (2 * target.shape[0])


def problem(
    name: ProblemName,
    *,
    key: jax.Array | None = None,
    dtype: DTypeLike = jnp.float32,
    small: bool = False,
) -> Problem:
    """Builds one of the paper's learning problems, on random data.

    **Arguments:**

    - `name`: one of `PROBLEMS`.
    - `key`: the PRNG key for parameters and data, by default `jax.random.key(0)`.
    - `dtype`: the type of parameters and data. They are drawn in float32 and then cast, so that
        the same key gives the same problem in every precision.
    - `small`: whether to shrink widths and batch. The structure stays the same.

    **Returns:**

    A [`dendrax.models.Problem`][].

    !!! Example

        ```python
        from dendrax.models import problem

        p = problem("rnn", small=True)
        p.predict(p.model, p.inputs).shape == p.target.shape  # -> True
        ```
    """
    if name not in _BUILDERS:
        raise ValueError(
            f"dendrax.models.problem: unknown name {name!r}.{nearest(name, PROBLEMS)} "
            f"Choose from {', '.join(PROBLEMS)}."
        )
    model_key, inputs_key, target_key = jax.random.split(_default(key), 3)
    model, shape, loss = _BUILDERS[name](small, model_key)
    inputs = normal(inputs_key, shape)
    target = _draw_target(loss, jax.eval_shape(model, inputs).shape, target_key)
    model, inputs, target = astype((model, inputs, target), dtype)
    return Problem(name, model, inputs, target, loss)


def _check_target(loss: str, output: jax.Array, target: jax.Array, remedy: str) -> None:
    # Shapes are known while tracing: this adds no operation. Broadcasting would hide the mistake.
    found, wanted = jnp.shape(target), jnp.shape(output)
    if found != wanted:
        raise ValueError(
            f"dendrax.models.{loss}: target has shape {found}, and the model's output {wanted}. "
            f"{remedy}"
        )
    if not wanted:
        raise ValueError(f"dendrax.models.{loss}: the model's output needs an axis for the batch.")


def _default(key: jax.Array | None) -> jax.Array:
    return jax.random.key(0) if key is None else key


def _draw_target(loss: Loss, shape: tuple[int, ...], key: jax.Array) -> jax.Array:
    values = normal(key, shape)
    if loss is squared_error_loss:
        return values
    return jax.nn.one_hot(jnp.argmax(values, axis=-1), shape[-1], dtype=jnp.float32)


# A builder takes `small` and a key, and gives a model, the shape of its inputs, and a loss.
_Draft: TypeAlias = tuple[Callable[[jax.Array], jax.Array], tuple[int, ...], Loss]


def _mlp(small: bool, key: jax.Array) -> _Draft:
    in_size, hidden, batch = (12, 8, 4) if small else (784, 128, 20)
    model = MLP(in_size, (hidden, hidden), 10, key=key)
    return model, (batch, in_size), cross_entropy_loss


def _mlp100(small: bool, key: jax.Array) -> _Draft:
    in_size, hidden, batch = (12, 16, 4) if small else (784, 128, 20)
    model = MLP(in_size, (hidden,) * 99, 10, gain=math.sqrt(3), key=key)
    return model, (batch, in_size), cross_entropy_loss


def _cnn(small: bool, key: jax.Array) -> _Draft:
    image, channels, hidden, batch = (28, 28, 1), (32, 64), 128, 20
    if small:
        image, channels, hidden, batch = (8, 8, 1), (3, 4), 8, 4
    return CNN(image, channels, hidden, key=key), (batch, *image), cross_entropy_loss


def _rnn(small: bool, key: jax.Array, *, unroll: bool = True) -> _Draft:
    size, batch, time = (6, 3, 4) if small else (128, 32, 10)
    return RNN(size, size, size, unroll=unroll, key=key), (batch, time, size), squared_error_loss


def _rnn_scan(small: bool, key: jax.Array) -> _Draft:
    return _rnn(small, key, unroll=False)


def _fc_resnet(small: bool, key: jax.Array) -> _Draft:
    in_size, hidden, batch = (12, 8, 4) if small else (784, 256, 20)
    return FCResNet(in_size, hidden, key=key), (batch, in_size), squared_error_loss


def _resnet18(small: bool, key: jax.Array) -> _Draft:
    width, pixels, batch = (4, 16, 2) if small else (64, 32, 8)
    return ResNet18(width=width, key=key), (batch, pixels, pixels, 3), cross_entropy_loss


def _transformer(small: bool, key: jax.Array, *, num_layers: int = 1) -> _Draft:
    size, heads, batch, time = (8, 2, 2, 5) if small else (128, 8, 20, 16)
    model = Transformer(size, size, size, num_layers=num_layers, num_heads=heads, key=key)
    return model, (batch, time, size), squared_error_loss


def _transformer12(small: bool, key: jax.Array) -> _Draft:
    return _transformer(small, key, num_layers=12)


_BUILDERS: dict[ProblemName, Callable[[bool, jax.Array], _Draft]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "rnn": _rnn,
    "rnn_scan": _rnn_scan,
    "fc_resnet": _fc_resnet,
    "resnet18": _resnet18,
    "transformer": _transformer,
    "transformer12": _transformer12,
    "mlp100": _mlp100,
}

PROBLEMS = PROBLEM_NAMES
