"""Text as a sequence of characters: Moby Dick ships with the package; any file can be read.

The novel is in the public domain; ``tools/make_moby_dick.py`` made the file.
"""

from __future__ import annotations

import gzip
import importlib.resources
import os
import sys
from typing import NamedTuple

import numpy as np

from dendrax.data._files import BadFile, read_file
from dendrax.support import available_memory, complain, expanded, integer, public

MOBY_DICK = "moby_dick.txt.gz"
MAX_ALPHABET = 100_000
PIECE = 2**20  # characters
PER_BYTE = 20  # bytes of memory for one of a text, while it becomes indices


class Text(NamedTuple):
    """A text as indices into its alphabet: the first nine tenths, and the last tenth."""

    alphabet: str
    train: np.ndarray
    test: np.ndarray


@public("dendrax.data.moby_dick")
def moby_dick() -> Text:
    """Moby-Dick; or, The Whale, by Herman Melville (1851): 1.2 million characters.

    **Returns:**

    `Text`: the `alphabet`, sorted, and `train` and `test`, indices of characters in it.

    !!! example

        ```python
        from dendrax.data import moby_dick, sequences

        novel = moby_dick()
        batch = sequences(novel.train, 64)[:32]
        x, y = batch[:, :-1], batch[:, 1:]
        print("".join(novel.alphabet[i] for i in x[0]))
        # -> ETYMOLOGY. (Supplied by a Late Consumptive Usher to a Grammar Sc
        ```
    """
    file = importlib.resources.files("dendrax.data") / MOBY_DICK
    return _encode(gzip.decompress(file.read_bytes()).decode())


@public("dendrax.data.text")
def text(path: str | os.PathLike[str]) -> Text:
    """A text of your own, as `moby_dick` gives it.

    **Arguments:**

    - `path`: a file in UTF-8; compressed if its name ends in `.gz`.

    **Returns:**

    `Text`: the `alphabet`, sorted, and `train` and `test`, indices of characters in it.

    !!! example

        ```python
        from dendrax.data import text

        own = text("notes.txt")
        ```
    """
    file = expanded("path", path)
    if not file.is_file():
        raise complain(FileNotFoundError, f"{file} is not a file.")
    room = int(min(available_memory() / PER_BYTE, sys.maxsize))
    try:
        content = read_file(file, most=room)
        return _encode(content.decode("utf-8-sig").replace("\r\n", "\n"), str(file))
    except UnicodeDecodeError as error:
        remedy = f"Convert it, for instance: iconv -f latin1 -t utf-8 {file}"
        raise complain(ValueError, f"{file} is not UTF-8 ({error}).", remedy=remedy) from error
    except BadFile as error:
        remedy = "Name another file, or a part of this one."
        raise complain(ValueError, str(error), remedy=remedy) from error


@public("dendrax.data.sequences")
def sequences(tokens: np.ndarray, length: int) -> np.ndarray:
    """Cuts a text into pieces to learn from: each character but the first is to be predicted once.

    **Arguments:**

    - `tokens`: the `train` or `test` of a `Text`.
    - `length`: how many characters of each piece are predicted.

    **Returns:**

    An array of shape `(n, length + 1)`: a piece begins with the last character of the one before.
    A rest that is shorter is left out. It is a view of `tokens`, and cannot be written to.

    !!! example

        ```python
        from dendrax.data import moby_dick, sequences

        pieces = sequences(moby_dick().train, 64)
        x, y = pieces[:, :-1], pieces[:, 1:]
        ```
    """
    _check_tokens(tokens)
    length = integer("length", length)
    if length >= len(tokens):
        problem = f"length={length} does not fit a text of {len(tokens)} characters."
        raise complain(ValueError, problem, remedy=f"Use a length from 1 to {len(tokens) - 1}.")
    return np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::length]


def _check_tokens(tokens: np.ndarray) -> None:
    shape = getattr(tokens, "shape", None)
    if shape is None or len(shape) != 1 or shape[0] < 2:
        found = f"of type {type(tokens).__name__}" if shape is None else f"of shape {shape}"
        problem = f"tokens {found} must be an array of one axis and two characters or more."
        raise complain(ValueError, problem, remedy="Pass the train or the test of a Text.")


def _encode(content: str, source: str = "") -> Text:
    if len(content) < 2:
        raise complain(ValueError, f"{source} has no text to learn from and to test on.")
    points = np.frombuffer(content.encode("utf-32-le"), np.uint32)
    # By a table and piece by piece: sorting would take ten times the memory.
    pieces = np.array_split(points, len(points) // PIECE + 1)
    table = np.zeros(sys.maxunicode + 1, np.uint32)
    for piece in pieces:
        table[piece] = 1
    alphabet = np.flatnonzero(table)
    if len(alphabet) > MAX_ALPHABET:
        raise complain(
            ValueError,
            f"{source} has {len(alphabet):,} different characters; a text has at most "
            f"{MAX_ALPHABET:,}.",
        )
    table[alphabet] = np.arange(len(alphabet))
    small = table.astype(np.min_scalar_type(len(alphabet) - 1))
    tokens = np.concatenate([small[piece] for piece in pieces])
    split = len(tokens) * 9 // 10
    return Text("".join(map(chr, alphabet)), tokens[:split], tokens[split:])
