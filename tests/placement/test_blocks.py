"""Cutting graphs into blocks of levels."""

import itertools

import jax
import jax.numpy as jnp
import pytest

import dendrax
from dendrax.graph._graph import Port
from dendrax.models import problem
from dendrax.placement._blocks import partition
from dendrax.placement._cut import _balanced, _quieter, choose_cuts, placement_levels, work
from tests.cases.graphs import GRAPHS

CASES = [case for case in GRAPHS if case.name != "constant_output"]


def _graph(case):
    return dendrax.trace(case.fun, *case.make_args(), argnums=case.argnums)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_levels_put_every_vertex_behind_what_it_needs(case):
    graph = _graph(case)
    level_of = placement_levels(graph, graph.origin)
    for index, level in level_of.items():
        for port in graph[index].inputs:
            assert level_of.get(port.vertex, level) >= level
    assert set(range(max(level_of.values()) + 1)) == set(level_of.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_levels_keep_the_order_of_additions(case):
    """Of two vertices that send messages to one sum, the later one is not further away."""
    graph = _graph(case)
    level_of = placement_levels(graph, graph.origin)
    users = {}
    for v in graph:
        told = 0
        for mask in v.depends:
            told |= mask
        for k, port in enumerate(v.inputs):
            if told >> k & 1 and v.index in level_of:
                users.setdefault(graph.origin(port), []).append(level_of[v.index])
    for levels in users.values():
        assert levels == sorted(levels, reverse=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("shares_sums", [True, False])
def test_blocks_hold_every_vertex_and_what_it_reads(case, shares_sums):
    graph = _graph(case)
    level_of = placement_levels(graph, graph.origin)
    for cut in range(1, max(level_of.values()) + 1):
        parts = partition(graph, 2, shares_sums=shares_sums, cuts=(cut,))
        below, above = parts.blocks
        assert below.levels[1] >= cut > above.levels[0]
        assert {p.vertex for p in (*below.at, *above.at)} >= set(level_of)
        (sent,) = parts.upward
        for port in above.leaves:
            from_below = port in parts.home and parts.home[port] == 0
            assert from_below == (port in sent)
        for block in parts.blocks:
            dendrax.graph._check.check_graph(block.graph)


def test_an_alias_is_computed_where_it_is_used():
    """`y = x + 1` has the error of x: it is not sent, or there would be two sums."""

    def fun(w):
        x = jnp.sin(w)
        y = x + 1.0
        return jnp.tanh(jnp.cos(x)) * y

    graph = dendrax.trace(fun, 0.3)
    alias = next(v for v in graph if any(k is not None for k in v.alias))
    parts = partition(graph, 2, shares_sums=True, cuts=(1,))
    assert Port(alias.index) not in parts.upward[0]
    assert Port(alias.index) in parts.blocks[1].at
    assert Port(alias.index) in partition(graph, 2, shares_sums=False, cuts=(1,)).upward[0]


def test_data_are_given_to_those_who_use_them():
    def fun(w, mask):
        big = jnp.exp(mask)
        return jnp.sum(jnp.tanh(jnp.sin(w * big) @ w) * big)

    graph = dendrax.trace(fun, jnp.ones((3, 3)), jnp.ones((3, 3)))
    parts = partition(graph, 3, shares_sums=True)
    exp = graph["exp"].index
    assert sum(Port(exp) in block.at for block in parts.blocks) == 2
    assert all(Port(exp) not in ports for ports in parts.upward)


def test_a_shared_weight_lives_where_it_is_used_first():
    def fun(w, x):
        for _ in range(4):
            x = jnp.tanh(x @ w)
        return jnp.sum(x)

    graph = dendrax.trace(fun, jnp.ones((3, 3)), jnp.ones((2, 3)))
    parts = partition(graph, 4, shares_sums=True)
    weight = Port(graph["w"].index)
    assert parts.home[weight] == 0 and parts.reach[weight] == 3
    assert all(weight in ports for ports in parts.upward)


@pytest.mark.parametrize(
    "name", ["mlp", "transformer", pytest.param("resnet18", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("count", [2, 4])
def test_blocks_are_about_equal_work(name, count):
    p = problem(name)
    graph = dendrax.trace(p.loss, p.model, p.inputs, p.target)
    parts = partition(graph, count, shares_sums=True)
    loads = [sum(map(work, block.graph)) for block in parts.blocks]
    most = max(sum(map(work, [v])) for v in graph)
    assert max(loads) <= 1.5 * sum(loads) / count + most


def test_work():
    x, w = jnp.ones((2, 3)), jnp.ones((3, 5))
    image, kernel = jnp.ones((1, 8, 8, 3)), jnp.ones((3, 3, 3, 7))

    def fun(w, kernel):
        form = ("NHWC", "HWIO", "NHWC")
        out = jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=form)
        return jnp.sum(x @ w) + jnp.sum(out)

    graph = dendrax.trace(fun, w, kernel, argnums=(0, 1))
    assert work(graph["dot_general"]) == 2 * 3 * 5
    assert work(graph["conv_general_dilated"]) == 8 * 8 * 7 * (3 * 3 * 3)


@pytest.mark.parametrize("costs", [[1] * 8, [5, 1, 1, 1, 1, 5], [1, 9, 1, 1], [0, 0, 0, 7, 0, 0]])
def test_the_largest_block_is_as_small_as_can_be(costs):
    for count in range(1, len(costs) + 1):
        ends = _balanced(costs, count)
        best = min(
            max(sum(costs[a:b]) for a, b in itertools.pairwise([0, *cut, len(costs)]))
            for cut in itertools.combinations(range(1, len(costs)), count - 1)
        )
        edges = [0, *ends, len(costs)]
        assert len(edges) == count + 1 and len(set(edges)) == count + 1
        assert max(sum(costs[a:b]) for a, b in itertools.pairwise(edges)) == best


def test_cuts_move_to_where_little_is_sent():
    costs = [10] * 20
    crossing = [100] * 20
    crossing[9] = 1
    assert _quieter(costs, crossing, [10]) == [9]
    crossing[9], crossing[2] = 100, 1  # too far away: one block would be much larger
    assert _quieter(costs, crossing, [10]) == [10]


def test_too_many_devices():
    graph = dendrax.trace(lambda w: jnp.sin(jnp.tanh(w)), 0.5)
    level_of = placement_levels(graph, graph.origin)
    with pytest.raises(ValueError, match=r"has 2 levels.*3 devices.\n  Use at most 2 devices"):
        choose_cuts(graph, level_of, 3)
