"""Every measurement of ``dendrax paper``, by the part of the command that asks for it."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from rich.console import Console

from dendrax.paper._atari import has_atari
from dendrax.paper._beyond import beyond_cells
from dendrax.paper._contents import Report, make_report, write_report
from dendrax.paper._courses import courses, mlp_course
from dendrax.paper._divergence import COLUMNS1, COLUMNS3, divergence_cells
from dendrax.paper._library import Library
from dendrax.paper._pictures import picture_cells
from dendrax.paper._playing import playing_cells
from dendrax.paper._run import finished, run_cells
from dendrax.paper._speed import speed_cells
from dendrax.paper._store import Cell, Store
from dendrax.paper._subjects import subjects
from dendrax.paper._training import training_cells
from dendrax.support import PAPER_PARTS, install_command

PARTS = PAPER_PARTS
DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class Paper:
    """What to measure, with what, and where to keep it.

    - ``folder``: for the report; finished measurements and checkpoints lie in ``work`` below it.
    - ``library``: the data.
    - ``quick``: narrow networks and short runs.
    - ``seed``: of weights, batches and games.
    """

    folder: pathlib.Path
    library: Library
    quick: bool = False
    seed: int = 0

    @property
    def work_folder(self) -> pathlib.Path:
        """Where finished measurements and checkpoints lie."""
        return self.folder / "work"

    @property
    def store(self) -> Store:
        """Quick measurements and full ones have different settings, and can share a folder."""
        return Store(self.work_folder)

    def cells(self, part: str) -> list[Cell]:
        """The measurements of one part."""
        make = {
            "table1": lambda: self._divergence(COLUMNS1),
            "table2": self._speed,
            "table3": lambda: self._divergence(COLUMNS3),
            "training": self._training,
            "beyond": lambda: beyond_cells(self.library, seed=self.seed, quick=self.quick),
            "pictures": lambda: picture_cells(self.library, seed=self.seed),
            "demo": self._demo,
        }
        return make[part]()

    def run(self, parts: tuple[str, ...], console: Console) -> None:
        """Measure what is missing in some parts."""
        run_cells(_once([cell for part in parts for cell in self.cells(part)]), self.store, console)

    def report(self) -> tuple[Report, pathlib.Path]:
        """The report on all that is finished, of whatever part, and where its page lies."""
        cells = _once([cell for part in PARTS for cell in self.cells(part)])
        found, missing = finished(cells, self.store), self.missing()
        if len(found) < len(cells):
            left = f"{len(cells) - len(found)} of {len(cells)} measurements of dendrax paper all"
            missing = [left, *missing]
        found += finished(self.cells("pictures"), self.store)
        report = make_report(found, seed=self.seed, quick=self.quick, missing=missing)
        return report, write_report(report, self.folder)

    def missing(self) -> list[str]:
        """What cannot be measured here, and the remedy."""
        games = f"RNN and games: {install_command('atari')}"
        if self.quick:
            needs = {games: has_atari()}
        else:
            found = self.library.found
            needs = {
                "full FashionMNIST (the shipped subset instead): see dendrax data": (
                    "fashion_mnist(full=True)" in found
                ),
                "CIFAR-10 (FashionMNIST instead): see dendrax data": "cifar10()" in found,
                "AlexNet on ImageNet photographs: see dendrax data": (
                    "imagenet_photographs()" in found
                ),
                games: has_atari(),
            }
        return [text for text, there in needs.items() if not there]

    def _demo(self) -> list[Cell]:
        """The quick tables in the paper's precision, a network that every rule trains, pictures.

        The ResNet of the tables is the fully connected one, as in the paper's appendix: ResNet18's
        many small operations take a minute more.
        """
        every = (*self.cells("table1"), *self.cells("table2"), *self.cells("table3"))
        cells = [cell for cell in every if cell.settings["row"] != "ResNet18"]
        tables = [c for c in cells if c.kind == "speed" or c.settings["dtype"] == "float64"]
        course = mlp_course(self.library, quick=self.quick)
        return [*tables, *training_cells([course], seed=self.seed), *self.cells("pictures")]

    def _divergence(self, columns: tuple[str, ...]) -> list[Cell]:
        return [
            cell
            for dtype in DTYPES
            for cell in divergence_cells(
                subjects(self.library, quick=self.quick), columns, seed=self.seed, dtype=dtype
            )
        ]

    def _speed(self) -> list[Cell]:
        measured = subjects(self.library, quick=self.quick)
        seconds = 1.0 if self.quick else 5.0
        return speed_cells(measured, seed=self.seed, dtype="float32", seconds=seconds)

    def _training(self) -> list[Cell]:
        cells = training_cells(courses(self.library, quick=self.quick), seed=self.seed)
        return cells + (playing_cells(seed=self.seed, quick=self.quick) if has_atari() else [])


def _once(cells: list[Cell]) -> list[Cell]:
    """Tables 1 and 3 share measurements."""
    return list({cell.key: cell for cell in cells}.values())
