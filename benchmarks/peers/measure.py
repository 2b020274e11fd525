"""Measuring one workload: every contestant prepared, checked, and then timed in turns."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.handwritten import GAMMA, WORKLOADS
from benchmarks.peers.environments import BuildError, python_of
from benchmarks.peers.protocol import load_layers, save
from benchmarks.peers.worker import Worker, WorkerError

PER_TURN = 5  # updates in one turn,
TURN_SECONDS = 0.3  # unless they take longer than this


@dataclass(frozen=True)
class Contestant:
    """A name for the table, the worker and its variant, and whose gradient it should equal."""

    name: str
    worker: str
    variant: str
    reference: str


CONTESTANTS = (
    Contestant("BP, JAX", "main", "bp", "BP, JAX"),
    Contestant("IL by hand", "main", "il", "IL by hand"),
    Contestant("IL, dendrax", "main", "dendrax-il", "IL by hand"),
    Contestant("IL, FabricPC", "fabricpc", "loop", "IL by hand"),
    Contestant("IL, FabricPC, unrolled", "fabricpc", "unrolled", "IL by hand"),
    Contestant("IL, pcx, scan", "pcx", "scan", "IL by hand"),
    Contestant("IL, pcx, unrolled", "pcx", "unrolled", "IL by hand"),
    Contestant("fixed prediction by hand", "main", "fixed", "fixed prediction by hand"),
    Contestant("fixed prediction, dendrax", "main", "dendrax-fixed", "fixed prediction by hand"),
    Contestant("Z-IL, dendrax", "main", "dendrax-zil", "BP, JAX"),
)
UNIT = CONTESTANTS[0]


@dataclass
class Row:
    """A contestant on a workload.

    ``ratio`` is its median time per update over BP's, ``distance`` that of its gradient to its
    reference's, relative to the latter's norm. What could not be measured is None, and ``error``
    says why.
    """

    workload: str
    num_steps: int
    name: str
    seconds: list[float] = field(default_factory=list)
    median: float | None = None
    ratio: float | None = None
    compile_seconds: float | None = None
    distance: float | None = None
    error: str | None = None


class Team:
    """The workers, one per environment, started when first asked for, and again if they end."""

    def __init__(self, environments: Path, patience: float) -> None:
        self._environments = environments
        self._patience = patience
        self._workers: dict[str, Worker] = {}
        self._failures: dict[str, str] = {}

    def start(self, name: str) -> Worker:
        """The worker of that name; a `BuildError` if its environment cannot be had."""
        if name in self._failures:
            raise BuildError(self._failures[name])
        if name not in self._workers or not self._workers[name].running:
            self._workers[name] = Worker(name, self._python(name), self._patience)
        return self._workers[name]

    def _python(self, name: str) -> Path:
        try:
            return python_of(name, self._environments)
        except BuildError as error:
            self._failures[name] = str(error)
            raise

    def forget(self) -> None:
        """Let every worker give back the memory of what it has prepared."""
        for worker in self._workers.values():
            with contextlib.suppress(WorkerError):
                worker.ask(do="forget")

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.stop()


def measure(
    team: Team,
    contestants: Sequence[Contestant],
    workload: str,
    num_steps: int,
    repeat: int,
    folder: Path,
    advance: Callable[[str], None],
) -> list[Row]:
    """A row per contestant, after ``repeat`` turns of each.

    ``folder`` takes the files that pass between processes; ``advance`` is called with a
    description before each of the (repeat + 1) x contestants pieces of work.
    """
    problem = _write_problem(folder, workload)
    rows = {c: Row(workload, num_steps, c.name) for c in contestants}
    gradients: dict[str, np.ndarray] = {}
    for contestant, row in rows.items():
        advance(f"{workload}, T = {num_steps}: compiling {contestant.name}")
        with _into(row):
            worker = team.start(contestant.worker)
            gradients[contestant.name] = _prepare(worker, contestant, row, problem)
    for turn in range(repeat):
        order = list(rows) if turn % 2 else list(rows)[::-1]
        for contestant in order:
            advance(f"{workload}, T = {num_steps}: timing {contestant.name}")
            if rows[contestant].error is None:
                with _into(rows[contestant]):
                    _time(team.start(contestant.worker), contestant, rows[contestant])
    team.forget()
    _summarise(rows, gradients)
    return list(rows.values())


def _write_problem(folder: Path, workload: str) -> Path:
    params, inputs, target = WORKLOADS[workload].data()
    path = folder / "problem.npz"
    save(str(path), *zip(*params, strict=True), inputs=inputs, target=target)
    return path


@contextlib.contextmanager
def _into(row: Row) -> Iterator[None]:
    """Errors of a worker or its environment end up in the row, and nowhere else."""
    try:
        yield
    except (BuildError, WorkerError) as error:
        row.error = str(error)


def _prepare(worker: Worker, contestant: Contestant, row: Row, problem: Path) -> np.ndarray:
    """Compile, and return the gradient as one vector."""
    variant, out = contestant.variant, problem.with_name("gradient.npz")
    answer = worker.ask(
        do="prepare",
        variant=variant,
        problem=str(problem),
        num_steps=row.num_steps,
        gamma=GAMMA,
    )
    row.compile_seconds = answer["compile_seconds"]
    worker.ask(do="update", variant=variant, out=str(out))
    weights, biases = load_layers(str(out))
    return np.concatenate([x.reshape(-1) for x in (*weights, *biases)], dtype=np.float64)


def _time(worker: Worker, contestant: Contestant, row: Row) -> None:
    answer = worker.ask(
        do="time", variant=contestant.variant, repeat=PER_TURN, seconds=TURN_SECONDS
    )
    row.seconds += answer["seconds"]


def _summarise(rows: dict[Contestant, Row], gradients: dict[str, np.ndarray]) -> None:
    for row in rows.values():
        row.median = float(np.median(row.seconds)) if row.seconds else None
    unit = rows[UNIT].median
    for contestant, row in rows.items():
        row.ratio = row.median / unit if row.median and unit else None
        found, expected = gradients.get(contestant.name), gradients.get(contestant.reference)
        if found is not None and expected is not None:
            row.distance = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
