"""Files that are there as a whole or not at all."""

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
