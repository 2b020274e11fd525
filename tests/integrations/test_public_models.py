"""Models that others published, from the package index, trained with one line changed.

Nothing here is written after an example: each model is imported from the package that its test
names, small. What is not installed is skipped. `pip install -e ".[test,zoo]"` installs all of it
but google-tunix, which brings a hundred packages with it; what its models import is

    pip install --no-deps google-tunix google-metrax qwix clu omegaconf ml_collections wrapt \\
        tensorboardX sentencepiece perfetto pandas
"""

import functools
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx, struct

import dendrax.equinox
import dendrax.nnx
from tests.compare import same
from tests.integrations import test_equinox, test_nnx
from tests.integrations.both import check_same, cross_entropy, images, repeat

# The packages are as old as they are: their deprecations are not ours to repair.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(3, 20, size=(4, 9)).astype(np.int32)


def next_token(logits, tokens):
    found = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
    return jnp.mean(found)


# ------------------------------------------------------------------------------------------------
# Equinox
# ------------------------------------------------------------------------------------------------


def check_equinox(make, loss, *batch):
    training = test_equinox.training(make, loss, *batch)
    check_same(training, eqx.filter_value_and_grad, dendrax.equinox.filter_value_and_grad)


def classify_at_random(model, x, y, key):
    keys = jax.random.split(key, len(x))
    return cross_entropy(jax.vmap(lambda x, key: model(x, key=key))(x, keys), y)


def regress(model, x, y):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def test_equimo_vision_transformer():
    """equimo 1.1.0: `VisionTransformer`, with dropout, stochastic depth and registers."""
    models = pytest.importorskip("equimo.models")
    make = functools.partial(
        models.VisionTransformer,
        img_size=8,
        in_channels=3,
        dim=8,
        patch_size=4,
        num_heads=2,
        depths=[2],
        reg_tokens=1,
        num_classes=10,
        pos_drop_rate=0.1,
        proj_drop=0.1,
        attn_drop=0.1,
        drop_path_rate=0.3,
    )
    x, y = images(4, 3, 8, 8)
    check_equinox(lambda key: make(key=key), classify_at_random, x, y, jax.random.key(1))


def test_equimo_convnext():
    """equimo 1.1.0: `ConvNeXt`, with dropout and stochastic depth."""
    models = pytest.importorskip("equimo.models")
    make = functools.partial(
        models.ConvNeXt,
        in_channels=3,
        dims=[4, 4, 8, 8],
        depths=[1, 1, 2, 1],
        dropout=0.2,
        drop_path_rate=0.3,
        layer_scale_init_value=0.5,
        num_classes=10,
    )
    x, y = images(4, 3, 32, 32)
    check_equinox(lambda key: make(key=key), classify_at_random, x, y, jax.random.key(1))


@pytest.mark.parametrize(
    "name, settings",
    [
        ("ClassicFNO", {"num_modes": 3, "num_blocks": 2}),
        ("ModernUNet", {"num_levels": 2, "num_blocks": 1}),
    ],
)
def test_pdequinox(name, settings):
    """pdequinox 0.1.2: `ClassicFNO`, whose weights are complex, and `ModernUNet`."""
    pdequinox = pytest.importorskip("pdequinox")
    make = functools.partial(getattr(pdequinox.arch, name), 1, 1, 1, hidden_channels=4, **settings)
    x, y = RANDOM.normal(size=(2, 8, 1, 16)).astype(np.float32)
    check_equinox(lambda key: make(key=key), regress, x, y)


def test_esm2quinox():
    """esm2quinox 0.2.0: `ESM2`, a protein language model: a scan over layers, tied weights."""
    esm2quinox = pytest.importorskip("esm2quinox")
    tokens = esm2quinox.tokenise(["SP#DERM#N", "MKT#"])
    answers = esm2quinox.tokenise(["SPIDERMAN", "MKTA"])

    def loss(model, tokens, answers):
        logits = jax.vmap(model)(tokens).logits
        found = optax.softmax_cross_entropy_with_integer_labels(logits, answers)
        return jnp.mean(found, where=tokens == 32)  # the mask's token

    make = functools.partial(esm2quinox.ESM2, 2, 8, 2, token_dropout=True)
    check_equinox(lambda key: make(key=key), loss, tokens, answers)


# ------------------------------------------------------------------------------------------------
# Flax NNX
# ------------------------------------------------------------------------------------------------


def check_nnx(make, loss, *batch):
    training = test_nnx.training(make, loss, *batch)
    check_same(training, nnx.value_and_grad, dendrax.nnx.value_and_grad)


OTT = {
    "MLP": ((6,), {"dim": 6, "hidden_dims": [16, 16], "dropout_rate": 0.2}),
    "UNet": (
        (8, 8, 1),
        {
            "shape": (8, 8, 1),
            "model_channels": 32,
            "num_res_blocks": 1,
            "attention_resolutions": (4,),
            "channel_mult": (1, 1),
            "dropout": 0.1,
        },
    ),
}


@pytest.mark.parametrize("name", OTT)
def test_ott(name, monkeypatch):
    """ott-jax 0.6.0: `MLP` and `UNet`, by its own step, in which the line is changed."""
    fields = pytest.importorskip(f"ott.neural.networks.velocity_field.{name.lower()}")
    flow_matching = pytest.importorskip("ott.neural.methods.flow_matching")
    shape, settings = OTT[name]
    x0, x1 = RANDOM.normal(size=(2, 4, *shape)).astype(np.float32)

    def trained(value_and_grad):
        rngs = nnx.Rngs(0)
        model = getattr(fields, name)(**settings, rngs=rngs)
        optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
        gradients = []

        def recorded(f):
            def call(*args):
                value, grads = value_and_grad(f)(*args)
                gradients.append(grads)
                return value, grads

            return call

        @nnx.jit
        def step(model, optimizer, rngs):
            batch = flow_matching.interpolate_samples(rngs(), x0, x1)
            monkeypatch.setattr(flow_matching.nnx, "value_and_grad", recorded)  # <- the line
            found = flow_matching.flow_matching_step(model, optimizer, batch, rngs=rngs)
            monkeypatch.undo()
            return found["loss"], gradients.pop()

        def update(everything):
            return everything, *step(*everything)

        run = repeat(update, (model, optimizer, rngs))
        return run._replace(final=[nnx.state(part) for part in run.final])

    check_same(trained, nnx.value_and_grad, dendrax.nnx.value_and_grad)


class State(struct.PyTreeNode):
    obs: jax.Array
    reward: jax.Array
    done: jax.Array
    info: dict
    metrics: dict


class Walk:
    """The least that a network can act in: a walk in the plane, at best to its origin."""

    observation_size = action_size = 2

    def reset(self, rng):
        return self.at(jax.random.uniform(rng, (2,), minval=-1))

    def step(self, state, action):
        return self.at(state.obs + 0.3 * action)

    def at(self, place):
        far = jnp.sum(place**2)
        return State(place, jnp.exp(-far), jnp.where(far > 4, 1.0, 0.0), {}, {})


@pytest.mark.skipif(
    "--xla_cpu_max_isa=SSE4_2" not in os.environ.get("XLA_FLAGS", ""),
    reason="with fused multiply-adds it is equal to rounding only",
)
def test_nnx_ppo(monkeypatch):
    """nnx-ppo 0.3.0: an actor with an `LSTM`, and a critic, by its own step of PPO, in which the
    line is changed: a gradient inside `nnx.scan`, of a scan over the network."""
    ppo = pytest.importorskip("nnx_ppo.algorithms.ppo")
    adapter = pytest.importorskip("nnx_ppo.networks.adapter")
    containers = pytest.importorskip("nnx_ppo.networks.containers")
    factories = pytest.importorskip("nnx_ppo.networks.factories")
    normalizer = pytest.importorskip("nnx_ppo.networks.normalizer")
    recurrent = pytest.importorskip("nnx_ppo.networks.recurrent")
    sampling = pytest.importorskip("nnx_ppo.networks.sampling_layers")

    def make(rngs):
        lstm = recurrent.LSTM(2, 6, rngs, trainable_initial_state=True)
        layers = factories.make_mlp_layers([6, 4], rngs, activation_last_layer=False)
        actor = containers.Sequential([lstm, *layers, sampling.NormalTanhSampler(rngs, 0.01)])
        critic = factories.make_mlp([2, 8, 1], rngs, activation_last_layer=False)
        return containers.Sequential(
            [normalizer.Normalizer(2), adapter.PPOAdapter(action=actor, value=critic)]
        )

    def trained(grad):
        state = ppo.new_training_state(Walk(), make(nnx.Rngs(0)), 4, 1)

        @functools.partial(nnx.jit, static_argnums=0)
        def step(env, state):
            with monkeypatch.context() as patch:
                patch.setattr(ppo.nnx, "grad", grad)  # <- the line
                return ppo.ppo_step(env, state, 4, 5, 0.95, 0.9, 0.2, True, True, 2, 2)

        def update(state):
            state, metrics = step(Walk(), state)
            # Gradients do not leave the step; Adam's moments, which are made of them, do.
            moments = jax.tree.map(np.asarray, nnx.state(state.optimizer))
            return state, metrics["losses/critic/mean"], (metrics, moments)

        run = repeat(update, state)
        return run._replace(final=nnx.state(run.final.networks))

    check_same(trained, nnx.grad, dendrax.nnx.grad)


TUNIX = {
    "llama3": ("Llama3", {"rope_theta": 10_000, "norm_eps": 1e-5, "weight_tying": True}),
    "qwen3": ("Qwen3", {"rope_theta": 10_000, "norm_eps": 1e-6}),
}


@pytest.mark.parametrize("name", TUNIX)
def test_tunix(name):
    """google-tunix 0.1.7: `Llama3`, whose embedding is used twice, and `Qwen3`."""
    module = pytest.importorskip(f"tunix.models.{name}.model")
    kind, more = TUNIX[name]
    config = module.ModelConfig(
        num_layers=2,
        vocab_size=20,
        embed_dim=8,
        hidden_dim=12,
        num_heads=2,
        head_dim=4,
        num_kv_heads=1,
        **more,
    )
    places = np.broadcast_to(np.arange(9), TOKENS.shape)
    mask = np.tril(np.ones((4, 9, 9), bool))

    def loss(model, tokens):
        logits, _ = model(tokens, places, None, mask)
        return next_token(logits, tokens), logits

    check_nnx(lambda rngs: getattr(module, kind)(config, rngs=rngs), loss, TOKENS)


# ------------------------------------------------------------------------------------------------
# Flax linen
# ------------------------------------------------------------------------------------------------


def check_linen(variables, loss_fn, *batch):
    """`loss_fn(params, others, key, *batch)` returns a loss, and the other variables anew."""
    optimizer = optax.adam(3e-3)

    def trained(value_and_grad):
        @jax.jit
        def step(carry, *batch):
            params, others, opt_state, key = carry
            key, now = jax.random.split(key)
            grad_fn = value_and_grad(loss_fn, has_aux=True)  # <- the line
            (value, others), grads = grad_fn(params, others, now, *batch)
            updates, opt_state = optimizer.update(grads, opt_state)
            return (optax.apply_updates(params, updates), others, opt_state, key), value, grads

        others, params = dict(variables), variables["params"]
        del others["params"]
        start = (params, others, optimizer.init(params), jax.random.key(1))
        run = repeat(step, start, *batch)
        assert not others or not same(run.final[1], others)
        return run

    check_same(trained)


def test_transformers_gpt2():
    """transformers 4.57.6: `FlaxGPT2LMHeadModel`, with dropout."""
    transformers = pytest.importorskip("transformers", "4.40")
    pytest.importorskip("transformers.models.gpt2.modeling_flax_gpt2")
    config = transformers.GPT2Config(
        vocab_size=20, n_positions=16, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1
    )
    model = transformers.FlaxGPT2LMHeadModel(config, input_shape=(1, 9))

    def loss(params, others, key, tokens):
        logits = model(tokens, params=params, dropout_rng=key, train=True).logits
        return next_token(logits, tokens), others

    check_linen({"params": model.params}, loss, TOKENS)


def test_transformers_bert():
    """transformers 4.57.6: `FlaxBertForSequenceClassification`, with dropout."""
    transformers = pytest.importorskip("transformers", "4.40")
    pytest.importorskip("transformers.models.bert.modeling_flax_bert")
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        num_labels=3,
    )
    model = transformers.FlaxBertForSequenceClassification(config, input_shape=(1, 9))

    def loss(params, others, key, tokens, y):
        logits = model(tokens, params=params, dropout_rng=key, train=True).logits
        return cross_entropy(logits, y), others

    check_linen({"params": model.params}, loss, TOKENS, TOKENS[:, 0] % 3)


def test_transformers_resnet():
    """transformers 4.57.6: `FlaxResNetForImageClassification`, with batch statistics."""
    transformers = pytest.importorskip("transformers", "4.40")
    pytest.importorskip("transformers.models.resnet.modeling_flax_resnet")
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=10
    )
    model = transformers.FlaxResNetForImageClassification(config, input_shape=(1, 16, 16, 3))
    x, y = images(4, 3, 16, 16)

    def loss(params, others, key, x, y):
        out, others = model(x, params={"params": params, **others}, train=True)
        return cross_entropy(out.logits, y), others

    check_linen(model.params, loss, x, y)


def test_jax_resnet():
    """jax-resnet 0.0.4: `ResNet` of ResNet-D blocks, narrow, with batch statistics."""
    jax_resnet = pytest.importorskip("jax_resnet")
    model = jax_resnet.ResNet(
        jax_resnet.ResNetDBlock,
        stage_sizes=[1, 1],
        hidden_sizes=[4, 8],
        n_classes=10,
        stem_cls=functools.partial(jax_resnet.ResNetDStem, stem_width=4),
    )
    x, y = images(4, 16, 16, 3)

    def loss(params, others, key, x, y):
        logits, others = model.apply({"params": params, **others}, x, mutable=["batch_stats"])
        return cross_entropy(logits, y), others

    check_linen(jax.jit(model.init)(jax.random.key(0), x), loss, x, y)
