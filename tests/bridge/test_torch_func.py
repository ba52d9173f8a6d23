"""JAX functions under torch.func and torch.compile; what functions of torch in JAX do not have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import fphys
from fphys.bridge.torch import as_jax, as_torch
from fphys.errors import BridgeError

pytestmark = pytest.mark.extra("torch")
X = np.random.default_rng(5).standard_normal((2, 3, 4))


def tensor(shape: Any, seed: int = 0, grad: bool = True) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=grad)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(wanted.detach() if hasattr(wanted, "detach") else wanted), rtol=1e-10
    )


def jax_of_both(x: jax.Array, k: jax.Array, power: int) -> Any:
    return {"a": jnp.sin(x) ** power * jnp.sum(k), "b": [x[:, None] * k[None], jnp.argmax(x)]}


def torch_of_both(x: Any, k: Any) -> Any:
    return torch.sin(x) ** 2 * k.sum(), x[:, None] * k[None]


def ours_of_both(x: Any, k: Any) -> Any:
    out = as_torch(jax_of_both)(x, k, power=2)
    assert out["b"][1].dtype == torch.int64
    return out["a"], out["b"][0]


def loss_of(fn: Any) -> Any:
    return lambda x, k: sum((y**3).sum() for y in fn(x, k))


TRANSFORMED = {
    "vmap": lambda fn, x, k: torch.func.vmap(fn, (0, None))(x, k),
    "vmap of another axis": lambda fn, x, k: torch.func.vmap(fn, (1, None), 1)(x, k),
    "vmap of vmap": lambda fn, x, k: torch.func.vmap(torch.func.vmap(fn, (None, 0)), (0, None))(x, k[:, None]),
    "grad": lambda fn, x, k: torch.func.grad(loss_of(fn), (0, 1))(x[0], k),
    "jacrev": lambda fn, x, k: torch.func.jacrev(fn, (0, 1))(x[0], k),
    "grad for each": lambda fn, x, k: torch.func.vmap(torch.func.grad(loss_of(fn), (0, 1)), (0, None))(x, k),
    "grad of vmap": lambda fn, x, k: torch.func.grad(loss_of(torch.func.vmap(fn, (0, None))))(x, k),
    "jacrev of grad": lambda fn, x, k: torch.func.jacrev(torch.func.grad(loss_of(fn)))(x[0], k),
    "vjp": lambda fn, x, k: torch.func.vjp(fn, x[0], k)[1](fn(x[1], k)),
    "jacobian": lambda fn, x, k: torch.autograd.functional.jacobian(fn, (x[0], k)),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_of_torch(name):
    x, k = tensor((4, 3), grad=False), tensor(2, 1, grad=False)
    found, wanted = (TRANSFORMED[name](fn, x, k) for fn in (ours_of_both, torch_of_both))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_simulation_under_vmap_and_grad_of_torch():
    """Two whole batches of worlds: vmap folds them into one."""
    model = fphys.load(fphys.asset("cartpole"))
    state = fphys.init(model, 2)
    places = lambda qpos: fphys.kinematics(model, state.replace(qpos=qpos)).body.pos  # noqa: E731
    qpos = tensor((3, 2, 2), grad=False)
    found = torch.func.vmap(torch.func.grad(lambda q: (as_torch(places)(q) ** 2).sum()))(qpos)
    wanted = jax.jit(jax.grad(lambda q: jnp.sum(places(q) ** 2)))
    for one, q in zip(found, qpos, strict=True):
        close(one, wanted(jnp.asarray(q)))


def dual(fn: Any, x: Any) -> Any:
    with torch.autograd.forward_ad.dual_level():
        return fn(torch.autograd.forward_ad.make_dual(x, x))


REFUSED = {
    "jvp": (lambda fn, x: torch.func.jvp(fn, (x,), (x,)), "forward mode .*jacrev"),
    "jacfwd": (lambda fn, x: torch.func.jacfwd(fn)(x), "forward mode .*jacrev"),
    "hessian": (lambda fn, x: torch.func.hessian(lambda x: fn(x).sum())(x), "forward mode .*jacrev"),
    "dual numbers": (dual, "forward mode .*jacrev"),
    "functionalize": (lambda fn, x: torch.func.functionalize(fn)(x), "functionalize is not supported"),
    "vectorize": (lambda fn, x: torch.autograd.functional.jacobian(fn, x, vectorize=True), r"torch\.func\.jacrev"),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own, in its compiler
@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_may_not_do_is_refused_by_name(name):
    call, message = REFUSED[name]
    with pytest.raises(BridgeError, match=r"as_torch\(sin\): .*" + message):
        call(as_torch(jnp.sin), tensor(3, grad=False))


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own, in its compiler
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # which torch hides, unless warnings are errors
def test_compiled_torch_calls_it():
    """Between two parts; the backend does nothing, for this is about where the graph breaks."""
    fn, x = as_torch(jnp.sin), tensor(3)
    compiled = torch.compile(lambda x: (fn(2 * x) + 1).sum(), backend="eager")
    close(torch.autograd.grad(compiled(x), x)[0], 2 * torch.cos(2 * x))
    with pytest.raises(Exception, match=r"as_torch\(sin\) runs in JAX, not in torch's graph"):
        torch.compile(lambda x: fn(x), backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("transform", [jax.jacfwd, jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))])
def test_forward_mode_through_torch_is_refused_by_name(jitted, looped, transform):
    fn = as_jax(torch.sin)
    loop = (lambda x: jax.lax.scan(lambda c, _: (fn(c), None), x, length=2)[0]) if looped else fn
    total = lambda x: jnp.sum(loop(x))  # noqa: E731
    with pytest.raises(TypeError, match=r"as_jax.* is differentiable once and in reverse mode only: jax\.grad"):
        transform(jax.jit(total) if jitted else total)(X[0])


def test_zeros_of_both_signs_are_programs_of_their_own():
    divide = as_torch(lambda x, by: x / jnp.float64(by))
    assert [divide(torch.ones(1, dtype=torch.float64), by).item() for by in (0.0, -0.0, 0.0)] == [
        np.inf,
        -np.inf,
        np.inf,
    ]


def cut_off(x: Any) -> Any:
    return x.detach() * 2


def test_what_torch_cannot_differentiate_raises_instead_of_giving_zero():
    with pytest.raises(Exception, match=r"as_jax\(cut_off\): its results are cut off from its arguments"):
        jax.grad(lambda x: jnp.sum(as_jax(cut_off)(x)))(X[0])
    partly = as_jax(lambda x: (2 * x, cut_off(x)))
    with pytest.raises(Exception, match="its results are cut off"):
        jax.grad(lambda x: jnp.sum(partly(x)[1]))(X[0])
    close(jax.grad(lambda x: jnp.sum(partly(x)[0]))(X[0]), np.full_like(X[0], 2))
