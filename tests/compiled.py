"""What compares bits, or meets ties, is compiled as users' programs are: see QUICK in ``conftest.py``."""

import functools

import jax

as_users = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": True})
"""``jax.jit`` with XLA's usual code for fusions. Others round the same number differently in two of them."""
