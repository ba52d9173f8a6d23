"""The cost of crossing between JAX and torch: arrays back and forth, and a JAX function in torch's graph."""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import dlpack
from ..bridge.torch import as_torch
from .case import Case, Workload
from .training_torch import torch_device

_WIDTH = 64  # numbers per world


def bridge_cases() -> list[Case]:
    """Cases with torch, if torch is installed; each handles all worlds in one call."""
    if importlib.util.find_spec("torch") is None:
        return []
    return [
        Case("bridge.torch.shared", lambda worlds: _crossing(worlds, copy=False), 2, "crossings", tags=("bridge",)),
        Case("bridge.torch.copied", lambda worlds: _crossing(worlds, copy=True), 2, "crossings", tags=("bridge",)),
        Case("bridge.torch.own_grad", lambda worlds: _gradient(worlds, _cube), unit="worlds", tags=("bridge",)),
        Case(
            "bridge.torch.as_torch_grad",
            lambda worlds: _gradient(worlds, as_torch(_cube)),
            unit="worlds",
            relative_to="bridge.torch.own_grad",
            tags=("bridge",),
        ),
    ]


def _cube(x: Any) -> Any:
    return x * x * x


def _numbers(worlds: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((worlds, _WIDTH)).astype(jnp.zeros(0).dtype)


def _crossing(worlds: int, copy: bool) -> Workload:
    x = jnp.asarray(_numbers(worlds))

    def validate(y: jax.Array) -> None:
        if not np.array_equal(y, x) or (y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()) is copy:
            raise ValueError("the numbers changed, or sharing and copying are not as asked")

    return Workload(lambda x: dlpack.from_torch(dlpack.to_torch(x, copy=copy), copy=copy), (x,), validate, jit=False)


def _gradient(worlds: int, cube: Callable[[Any], Any]) -> Workload:
    torch = dlpack.import_torch()
    x = torch.tensor(_numbers(worlds), requires_grad=True, device=torch_device())

    def gradient(x: Any) -> Any:
        found = torch.autograd.grad(cube(x).sum(), x)[0]
        if found.is_cuda:
            torch.cuda.synchronize()
        return found

    def validate(g: Any) -> None:
        if not np.allclose(g.cpu().numpy(), 3 * x.detach().cpu().numpy() ** 2, rtol=1e-5):
            raise ValueError("the gradient is not 3 x^2")

    return Workload(gradient, (x,), validate, jit=False)
