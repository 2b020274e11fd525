"""What the operating system says when it does not write, told with the path and a remedy."""

from __future__ import annotations

import contextlib
import errno
import pathlib
from collections.abc import Iterator

from dendrax.support import complain, is_ours

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """While something is written to ``path``."""
    try:
        yield
    except OSError as problem:
        if is_ours(problem):
            raise
        remedy = "Choose another folder."
        if problem.errno in _FULL:
            remedy = "Make room, and go on with resume: what was saved before is whole."
        raise complain(
            type(problem), f"cannot write to {path}: {problem.strerror or problem}.", remedy=remedy
        ) from problem
