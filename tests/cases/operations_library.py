"""Operations of `jax.nn`, `jax.scipy`, `jax.image` and `jax.random`."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.interpolate
import jax.scipy.ndimage
from jax import nn, random

from .specs import (
    COMPLEX,
    WIDE,
    WIDE_ANY,
    Operation,
    above_one,
    booleans,
    family,
    hermitian,
    increasing,
    integers,
    invertible,
    key,
    normal,
    op,
    positive,
    probability,
    raw_key,
    spd,
    standard_promotion,
    ties,
    triangular,
    unit,
    words,
)

_HEADS = normal(1, 4, 2, 3)
_attention = standard_promotion(nn.dot_product_attention)

NN: tuple[Operation, ...] = (
    *family(nn, "nn", "relu relu6 sigmoid softplus sparse_plus sparse_sigmoid soft_sign silu swish "
            "log_sigmoid leaky_relu hard_sigmoid hard_silu hard_swish hard_tanh elu celu selu gelu "
            "mish squareplus tanh identity softmax log_softmax logsumexp logmeanexp standardize "
            "glu", normal(3, 4)),
    *[op(f"nn.{name}_at_kink", getattr(nn, name), ties(3, 4))
      for name in words("relu relu6 elu leaky_relu hard_tanh softplus squareplus sparse_plus")],
    op("nn.log1mexp", nn.log1mexp, positive(4)),
    op("nn.gelu_exact", lambda x: nn.gelu(x, approximate=False), normal(4)),
    op("nn.elu_alpha", nn.elu, normal(4), positive()),
    op("nn.softmax_axis", lambda x: nn.softmax(x, axis=0), normal(3, 4)),
    op("nn.softmax_where", lambda x, m: nn.softmax(x, where=m.at[:, 0].set(True)), normal(3, 4),
       booleans(3, 4)),
    op("nn.softmax_ties", nn.softmax, ties(3, 4)),
    op("nn.logsumexp_weights", lambda x, b: nn.logsumexp(x, axis=1, b=b), normal(3, 4),
       positive(3, 4)),
    op("nn.logsumexp_sign", lambda x, b: nn.logsumexp(x, b=b, return_sign=True), normal(4),
       normal(4), dtypes=WIDE),
    op("nn.logsumexp_complex", nn.logsumexp, normal(4), dtypes=COMPLEX),
    op("nn.standardize_axis", lambda x: nn.standardize(x, axis=0, epsilon=1e-3), normal(4, 3)),
    op("nn.one_hot", lambda i, x: nn.one_hot(i, 4, dtype=x.dtype) @ x, integers(3, high=4),
       normal(4, 2)),
    op("nn.cross_entropy", lambda x, i: -jnp.take_along_axis(
        nn.log_softmax(x), i[:, None], 1), normal(3, 4), integers(3, high=4)),
    op("nn.attention", _attention, _HEADS, _HEADS, _HEADS, dtypes=WIDE),
    op("nn.attention_causal", partial(_attention, is_causal=True), _HEADS, _HEADS, _HEADS,
       dtypes=WIDE),
    op("nn.attention_bias_mask", lambda q, k, v, b, m: _attention(
        q, k, v, bias=b, mask=m.at[..., 0].set(True)), _HEADS, _HEADS, _HEADS, normal(1, 2, 4, 4),
       booleans(1, 2, 4, 4), dtypes=WIDE),
    op("nn.attention_grouped", _attention, normal(1, 4, 4, 3), _HEADS, _HEADS, dtypes=WIDE),
    op("nn.attention_self", lambda x: _attention(x, x, x, scale=0.5), _HEADS, dtypes=WIDE),
    op("nn.layer_norm", lambda x, g, b: nn.standardize(x) * g + b, normal(3, 4), normal(4),
       normal(4)),
    op("nn.dropout", lambda x, k: jnp.where(random.bernoulli(k, 0.5, x.shape), x / 0.5, 0),
       normal(3, 4), key()),
)  # fmt: skip

SPECIAL: tuple[Operation, ...] = (
    *family(jsp.special, "special", "gammaln digamma gamma loggamma i0 i0e i1 i1e exp1 expi entr "
            "factorial", positive(4), dtypes=WIDE),
    *family(jsp.special, "special", "erf erfc erfcx expit ndtr log_ndtr dawsn softmax log_softmax "
            "logsumexp", normal(4), dtypes=WIDE),
    *family(jsp.special, "special", "erfinv", unit(4), dtypes=WIDE),
    *family(jsp.special, "special", "logit ndtri", probability(4), dtypes=WIDE),
    *family(jsp.special, "special",
       "xlogy xlog1py kl_div rel_entr beta betaln boxcox boxcox1p poch", positive(4), positive(4),
       dtypes=WIDE),
    *family(jsp.special, "special", "fresnel sici", normal(4), dtypes=WIDE),
    *family(jsp.special, "special", "gammainc gammaincc", positive(3), positive(3), dtypes=WIDE),
    *family(jsp.special, "special", "wofz", normal(3), dtypes=COMPLEX),
    op("special.betainc", lambda x: jsp.special.betainc(jnp.full_like(x, 1.5), jnp.full_like(x,
       2.5),
       x), probability(4), dtypes=WIDE),
    op("special.polygamma", lambda x: jsp.special.polygamma(1, x), positive(4), dtypes=WIDE),
    op("special.zeta", lambda q: jsp.special.zeta(jnp.full_like(q, 2.5), q), positive(4),
       dtypes=WIDE),
    op("special.multigammaln", lambda a: jsp.special.multigammaln(a + 2, 3), positive(3),
       dtypes=WIDE),
    op("special.expn", lambda x: jsp.special.expn(jnp.full_like(x, 2), x), positive(3),
       dtypes=WIDE),
    *family(jsp.special, "special", "owens_t", positive(3), positive(3), dtypes=("float64",)),
    op("special.hyp1f1", standard_promotion(jsp.special.hyp1f1), positive(2), positive(2), unit(2),
       dtypes=WIDE),
    op("special.hyp2f1", jsp.special.hyp2f1, positive(2), positive(2), above_one(2),
       probability(2), dtypes=WIDE),
    op("special.bessel_jn", lambda z: jsp.special.bessel_jn(z, v=2, n_iter=20), positive(3),
       dtypes=WIDE),
    op("special.comb", lambda n, k: jsp.special.comb(n + 2, k), positive(3), positive(3),
       dtypes=WIDE),
    op("special.sph_harm_y", standard_promotion(lambda theta, phi: jsp.special.sph_harm_y(
        jnp.array([2, 1]), jnp.array([1, 0]), theta, phi, n_max=2)), positive(2), positive(2),
       dtypes=("float32",)),
    op("special.xlogy_zero", lambda x: jsp.special.xlogy(x, x + 2), ties(5), dtypes=WIDE),
)  # fmt: skip

_LOCATED = (normal(4), normal(4), positive(4))
_STATS = jsp.stats

STATS: tuple[Operation, ...] = (
    *[op(f"stats.{name}.logpdf", getattr(_STATS, name).logpdf, *_LOCATED, dtypes=WIDE)
      for name in words("norm cauchy laplace logistic")],
    *[op(f"stats.{name}.cdf", getattr(_STATS, name).cdf, *_LOCATED, dtypes=WIDE)
      for name in words("norm cauchy laplace logistic gumbel_l gumbel_r")],
    *[op(f"stats.norm.{name}", getattr(_STATS.norm, name), *_LOCATED, dtypes=WIDE)
      for name in words("pdf logcdf sf logsf")],
    *[op(f"stats.{name}.logpdf", getattr(_STATS, name).logpdf, positive(4), positive(4),
         dtypes=WIDE) for name in words("gamma chi2")],
    op("stats.bernoulli.logpmf", lambda p, k: _STATS.bernoulli.logpmf(k.astype(p.dtype), p),
       probability(4), integers(4, high=2), dtypes=WIDE),
    op("stats.geom.logpmf", lambda p, k: _STATS.geom.logpmf(1 + k.astype(p.dtype), p),
       probability(4), integers(4, high=4), dtypes=WIDE),
    op("stats.norm.ppf", _STATS.norm.ppf, probability(4), dtypes=WIDE),
    op("stats.beta.logpdf", _STATS.beta.logpdf, probability(4), positive(4), positive(4),
       dtypes=WIDE),
    op("stats.expon.logpdf", _STATS.expon.logpdf, positive(4), dtypes=WIDE),
    op("stats.pareto.logpdf", _STATS.pareto.logpdf, above_one(4), positive(4), dtypes=WIDE),
    op("stats.t.logpdf", _STATS.t.logpdf, normal(4), above_one(4), dtypes=WIDE),
    op("stats.gennorm.logpdf", _STATS.gennorm.logpdf, normal(4), above_one(4), dtypes=WIDE),
    op("stats.vonmises.logpdf", _STATS.vonmises.logpdf, unit(4), positive(4), dtypes=WIDE),
    op("stats.wrapcauchy.logpdf", _STATS.wrapcauchy.logpdf, positive(4), probability(4),
       dtypes=WIDE),
    op("stats.uniform.logpdf", lambda x, s: _STATS.uniform.logpdf(x, 0.0, s + 1), probability(4),
       positive(4), dtypes=WIDE),
    op("stats.truncnorm.logpdf", lambda x, s: _STATS.truncnorm.logpdf(x, -1.0, 1.0, 0.0, s + 1),
       unit(4), positive(4), dtypes=WIDE),
    op("stats.dirichlet.logpdf", lambda x, a: _STATS.dirichlet.logpdf(x / x.sum(), a), positive(3),
       positive(3), dtypes=WIDE),
    op("stats.multivariate_normal.logpdf", _STATS.multivariate_normal.logpdf, normal(3), normal(3),
       spd(3, 3), dtypes=WIDE),
    op("stats.poisson.logpmf", lambda m, k: _STATS.poisson.logpmf(k.astype(m.dtype), m),
       positive(4),
       integers(4, high=5), dtypes=WIDE),
    op("stats.binom.logpmf", lambda p, k: _STATS.binom.logpmf(k.astype(p.dtype), 5, p),
       probability(4), integers(4, high=5), dtypes=WIDE),
    op("stats.nbinom.logpmf", lambda p, n, k: _STATS.nbinom.logpmf(k.astype(p.dtype), n, p),
       probability(4),
       positive(4), integers(4, high=5), dtypes=WIDE),
    op("stats.betabinom.logpmf", lambda a, b, k: _STATS.betabinom.logpmf(
        k.astype(a.dtype), 5, a, b), positive(4), positive(4), integers(4, high=5), dtypes=WIDE),
    op("stats.multinomial.logpmf", standard_promotion(lambda p, k: _STATS.multinomial.logpmf(
        k, k.sum(), p / p.sum())), positive(4), integers(4, high=3), dtypes=WIDE),
    op("stats.gaussian_kde", lambda x, y: _STATS.gaussian_kde(x).evaluate(y), normal(5), normal(2),
       dtypes=WIDE),
    op("stats.sem", _STATS.sem, normal(5), dtypes=WIDE),
    op("stats.beta.cdf", lambda x: _STATS.beta.cdf(x, 2.0, 3.0), probability(4), dtypes=WIDE),
    op("stats.truncnorm.cdf", lambda x: _STATS.truncnorm.cdf(x, -1.0, 1.0), unit(4), dtypes=WIDE),
    op("stats.rankdata_times_x", lambda x: _STATS.rankdata(x).astype(x.dtype) * x, normal(5),
       dtypes=WIDE),
    op("stats.mode", lambda x: _STATS.mode(x)[0] * x, ties(5), dtypes=WIDE),
)  # fmt: skip

SCIPY: tuple[Operation, ...] = (
    *family(jsp.linalg, "scipy.linalg", "det inv", invertible(3, 3), dtypes=WIDE_ANY),
    *family(jsp.linalg, "scipy.linalg", "expm toeplitz", unit(3, 3), dtypes=WIDE),
    *family(jsp.linalg, "scipy.linalg", "circulant fiedler companion fiedler_companion",
       positive(4),
            dtypes=WIDE),
    *family(jsp.linalg, "scipy.linalg", "block_diag hankel", *[normal(3)] * 2, dtypes=WIDE),
    op("scipy.linalg.leslie", lambda f: jsp.linalg.leslie(f, f[1:]), normal(3), dtypes=WIDE),
    op("scipy.linalg.convolution_matrix", lambda a: jsp.linalg.convolution_matrix(a, 4), normal(3),
       dtypes=WIDE),
    *family(jsp.linalg, "scipy.linalg", "solve", invertible(3, 3), normal(3), dtypes=WIDE_ANY),
    op("scipy.linalg.solve_pos", lambda a, b: jsp.linalg.solve(a, b, assume_a="pos"), spd(3, 3),
       normal(3), dtypes=WIDE),
    op("scipy.linalg.expm_complex", jsp.linalg.expm, unit(3, 3), dtypes=COMPLEX),
    op("scipy.linalg.cho_solve", lambda a, b: jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b),
       spd(3, 3), normal(3), dtypes=WIDE_ANY),
    op("scipy.linalg.lu_solve", lambda a, b: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), b),
       invertible(3, 3), normal(3), dtypes=WIDE_ANY),
    op("scipy.linalg.lu", lambda a: jsp.linalg.lu(a)[1:], invertible(3, 3), dtypes=WIDE),
    *[op(f"scipy.linalg.solve_triangular_{trans}", lambda a, b, trans=trans:
         jsp.linalg.solve_triangular(a, b, trans=trans, lower=True), triangular(3, 3), normal(3),
         dtypes=WIDE_ANY) for trans in (0, 1, 2)],
    op("scipy.linalg.eigh", lambda a: jsp.linalg.eigh(a), hermitian(3, 3), dtypes=WIDE),
    op("scipy.linalg.svd", lambda a: jsp.linalg.svd(a, full_matrices=False), normal(3, 2),
       dtypes=WIDE),
    op("scipy.linalg.qr", lambda a: jsp.linalg.qr(a, mode="economic"), normal(3, 2), dtypes=WIDE),
    op("scipy.linalg.polar", lambda a: jsp.linalg.polar(a, method="svd"), invertible(3, 3),
       dtypes=WIDE),
    op("scipy.linalg.expm_frechet", jsp.linalg.expm_frechet, unit(2, 2), unit(2, 2), dtypes=WIDE),
    *[op(f"scipy.signal.{name}_{mode}", lambda x, y, name=name, mode=mode: getattr(
        jsp.signal, name)(x, y, mode=mode), normal(6), normal(3), dtypes=WIDE_ANY)
      for name in ("convolve", "correlate", "fftconvolve") for mode in ("full", "same", "valid")],
    op("scipy.signal.convolve_fft", lambda x, y: jsp.signal.convolve(x, y, method="fft"), normal(6),
       normal(3), dtypes=WIDE),
    op("scipy.signal.convolve2d", jsp.signal.convolve2d, normal(4, 5), normal(2, 3), dtypes=WIDE),
    op("scipy.signal.correlate2d", jsp.signal.correlate2d, normal(4, 5), normal(2, 3), dtypes=WIDE),
    op("scipy.signal.detrend", jsp.signal.detrend, normal(6), dtypes=WIDE),
    op("scipy.signal.stft", lambda x: jsp.signal.stft(x, nperseg=4)[2], normal(8),
       dtypes=WIDE),
    op("scipy.signal.istft", lambda x: jsp.signal.istft(jsp.signal.stft(x, nperseg=4)[2],
       nperseg=4)[1], normal(8), dtypes=WIDE),
    op("scipy.signal.csd", lambda x, y: jnp.abs(jsp.signal.csd(x, y, nperseg=4)[1]), normal(8),
       normal(8), dtypes=WIDE),
    op("scipy.signal.welch", lambda x: jsp.signal.welch(x, nperseg=4)[1], normal(8), dtypes=WIDE),
    *family(jsp.fft, "scipy.fft", "dct idct dctn idctn", normal(4, 4), dtypes=WIDE),
    op("scipy.ndimage.map_coordinates", lambda x, c: jsp.ndimage.map_coordinates(
        x, [c[0] + 1, c[1] + 1], order=1), normal(4, 4), unit(2, 5), dtypes=WIDE),
    op("scipy.interpolate.regular_grid", lambda v, c: jsp.interpolate.RegularGridInterpolator(
        (jnp.arange(3, dtype=v.dtype), jnp.arange(4, dtype=v.dtype)), v)(c), normal(3, 4),
       probability(5, 2), dtypes=WIDE),
    op("scipy.integrate.trapezoid", jsp.integrate.trapezoid, normal(5), increasing(5), dtypes=WIDE),
    *[op(f"scipy.sparse.{name}", lambda a, b, name=name: getattr(jsp.sparse.linalg, name)(
        lambda x: a @ x, b)[0], spd(3, 3), normal(3), dtypes=WIDE)
      for name in ("cg", "bicgstab", "gmres")],
)  # fmt: skip

IMAGE: tuple[Operation, ...] = (
    *[op(f"image.resize_{method}", lambda x, method=method: jax.image.resize(x, (6, 3), method),
         normal(4, 5)) for method in words("nearest linear cubic lanczos3 lanczos5")],
    op("image.resize_no_antialias", lambda x: jax.image.resize(x, (2, 3), "linear",
       antialias=False),
       normal(4, 5)),
    op("image.scale_and_translate", lambda x, s, t: jax.image.scale_and_translate(
        x, (5, 6), (0, 1), s, t, "linear"), normal(4, 5), positive(2), unit(2), dtypes=WIDE),
)  # fmt: skip


def _sample(name: str, *shape: int) -> Callable[..., jax.Array]:
    """A draw without parameters, scaled: the reparameterised form of location-scale families."""
    return lambda k, m, s: m + s * getattr(random, name)(k, shape, dtype=m.dtype)


RANDOM: tuple[Operation, ...] = (
    *[op(f"random.{name}", _sample(name, 4), key(), normal(4), positive(4))
      for name in words("normal uniform gumbel laplace logistic exponential cauchy")],
    *[op(f"random.{name}", _sample(name, 4), key(), normal(4), positive(4), dtypes=WIDE)
      for name in words("rademacher maxwell")],
    *[op(f"random.{name}", lambda k, a, name=name: getattr(random, name)(k, a, dtype=a.dtype),
         key(), positive(4), dtypes=WIDE)
      for name in words("gamma loggamma dirichlet pareto chisquare lognormal rayleigh wald")],
    op("random.t", lambda k, a: random.t(k, a, a.shape, a.dtype), key(), positive(4), dtypes=WIDE),
    *[op(f"random.{name}", lambda k, a, b, name=name: getattr(random, name)(k, a, b, dtype=a.dtype),
         key(), positive(4), positive(4), dtypes=WIDE)
      for name in words("beta f weibull_min")],
    op("random.normal_raw_key", _sample("normal", 4), raw_key(), normal(4), positive(4)),
    op("random.normal_complex", _sample("normal", 4), key(), normal(4), normal(4), dtypes=COMPLEX),
    op("random.uniform_bounds", lambda k, a, b: random.uniform(k, (4,), a.dtype, a, b), key(),
       unit(4), above_one(4)),
    op("random.truncated_normal", lambda k, a, b: random.truncated_normal(k, a, b, dtype=a.dtype),
       key(), unit(4), above_one(4), dtypes=WIDE),
    op("random.triangular", lambda k, a, b: random.triangular(k, a, a + b, a + 2 * b,
       dtype=a.dtype), key(), normal(4), positive(4), dtypes=WIDE),
    op("random.double_sided_maxwell", lambda k, a, b: random.double_sided_maxwell(
        k, a, b, dtype=a.dtype), key(), normal(4), positive(4), dtypes=WIDE),
    op("random.generalized_normal", lambda k, x: x * random.generalized_normal(
        k, 1.5, (4,), dtype=x.dtype), key(), normal(4), dtypes=WIDE),
    op("random.ball", lambda k, x: random.ball(k, 3, shape=(2,), dtype=x.dtype) * x, key(),
       normal(3), dtypes=WIDE),
    op("random.orthogonal", lambda k, x: random.orthogonal(k, 3, dtype=x.dtype) @ x, key(),
       normal(3), dtypes=WIDE),
    *[op(f"random.multivariate_normal_{method}", lambda k, m, c, method=method:
         random.multivariate_normal(k, m, c, method=method, dtype=m.dtype), key(), normal(3),
         spd(3, 3), dtypes=WIDE) for method in ("cholesky", "eigh", "svd")],
    *[op(f"random.{impl}", lambda k, x, impl=impl: x * random.normal(random.wrap_key_data(
        jnp.tile(k, 2), impl=impl), x.shape, x.dtype), raw_key(), normal(4))
      for impl in ("rbg", "unsafe_rbg")],
    op("random.split_fold_in", lambda k, x: x * random.normal(random.fold_in(random.split(k)[1], 3),
       x.shape, x.dtype), key(), normal(4)),
    op("random.key_data", lambda k, x: x * random.uniform(random.wrap_key_data(
        random.key_data(k) ^ jnp.uint32(1)), x.shape, x.dtype), key(), normal(4)),
    op("random.bits", lambda k, x: x * (random.bits(k, x.shape, "uint32") >> 24).astype(x.dtype)
       / 256, key(), normal(4)),
    op("random.new_key_inside", lambda x: x * random.normal(random.key(3), x.shape, x.dtype),
       normal(4)),
    op("random.choice", lambda k, x: random.choice(k, x, (3,)), key(), normal(5)),
    op("random.permutation", lambda k, x: random.permutation(k, x), key(), normal(5, 2)),
    op("random.categorical_index", lambda k, x: x[random.categorical(k, x)] * x, key(), normal(5)),
    op("random.gumbel_softmax", lambda k, x: nn.softmax(
        (x + random.gumbel(k, x.shape, x.dtype)) / 0.5), key(), normal(5)),
    op("random.randint_index", lambda k, x: x[random.randint(k, (6,), 0, 4)], key(), normal(4)),
    op("random.binomial_of_data", lambda k, x: x * random.binomial(
        k, 10.0, 0.3, x.shape, dtype=x.dtype), key(), normal(4), dtypes=("float32",)),
    op("random.poisson_of_data", lambda k, x: x * random.poisson(k, 3.0, x.shape).astype(x.dtype),
       key(), normal(4), dtypes=WIDE),
)  # fmt: skip

LIBRARY = NN + SPECIAL + STATS + SCIPY + IMAGE + RANDOM
