"""Micro-batches in a pipeline: nobody starts early, and nobody keeps more than it must."""

import pytest

from dendrax.placement._turns import take_turns

SIZES = [(1, 1), (1, 5), (2, 1), (2, 3), (4, 1), (4, 4), (4, 9), (8, 3), (8, 16)]


@pytest.mark.parametrize(("blocks", "micro_batches"), SIZES)
def test_every_turn_is_taken_once_and_after_what_it_needs(blocks, micro_batches):
    done = {}
    for tick, b, m, is_wave in take_turns(blocks, micro_batches):
        if not is_wave and b:
            assert done[b - 1, m, False] < tick
        if is_wave:
            assert done[b, m, False] < tick
            assert b == blocks - 1 or done[b + 1, m, True] < tick
        assert (b, m, is_wave) not in done
        done[b, m, is_wave] = tick
    assert len(done) == 2 * blocks * micro_batches


@pytest.mark.parametrize(("blocks", "micro_batches"), SIZES)
def test_a_device_does_one_thing_at_a_time_in_order(blocks, micro_batches):
    turns = take_turns(blocks, micro_batches)
    for b in range(blocks):
        ticks = [turn.tick for turn in turns if turn.block == b]
        assert len(set(ticks)) == len(ticks)
        for is_wave in (False, True):
            order = [t.micro_batch for t in turns if t.block == b and t.is_wave == is_wave]
            assert order == list(range(micro_batches))


@pytest.mark.parametrize(("blocks", "micro_batches"), SIZES)
def test_memory_does_not_grow_with_the_number_of_micro_batches(blocks, micro_batches):
    held = [0] * blocks
    for _, b, _, is_wave in take_turns(blocks, micro_batches):
        held[b] += -1 if is_wave else 1
        assert held[b] <= blocks - b


@pytest.mark.parametrize(("blocks", "micro_batches"), SIZES)
def test_it_takes_as_long_as_a_pipeline_must(blocks, micro_batches):
    last = max(turn.tick for turn in take_turns(blocks, micro_batches))
    assert last + 1 == 2 * (micro_batches + blocks - 1)
