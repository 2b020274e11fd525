"""Atari games: an action enters; the console's 128 bytes of memory, a reward and an end leave.

Directly on the Arcade Learning Environment (`ale-py`, GPL, an optional extra whose wheel holds the
games), with the conventions of its version 5: each action is held for four frames, and with
probability 1/4 the console repeats the action before ("sticky actions", Machado et al. 2018).
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dendrax.support import complain, fraction, integer, require_extra, seed_number, speaking_as

GAMES = (
    "Breakout",
    "Pong",
    "SpaceInvaders",
    "Freeway",
    "Qbert",
    "Seaquest",
    "BeamRider",
    "Enduro",
)
"""The eight games of the paper."""

MEMORY = 128
"""The bytes of the console's memory: what an agent sees."""

MAX_ACTIONS = 18
"""The positions of a joystick with one button: no game has more actions."""


class Atari:
    """One game, seen through the console's memory.

    !!! example

        ```python
        from dendrax.paper import Atari

        game = Atari("Breakout", seed=0)
        observation, over = game.reset(), False
        while not over:
            observation, reward, over = game.step(1)
        ```
    """

    def __init__(
        self,
        game: str,
        *,
        seed: int = 0,
        frame_skip: int = 4,
        sticky: float = 0.25,
        max_steps: int = 27_000,
    ):
        """**Arguments:**

        - `game`: one of `dendrax.paper.GAMES`; upper and lower case do not matter.
        - `seed`: decides which frames repeat the last action.
        - `frame_skip`: the frames for which an action is held, 1/60 second each.
        - `sticky`: the probability, at each frame, that the last action is repeated instead.
        - `max_steps`: a game is over after so many steps (the default is half an hour of play).
        """
        with speaking_as("dendrax.paper.Atari"):
            self.game = canonical_game(game)
            self._generator = np.random.default_rng(seed_number(seed))
            self._frame_skip = integer("frame_skip", frame_skip)
            self._sticky = fraction("sticky", sticky, below_one=True)
            self._max_steps = integer("max_steps", max_steps)
            self._ale = _console(_ale_py(), self.game)
        self._actions = self._ale.getMinimalActionSet()
        self._ale.reset_game()
        self._start = self._ale.cloneState(include_rng=True)
        self._step, self._frames = 0, bytearray()

    @property
    def num_actions(self) -> int:
        """The number of actions that make a difference in this game."""
        return len(self._actions)

    @property
    def lives(self) -> int:
        """How many lives are left; 0 throughout in games without lives."""
        return self._ale.lives()

    def reset(self) -> np.ndarray:
        """Starts a new game."""
        # After some games (of Seaquest, of BeamRider) a reset alone gives another start.
        self._ale.reset_game()
        self._ale.restoreState(self._start)
        self._step, self._frames = 0, bytearray()
        return self._ale.getRAM()

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        """Holds an action for `frame_skip` frames."""
        with speaking_as("dendrax.paper.Atari.step"):
            action = integer("action", action, 0, self.num_actions - 1)
        reward = 0
        for obeys in self._generator.random(self._frame_skip) >= self._sticky:
            self._frames.append(action if obeys or not self._frames else self._frames[-1])
            reward += self._ale.act(self._actions[self._frames[-1]])
        self._step += 1
        over = self._ale.game_over() or self._step >= self._max_steps
        return self._ale.getRAM(), float(reward), over

    def state(self) -> bytes:
        """Where the game stands: the random generator, and what was done at every frame.

        (The console's own snapshots lose what part of a picture is drawn: Qbert goes on otherwise.)
        """
        generator = self._generator.bit_generator.state
        header = json.dumps([self.game, self._step, generator])
        return header.encode() + b"\n" + bytes(self._frames)

    def restore(self, state: bytes) -> None:
        """Goes to a moment of this game, or of another `Atari` that plays the same game.

        Every frame is played again, a second for each 2000 steps or so.
        """
        with speaking_as("dendrax.paper.Atari.restore"):
            moment = self._moment(state)
        self.reset()
        for action in moment.frames:
            self._ale.act(self._actions[action])
        self._step, self._frames = moment.step, bytearray(moment.frames)
        self._generator = moment.generator

    def _moment(self, state: bytes) -> _Moment:
        """Nothing is changed before all of a state is known to be good."""
        try:
            moment = _parse(state)
        except (AttributeError, TypeError, ValueError, KeyError, OverflowError) as error:
            remedy = "Pass what state() returned."
            raise complain(ValueError, "this is no state of a game.", remedy=remedy) from error
        if moment.game != self.game:
            raise complain(ValueError, f"this is a state of {moment.game}, not of {self.game}.")
        if max(moment.frames, default=0) >= self.num_actions:
            raise complain(ValueError, f"this state holds actions that {self.game} does not have.")
        return moment


class _Moment(NamedTuple):
    """A state, read: the steps and frames since the game began."""

    game: str
    step: int
    generator: np.random.Generator
    frames: bytes


def _parse(state: bytes) -> _Moment:
    header, frames = state.split(b"\n", 1)
    game, step, drawn = json.loads(header)
    generator = np.random.default_rng(0)
    generator.bit_generator.state = drawn
    return _Moment(canonical_game(game), integer("step", step, 0), generator, frames)


def canonical_game(game: str) -> str:
    """The name of a game as `GAMES` spells it, however the caller does."""
    names = {name.lower(): name for name in GAMES}
    plain = re.sub("[^a-z]", "", game.lower()) if isinstance(game, str) else ""
    if plain in names:
        return names[plain]
    near = difflib.get_close_matches(plain, names, n=1)
    guess = f"Did you mean {names[near[0]]}? " if near else ""
    remedy = f"{guess}The games are: {', '.join(GAMES)}."
    raise complain(ValueError, f"unknown game {game!r}.", remedy=remedy)


def has_atari() -> bool:
    """Whether the games are installed."""
    return importlib.util.find_spec("ale_py") is not None


def _ale_py() -> ModuleType:
    with require_extra("playing games", "atari"):
        import ale_py
        import ale_py.roms  # by name: ale_py itself imports it only beside gymnasium
    return ale_py


def _console(ale_py: ModuleType, game: str) -> Any:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(re.sub("(?<=[a-z])(?=[A-Z])", "_", game).lower()))
    return ale
