"""The findings told to somebody who has never met predictive coding: sentences, narrow tables.

A chapter says what is shown and why, and has one table that fits a terminal of 80 columns. It asks;
the claims (`_claims`) decide. Distances are relative here. The paper's are not, so they stand in
the tables of `_tables` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dendrax.paper import _brief as brief
from dendrax.paper._report import Table
from dendrax.paper._store import Finding

INTRODUCTION = (
    "A neural network learns by changing its weights; backpropagation (BP) finds the changes in "
    "one pass that runs backwards through the whole network.",
    "In predictive coding, a theory of how the brain learns, each value node is predicted by its "
    "neighbours, and a weight learns only from the prediction error right beside it.",
    "Inference learning (IL), its usual form, lets the value nodes relax step by step until the "
    "energy, the sum of the squared errors, is small; its updates resemble BP's, but differ.",
    "Zero-divergence inference learning (Z-IL) starts without errors and lets each weight learn at "
    "the moment when the error wave reaches it: the paper proves that this update is BP's.",
    "dendrax does this for any JAX function, and here is what it measured: the wave, how far each "
    "update is from BP's, what it costs, and how well networks learn.",
)
OPENING = (
    " ".join(INTRODUCTION[:2]),
    " ".join(INTRODUCTION[2:4]),
    "This demo measures what the paper (Reverse Differentiation via Predictive Coding, AAAI 2022) "
    "proves, on networks that are plain JAX functions: the paper's three tables on small networks; "
    "one network that learns FashionMNIST, pictures of clothes, by every rule; and pictures of the "
    "error wave.",
)

QUESTION1 = (
    "Each network makes one update by Z-IL and one by backpropagation (BP, jax.grad). Their "
    "distance is relative: 0 is the same update to the last bit, 1 is as far off as no update. "
    "Original Z-IL has no levels. An error that takes paths of different length then arrives at "
    "different times, as in ResNets and Transformers; levels add delays until all are equal."
)
QUESTION2 = (
    "The time of one update divided by BP's: 1 is as fast as BP. IL relaxes over T time steps, "
    "Z-IL needs one pass. The paper measured on graphics cards: compare ratios, not times."
)
QUESTION3 = (
    "Z-IL sets three conditions: weights learn when the error reaches their level, inference "
    "starts without errors, and its step size gamma is 1. Each column but the first drops one. "
    "Distances are relative, as in Table 1: a condition is needed if they are not 0 without it."
)
TRAINING = (
    "{course}, learns {data} by one rule after the other, always from the same weights and on the "
    "same batches. If Z-IL is BP, it must have BP's weights, bit for bit, all along. The rules "
    "below it are other forms of predictive coding: their updates need not be BP's."
)


@dataclass(frozen=True)
class Chapter:
    """A question, why it is asked, and the table that answers."""

    title: str
    text: str
    table: Table


def all_chapters(findings: Sequence[Finding]) -> list[Chapter]:
    """Those that the findings fill, in the paper's precision where they were measured in it."""
    drafts = [
        ("Table 1: is one update that of backpropagation?", QUESTION1, brief.table1(findings)),
        ("Table 2: what does an update cost?", QUESTION2, brief.table2(findings)),
        ("Table 3: which conditions does Z-IL need?", QUESTION3, brief.table3(findings)),
    ]
    for course, data, table in brief.trainings(findings):
        text = TRAINING.format(course=course, data=data)
        drafts.append((f"Training: {course}", text, table))
    return [Chapter(*parts) for parts in drafts if parts[-1].rows]
