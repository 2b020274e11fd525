"""Files that are there as a whole or not at all, and what only looks like one."""

import contextlib
import os
import pathlib


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that is either the old one or the new one, whenever the power goes."""
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()


def is_special(path: pathlib.Path) -> bool:
    """Whether it is a pipe, a device or a socket: reading one waits, or never ends."""
    return path.exists() and not path.is_file() and not path.is_dir()
