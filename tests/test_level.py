"""Levels are longest paths, delays make up the difference, and nothing else changes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dendrax
from dendrax import ZIL
from dendrax.graph._check import GraphError, check_expanded, check_graph, check_levelled
from dendrax.graph._graph import Edge, Graph, Port, Vertex, identity
from dendrax.graph._level import LevelledGraph, contract_graph
from tests.cases.programs import random_dags
from tests.compare import same


def dag(inputs: list[tuple[int, ...]]) -> Graph:
    """A graph without arrays; the last vertex is the output, vertices without inputs are leaves."""
    vertices = []
    for index, sources in enumerate(inputs):
        aval = jax.ShapeDtypeStruct((), np.float64)
        ports = tuple(Port(i) for i in dict.fromkeys(sources))
        if not ports:
            leaf = Vertex(index, "parameter", f"z{index}", (aval,), carries=(True,))
            vertices.append(leaf)
        else:
            mask = (1 << len(ports)) - 1
            vertices.append(
                Vertex(index, "internal", f"g{index}", (aval,), ports, identity, (mask,), (True,))
            )
    leaves = tuple(v.index for v in vertices if not v.inputs)
    return Graph(tuple(vertices), leaves, (Port(len(vertices) - 1),), (True,))


def path_lengths(graph: Graph) -> dict[int, set[int]]:
    """The lengths of all paths from the output to each vertex."""
    lengths: dict[int, set[int]] = {graph.outputs[0].vertex: {0}}
    for edge in sorted(graph.edges, key=lambda edge: -edge.user):
        below = {length + 1 for length in lengths[edge.user]}
        lengths.setdefault(edge.source.vertex, set()).update(below)
    return lengths


@given(random_dags())
@settings(deadline=None)
def test_random_dags_level_correctly(inputs):
    graph = dag(inputs)
    check_graph(graph)
    levelled = dendrax.level(graph)
    check_levelled(levelled)
    longest = {index: max(lengths) for index, lengths in path_lengths(graph).items()}
    assert dict(levelled.level_of) == longest
    expanded = levelled.expand()
    check_expanded(expanded)
    assert all(len(lengths) == 1 for lengths in path_lengths(expanded).values())
    assert len(expanded) == len(graph) + levelled.num_delays
    assert [v.index for level in levelled.levels for v in level] == sorted(
        levelled.level_of, key=lambda index: (levelled.level_of[index], index)
    )


@given(random_dags())
@settings(deadline=None)
def test_contracting_undoes_expanding(inputs):
    graph = dag(inputs)
    levelled = dendrax.level(graph)
    contracted, delays = contract_graph(levelled.expand())
    assert [v.inputs for v in contracted] == [v.inputs for v in graph]
    assert delays == dict(levelled.delays)


@given(random_dags(), st.data())
@settings(deadline=None)
def test_dropping_a_delay_is_noticed(inputs, data):
    levelled = dendrax.level(dag(inputs))
    delayed = [edge for edge, delay in levelled.delays.items() if delay]
    if not delayed:
        return
    edge = data.draw(st.sampled_from(delayed))
    broken = LevelledGraph(
        levelled.graph, levelled.level_of, {**levelled.delays, edge: levelled.delays[edge] - 1}
    )
    with pytest.raises(GraphError, match="has delay"):
        check_levelled(broken)
    with pytest.raises(GraphError, match="paths of length"):
        check_expanded(broken.expand())


def test_minimum_distances_do_not_level():
    """Erratum 1: with the paper's minimum distances, paths of different length remain."""
    graph = dag([(), (0,), (1,), (2,), (1, 3)])  # z -> a -> b -> c -> out, and a -> out
    minimum = {index: min(lengths) for index, lengths in path_lengths(graph).items()}
    assert minimum != dict(dendrax.level(graph).level_of)
    gaps = {e: minimum[e.source.vertex] - minimum[e.user] - 1 for e in graph.edges}
    delays = {edge: max(gap, 0) for edge, gap in gaps.items()}
    with pytest.raises(GraphError, match="paths of length"):
        check_expanded(LevelledGraph(graph, minimum, delays).expand())


def test_data_takes_no_delays():
    """Erratum 4: only what leads to a parameter waits."""

    def fun(w, x):
        return jnp.sum(jnp.tanh(x @ w) * jnp.cos(x[:, :2]) + x[:, :2])

    levelled = dendrax.level(dendrax.trace(fun, np.ones((3, 2)), np.ones((4, 3))))
    names = {levelled.graph[index].name for index in levelled.level_of}
    assert "w" in names
    assert "x" not in names
    assert levelled.num_delays == 0


def test_expanding_leaves_function_and_gradient_unchanged():
    def fun(w, x):
        h = x @ w
        return jnp.mean((h + jnp.tanh(jnp.tanh(h) * h)) ** 2)

    rng = np.random.default_rng(0)
    graph = dendrax.trace(fun, rng.normal(size=(3, 3)), rng.normal(size=(4, 3)))
    levelled = dendrax.level(graph)
    assert levelled.num_delays > 0
    plain = dendrax.run(graph, ZIL())
    written = dendrax.run(levelled.expand(), ZIL())
    assert same(written.output, plain.output)
    assert same(written.gradient, plain.gradient)


def test_reprs_count():
    def fun(w):
        return w + jnp.sin(jnp.cos(w))

    graph = dendrax.trace(fun, 1.0)
    assert "4 vertices" in repr(graph)
    assert "1 edge that carries errors" in repr(dendrax.trace(lambda w: 2 * w, 1.0))
    assert "1 parameter, 0 data, 3 internal" in repr(graph)
    assert "test_level.py" in repr(graph)
    levelled = dendrax.level(graph)
    assert "4 levels" in repr(levelled)
    assert "2 delays (identity vertices) on 1 edge" in repr(levelled)
    assert "S_0   add" in repr(levelled)


def test_checks_notice_malformed_graphs():
    graph = dag([(), (0,), (1,)])
    v = graph.vertices
    wrong_order = Graph((v[1], v[0], v[2]), graph.leaves, graph.outputs, graph.roots)
    with pytest.raises(GraphError, match="stands at place"):
        check_graph(wrong_order)
    late = Vertex(1, "internal", "late", v[1].outputs, (Port(2),), identity, (1,), (True,))
    with pytest.raises(GraphError, match="too early"):
        check_graph(Graph((v[0], late, v[2]), graph.leaves, graph.outputs, graph.roots))
    deaf = Vertex(1, "internal", "deaf", v[1].outputs, (Port(0),), identity, (0,), (True,))
    with pytest.raises(GraphError, match="goes nowhere"):
        check_graph(Graph((v[0], deaf, v[2]), graph.leaves, graph.outputs, graph.roots))
    levelled = dendrax.level(graph)
    shifted = {index: level + 1 for index, level in levelled.level_of.items()}
    with pytest.raises(GraphError, match="longest paths"):
        check_levelled(LevelledGraph(graph, shifted, levelled.delays))


def test_levelling_is_linear_in_the_graph():
    """Not a timing: a graph of 20,000 vertices with skips must not take quadratic memory either."""
    count = 20_000
    chain = [(), *((i - 1, max(0, i - 7)) for i in range(1, count))]
    levelled = dendrax.level(dag(chain))
    assert max(levelled.level_of.values()) == count - 1
    for edge, delay in itertools.islice(levelled.delays.items(), 100):
        assert delay == edge.user - edge.source.vertex - 1
    assert Edge(Port(0), 1) in levelled.delays


def test_levels_are_asked_for_by_vertex():
    graph = dendrax.trace(lambda w, x: jnp.sin(w) * x, jnp.ones(2), jnp.ones(2))
    level_of = dendrax.level(graph).level_of
    assert level_of[graph["sin"]] == level_of[graph["sin"].index] == 1
    with pytest.raises(KeyError, match=r"as in level_of\[graph\['sin'\]\]"):
        level_of["sin"]
    with pytest.raises(KeyError, match=r"has no error, and so no level"):
        level_of[graph["x"]]
