"""Wrong input gets an error of JAX's own kind that names our function, the place and the remedy."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import BP, ZIL
from dendrax._compat import new_sum
from dendrax.local import Applied, differentiate
from dendrax.local._explain import explaining
from dendrax.support import positive
from dendrax.support._errors import complain, one_of, printable
from dendrax.walk._regions import Linearise, run_exactly

W = np.ones((3, 3))


def test_non_scalar_loss():
    with pytest.raises(TypeError, match=r"dendrax\.grad: .*scalar-output.*\(3,\)") as error:
        dendrax.grad(lambda x: jnp.sin(x))(jnp.ones(3))
    assert "test_errors.py" in str(error.value)
    assert "jnp.mean" in str(error.value)


def test_several_outputs():
    with pytest.raises(TypeError, match="one scalar output"):
        dendrax.grad(lambda x: (x, x))(1.0)


def test_complex_loss():
    with pytest.raises(TypeError, match="real-valued outputs"):
        dendrax.grad(lambda x: x * 1j)(jnp.asarray(1.0 + 1.0j))


def test_integer_loss():
    with pytest.raises(TypeError, match="real-valued outputs"):
        dendrax.grad(lambda x: jnp.argmax(x))(jnp.ones(3))


@pytest.mark.parametrize("bad", [jnp.arange(3), True, 3])
def test_integer_parameters(bad):
    with pytest.raises(TypeError, match=r"dendrax\.value_and_grad: .*params\['n'\]") as error:
        dendrax.value_and_grad(lambda params: jnp.sum(params["n"]) * 1.0)({"n": bad})
    assert "dendrax.vjp" in str(error.value)


def test_parameter_that_is_no_array():
    with pytest.raises(TypeError, match=r"params.*not a valid JAX type: str"):
        dendrax.grad(lambda params: 1.0)(["a"])


@pytest.mark.parametrize(
    ("argnums", "kind"), [(1, TypeError), (-2, ValueError), ((0, 3), TypeError)]
)
def test_argnums_out_of_range(argnums, kind):
    """The class of error is JAX's."""
    with pytest.raises(kind):
        jax.grad(lambda x: x, argnums=argnums)(1.0)
    with pytest.raises(kind, match=r"argnums=.*positional arguments"):
        dendrax.grad(lambda x: x, argnums=argnums)(1.0)


def test_argnums_that_name_nothing_or_twice():
    with pytest.raises(ValueError, match="names no argument"):
        dendrax.grad(lambda x: x, argnums=())(1.0)
    with pytest.raises(TypeError, match="names an argument twice"):
        dendrax.grad(lambda x, y: x, argnums=(0, -2))(1.0, 2.0)


def test_argnums_of_the_wrong_type():
    with pytest.raises(TypeError, match="argnums must be an integer"):
        dendrax.grad(lambda x: x, argnums="x")(1.0)


def test_unbounded_while():
    def loss(x):
        return jax.lax.while_loop(lambda c: c < 10.0, lambda c: c * 2.0, x)

    with pytest.raises(ValueError, match=r"(?s)while_loop.*test_errors\.py.*lax\.scan"):
        dendrax.grad(loss)(1.0)


def test_while_with_traced_bounds():
    def loss(x, n):
        return jax.lax.fori_loop(0, n, lambda i, c: c * 2.0, x)

    with pytest.raises(ValueError, match="number of steps is unknown"):
        jax.jit(dendrax.grad(loss))(1.0, 3)


def test_function_returns_a_string():
    with pytest.raises(TypeError, match=r"dendrax\.grad: .*'loss'.*not a valid JAX type"):
        dendrax.grad(lambda x: "loss")(1.0)


def test_effectful_primitive():
    def loss(x):
        return jax.experimental.io_callback(np.sin, jax.ShapeDtypeStruct((), x.dtype), x)

    with pytest.raises(ValueError, match=r"(?s)dendrax\.grad.*io_callback.*test_errors\.py"):
        dendrax.grad(loss)(jnp.asarray(1.0))


def test_pure_callback_has_no_derivative():
    def loss(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), x.dtype), x)

    with pytest.raises(ValueError, match=r"(?s)pure_callback.*custom_vjp"):
        dendrax.grad(loss)(jnp.asarray(1.0))


def test_primitive_without_derivative():
    with pytest.raises(NotImplementedError, match=r"(?s)'nextafter'.*test_errors\.py"):
        dendrax.grad(lambda x: jax.lax.nextafter(x, x))(jnp.asarray(1.0))


@pytest.mark.parametrize("name", ["layers", 3])
def test_unknown_vertices(name):
    for call in (
        lambda: dendrax.grad(jnp.sum, vertices=name),
        lambda: dendrax.trace(jnp.sum, jnp.ones(3), vertices=name),
        lambda: dendrax.vjp(jnp.sum, jnp.ones(3), vertices=name),
    ):
        with pytest.raises(ValueError, match=r"(?s)vertices=.*not known.*'primitive'"):
            call()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.0}, "gamma=0.0 is not a positive Python number"),
        ({"gamma": -1}, "gamma=-1"),
        ({"gamma": float("nan")}, "gamma=nan"),
        ({"gamma": "fast"}, "gamma='fast'"),
        ({"timing": "late"}, r"(?s)timing='late' is not known.*'level', 'end'"),
        ({"init": "ones"}, r"(?s)init='ones' is not known.*'forward', 'zeros', 'noise'"),
        ({"levelled": "yes"}, "levelled='yes'"),
        ({"num_steps": 0}, "num_steps=0 is not a positive integer"),
        ({"num_steps": 2.5}, "num_steps=2.5"),
    ],
)
def test_unknown_rule_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        ZIL(**settings)


def test_unknown_setting_name():
    with pytest.raises(TypeError, match="speed"):
        ZIL(speed=2)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("rule", "meant"),
    [(ZIL, "ZIL"), ("zil", "ZIL"), ("IL", "IL"), ("errorpc", "ErrorPC"), (None, "ZIL")],
)
def test_not_a_rule(rule, meant):
    match = rf"(?s)dendrax\.grad: rule must be a rule.*Write rule=dendrax\.{meant}\(\)"
    with pytest.raises(TypeError, match=match):
        dendrax.grad(jnp.sum, rule=rule)


def test_not_a_function():
    with pytest.raises(TypeError, match=r"dendrax\.grad: expected a function, got float"):
        dendrax.grad(3.0)  # pyright: ignore[reportArgumentType]


def test_aux_missing():
    remedy = r"\n  Return both, or leave has_aux out"
    with pytest.raises(TypeError, match=rf"has_aux=True.*pair.* returned one array\.{remedy}"):
        dendrax.grad(lambda x: x, has_aux=True)(1.0)
    with pytest.raises(TypeError, match=r"has_aux=True.*pair.* returned tuple of length 3\."):
        dendrax.grad(lambda x: (x, x, x), has_aux=True)(1.0)


def test_vjp_cotangent_of_the_wrong_tree_or_shape():
    _, pullback = dendrax.vjp(lambda x: (x, 2.0 * x), jnp.ones(3))
    with pytest.raises(ValueError, match=r"dendrax\.vjp: the cotangent's tree"):
        pullback(jnp.ones(3))
    with pytest.raises(ValueError, match=r"shape \(2,\).*\(3,\)"):
        pullback((jnp.ones(3), jnp.ones(2)))
    with pytest.raises(ValueError, match=r"type float16.*calls for float64"):
        pullback((jnp.ones(3), jnp.ones(3, "float16")))


def test_too_few_steps():
    with pytest.raises(ValueError, match=r"num_steps=1 ends before .* needs 2 steps"):
        dendrax.grad(lambda w: jnp.tanh(jnp.sin(w)), rule=ZIL(num_steps=1))(1.0)


def test_an_inner_call_speaks_for_itself():
    def outer(x):
        return dendrax.value_and_grad(lambda y: y * jnp.ones(3))(x)[0]

    with pytest.raises(TypeError, match=r"^dendrax\.value_and_grad: .*scalar-output"):
        dendrax.grad(outer)(1.0)


def test_run_bad_arguments():
    graph = dendrax.trace(lambda w, x: x @ w, W, np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"record='errors' is not known"):
        dendrax.run(graph, ZIL(), record="errors")
    with pytest.raises(ValueError, match=r"target has shape \(3,\).*\(2, 3\)"):
        dendrax.run(graph, ZIL(), target=np.ones(3))
    with pytest.raises(ValueError, match="target's tree"):
        dendrax.run(graph, ZIL(), target=(np.ones((2, 3)),) * 2)
    with pytest.raises(TypeError, match="traced with other arguments"):
        dendrax.run(graph, ZIL(), W)
    with pytest.raises(
        ValueError, match=r"argument x does not fit.*float64\[2, 3\].*float64\[4, 3\]"
    ):
        dendrax.run(graph, ZIL(), W, np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"argument x does not fit.*now it is int"):
        dendrax.run(graph, ZIL(), W, np.ones((2, 3), int))
    fixed = dendrax.trace(lambda w, n: w * n, 1.0, 3)
    with pytest.raises(ValueError, match=r"argument n does not fit"):
        dendrax.run(fixed, ZIL(), 1.0, np.ones(2))
    with pytest.raises(TypeError, match="expected a Graph"):
        dendrax.run(jnp.sum, ZIL())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="expected a Graph"):
        dendrax.level(jnp.sum)  # pyright: ignore[reportArgumentType]


def test_bp_has_nothing_to_record():
    graph = dendrax.trace(jnp.sum, jnp.ones(3))
    with pytest.raises(ValueError, match="nothing to record"):
        dendrax.run(graph, BP(), record="energy")


def test_moment_of_a_vertex_without_error():
    graph = dendrax.trace(lambda w, x: jnp.sum(w * x), jnp.ones(3), jnp.ones(3))
    result = dendrax.run(graph, ZIL(), record="epsilon")
    with pytest.raises(KeyError, match="has no error"):
        result.epsilon[0]["x"]
    with pytest.raises(IndexError, match="was not recorded"):
        result.epsilon[99]


BRANCHES = {
    "bool": lambda z: z if z > 0 else -z,
    "int": lambda z: z * int(z),
    "numpy": lambda z: z * np.asarray(z),
    "mask": lambda z: jnp.sum(jnp.ones(3)[jnp.stack([z, z, z]) > 0] * z),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_python_branch_on_a_parameter(name):
    """A rule that moves value nodes runs the function at other values than those that are known."""
    raised = []
    for call in (
        lambda: dendrax.grad(BRANCHES[name], rule=dendrax.IL(batch="sum"))(1.0),
        lambda: dendrax.trace(BRANCHES[name], 1.0),
    ):
        with pytest.raises((TypeError, IndexError)) as error:
            call()
        raised.append(error.value)
        assert "jnp.where or jax.lax.cond" in "".join(error.value.__notes__)
    assert type(raised[0]) is type(raised[1])
    assert type(raised[0]).__module__ == "jax.errors"


def test_unknown_vertex_name():
    graph = dendrax.trace(lambda w: jnp.sin(w), 1.0)
    with pytest.raises(KeyError, match=r"no vertex named 'sine'.*'sin'"):
        graph["sine"]


def test_the_users_own_error_is_not_disguised():
    def loss(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine"):
        dendrax.grad(loss)(1.0)


def in_cond(f):
    return lambda x: jax.lax.cond(x > 0, f, lambda x: x, x)


def in_scan(f):
    return lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, length=2)[0]


@pytest.mark.parametrize("rule", [dendrax.ZIL(), dendrax.FixedPrediction()], ids=repr)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint, in_cond, in_scan])
@pytest.mark.parametrize("kind", [ValueError, AssertionError, RuntimeError])
def test_the_users_own_error_in_a_rule_is_not_disguised(wrap, kind, rule):
    @jax.custom_vjp
    def f(x):
        return x

    def backward(res, g):
        raise kind("mine")

    f.defvjp(lambda x: (x, None), backward)
    with pytest.raises(kind, match=r"^mine"):
        dendrax.grad(wrap(f), rule=rule)(1.0)


def test_wrong_shapes_are_what_jax_says_they_are():
    def loss(x):
        return jnp.sum(jax.lax.add(x, jnp.ones(4)))

    with pytest.raises(TypeError, match=r"^add got incompatible shapes"):
        dendrax.grad(loss)(jnp.ones(3))


def test_warnings_name_the_user_s_line():
    graph = dendrax.trace(lambda w: jnp.sum(w * w), jnp.ones(3), vertices="layer")
    with pytest.warns(UserWarning, match="no value node") as caught:
        dendrax.run(graph, dendrax.IL(3, batch="sum"))
    assert caught[0].filename == __file__


def test_messages_fit_a_terminal():
    """Whatever somebody wrote: no control characters, no pages, no number that Python refuses."""
    found = str(complain(ValueError, f"no \x1b[2J here: {'x' * 20_000}", remedy="Stop."))
    assert "\\x1b[2J here" in found and len(found) < 1_000 and found.endswith("\n  Stop.")
    assert printable("a\tb\nü 漢") == "a\tb\nü 漢"
    with pytest.raises(ValueError, match=r"^dendrax: mode=int\(\.\.\.\) is not known"):
        one_of("mode", 16**9_000, ("min", "max"))
    with pytest.raises(ValueError, match=r"x=1000.* \(401 characters\) must be a finite number"):
        positive("x", 10**400)


# ---- only a derivative that is missing is called one ---------------------------------------------


def _two_products(w, x):
    return jnp.sum(jnp.tanh(x @ w) @ w)


@pytest.mark.parametrize("kind", [TypeError, ValueError, AssertionError, NotImplementedError])
def test_what_a_rule_raises_stays_what_it_is(kind):
    """While a message is sent, or prepared, a rule's own code may be at fault."""
    problem = kind("of my own")

    def draw(weight, k):
        raise problem

    class Mine(BP):
        local = dendrax.feedback(draw)

    with pytest.raises(kind, match=r"^of my own") as found:
        dendrax.grad(_two_products, rule=Mine())(W, W)
    assert found.value is problem


@dataclasses.dataclass(frozen=True)
class _Sending(Linearise):
    """Sends what ``message`` makes of the error."""

    message: Callable[[Any], Any]

    def vertex(self, operation, values, active):
        run = run_exactly(operation, values, active)
        return run._replace(sender=_Sender(self.message, run.sender))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class _Sender:
    message: Callable[[Any], Any]
    usual: Any

    def send(self, errors, sums):
        if self.usual.linear.jaxpr.eqns[0].primitive.name != "mul":
            return self.usual.send(errors, sums)
        return sums[0].accum(self.message(errors[0]))

    def reach(self, errors):
        return self.usual.reach(errors)


@pytest.mark.parametrize(
    ("message", "kind", "said"),
    [
        (lambda error: error[:1], ValueError, r"^Expected cotangent type float64\[3,3\] but got"),
        (lambda error: error @ np.ones(7), TypeError, r"^dot_general requires contracting dim"),
        (lambda error: error + "a", TypeError, r"str"),
    ],
)
def test_a_message_of_the_wrong_shape_stays_what_it_is(message, kind, said):
    class Mine(BP):
        local = _Sending(message)

    with pytest.raises(kind, match=said) as found:
        dendrax.grad(lambda w: jnp.sum(jnp.tanh(w * 2.0)), rule=Mine())(W)
    assert "derivative" not in str(found.value)


def test_an_error_of_the_wrong_shape_is_no_missing_derivative():
    """What somebody sent to a vertex does not fit it; JAX's derivative of it is all right."""
    _, pullback = differentiate(lambda x: [jnp.sin(x)], [W], [1])
    operation = Applied(jax.lax.sin_p, {"accuracy": None})
    with (
        pytest.raises(ValueError, match="Expected cot") as found,
        explaining(operation, "somewhere.py:1"),
    ):
        pullback.send([np.ones((2, 5))], [new_sum(jax.typeof(W))])
    assert "derivative" not in str(found.value)
