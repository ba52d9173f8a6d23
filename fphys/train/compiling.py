"""How XLA compiles a training step on a CPU."""

import functools

import jax

_OPTIONS: dict[str, str | bool] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE",
    "xla_disable_hlo_passes": "cse_barrier_expander",
}


def compiler_options() -> dict[str, str | bool]:
    """The options that :func:`fphys.train.fit` compiles with. Pass them to ``jax.jit`` in your own loop.

    On a CPU, XLA by default gives matrix products, sums and convolutions to a library whose convolutions run on one
    thread. With these options Eigen runs the convolutions on all threads. They also make XLA keep
    ``jax.lax.optimization_barrier`` until it has decided what to fuse (docs/decisions, page 12).

    Returns:
        The options; empty on other devices, and where XLA does not know them.
    """
    return dict(_OPTIONS) if jax.default_backend() == "cpu" and _known() else {}


@functools.cache
def _known() -> bool:
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=dict(_OPTIONS))
    except jax.errors.JaxRuntimeError:
        return False
    return True
