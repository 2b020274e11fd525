"""The agent on the eight games: its scores on the way, and its weights, against random play."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from dendrax import IL, ZIL
from dendrax.paper._atari import GAMES
from dendrax.paper._store import Cell, Work
from dendrax.paper.agent import Point, QSettings, load, random_score, train
from dendrax.rules import Rule

LONG = ("Seaquest", "Freeway")  # the games that are played until something is learned


def playing_cells(*, seed: int, quick: bool) -> list[Cell]:
    """Random play, BP (`jax.grad`) and Z-IL from the same start on all games; IL on one."""
    il = IL(num_steps=20, gamma=0.05, batch="mean")
    rules: dict[str, Rule | None] = {"BP": None, "Z-IL": ZIL(), "IL": il}
    cells = []
    for game in GAMES:
        settings = _settings(game, quick)
        cells.append(_random_cell(settings, 5 if quick else 30, seed))
        for name, rule in rules.items():
            if name != "IL" or game == GAMES[0]:
                cells.append(_cell(settings, name, rule, seed))
    return cells


def _settings(game: str, quick: bool) -> QSettings:
    if quick:
        return QSettings(
            game,
            steps=1_200,
            warmup=400,
            epsilon_steps=800,
            evaluate_every=600,
            evaluate_episodes=1,
            max_steps=600,
        )
    if game not in LONG:
        return QSettings(game, steps=20_000, evaluate_every=10_000)
    return QSettings(game, discount=0.99 if game == "Freeway" else QSettings.discount)


def _cell(settings: QSettings, name: str, rule: Rule | None, seed: int) -> Cell:
    recorded = {
        **dataclasses.asdict(settings),
        "rule": name,
        "rule_settings": repr(rule) if rule else "jax.grad",
    }

    def measure(work: Work) -> Mapping[str, Any]:
        def report(point: Point) -> None:
            text = f"{point.scores.mean():.0f} points after {point.step} actions"
            work.on_progress(point.step / settings.steps, text)

        work.folder.mkdir(parents=True, exist_ok=True)
        checkpoint = work.folder / "agent"
        _remove_damaged(checkpoint, rule)
        curve = train(settings, rule=rule, seed=seed, progress=report, checkpoint=checkpoint)
        return {
            "steps": curve.steps.tolist(),
            "scores": curve.scores.tolist(),
            "weights": curve.weights.tolist(),
        }

    return Cell("playing", f"{settings.game}, {name}", {**recorded, "seed": seed}, measure)


def _remove_damaged(checkpoint: pathlib.Path, rule: Rule | None) -> None:
    """What cannot be gone on from is done anew."""
    with contextlib.suppress(FileNotFoundError):
        try:
            load(checkpoint, rule=rule)
        except ValueError:
            shutil.rmtree(checkpoint)


def _random_cell(settings: QSettings, episodes: int, seed: int) -> Cell:
    recorded = {
        "game": settings.game,
        "rule": "random",
        "episodes": episodes,
        "max_steps": settings.max_steps,
        "seed": seed,
    }

    def measure(work: Work) -> Mapping[str, Any]:
        work.on_progress(0.0, "playing at random")
        scores = random_score(settings.game, episodes, seed=seed, max_steps=settings.max_steps)
        return {"scores": np.asarray(scores).tolist()}

    return Cell("playing", f"{settings.game}, random", recorded, measure)
