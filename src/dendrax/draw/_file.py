"""Files that pictures are written to: their kinds, and clear words if they cannot be written."""

from __future__ import annotations

import os
import pathlib

from dendrax.support import SPECIAL, complain, is_special, write_atomically

KINDS = ("svg", "png", "pdf")


def file_kind(path: str | os.PathLike[str]) -> str:
    """``"svg"``, ``"png"`` or ``"pdf"``, from the end of the path."""
    suffix = pathlib.Path(path).suffix
    if suffix.lower()[1:] not in KINDS:
        raise complain(
            ValueError,
            f"cannot write {os.fspath(path)!r}: '{suffix}' is not a kind of picture.",
            remedy="End the path in .svg, .png or .pdf.",
        )
    return suffix.lower()[1:]


def write(path: str | os.PathLike[str], content: bytes) -> pathlib.Path:
    """Write a file as a whole; folders are made."""
    try:
        target = pathlib.Path(path).expanduser()
        write_atomically(target, content)
    except OSError as problem:
        raise _unwritable(path, problem.strerror) from problem
    return target


def check_writable(path: str | os.PathLike[str]) -> None:
    """Complain before the work, not after it."""
    target = pathlib.Path(path).expanduser().absolute()
    reason: str | None = ""
    try:
        folder = next((p for p in target.parents if p.exists()), target)
        if target.is_dir():
            reason = "it is a folder"
        elif is_special(target):
            reason = SPECIAL
        elif not folder.is_dir():
            reason = f"{folder} is not a folder"
        elif not os.access(folder, os.W_OK):
            reason = f"{folder} is not writable"
    except OSError as problem:  # a name that is too long, a folder that may not be searched
        reason = problem.strerror
    if reason:
        raise _unwritable(path, reason)


def _unwritable(path: str | os.PathLike[str], reason: str | None) -> Exception:
    return complain(
        OSError, f"cannot write {os.fspath(path)}: {reason}.", remedy="Choose another path."
    )
