"""An agent as one file: weights, optimizer, memory, generators and the console itself.

The file is a plain `.npz`, without pickle; generators and settings are JSON inside it. It appears
under its name only when it is whole, so a run that is killed while writing loses nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import dendrax
from dendrax.data._files import BadFile, from_npz, names_in_zip
from dendrax.paper.agent._curve import Curve
from dendrax.paper.agent._play import Agent
from dendrax.paper.agent._q_learning import Rule
from dendrax.paper.agent._settings import QSettings
from dendrax.support import complain, integer, public, seed_number, write_atomically

Path: TypeAlias = str | os.PathLike[str]
_FORMAT = "dendrax.paper.agent/1"
_LEARNED = ("model", "target", "optimizer")


class _Description(NamedTuple):
    """What is not an array, as JSON holds it."""

    settings: dict[str, Any]
    rule: str
    seed: int
    step: int
    updates: int
    explorer: Mapping[str, Any]
    drawer: Mapping[str, Any]


@public("dendrax.paper.agent.save")
def save(agent: Agent, path: Path) -> None:
    """Writes all of an agent to a file, in one atomic step.

    **Arguments:**

    - `agent`: at any moment between two calls of `play`.
    - `path`: of the file, by custom `.npz`. A file of that name is replaced.
    """
    arrays = _state_arrays(agent)
    arrays |= {f"replay/{name}": value for name, value in agent.replay.arrays().items()}
    arrays |= {f"curve/{name}": value for name, value in agent.curve._asdict().items()}
    arrays |= {"window": agent.window, "console": np.frombuffer(agent.game.state(), np.uint8)}
    description = json.dumps(_description(agent)._asdict())
    _write(path, {_FORMAT: np.asarray(description), **arrays})


@public("dendrax.paper.agent.load")
def load(path: Path, *, rule: Rule = dendrax.ZIL()) -> Agent:
    """Reads an agent. It goes on to the last bit as the saved one would have.

    **Arguments:**

    - `path`: what was given to `save`.
    - `rule`: the rule that the agent learns by, which is code and not in the file.

    **Returns:**

    An `Agent`.
    """
    file = pathlib.Path(path)
    if not file.is_file():
        problem = f"there is no file {file}."
        raise complain(FileNotFoundError, problem, remedy="Write one with save.")
    with _whole(file):
        arrays = _read(file)
        description = _described(arrays)
        settings = QSettings(**description.settings)
    _check_rule(description.rule, rule)
    agent = Agent(settings, rule=rule, seed=description.seed)
    with _whole(file):
        _restore(agent, description, arrays)
    return agent


def _description(agent: Agent) -> _Description:
    return _Description(
        settings=asdict(agent.settings),
        rule=_name(agent.rule),
        seed=agent.seed,
        step=agent.step,
        updates=agent.state.updates,
        explorer=agent.explorer.bit_generator.state,
        drawer=agent.drawer.bit_generator.state,
    )


def _described(arrays: Mapping[str, np.ndarray]) -> _Description:
    found = _Description(**json.loads(str(arrays[_FORMAT])))
    seed_number(found.seed)
    integer("step", found.step, 0)
    integer("updates", found.updates, 0)
    return found


@contextlib.contextmanager
def _whole(file: pathlib.Path) -> Iterator[None]:
    """While a file is read: whatever is missing or does not fit, it holds no whole agent."""
    try:
        yield
    except (BadFile, ValueError, TypeError, LookupError, ArithmeticError) as error:
        problem = f"{file} holds no whole agent of this version of dendrax."
        raise complain(ValueError, problem, remedy="Delete it, and train anew.") from error


def _read(file: pathlib.Path) -> dict[str, np.ndarray]:
    names = [name.removesuffix(".npy") for name in names_in_zip(file)]
    return dict(zip(names, from_npz(file, names), strict=True))


def _restore(agent: Agent, description: _Description, arrays: Mapping[str, np.ndarray]) -> None:
    agent.step = description.step
    agent.explorer.bit_generator.state = description.explorer
    agent.drawer.bit_generator.state = description.drawer
    agent.window = _fitting(arrays["window"], agent.window)
    agent.game.restore(arrays["console"].tobytes())
    agent.replay.restore({name: arrays[f"replay/{name}"] for name in agent.replay.arrays()})
    agent.curve = _curve(arrays, agent.curve)
    agent.state = agent.state._replace(
        updates=description.updates,
        **{name: _tree(getattr(agent.state, name), arrays, name) for name in _LEARNED},
    )


def _state_arrays(agent: Agent) -> dict[str, np.ndarray]:
    return {
        f"{name}/{i}": np.asarray(leaf)
        for name in _LEARNED
        for i, leaf in enumerate(jax.tree.leaves(getattr(agent.state, name)))
    }


def _tree(like: Any, arrays: Mapping[str, np.ndarray], name: str) -> Any:
    leaves, structure = jax.tree.flatten(like)
    found = [_fitting(arrays[f"{name}/{i}"], leaf) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, [jnp.asarray(array) for array in found])


def _curve(arrays: Mapping[str, np.ndarray], like: Curve) -> Curve:
    points = len(arrays["curve/steps"])
    grown = (np.empty((points, *own.shape[1:]), own.dtype) for own in like)
    named = zip(Curve._fields, grown, strict=True)
    return Curve(*(_fitting(arrays[f"curve/{name}"], own) for name, own in named))


def _fitting(array: np.ndarray, like: Any) -> np.ndarray:
    """The array, which must have the shape and the type of the new agent's."""
    # NumPy writes bfloat16 as bare bytes: the new agent's array says what they are.
    found = array.view(like.dtype) if array.dtype.kind == "V" else array
    if found.shape != like.shape or found.dtype != like.dtype:
        raise ValueError(f"{found.dtype}{found.shape}, not {like.dtype}{like.shape}")
    return found


def _check_rule(saved: str, rule: Rule) -> None:
    if saved != _name(rule):
        problem = f"this agent learned by {saved}, and rule is {_name(rule)}."
        raise complain(ValueError, problem, remedy=f"Pass rule={saved}.")


def _name(rule: Rule) -> str:
    return repr(rule)


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    write_atomically(path, stream.getvalue())
