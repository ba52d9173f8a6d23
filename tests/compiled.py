"""What compares bits, meets ties, or measures time is compiled as users' programs are: see QUICK in ``conftest.py``."""

import functools

import jax

as_users = functools.partial(
    jax.jit,
    compiler_options={
        "xla_cpu_use_fusion_emitters": True,
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
    },
)
"""``jax.jit`` with XLA's usual optimisations and its usual code for fusions, in which the same number may be rounded
differently in two of them."""
