"""How XLA compiles a step of training, on a CPU."""

import functools

import jax

_OPTIONS: dict[str, str | bool] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE",
    "xla_disable_hlo_passes": "cse_barrier_expander",
}


def compiler_options() -> dict[str, str | bool]:
    """What :func:`fphys.train.fit` compiles with, for loops of your own: ``jax.jit(step, compiler_options=...)``.

    On a CPU, XLA leaves products of matrices, sums and convolutions to a library whose convolutions run on one thread.
    With these options Eigen takes the convolutions, on all threads, and ``jax.lax.optimization_barrier`` holds to the
    end: XLA takes it away before it decides what is computed together (docs/decisions, page 12).

    Returns:
        The options; none on other devices, or where XLA does not know them.
    """
    return dict(_OPTIONS) if jax.default_backend() == "cpu" and _known() else {}


@functools.cache
def _known() -> bool:
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=dict(_OPTIONS))
    except jax.errors.JaxRuntimeError:
        return False
    return True
