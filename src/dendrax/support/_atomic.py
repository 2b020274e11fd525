"""Files that are there as a whole or not at all, and what only looks like one."""

import contextlib
import errno
import os
import pathlib


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that is either the old one or the new one, whenever the power goes."""
    target = pathlib.Path(path)
    if is_special(target):  # the new file would take its place: /dev/null would be none any more
        raise OSError(errno.EINVAL, SPECIAL, str(target))
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


SPECIAL = "it is a pipe or a device, not a file"


def is_special(path: pathlib.Path) -> bool:
    """Whether it is a pipe, a device or a socket: reading one waits, or never ends."""
    return path.exists() and not path.is_file() and not path.is_dir()
