"""Which operations of the table an older JAX does not have yet.

The table is that of the newest JAX. On an older one (`make test-oldest`) what came later is left
out, by version and not by ``hasattr``: what a JAX has lost again must fail, not vanish.
"""

import jax

SINCE: dict[tuple[int, ...], tuple[str, ...]] = {
    (0, 8, 2): (
        "sharding.all_gather_invariant",
        "sharding.all_gather_reduced",
        "sharding.pcast",
        "sharding.pcast_reduced",
        "sharding.psum_of_unreduced",
        "sharding.psum_scatter_of_unreduced",
        "sharding.reshard",
    ),
    (0, 9, 0): ("lax.tile",),
    (0, 9, 1): ("ref.empty", "ref.free"),
    (0, 9, 2): ("scipy.linalg.hankel",),
    (0, 10, 0): ("special.loggamma",),
    (0, 10, 1): (
        "corner.stage",
        "lax.stack",
        "lax.unstack",
        "lax.unstack_some_used",
        "linalg.eig_vectors",
        "scipy.linalg.circulant",
        "scipy.linalg.companion",
        "scipy.linalg.fiedler",
        "scipy.linalg.leslie",
        "special.erfcx",
        "special.owens_t",
    ),
    (0, 10, 2): (
        "branch.mulhi",
        "scipy.linalg.convolution_matrix",
        "scipy.linalg.fiedler_companion",
        "special.boxcox",
        "special.boxcox1p",
        "special.comb",
        "special.dawsn",
        "special.wofz",
    ),
}

_MISSING = {
    name for version, names in SINCE.items() if jax.__version_info__ < version for name in names
}


def is_there(name: str) -> bool:
    """Whether this JAX has the operation of that name."""
    return name not in _MISSING
