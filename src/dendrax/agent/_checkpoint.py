"""An agent as one file: weights, optimizer, memory, generators and the console itself.

The file is a plain `.npz`, without pickle; generators and settings are JSON inside it. It appears
under its name only when it is whole, so a run that is killed while writing loses nothing.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

import dendrax
from dendrax._atomic import write_atomically
from dendrax._errors import complain, public
from dendrax.agent._curve import Curve
from dendrax.agent._play import Agent
from dendrax.agent._q_learning import Rule
from dendrax.agent._settings import QSettings

Path: TypeAlias = str | os.PathLike[str]
_FORMAT = "dendrax.agent/1"


@public("dendrax.agent.save")
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
    _write(path, {_FORMAT: np.asarray(json.dumps(_description(agent))), **arrays})


@public("dendrax.agent.load")
def load(path: Path, *, rule: Rule = dendrax.ZIL()) -> Agent:
    """Reads an agent. It goes on to the last bit as the saved one would have.

    **Arguments:**

    - `path`: what was given to `save`.
    - `rule`: the rule that the agent learns by, which is code and not in the file.

    **Returns:**

    An `Agent`.
    """
    arrays = _read(path)
    description = json.loads(str(arrays[_FORMAT]))
    _check_rule(description["rule"], rule)
    agent = Agent(QSettings(**description["settings"]), rule=rule, seed=description["seed"])
    _restore(agent, description, arrays)
    return agent


def _description(agent: Agent) -> dict[str, Any]:
    return {
        "settings": asdict(agent.settings),
        "rule": _name(agent.rule),
        "seed": agent.seed,
        "step": agent.step,
        "updates": agent.state.updates,
        "explorer": agent.explorer.bit_generator.state,
        "drawer": agent.drawer.bit_generator.state,
    }


def _read(path: Path) -> dict[str, np.ndarray]:
    name = os.fspath(path)
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return {_FORMAT: arrays[_FORMAT], **arrays}
    except FileNotFoundError:
        problem = f"there is no file {name}."
        raise complain(FileNotFoundError, problem, remedy="Write one with save.") from None
    except (OSError, ValueError, IndexError, KeyError, TypeError, EOFError, BadZipFile) as error:
        problem = f"{name} holds no whole agent of this version of dendrax."
        raise complain(ValueError, problem, remedy="Delete it, and train anew.") from error


def _restore(agent: Agent, description: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    agent.step = description["step"]
    agent.explorer.bit_generator.state = description["explorer"]
    agent.drawer.bit_generator.state = description["drawer"]
    agent.window = arrays["window"]
    agent.game.restore(arrays["console"].tobytes())
    agent.replay.restore({name: arrays[f"replay/{name}"] for name in agent.replay.arrays()})
    agent.curve = Curve(*(arrays[f"curve/{name}"] for name in Curve._fields))
    agent.state = agent.state._replace(
        updates=description["updates"],
        **{
            name: _tree(getattr(agent.state, name), arrays, name)
            for name in ("model", "target", "optimizer")
        },
    )


def _state_arrays(agent: Agent) -> dict[str, np.ndarray]:
    return {
        f"{name}/{i}": np.asarray(leaf)
        for name in ("model", "target", "optimizer")
        for i, leaf in enumerate(jax.tree.leaves(getattr(agent.state, name)))
    }


def _tree(like: Any, arrays: Mapping[str, np.ndarray], name: str) -> Any:
    leaves, structure = jax.tree.flatten(like)
    # NumPy writes bfloat16 as bare bytes: the new agent's leaf says what they are.
    found = [arrays[f"{name}/{i}"].view(leaf.dtype) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, [jnp.asarray(array) for array in found])


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
