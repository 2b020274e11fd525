"""Batches, read ahead in another thread while the devices are at work."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dendrax.train._devices import Devices
from dendrax.train._samples import Samples, chosen

AHEAD = 2


class Feed:
    """The batches of the updates from ``step`` on, in order."""

    def __init__(
        self, samples: Samples, devices: Devices, batch_size: int, seed: int, step: int, stop: int
    ):
        self._samples, self._devices = samples, devices
        self._batch_size, self._seed = batch_size, seed
        self._next, self._stop = step, stop
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="dendrax.train")
        self._coming: deque[Future[Any]] = deque()

    def __next__(self) -> Any:
        while len(self._coming) < AHEAD and self._next < self._stop:
            self._coming.append(self._reader.submit(self._read, self._next))
            self._next += 1
        return self._coming.popleft().result()

    def _read(self, step: int) -> Any:
        indices = chosen(self._samples, self._batch_size, self._seed, step)
        return self._devices.put_batch(self._samples, indices)

    def close(self) -> None:
        """Read no further."""
        self._reader.shutdown(wait=False, cancel_futures=True)
