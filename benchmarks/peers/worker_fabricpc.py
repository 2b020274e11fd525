"""The worker of FabricPC 0.6.0: a graph of its nodes, its `InferenceSGD`, its local gradients.

The library's own nodes predict activations, z = f(W z' + b); ours are pre-activations. Its guide to
custom nodes asks for one method, `predict`, and that is enough to say μ = W f(x) + b; the value
nodes, energies, steps and gradients are then the same. As in the library's trainer, one jitted
function initialises the state, infers and takes the gradient. The variants:

- ``loop``: `run_inference` as it comes, a `lax.fori_loop`.
- ``unrolled``: `run_inference` overridden, as its docstring invites, by a Python loop. It takes
  longer to compile; on a CNN it is faster.
"""

# pyright: reportMissingImports=false

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from fabricpc import setup_jax
from fabricpc.core.activations import IdentityActivation
from fabricpc.core.inference import InferenceSGD, run_inference
from fabricpc.core.learning import compute_local_weight_gradients
from fabricpc.core.topology import Edge
from fabricpc.core.types import GraphParams, GraphStructure, NodeParams
from fabricpc.graph_assembly import TaskMap, graph
from fabricpc.graph_initialization import FeedforwardStateInit, initialize_graph_state
from fabricpc.nodes import ConvNode, IdentityNode, Linear

from benchmarks.peers.protocol import STRIDE, Problem, Update, serve

LINEAR = IdentityActivation()


def _tanh(inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {edge: jnp.tanh(x) for edge, x in inputs.items()}


class LinearOfTanh(Linear):
    """A `Linear` that reads the tanh of the node below."""

    @staticmethod
    def predict(params: Any, inputs: Any, state: Any, node_info: Any) -> Any:
        return Linear.predict(params, _tanh(inputs), state, node_info)


class ConvOfTanh(ConvNode):
    """A `ConvNode` that reads the tanh of the node below."""

    @staticmethod
    def predict(params: Any, inputs: Any, state: Any, node_info: Any) -> Any:
        return ConvNode.predict(params, _tanh(inputs), state, node_info)


class UnrolledSGD(InferenceSGD):
    """`InferenceSGD` whose steps are written out, so that XLA sees them all."""

    def run_inference(self, params: Any, initial_state: Any, clamps: Any, structure: Any) -> Any:
        state = initial_state
        for _ in range(self.config["infer_steps"]):
            state = type(self).inference_step(params, state, clamps, structure, self.config)
        return state


INFERENCE = {"loop": InferenceSGD, "unrolled": UnrolledSGD}


def build(problem: Problem, variant: str, num_steps: int, gamma: float) -> Update:
    """Gradients summed over the batch, after ``num_steps`` steps from the forward pass."""
    inference = INFERENCE[variant](eta_infer=gamma, infer_steps=num_steps)
    structure = _structure(problem, inference)
    params, inputs, target = jax.device_put((_params(problem), problem.inputs, problem.target))
    key = jax.random.PRNGKey(0)  # the forward pass overwrites what is drawn with it

    @jax.jit
    def update(params: GraphParams, inputs: jax.Array, target: jax.Array) -> GraphParams:
        clamps = {_name(0): inputs, _name(len(problem.weights)): target}
        state = initialize_graph_state(structure, len(inputs), key, clamps=clamps, params=params)
        state = run_inference(params, state, clamps, structure)
        return compute_local_weight_gradients(params, state, structure)

    return Update(lambda: jax.block_until_ready(update(params, inputs, target)), _gradient)


def _structure(problem: Problem, inference: InferenceSGD) -> GraphStructure:
    nodes: list[Any] = [IdentityNode(shape=problem.inputs.shape[1:], name=_name(0))]
    for k, w in enumerate(problem.weights, start=1):
        nodes.append(_node(k, w, nodes[-1].shape))
    edges = [Edge(source=a, target=b.slot("in")) for a, b in itertools.pairwise(nodes)]
    return graph(
        nodes=nodes,
        edges=edges,
        task_map=TaskMap(x=nodes[0], y=nodes[-1]),
        inference=inference,
        graph_state_initializer=FeedforwardStateInit(),
    )


def _node(k: int, w: np.ndarray, below: tuple[int, ...]) -> Any:
    """The node of layer ``k``. The first reads the data as they are, the others a tanh."""
    if w.ndim == 2:
        dense = Linear if k == 1 else LinearOfTanh
        return dense(shape=w.shape[1:], name=_name(k), activation=LINEAR, flatten_input=True)
    conv = ConvNode if k == 1 else ConvOfTanh
    shape = (*(math.ceil(size / STRIDE) for size in below[:2]), w.shape[-1])
    stride = (STRIDE, STRIDE)
    return conv(
        shape=shape, name=_name(k), kernel_size=w.shape[:2], stride=stride, activation=LINEAR
    )


def _params(problem: Problem) -> GraphParams:
    nodes = {_name(0): NodeParams(weights={}, biases={})}
    for k, (w, b) in enumerate(zip(problem.weights, problem.biases, strict=True), start=1):
        bias = b.reshape((1,) * (w.ndim - 1) + b.shape)  # one axis for the batch, and space
        nodes[_name(k)] = NodeParams(weights={_edge(k): w}, biases={"b": bias})
    return GraphParams(nodes=nodes)


def _gradient(result: GraphParams) -> tuple[list[np.ndarray], list[np.ndarray]]:
    layers = [result.nodes[_name(k)] for k in range(1, len(result.nodes))]
    weights = [np.asarray(layer.weights[_edge(k)]) for k, layer in enumerate(layers, start=1)]
    return weights, [np.asarray(layer.biases["b"]).reshape(-1) for layer in layers]


def _name(k: int) -> str:
    return f"layer{k}"


def _edge(k: int) -> str:
    return f"{_name(k - 1)}->{_name(k)}:in"


if __name__ == "__main__":
    setup_jax()
    serve(build)
