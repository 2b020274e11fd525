"""In which order blocks take their turns when micro-batches are pipelined.

Each device works through micro-batches forwards until the first wave comes back to it, and then
takes one wave and one forward pass in turn. So device ``b`` of ``D`` keeps the values of at most
``D - b`` micro-batches, however many there are. (In pipelines for backpropagation the order is
known as 1F1B.)
"""

from __future__ import annotations

from typing import NamedTuple


class Turn(NamedTuple):
    """One block works on one micro-batch. Turns with the same ``tick`` are taken at one time."""

    tick: int
    block: int
    micro_batch: int
    is_wave: bool


def take_turns(num_blocks: int, micro_batches: int) -> list[Turn]:
    """All turns, by tick; each comes after those whose results it needs."""
    waiting = [_own_order(num_blocks - b, micro_batches) for b in range(num_blocks)]
    done: dict[tuple[int, int, bool], int] = {}
    turns: list[Turn] = []
    tick = 0
    while any(waiting):
        for block, queue in enumerate(waiting):
            if queue and _is_ready(done, tick, num_blocks, block, *queue[0]):
                turns.append(Turn(tick, block, *queue.pop(0)))
        done.update(((t.block, t.micro_batch, t.is_wave), tick) for t in turns if t.tick == tick)
        tick += 1
    return turns


def _own_order(ahead: int, micro_batches: int) -> list[tuple[int, bool]]:
    """The turns of one device: ``ahead`` forward passes first, then wave and forward in turn."""
    ahead = min(ahead, micro_batches)
    order = [(m, False) for m in range(ahead)]
    for m in range(micro_batches):
        order.append((m, True))
        if m + ahead < micro_batches:
            order.append((m + ahead, False))
    return order


def _is_ready(
    done: dict[tuple[int, int, bool], int],
    tick: int,
    num_blocks: int,
    block: int,
    micro_batch: int,
    is_wave: bool,
) -> bool:
    """Whether the neighbour's result was there before this tick."""
    if not is_wave:
        needed = (block - 1, micro_batch, False) if block else None
    elif block == num_blocks - 1:
        needed = (block, micro_batch, False)
    else:
        needed = (block + 1, micro_batch, True)
    return needed is None or done.get(needed, tick) < tick
