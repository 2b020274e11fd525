"""A reinforcement-learning agent, on a recurrent network that any dendrax rule can train.

The files: `_settings` (what defines a run), `_replay` (what the agent remembers), `_q_learning`
(targets and updates), `_policy` (choosing actions, measuring), `_play` (the agent), `_curve` (its
scores), `_checkpoint` (saving all of it), `_train` (a whole run).
"""

from dendrax.paper.agent._checkpoint import load as load
from dendrax.paper.agent._checkpoint import save as save
from dendrax.paper.agent._curve import Curve as Curve
from dendrax.paper.agent._play import Agent as Agent
from dendrax.paper.agent._policy import evaluate as evaluate
from dendrax.paper.agent._policy import random_score as random_score
from dendrax.paper.agent._q_learning import Learner as Learner
from dendrax.paper.agent._q_learning import QState as QState
from dendrax.paper.agent._replay import Batch as Batch
from dendrax.paper.agent._replay import Replay as Replay
from dendrax.paper.agent._settings import QSettings as QSettings
from dendrax.paper.agent._settings import epsilon_at as epsilon_at
from dendrax.paper.agent._train import Point as Point
from dendrax.paper.agent._train import Transitions as Transitions
from dendrax.paper.agent._train import train as train
from dendrax.paper.agent._train import transitions as transitions
