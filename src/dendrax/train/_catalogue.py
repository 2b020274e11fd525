"""Data and models by name, and whether they fit each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dendrax import data, models
from dendrax.data import standardised
from dendrax.named import Named, call_named, find_named
from dendrax.support import check_memory, complain, integer, nearest, size_of
from dendrax.train._samples import Arrays, Samples


class Corpus(NamedTuple):
    """Samples with classes to be learned.

    - ``kind``: ``"images"`` (height, width, channels; pixels about 0, with a variance of about 1),
      ``"tokens"`` (integers, and the next one of each as its class), ``"arrays"`` (anything else).
    - ``shape``: of one input. ``classes``: how many, and for tokens the size of the alphabet.
    """

    kind: str
    train: Samples
    test: Samples | None
    shape: Any
    classes: int


# ---- data ----------------------------------------------------------------------------------------


def _images(images: data.Images) -> Corpus:
    train, test = images.train_images, images.test_images
    parts = [
        Arrays(standardised(part, train), labels.astype(np.int32))
        for part, labels in ((train, images.train_labels), (test, images.test_labels))
    ]
    return Corpus("images", parts[0], parts[1], parts[0].arrays[0].shape[1:], 10)


def _fashion_mnist(full: bool = False, data_dir: str | None = None) -> Corpus:
    return _images(data.fashion_mnist(full=full, data_dir=data_dir))


def _mnist(data_dir: str | None = None) -> Corpus:
    return _images(data.mnist(data_dir=data_dir))


def _cifar10(data_dir: str | None = None) -> Corpus:
    return _images(data.cifar10(data_dir=data_dir))


MAX_LENGTH = 10_000  # of a sequence; attention masks have the square of it


def _tokens(text: data.Text, length: int) -> Corpus:
    length = integer("length", length, 1, MAX_LENGTH)
    train, test = (
        data.sequences(part, length).astype(np.int32) for part in (text.train, text.test)
    )
    parts = [Arrays(piece[:, :-1], piece[:, 1:]) for piece in (train, test)]
    return Corpus("tokens", parts[0], parts[1], (length,), len(text.alphabet))


def _moby_dick(length: int = 64) -> Corpus:
    return _tokens(data.moby_dick(), length)


def _text(path: str, length: int = 64) -> Corpus:
    return _tokens(data.text(path), length)


class _Folder:
    """Photographs, decoded when an update needs them."""

    def __init__(self, folder: data.ImageFolder):
        self._folder = folder

    def __len__(self) -> int:
        return len(self._folder)

    def __getitem__(self, indices: np.ndarray) -> tuple[Any, ...]:
        pixels = self._folder.images(indices).astype(np.float32)
        return (pixels - 120) / 60, self._folder.labels[indices]


def _image_folder(path: str, test_path: str | None = None, size: int = 224) -> Corpus:
    train = data.ImageFolder(path, size)
    test = None if test_path is None else data.ImageFolder(test_path, size)
    if test is not None and test.classes != train.classes:
        raise complain(ValueError, f"{path} and {test_path} do not have the same classes.")
    tested = None if test is None else _Folder(test)
    return Corpus("images", _Folder(train), tested, (size, size, 3), len(train.classes))


DATA: dict[str, Callable[..., Any]] = {
    "fashion_mnist": _fashion_mnist,
    "mnist": _mnist,
    "cifar10": _cifar10,
    "moby_dick": _moby_dick,
    "text": _text,
    "image_folder": _image_folder,
}


MAX_CLASSES = 100_000  # of fewer labels than that


def find_data(named: Named) -> Corpus:
    """Ours, or what a function of the user's returns: four arrays."""
    found = call_named(named, find_named(named, DATA))
    return found if isinstance(found, Corpus) else _own(named, found)


def _own(named: Named, found: Any) -> Corpus:
    try:
        inputs, labels, test_inputs, test_labels = map(np.asarray, found)
    except (TypeError, ValueError):
        raise complain(
            TypeError,
            f"{named.name} returned {type(found).__name__}.",
            remedy="Return four arrays: inputs, labels, test inputs, test labels.",
        ) from None
    if labels.dtype.kind not in "iu" or test_labels.dtype.kind not in "iu":
        raise complain(
            TypeError,
            f"the labels of {named.name} are {labels.dtype} and {test_labels.dtype}.",
            remedy="Labels are integers, counted from 0.",
        )
    _check_own(named, inputs, labels, test_inputs, test_labels)
    kind = jax.dtypes.canonicalize_dtype(inputs.dtype)  # float32, unless JAX has float64 enabled
    inputs, test_inputs = inputs.astype(kind), test_inputs.astype(kind)
    parts = (
        Arrays(inputs, labels.astype(np.int32)),
        Arrays(test_inputs, test_labels.astype(np.int32)),
    )
    classes = 1 + int(max(labels.max(), test_labels.max()))
    return Corpus(_kind_of(inputs, labels), *parts, inputs.shape[1:], classes)


def _check_own(named: Named, *arrays: np.ndarray) -> None:
    inputs, labels, test_inputs, test_labels = arrays
    wrong = ""
    if not all(array.size for array in arrays):
        wrong = "an array without samples"
    elif min(labels.min(), test_labels.min()) < 0:
        wrong = f"the label {min(labels.min(), test_labels.min())}; labels are counted from 0"
    elif max(labels.max(), test_labels.max()) >= max(MAX_CLASSES, labels.size):
        largest = max(labels.max(), test_labels.max())
        wrong = (
            f"the label {largest} among {labels.size:,}; labels are counted from 0, without gaps"
        )
    elif inputs.shape[1:] != test_inputs.shape[1:]:
        wrong = f"inputs of shape {inputs.shape[1:]}, and test inputs of {test_inputs.shape[1:]}"
    if wrong:
        raise complain(
            ValueError,
            f"{named.name} returned {wrong}.",
            remedy="Return four arrays: inputs, labels, test inputs, test labels.",
        )


def _kind_of(inputs: np.ndarray, labels: np.ndarray) -> str:
    if inputs.dtype.kind in "iu" and inputs.shape == labels.shape:
        return "tokens"
    return "images" if inputs.ndim == 4 else "arrays"


# ---- models --------------------------------------------------------------------------------------

MOST_LAYERS = 1000  # each is compiled by itself
_ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "sigmoid": jax.nn.sigmoid,
}


def _activation(name: str) -> Any:
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise complain(
            ValueError,
            f"there is no activation {name!r}.{nearest(name, _ACTIVATIONS)}",
            remedy=f"Use one of: {known}.",
        )
    return _ACTIVATIONS[name]


class Flat(NamedTuple):
    """A model whose inputs are made flat first."""

    model: Any

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.model(x.reshape(x.shape[0], -1))


def _mlp(corpus: Corpus, key: Any, hidden_sizes: Any = (128, 128), activation: str = "relu") -> Any:
    size = math.prod(corpus.shape)
    chosen = _activation(activation)
    if isinstance(hidden_sizes, list | tuple):
        integer("the length of hidden_sizes", len(hidden_sizes), 0, MOST_LAYERS)
    return Flat(models.MLP(size, hidden_sizes, corpus.classes, activation=chosen, key=key))


def _fc_resnet(
    corpus: Corpus, key: Any, hidden_size: int = 256, num_layers: int = 5, activation: str = "tanh"
) -> Any:
    size, chosen = math.prod(corpus.shape), _activation(activation)
    layers = integer("num_layers", num_layers, 1, MOST_LAYERS)
    network = models.FCResNet(size, hidden_size, corpus.classes, layers, activation=chosen, key=key)
    return Flat(network)


def _cnn(corpus: Corpus, key: Any, channels: Any = (32, 64), hidden_size: int = 128) -> Any:
    return models.CNN(corpus.shape, channels, hidden_size, corpus.classes, key=key)


def _alexnet(corpus: Corpus, key: Any, width: int = 12) -> Any:
    return models.AlexNet(corpus.shape, corpus.classes, width=width, key=key)


def _resnet18(corpus: Corpus, key: Any, width: int = 16, stem: Any = "cifar") -> Any:
    return models.ResNet18(corpus.shape[-1], corpus.classes, width=width, stem=stem, key=key)


def _transformer(
    corpus: Corpus, key: Any, d_model: int = 128, num_layers: int = 2, num_heads: int = 8
) -> Any:
    return models.Transformer(
        None,
        d_model,
        corpus.classes,
        num_layers=integer("num_layers", num_layers, 1, MOST_LAYERS),
        num_heads=num_heads,
        vocab_size=corpus.classes,
        causal=True,
        key=key,
    )


MODELS: dict[str, Callable[..., Any]] = {
    "mlp": _mlp,
    "fc_resnet": _fc_resnet,
    "cnn": _cnn,
    "alexnet": _alexnet,
    "resnet18": _resnet18,
    "transformer": _transformer,
}
# What a model learns from; "arrays" may have any shape.
_TAKES = {
    "mlp": ("images", "arrays"),
    "fc_resnet": ("images", "arrays"),
    "cnn": ("images",),
    "alexnet": ("images",),
    "resnet18": ("images",),
    "transformer": ("tokens",),
}


def find_model(named: Named, corpus: Corpus, key: Any) -> Any:
    """A model of ours for these data, or what a function of the user's returns."""
    takes = _TAKES.get(named.name, (corpus.kind,))
    if corpus.kind not in takes:
        others = ", ".join(name for name, kinds in _TAKES.items() if corpus.kind in kinds)
        raise complain(
            ValueError,
            f"the model {named.name} learns from {' or '.join(takes)}, and these data are "
            f"{corpus.kind} of shape {corpus.shape}.",
            remedy=f"For {corpus.kind} there are: {others}.",
        )
    function = find_named(named, MODELS)
    if named.name in MODELS:
        _check_size(named, lambda: call_named(named, function, corpus=corpus, key=key))
    model = call_named(named, function, corpus=corpus, key=key)
    _check_output(named, model, corpus)
    return model


def _check_size(named: Named, make: Callable[[], Any]) -> None:
    """Raise if there is no room for the weights and their gradient."""
    arrays = [
        leaf for leaf in jax.tree.leaves(eqx.filter_eval_shape(make)) if hasattr(leaf, "dtype")
    ]
    check_memory(
        f"the model {named}, with its gradient,",
        2 * size_of(arrays),
        remedy="Make it smaller.",
    )


def _check_output(named: Named, model: Any, corpus: Corpus) -> None:
    """The model must say of every label how likely each class is."""
    inputs, labels = corpus.train[np.arange(min(2, len(corpus.train)))]
    wanted = (*np.shape(labels), corpus.classes)
    try:
        found = jax.eval_shape(lambda x: model(x), inputs)
    except Exception as problem:
        raise complain(
            ValueError,
            f"the model {named.name} cannot take inputs of shape {np.shape(inputs)}: {problem}",
        ) from problem
    if getattr(found, "shape", None) != wanted:
        raise complain(
            ValueError,
            f"the model {named.name} gives {_shape_text(found)} for inputs of shape "
            f"{np.shape(inputs)}, and these data want {wanted}: {corpus.classes} classes.",
        )


def _shape_text(found: Any) -> str:
    return f"shape {found.shape}" if hasattr(found, "shape") else type(found).__name__


# ---- what is learned -----------------------------------------------------------------------------


def loss_of(corpus: Corpus) -> Callable[..., Any]:
    """Cross entropy, in mean over samples (and positions)."""

    def loss(model: Any, inputs: Any, labels: Any) -> Any:
        target = jax.nn.one_hot(labels, corpus.classes, dtype=jnp.float32)
        return models.cross_entropy_loss(model, inputs, target)

    return loss


def check_update(model: Any, corpus: Corpus, batch_size: int) -> None:
    """Raise if one array of an update has no room; nothing is computed."""
    inputs, labels = (
        jax.ShapeDtypeStruct((batch_size, *np.shape(part)[1:]), part.dtype)
        for part in corpus.train[np.arange(1)]
    )
    loss = loss_of(corpus)
    jaxpr = jax.make_jaxpr(lambda x, y: loss(model, x, y))(inputs, labels).jaxpr
    largest = max(map(size_of, _made_in(jaxpr)), default=0)
    check_memory(
        "one array of an update",
        largest,
        remedy="Use a smaller batch_size; of a text, a smaller length.",
    )


def _made_in(jaxpr: Any) -> Iterator[Any]:
    """The types of all arrays that a program makes, in its parts, too."""
    for equation in jaxpr.eqns:
        yield from (v.aval for v in equation.outvars if hasattr(v.aval, "shape"))
        inside = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program)
        for part in filter(_is_program, inside):
            yield from _made_in(part)


def _is_program(value: Any) -> bool:
    return hasattr(value, "eqns")


def measure_of(corpus: Corpus) -> Callable[..., dict[str, Any]]:
    """Loss and accuracy."""
    loss = loss_of(corpus)

    def measure(model: Any, inputs: Any, labels: Any) -> dict[str, Any]:
        right = jnp.argmax(model(inputs), axis=-1) == labels
        return {"loss": loss(model, inputs, labels), "accuracy": jnp.mean(right)}

    return measure
