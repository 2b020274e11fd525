"""A run in a process of its own: ``python -m tests.train.runs RULE FOLDER [CHUNKS] [SECONDS]``.

With seconds, each batch takes so long to read: there is time to kill it.
"""

import dataclasses
import os
import sys
import time

import jax

from dendrax import train
from dendrax.models import digest
from tests.train.cases import OPTIMIZER, RULES, SETTINGS, loss, measure, network, samples


class Slow:
    """Samples that take their time."""

    def __init__(self, seconds: float):
        self.arrays, self.seconds = train.Arrays(*samples()), seconds

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, indices):
        time.sleep(self.seconds)
        return self.arrays[indices]


def main(rule: str, folder: str, chunks: str = "", seconds: str = "0") -> None:
    if "PMI_RANK" in os.environ:  # under mpiexec
        train.connect(method="mpi4py")
    settings = dataclasses.replace(SETTINGS, checkpoint_every=2, log_every=1, epochs=8)
    found = train.fit(
        network(),
        loss,
        Slow(float(seconds)),
        test=samples(32, seed=1),
        measure=measure,
        optimizer=OPTIMIZER,
        rule=RULES[rule],
        settings=dataclasses.replace(settings, chunks=int(chunks) if chunks else None),
        folder=folder or None,
        resume=bool(folder),
    )
    curve = [line["loss"] for line in found.history]
    tests = [line["test_loss"] for line in found.history if "test_loss" in line]
    if jax.process_index() == 0:
        print("RESULT", found.reason, digest(found.model), curve, tests, flush=True)
    sys.exit(130 if found.reason == "interrupted" else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
