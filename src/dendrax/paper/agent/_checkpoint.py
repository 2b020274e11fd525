"""An agent on disk: weights, optimizer, memory, generators and the console itself.

A folder of checkpoints as those of `dendrax.train`: arrays by orbax, with checksums; what is no
array is in the notes. A run that is killed while it writes loses nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

import jax
import numpy as np

import dendrax
from dendrax.paper.agent._curve import Curve
from dendrax.paper.agent._play import Agent
from dendrax.paper.agent._q_learning import Rule
from dendrax.paper.agent._settings import QSettings
from dendrax.support import complain, integer, public
from dendrax.train import Checkpoints

Path: TypeAlias = str | os.PathLike[str]
_NO_NOTES = (ValueError, TypeError, LookupError, ArithmeticError)


@public("dendrax.paper.agent.save")
def save(agent: Agent, path: Path) -> None:
    """Writes all of an agent to a folder, in one atomic step."""
    about = identity(agent.settings, agent.rule, agent.seed)
    with contextlib.closing(Checkpoints(pathlib.Path(path), keep=1, run=about)) as checkpoints:
        checkpoints.save(agent.step, _arrays(agent), _notes(agent))


@public("dendrax.paper.agent.load")
def load(
    path: Path, *, rule: Rule = dendrax.ZIL(), about: Mapping[str, Any] | None = None
) -> Agent:
    """Reads an agent. It goes on to the last bit as the saved one would have."""
    run, read = {"rule": repr(rule), **(about or {})}, functools.partial(_agent_of, rule)
    kept = Checkpoints(pathlib.Path(path), keep=1, run=run, read_notes=read)
    with contextlib.closing(kept) as checkpoints:
        if not checkpoints.steps():
            problem = f"there is no agent in {path}."
            raise complain(FileNotFoundError, problem, remedy="Write one with save.")
        found, problems = checkpoints.load(_arrays)
    if found is None:
        problem = f"{path} holds no whole agent.\n  " + "\n  ".join(problems.values())
        raise complain(ValueError, problem, remedy="Delete it, and train anew.")
    agent, arrays = found.notes, jax.tree.map(np.asarray, found.state)
    agent.window = arrays["window"]
    agent.replay.restore(arrays["replay"])
    agent.state = agent.state._replace(**found.state["learned"])
    return agent


def identity(settings: QSettings, rule: Rule, seed: int) -> dict[str, Any]:
    """What stays the same however long an agent plays."""
    fixed = {name: value for name, value in asdict(settings).items() if name != "steps"}
    return {"rule": repr(rule), "seed": seed, **fixed}


def _arrays(agent: Agent) -> dict[str, Any]:
    model, target, optimizer, _ = agent.state
    learned = {"model": model, "target": target, "optimizer": optimizer}
    return {"learned": learned, "window": agent.window, "replay": agent.replay.arrays()}


def _notes(agent: Agent) -> dict[str, Any]:
    """What is no array, as JSON holds it."""
    return {
        "settings": asdict(agent.settings),
        "seed": agent.seed,
        "step": agent.step,
        "updates": agent.state.updates,
        "explorer": agent.explorer.bit_generator.state,
        "drawer": agent.drawer.bit_generator.state,
        "replay": agent.replay.progress,
        "curve": {name: values.tolist() for name, values in agent.curve._asdict().items()},
        "console": agent.game.state().hex(),
    }


def _agent_of(rule: Rule, notes: Any) -> Agent:
    """An agent as the notes have it, still without what the arrays hold."""
    try:
        agent = Agent(QSettings(**notes["settings"]), rule=rule, seed=notes["seed"])
        agent.step = integer("step", notes["step"], 0)
        agent.state = agent.state._replace(updates=integer("updates", notes["updates"], 0))
        agent.explorer.bit_generator.state = notes["explorer"]
        agent.drawer.bit_generator.state = notes["drawer"]
        agent.replay.progress = notes["replay"]
        agent.curve = _curve(notes["curve"], agent.curve)
        agent.game.restore(bytes.fromhex(notes["console"]))
    except _NO_NOTES as problem:
        raise ValueError(f"its notes are not those of an agent ({problem}).") from problem
    return agent


def _curve(found: Mapping[str, Any], like: Curve) -> Curve:
    points = len(found["steps"])
    shapes = [(points, *own.shape[1:]) for own in like]
    parts = [np.array(found[name], own.dtype) for name, own in zip(like._fields, like, strict=True)]
    named = zip(parts, shapes, strict=True)
    return Curve(*(part.reshape(shape) for part, shape in named))
