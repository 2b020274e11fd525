"""What goes from device to device: only ever to the next one, and all of it is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax

from dendrax.support import complain

What = Literal["value", "error"]


@dataclass
class Link:
    """What one device has sent to another: how many arrays, and how many bytes."""

    source: int
    target: int
    values: int = 0
    errors: int = 0
    bytes: int = 0

    def add(self, what: What, size: int) -> None:
        """Count an array."""
        self.values += what == "value"
        self.errors += what == "error"
        self.bytes += size

    def __str__(self) -> str:
        return (
            f"{self.source} -> {self.target}: {self.values} values, {self.errors} errors, "
            f"{self.bytes:,} bytes"
        )


def size_in_bytes(array: Any) -> int:
    """The size of an array, or of one that has a type only."""
    return math.prod(array.shape) * array.dtype.itemsize


class Wires:
    """The connections between the devices of a placement, and what has gone over them."""

    def __init__(self, devices: Sequence[Any]):
        self.devices = tuple(devices)
        self._links: dict[tuple[int, int], Link] = {}

    @property
    def links(self) -> tuple[Link, ...]:
        """All connections that were used."""
        return tuple(self._links[key] for key in sorted(self._links))

    def on(self, device: int) -> Any:
        """A context in which what needs no operands (a constant) is made on a device, too."""
        return jax.default_device(self.devices[device])

    def send(self, value: Any, source: int, target: int, what: What) -> Any:
        """Hand a value to a neighbour."""
        if abs(source - target) != 1:
            raise complain(RuntimeError, f"device {source} has no connection to device {target}.")
        if value.devices() != {self.devices[source]}:
            raise complain(RuntimeError, f"device {source} cannot send what it does not have.")
        link = self._links.setdefault((source, target), Link(source, target))
        link.add(what, size_in_bytes(value))
        return jax.device_put(value, self.devices[target])
