"""Checkpoints: written whole or not at all (orbax), checked when they are read.

A checkpoint holds every array of a state and a record: what the run is, notes of whoever saves it
(how far a run of `fit` is, say), and a checksum of each array: orbax alone does not notice a
flipped bit. One that cannot be read, or whose checksums differ, is damaged: it is set
aside under another name, never overwritten or deleted, and the one before it is used.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from dendrax.support import complain, is_ours, is_special, shortened
from dendrax.train._distributed import all_agree, is_of_connection, wait_for_all
from dendrax.train._orbax import import_orbax, quiet, short_reason

FORMAT = "dendrax.train 2"
MAX_RECORD_BYTES = 20_000_000  # of a file that holds no arrays


class Found(NamedTuple):
    """A checkpoint that was read: after how many updates, the state, and the notes, as read."""

    step: int
    state: Any
    notes: Any


class CheckpointRecord(NamedTuple):
    """What a checkpoint says of itself: of which run, how far, and its arrays with checksums."""

    step: int
    run: dict[str, Any]
    notes: Any
    arrays: list[list[str]]
    checksums: dict[str, int]


class Damaged(Exception):
    """A checkpoint is not what was written; the text says in what way."""


class Checkpoints:
    """The checkpoints in one folder, of which the last ``keep`` are kept.

    - ``run``: what their run is, as JSON has it; the checkpoint of another one is refused.
    - ``read_notes``: makes of notes, as JSON has them, what `load` returns. Anybody may have edited
      them: it raises ``ValueError`` if they are none, and the checkpoint is damaged.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        keep: int,
        run: Mapping[str, Any] | None = None,
        read_notes: Callable[[Any], Any] = lambda notes: notes,
    ):
        self.folder, self._keep, self._run = folder.absolute(), keep, run or {}
        self._read_notes = read_notes
        self._ocp = import_orbax()
        self._manager: Any = None
        self._writes = False

    def _open(self, *, to_write: bool = False) -> Any:
        """Orbax' manager, made when it is first needed: it makes the folder, too.

        Only one that is to write removes what a killed run left half written.
        """
        if self._manager is None or (to_write and not self._writes):
            self.close()
            self.check_files()
            if to_write:
                self.check_older(self.steps())
            options = self._ocp.CheckpointManagerOptions(
                max_to_keep=self._keep,
                enable_async_checkpointing=False,
                cleanup_tmp_directories=to_write,
            )
            self._manager = self._ocp.CheckpointManager(self.folder, options=options)
            self._writes = to_write
        return self._manager

    def check_files(self) -> None:
        """Orbax opens what it finds: it would wait for a pipe, and read any size."""
        for path in self.folder.rglob("*"):
            if problem := _problem_of(path):
                raise complain(
                    ValueError,
                    f"{path} {problem}.",
                    remedy="Nothing was changed. Move it elsewhere, and go on with resume.",
                )

    def check_older(self, steps: Iterable[int]) -> None:
        """Orbax deletes the oldest folders whose names are numbers, whosever they are."""
        for path in (self.folder / str(step) for step in steps):
            if not (path / "record").is_dir():
                raise complain(
                    ValueError,
                    f"{path} is no checkpoint, and would be deleted as an old one.",
                    remedy="Nothing was changed. Move it elsewhere, and go on with resume.",
                )

    def steps(self) -> list[int]:
        """The checkpoints that there are, the last one first."""
        names = [p.name for p in self.folder.glob("*") if p.is_dir() and p.name.isdecimal()]
        return sorted((int(name) for name in names if name == str(int(name))), reverse=True)

    def save(self, step: int, state: Any, notes: Any) -> pathlib.Path:
        """Write a checkpoint, with notes that JSON can say; a worded error if the disk is full."""
        arrays = _flat(state)
        record = {
            "format": FORMAT,
            "step": step,
            "run": self._run,
            "notes": notes,
            "arrays": _described(state),
            "checksums": checksums(arrays),
        }
        record["checksum"] = checksum_of_record(record)
        args = self._ocp.args
        items = args.Composite(state=args.StandardSave(arrays), record=args.JsonSave(record))
        try:
            with quiet():
                written = self._open(to_write=True).save(step, args=items)
        except Exception as problem:
            if is_of_connection(problem) or is_ours(problem):
                raise
            raise self._cannot_write(step, problem) from problem
        if not written:  # orbax does not go back
            raise complain(
                ValueError,
                f"{self.folder} holds a checkpoint after {max(self.steps(), default=0)} updates, "
                f"so that none after {step} could be written.",
                remedy="Nothing was overwritten. Move it elsewhere, and go on with resume.",
            )
        return self.folder / str(step)

    def _cannot_write(self, step: int, problem: Exception) -> Exception:
        self._manager = None
        good = [s for s in self.steps() if s != step]
        last = str(self.folder / str(good[0])) if good else "what was saved before"
        return complain(
            OSError,
            f"the checkpoint after {step} updates could not be written to {self.folder}: "
            f"{short_reason(problem)}.",
            remedy=f"Nothing was overwritten: {last} is whole. Make room, and go on with resume.",
        )

    def load(self, like: Any, only: tuple[str, ...] = ("",)) -> tuple[Found | None, dict[int, str]]:
        """The newest good checkpoint, and what is wrong with those that are newer.

        ``like`` is a state with the types, shapes and places that are wanted, or a function that
        makes it of the notes; ``only``, how the paths of its arrays begin, if it is only a part of
        what was written.
        """
        problems = {}
        for step in self.steps():
            try:
                return self._read(step, like, only), problems
            except Damaged as problem:
                problems[step] = f"{self.folder / str(step)} is damaged: {problem}"
        return None, problems

    def check_runs(self) -> None:
        """Raise if one of them is the checkpoint of another run; damaged ones do not tell."""
        self.check_files()
        for step in self.steps():
            with contextlib.suppress(Damaged):
                self._check_run(step, self._record(step).run)

    def _read(self, step: int, like: Any, only: tuple[str, ...]) -> Found:
        record = self._record(step)
        self._check_run(step, record.run)
        like = like(record.notes) if callable(like) else like
        part = [n for n, (path, _) in enumerate(record.arrays) if path.startswith(only)]
        self._check_fits(step, [record.arrays[n] for n in part], like)
        wanted = {
            str(n): jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding)
            for n, a in zip(part, _flat(like).values(), strict=True)
        }
        whole = len(part) == len(record.arrays)
        args = self._ocp.args.StandardRestore(wanted) if whole else self._partial(wanted)
        arrays = self._restore(step, "state", args)
        found = checksums(arrays)
        wrong = [n for n in part if found[str(n)] != record.checksums.get(str(n))]
        if wrong:
            raise Damaged(f"the checksum of {record.arrays[wrong[0]][0]} differs.")
        return Found(step, _unflat([arrays[n] for n in wanted], like), record.notes)

    def _partial(self, wanted: Any) -> Any:
        ocp = self._ocp
        how = ocp.checkpoint_utils.construct_restore_args(wanted)
        return ocp.args.PyTreeRestore(wanted, restore_args=how, partial_restore=True)

    def _record(self, step: int) -> CheckpointRecord:
        found = self._restore(step, "record", self._ocp.args.JsonRestore())
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise Damaged("it was not written by this version of dendrax.train.")
        if found.get("checksum") != checksum_of_record(found):
            raise Damaged("the checksum of its record differs.")
        record = self._read_record(found)
        if record.step != step:
            raise Damaged(f"it was written after {record.step} updates, not {step}.")
        return record

    def _read_record(self, found: Mapping[str, Any]) -> CheckpointRecord:
        """From JSON, which anybody may have edited."""
        parts = [found.get(name) for name in CheckpointRecord._fields]
        step, run, notes, arrays, checksums = parts
        if (
            not isinstance(step, int)
            or not isinstance(run, dict)
            or not isinstance(checksums, dict)
            or not isinstance(arrays, list)
            or not all(map(_is_description, arrays))
        ):
            raise Damaged("its record is incomplete.")
        try:
            return CheckpointRecord(step, run, self._read_notes(notes), arrays, checksums)
        except ValueError as problem:
            raise Damaged(str(problem)) from None

    def _check_run(self, step: int, run: Mapping[str, Any]) -> None:
        """Raise unless it is a checkpoint of this run."""
        other = [name for name in self._run if name in run and run[name] != self._run[name]]
        if other:
            raise complain(
                ValueError,
                f"{self.folder / str(step)} is the checkpoint of another run: it has {other[0]} = "
                f"{shortened(repr(run[other[0]]))}, and this run has "
                f"{shortened(repr(self._run[other[0]]))}.",
                remedy="Nothing was changed. Move it elsewhere, or choose another folder.",
            )

    def _restore(self, step: int, item: str, args: Any) -> Any:
        found, problem = None, None
        try:
            with quiet():
                wanted = self._ocp.args.Composite(**{item: args})
                found = self._open().restore(step, args=wanted)[item]
        except Exception as one:
            if is_of_connection(one):
                raise
            problem = one
        # Each process reads its own share of the files: what one cannot read, none may use.
        if not all_agree(problem is None):
            why = "by another process" if problem is None else f"({short_reason(problem)})"
            raise Damaged(f"its {item} cannot be read {why}.") from problem
        return found

    def _check_fits(self, step: int, there: list[Any], like: Any) -> None:
        wanted = _described(like)
        if there == wanted:
            return
        pairs = zip(there, wanted, strict=False)
        first = next(((a, b) for a, b in pairs if a != b), (len(there), len(wanted)))
        raise complain(
            ValueError,
            f"{self.folder / str(step)} is the checkpoint of another model or optimizer: it holds "
            f"{_named(first[0])}, where this run has {_named(first[1])}.",
            remedy="Choose another folder, or resume with the settings of that run.",
        )

    def set_aside(self, steps: Iterable[int], why: str = "damaged") -> list[pathlib.Path]:
        """Rename checkpoints, so that new ones can take their place."""
        aside = self.folder.with_name(f"{self.folder.name}-{why}")
        if aside.exists() and not aside.is_dir():
            raise complain(ValueError, f"{aside} is not a folder.", remedy="Move it elsewhere.")
        moved = {step: _unused(aside, str(step)) for step in steps}
        if not moved:
            return []
        wait_for_all()  # all have looked for a name before one is taken
        for step, target in moved.items():
            if jax.process_index() == 0:
                target.parent.mkdir(exist_ok=True)
                (self.folder / str(step)).rename(target)
        wait_for_all()
        self.close()  # it remembers which checkpoints there were
        return list(moved.values())

    def close(self) -> None:
        """Let go of the folder."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None


def _problem_of(path: pathlib.Path) -> str:
    """Why it is no part of a checkpoint; empty if it may be one. Arrays lie in folders ``d``."""
    if path.is_symlink():
        return "is a link, not a file or folder of its own"
    if is_special(path):
        return "is a pipe or a device, not a file"
    if path.is_file() and path.parent.name != "d" and path.stat().st_size > MAX_RECORD_BYTES:
        return f"has {path.stat().st_size:,} bytes, and may have {MAX_RECORD_BYTES:,}"
    return ""


def _unused(folder: pathlib.Path, name: str) -> pathlib.Path:
    names = (name if n == 0 else f"{name}-{n}" for n in range(10_000))
    return next(folder / n for n in names if not (folder / n).exists())


def checksums(arrays: Mapping[str, Any]) -> dict[str, int]:
    """Of all bits of each array; the same however it is spread over devices and processes."""
    return {name: zlib.crc32(_bytes_of(array)) for name, array in arrays.items()}


def _bytes_of(array: Any) -> Any:
    if not (array.is_fully_addressable or array.is_fully_replicated):
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def checksum_of_record(record: Mapping[str, Any]) -> int:
    """Of all that a record says but its checksum."""
    rest = {name: value for name, value in record.items() if name != "checksum"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def _flat(state: Any) -> dict[str, Any]:
    """The arrays by number: their own names may hold anything."""
    return {str(n): _as_bits(leaf) for n, leaf in enumerate(jax.tree.leaves(state))}


def _unflat(arrays: list[Any], like: Any) -> Any:
    leaves, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, map(_from_bits, arrays, leaves))


def _as_bits(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf)


def _from_bits(array: Any, like: Any) -> Any:
    return (
        jax.random.wrap_key_data(array, impl=jax.random.key_impl(like)) if is_key(like) else array
    )


def is_key(leaf: Any) -> bool:
    """Whether an array is one of PRNG keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _described(state: Any) -> list[list[str]]:
    paths = jax.tree_util.tree_flatten_with_path(state)[0]
    return [[jax.tree_util.keystr(path), f"{x.dtype}{list(x.shape)}"] for path, x in paths]


def _named(entry: Any) -> str:
    if isinstance(entry, int):
        return f"{entry} arrays"
    return f"{shortened(entry[0])} as {shortened(entry[1])}"


def _is_description(entry: Any) -> bool:
    """Whether it is the path of an array and its type."""
    return isinstance(entry, list) and len(entry) == 2 and all(isinstance(x, str) for x in entry)
