"""What a rule must keep to. Whoever wrote one that does not reads its name, line, and the remedy.

Checked while a rule is traced: nothing of it is in the compiled program.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax.inference._evaluate import Values
from dendrax.inference._network import Look, Network
from dendrax.support import complain, counted

_NOT_TRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerBoolConversionError,
)
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def where(rule: Any, method: str) -> str:
    """The line at which a rule defines a method, as ``file.py:12 (step)``; empty for our rules."""
    function = inspect.unwrap(getattr(type(rule), method))
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename.startswith(HERE):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno} ({method})"


@contextlib.contextmanager
def running(rule: Any, method: str) -> Iterator[None]:
    """While a rule's method runs: mistakes that only a rule can make get its name and line."""
    try:
        yield
    except jax.errors.UnexpectedTracerError as problem:
        raise _complain(
            rule,
            method,
            "uses a value of an earlier call, which it has kept.",
            "Keep nothing on the rule, or anywhere else: what changes belongs into the state.",
            problem,
        ) from problem
    except _NOT_TRACEABLE as problem:
        raise _complain(
            rule,
            method,
            "needs the value of an array, but is compiled before there are values.",
            "Use jnp.where or jax.lax.cond in place of if; branch on settings of the rule only.",
            problem,
        ) from problem


def _complain(
    rule: Any, method: str, problem: str, remedy: str, cause: BaseException | None = None
) -> Exception:
    kind = TypeError if cause is not None else ValueError
    line = _users_line(cause) if cause is not None else ""
    return complain(
        kind,
        f"{type(rule).__name__}.{method} {problem}",
        source=line or where(rule, method),
        remedy=remedy,
    )


def _users_line(problem: BaseException) -> str:
    """The last line of the traceback that is neither ours nor JAX's."""
    ours = (HERE, os.path.dirname(jax.__file__) + os.sep)
    frames = reversed(traceback.extract_tb(problem.__traceback__))
    own = (f for f in frames if f.filename[0] != "<" and not f.filename.startswith(ours))
    return next((f"{f.filename}:{f.lineno} ({f.name})" for f in own), "")


def check_wave(rule: Any) -> None:
    """A rule that is one pass has no state: what it would do with one, nobody asks."""
    methods = ("start", "step", "done", "look", "gradient", "memory")
    own = [name for name in methods if where(rule, name)]
    if rule.is_wave and own:
        raise complain(
            ValueError,
            f"{type(rule).__name__} is one pass over the graph (is_wave), so that its {own[0]} "
            "would never be called.",
            source=where(rule, own[0]),
            remedy="Subclass dendrax.Rule instead, or change what is sent back by local.",
        )


def check_num_steps(rule: Any, net: Network) -> int:
    """A number of steps is an integer, and none is negative."""
    count = rule.steps(net)
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 0:
        raise complain(
            ValueError,
            f"{type(rule).__name__}: num_steps={count!r} is not a number of steps.",
            remedy="Give an integer; with a tol it is the largest number of steps.",
        )
    return int(count)


def looked(rule: Any, net: Network, state: Any) -> Look:
    """What a rule looks at in a state is a look at the network."""
    look = rule.look(net, state)
    if not isinstance(look, Look):
        problem = f"returns {type(look).__name__}, not a look at the network."
        raise _complain(rule, "look", problem, "Return net.look(x), for the x of the state.")
    return look


def is_done(rule: Any, net: Network, state: Any) -> Any:
    """Whether a rule is done is one truth value."""
    done = rule.done(net, state)
    if isinstance(done, bool) or (_is_array(done) and jax.typeof(done).shape == ()):
        done = jnp.asarray(done)
        if done.dtype == bool:
            return done
    problem = f"returns {_form(done)}, not whether the rule is done."
    raise _complain(rule, "done", problem, "Return one truth value, such as jnp.all(... < tol).")


def check_state(rule: Any, before: Any, after: Any) -> None:
    """A step returns a state of the form of the one that it was given."""
    trees = jax.tree.structure(before), jax.tree.structure(after)
    remedy = "A step returns the state that it was given, with other values."
    if trees[0] != trees[1]:
        raise _complain(
            rule, "step", f"returns the tree {trees[1]}, but was given {trees[0]}.", remedy
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        old = jax.typeof(old)
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            place = f"state{jax.tree_util.keystr(path)}"
            problem = f"returns {_typed(new)} for {place}, which was {_typed(old)}."
            raise _complain(rule, "step", problem, remedy)


def check_gradient(rule: Any, net: Network, gradient: Any, state: Any) -> Values:
    """A gradient has an array for each parameter that an error reaches, of its type."""
    if not isinstance(gradient, Mapping):
        remedy = "Return a dictionary with the keys of net.parameters, as look.gradient is."
        problem = f"returns {type(gradient).__name__}, not a gradient for each parameter."
        raise _complain(rule, "gradient", problem, remedy)
    graph = net.view.graph
    unknown = [key for key in gradient if key not in net.parameters]
    reached = jax.eval_shape(lambda: looked(rule, net, state).arrived.leaves)
    missing = [port for port in reached if port not in gradient]
    if unknown:
        problem = f"returns a gradient for {unknown[0]!r}, which is no parameter."
        raise _complain(rule, "gradient", problem, "Use the keys of net.parameters.")
    if missing:
        names = ", ".join(graph[port.vertex].name for port in missing[:4])
        problem = f"returns no gradient for {counted(len(missing), 'parameter')}: {names}."
        remedy = "Return one for each key of net.parameters; zeros where nothing is learned."
        raise _complain(rule, "gradient", problem, remedy)
    for port, found in gradient.items():
        aval, given = net.view.aval(port).to_tangent_aval(), _form(found)
        if given != _typed(aval):
            name = graph[port.vertex].name
            problem = f"returns {given} for {name}, which is {_typed(aval)}."
            raise _complain(rule, "gradient", problem, "Return gradients of their types.")
    return dict(gradient)


def _typed(aval: Any) -> str:
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def _is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


def _form(value: Any) -> str:
    """What a value is, to be said in a message: the type of an array, or of an object."""
    return _typed(jax.typeof(value)) if _is_array(value) else type(value).__name__


def check_memory(rule: Any, net: Network, memory: Any) -> None:
    """What an update is given to start from is what an update of this model leaves."""
    if memory is None:
        return
    expected = jax.eval_shape(lambda: rule.memory(net, rule.start(net)))
    if expected is None:
        check_no_memory(rule, memory)
    given = jax.eval_shape(lambda: memory)
    types = [[(a.shape, a.dtype) for a in jax.tree.leaves(tree)] for tree in (given, expected)]
    if jax.tree.structure(given) != jax.tree.structure(expected) or types[0] != types[1]:
        raise complain(
            ValueError,
            f"the memory is not one that {type(rule).__name__} leaves for this model.",
            source=where(rule, "memory"),
            remedy="Pass result.memory of the update before, of the same model and rule; None at "
            "the first.",
        )


def check_no_memory(rule: Any, memory: Any) -> None:
    """A rule that remembers nothing is given nothing to start from."""
    if memory is not None:
        raise complain(
            ValueError,
            f"{type(rule).__name__} has no memory, so there is nothing to start from.",
            remedy="Leave memory out, or use a rule that defines memory(self, net, state).",
        )
