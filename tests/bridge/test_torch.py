"""JAX inside torch and torch inside JAX: values, gradients and training equal those of JAX alone."""

import functools
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import fphys
from fphys.bridge.dlpack import to_torch
from fphys.bridge.torch import as_jax, as_torch
from fphys.errors import BridgeError, MissingDependencyError, PrecisionError
from fphys.testing import check_grads, check_transforms
from fphys.tree import pytree, static

pytestmark = pytest.mark.extra("torch")

HOPPER = """
<mujoco>
  <option timestep="0.01" cone="elliptic"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 0.095">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="1" friction="0.2"/>
    </body>
  </worldbody>
  <actuator><motor joint="x" gear="20"/><motor joint="z" gear="2"/></actuator>
</mujoco>
"""
WORLDS, STEPS, HIDDEN = 3, 8, 16


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def tensor(shape: Any, seed: int = 0, grad: bool = True) -> torch.Tensor:
    return torch.tensor(rng(seed).standard_normal(shape), requires_grad=grad)


def close(found: Any, wanted: Any, rtol: float = 1e-6) -> None:
    found, wanted = (x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x) for x in (found, wanted))
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * np.max(np.abs(wanted), initial=1e-300))


# A policy through a simulation with contact


@functools.cache
def hopper() -> tuple[fphys.Model, fphys.State]:
    with jax.ensure_compile_time_eval():  # the first call may be within a trace, whose arrays must not be kept
        model = fphys.load(HOPPER, dtype=np.float64)
        return model, fphys.init(model, WORLDS, qvel=jnp.asarray(rng().uniform(-0.2, 0.2, (WORLDS, 2))))


def simulated(ctrls: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positions along a rollout, and the work of contact forces: (T, worlds, 2) to (T, worlds, 2)."""
    model, state = hopper()
    states = fphys.rollout(model, state, ctrls)
    return states.qpos, states.qvel


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 2 * STEPS)]
    return torch.nn.Sequential(*layers).double()


def jax_network(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["0.weight"].T + params["0.bias"][None]) @ params["2.weight"].T + params["2.bias"][None]


def observed() -> np.ndarray:
    state = hopper()[1]
    return np.concatenate([state.qpos, state.qvel], axis=1)


def cost(qpos: Any, qvel: Any) -> Any:
    return ((qvel[..., 0] - 0.5) ** 2).sum() + (qpos**2).sum()


@jax.jit
@jax.value_and_grad
def all_jax(params: dict[str, jax.Array]) -> jax.Array:
    plan = jax_network(params, jnp.asarray(observed()))
    return cost(*simulated(plan.reshape(WORLDS, STEPS, 2).swapaxes(0, 1)))


def test_torch_trains_a_policy_through_contact():
    net, simulate = network(), as_torch(simulated)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    start = torch.tensor(observed())
    losses = []
    for i in range(10):
        plan = net(start).reshape(WORLDS, STEPS, 2).transpose(0, 1)
        qpos, qvel = simulate(plan)
        assert qpos[-1, :, 1].min().item() > -0.01  # the floor holds; free fall would reach -0.03
        loss = cost(qpos, qvel)
        optimizer.zero_grad()
        loss.backward()
        if i in (0, 9):
            value, grads = all_jax({name: jnp.asarray(p.detach().numpy()) for name, p in net.named_parameters()})
            close(loss, value, 1e-12)
            for name, p in net.named_parameters():
                assert p.grad is not None and float(torch.max(torch.abs(p.grad))) > 1e-6
                close(p.grad, grads[name])
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]


def test_a_policy_of_torch_in_the_loop():
    """Whole states cross at every step. Gravity, a leaf of the model, has its gradient too."""
    model, state = hopper()
    net = torch.nn.Linear(4, 2).double()
    gravity = torch.tensor(np.asarray(model.opt.gravity), requires_grad=True)
    step = as_torch(lambda g, state, ctrl: fphys.step(model.replace({"opt.gravity": g}), state, ctrl))
    moved: Any = jax.tree.map(to_torch, state)
    for _ in range(3):
        moved = step(gravity, moved, net(torch.cat([moved.qpos, moved.qvel], dim=1)))
    assert isinstance(moved, fphys.State)
    cost(moved.qpos, moved.qvel).backward()

    def in_jax(gravity: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
        own = model.replace({"opt.gravity": gravity})

        def one(state: fphys.State, _: None) -> tuple[fphys.State, None]:
            ctrl = jnp.concatenate([state.qpos, state.qvel], axis=1) @ weight.T + bias[None]
            return fphys.step(own, state, ctrl), None

        moved, _ = jax.lax.scan(one, state, length=3)
        return cost(moved.qpos, moved.qvel)

    leaves = [gravity, net.weight, net.bias]
    grads = jax.jit(jax.grad(in_jax, argnums=(0, 1, 2)))(*(jnp.asarray(x.detach().numpy()) for x in leaves))
    for found, wanted in zip(leaves, grads, strict=True):
        assert float(np.max(np.abs(wanted))) > 1e-6
        close(found.grad, wanted)


def test_jax_trains_a_module_of_torch_through_contact():
    net = as_jax(network())

    @jax.jit
    @jax.value_and_grad
    def loss(params: dict[str, jax.Array]) -> jax.Array:
        plan = net(jnp.asarray(observed()), params=params)
        return cost(*simulated(plan.reshape(WORLDS, STEPS, 2).swapaxes(0, 1)))

    params, losses = net.params, []
    for _ in range(5):
        (value, grads), (wanted, wanted_grads) = loss(params), all_jax(params)
        close(value, wanted, 1e-12)
        jax.tree.map(close, grads, wanted_grads)
        params = jax.tree.map(lambda p, g: p - 0.02 * g, params, grads)
        losses.append(float(value))
    assert losses[-1] < losses[0]


# as_torch


@pytree
class Pair:
    x: Any
    names: str = static(default="pair")
    n: Any = None


def test_trees_in_and_out():
    @as_torch
    def fn(pair: Pair, table: dict[str, Any], *, power: int, shift: Any = None) -> Any:
        return {"sum": pair.x + table["y"], "both": (pair.x**power, Pair(table["y"] * 2, n=pair.n))}

    x, y, n = tensor(4), tensor(4, 1), torch.arange(4)
    out = fn(Pair(x, n=n), {"y": y, "label": "static"}, power=3)
    close(out["sum"], x + y)
    close(out["both"][0], x**3)
    assert isinstance(out["both"][1], Pair) and out["both"][1].names == "pair"
    assert torch.equal(out["both"][1].n, n) and not out["both"][1].n.requires_grad
    (out["sum"].sum() + out["both"][0].sum()).backward()
    close(x.grad, 1 + 3 * x**2)
    close(y.grad, torch.ones_like(y))


def test_gradients_are_torchs_own():
    """Real and complex, a scalar, a broadcast input, a result that is used twice and one that is not used."""
    ours = as_torch(lambda a, b, c: (jnp.sin(a) * b[None], jnp.conj(c) * c * (1 + 2j), jnp.exp(b)))
    inputs = [tensor((3, 4)), tensor(4, 1), torch.complex(tensor(5, 2, False), tensor(5, 3, False)).requires_grad_()]
    theirs = (torch.sin(inputs[0]) * inputs[1], torch.conj(inputs[2]) * inputs[2] * (1 + 2j))
    weights = tensor((3, 4), 4, False)

    def loss(y: Any, z: Any) -> torch.Tensor:
        return (weights * y + y**2).sum() + (z * (2 - 3j)).sum().real

    found = torch.autograd.grad(loss(*ours(*inputs)[:2]), inputs)
    for g, wanted in zip(found, torch.autograd.grad(loss(*theirs), inputs), strict=True):
        close(g, wanted, 1e-12)


def test_gradcheck_of_torch():
    assert torch.autograd.gradcheck(as_torch(lambda x, y: (jnp.sin(x) * y, x / (1 + y**2))), (tensor(3), tensor(3, 1)))


def test_the_graph_may_be_used_twice_and_inputs_written_to():
    """A product saves its factors themselves, not copies."""
    x, y = tensor(4), tensor(4, 1)
    before = x.detach().clone(), y.detach().clone()
    z = as_torch(lambda x, y: x * y)(x, y)
    with torch.no_grad():
        for changed in (x, y, z):
            changed.mul_(7)
    for _ in range(2):
        found = torch.autograd.grad(z.sum(), (x, y), retain_graph=True)
        close(found[0], before[1])
        close(found[1], before[0])


def test_a_result_is_no_part_of_the_input():
    x = tensor(4, grad=False)
    before = x.clone()
    as_torch(lambda x: x)(x).zero_()
    assert torch.equal(x, before)


def counted(traces: list[Any]) -> Any:
    def fn(x: jax.Array, y: jax.Array, power: int = 2) -> jax.Array:
        traces.append(x.shape)
        return x**power * y

    return as_torch(fn)


def test_compiled_once_for_each_kind_of_call():
    traces: list[Any] = []
    fn = counted(traces)
    for _ in range(3):
        for size in (2, 3):
            fn(tensor(size), tensor(size, 1)).sum().backward()
    assert len(traces) == 2
    fn(tensor(3), tensor(3), power=3)
    assert len(traces) == 3


def test_only_requested_gradients_are_computed(monkeypatch):
    pulled: list[int] = []
    monkeypatch.setattr(
        "fphys.bridge.torch._pull",
        lambda pullback, cs, pull=fphys.bridge.torch._pull: pulled.append(len(out := pull(pullback, cs))) or out,
    )
    x, y = tensor(3), tensor(3, 1, grad=False)
    as_torch(lambda x, y: x * y)(x, y).sum().backward()
    close(x.grad, y)
    assert y.grad is None and pulled == [1]


def test_without_a_gradient_nothing_is_saved(monkeypatch):
    monkeypatch.setattr("fphys.bridge.torch._node", lambda: pytest.fail("a node was made"))
    fn, x = as_torch(lambda x: x + 1), tensor(3)
    with torch.no_grad():
        assert not fn(x).requires_grad
    assert not fn(x.detach()).requires_grad


def test_a_gradient_has_no_gradient():
    """A penalty on the gradient would otherwise silently be missing from the loss's gradient."""
    x = tensor(3)
    with pytest.raises(BridgeError, match=r"as_torch\(fn\): create_graph=True asks for the gradient of a gradient"):
        torch.autograd.grad(counted([])(x, x).sum(), x, create_graph=True)


def test_strided_and_expanded_tensors():
    x = tensor((4, 6))
    y = as_torch(lambda a, b: a @ b)(x.T[::2], x[:, :1].expand(4, 3))
    wanted = x.T[::2] @ x[:, :1].expand(4, 3)
    close(y, wanted)
    weights = tensor((3, 3), 1, False)
    found, other = (torch.autograd.grad((z * weights).sum(), x)[0] for z in (y, wanted))
    close(found, other)


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        (({"x": [torch.nn]},), TypeError, None),
        (({"x": {1, 2}},), TypeError, r"as_torch\(fn\): args\[0\]\['x'\] is set, neither an array nor hashable"),
        ((torch.empty(2, dtype=torch.bits16),), PrecisionError, r"as_torch\(fn\): args\[0\] is bits16, wanted"),
    ],
)
def test_arguments_are_named(args, error, text):
    def fn(x: Any) -> Any:
        return jnp.sin(x["x"][0] if isinstance(x, dict) else x)

    with pytest.raises(error, match=text):
        as_torch(fn)(*args)


def test_float64_without_x64(x32):
    with pytest.raises(PrecisionError, match=r"as_torch\(.*\): args\[0\]\['x'\] is float64, and JAX without x64"):
        as_torch(lambda d: d["x"])({"x": tensor(3)})


# as_jax


def norms(x: Any, y: Any) -> dict[str, Any]:
    return {"a": torch.tanh(x) @ y, "b": (x**2).sum(-1)}


def jax_norms(x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    return {"a": jnp.tanh(x) @ y, "b": jnp.sum(x**2, -1)}


X, Y = rng(5).standard_normal((2, 3, 4)), rng(6).standard_normal((2, 4, 5))


def test_a_function_of_torch_is_differentiated():
    fn = as_jax(norms)
    assert fn.params == {}
    assert check_grads(fn, (X[0], Y[0]), tol=1e-8) < 1e-8
    for found, wanted in zip(*(jax.tree.leaves(f(X[0], Y[0])) for f in (fn, jax_norms)), strict=True):
        close(found, wanted, 1e-14)


@pytest.mark.slow
def test_transforms_of_a_function_of_torch():
    check_transforms(as_jax(lambda x, y: torch.sin(x) * y), (X[:, 0], Y[:, 0, :4]))


def test_under_jit_grad_vmap_and_scan():
    def total(fn: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        out = fn(x, y)
        return jnp.sum(out["a"] ** 2) + jnp.sum(jnp.sin(out["b"]))

    grads = [
        jax.jit(jax.vmap(jax.grad(functools.partial(total, fn), argnums=(0, 1))))(X, Y)
        for fn in (as_jax(norms), jax_norms)
    ]
    jax.tree.map(lambda a, b: close(a, b, 1e-12), *grads)

    def scanned(fn: Any) -> jax.Array:
        return jax.jit(jax.grad(lambda x: jnp.sum(jax.lax.scan(lambda c, _: (fn(c), None), x, None, length=4)[0])))(
            X[0]
        )

    close(scanned(as_jax(torch.sin)), scanned(jnp.sin), 1e-12)


def test_other_dtypes_cross():
    """Integers have no gradient; bfloat16, which NumPy lacks, complex numbers and booleans."""
    index = jnp.array([2, 0])
    take = as_jax(lambda x, i: (x[i], i + 1))
    close(jax.grad(lambda x: jnp.sum(take(x, index)[0] ** 2))(X[0]), jax.grad(lambda x: jnp.sum(x[index] ** 2))(X[0]))
    assert take(X[0], index)[1].dtype == index.dtype
    half = jnp.asarray(X[0], "bfloat16")
    assert as_jax(lambda x: x * 2)(half).dtype == jnp.bfloat16
    np.testing.assert_array_equal(as_jax(lambda x: x * 2)(half), half * 2)
    z = jnp.asarray(X[0] + 1j * X[1])
    close(
        *(jax.grad(lambda z, f=f: jnp.real(jnp.sum((1 + 2j) * f(z))))(z) for f in (as_jax(torch.exp), jnp.exp)), 1e-12
    )
    np.testing.assert_array_equal(as_jax(lambda x: x > 0)(X[0]), X[0] > 0)


def test_static_arguments_and_given_shapes():
    calls: list[Any] = []

    def fn(x: Any, kind: str) -> Any:
        calls.append(kind)
        return getattr(torch, kind)(x)

    told = as_jax(fn, outputs=lambda x, kind: x)
    jitted = jax.jit(lambda x: told(x, "sin"))
    close(jitted(X[0]), np.sin(X[0]))
    assert calls == ["sin"]  # the function is not called to find its result's shape
    close(as_jax(fn)(X[0], "cos"), np.cos(X[0]))
    assert calls == ["sin", "cos", "cos"]


def test_a_module_keeps_its_parameters_and_buffers():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).double()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fn = as_jax(net)
    close(fn(X[0]), net(torch.tensor(X[0])))
    net.load_state_dict(before)
    jax.grad(lambda p: jnp.sum(fn(X[0], params=p) ** 2))(fn.params)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    with pytest.raises(BridgeError, match=r"params has not the module's parameters: 0.weight differ"):
        fn(X[0], params={name: p for name, p in fn.params.items() if name != "0.weight"})
    frozen = as_jax(torch.nn.Sequential(net[0].requires_grad_(False), net[1]))
    grads, kept = jax.grad(lambda p: jnp.sum(frozen(X[0], params=p) ** 3))(frozen.params), frozen(X[0])
    assert (grads["0.weight"] == 0).all() and (grads["1.bias"] != 0).all()
    net[1].bias.data += 1.0  # torch's own changes after wrapping have no effect
    assert (frozen(X[0]) == kept).all()


def test_random_numbers_are_refused():
    net = torch.nn.Dropout(0.5)
    with pytest.raises(BridgeError, match=r"as_jax\(Dropout\): draws random numbers.*eval"):
        as_jax(net)(X[0])
    close(as_jax(net.eval())(X[0]), X[0])


def test_failures_are_reported():
    with pytest.raises(BridgeError, match=r"as_jax\(\w*cholesky\): raised .* to learn the shapes.*outputs="):
        as_jax(torch.linalg.cholesky)(X[0])
    with pytest.raises(TypeError, match=r"result 0 is float, wanted is torch.Tensor"):
        as_jax(lambda x: 3.0)(X[0])
    with pytest.raises(Exception, match=r"result 0 is float64\[3\], expected was float64\[3,4\]|expected was float64"):
        as_jax(lambda x: x.sum(1), outputs=lambda x: x)(X[0])


def test_results_of_64_bits_without_x64(x32):
    with pytest.raises(PrecisionError, match=r"result 0 is float64, and JAX without x64 would make it float32"):
        as_jax(lambda x: x.double())(X[0].astype("float32"))
    with pytest.raises(PrecisionError, match=r"as_jax\(Linear\): weight is float64"):
        as_jax(torch.nn.Linear(2, 2).double())


def test_jax_inside_the_callback_is_refused():
    """It would deadlock."""
    inner = as_torch(jnp.sin)
    with pytest.raises(BridgeError, match="deadlocks: use the JAX function directly"):
        as_jax(lambda x: inner(x))(X[0])


def test_a_missing_torch_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for wrap in (as_torch, as_jax):
        with pytest.raises(MissingDependencyError, match=r'install -e "\.\[torch\]"'):
            wrap(jnp.sin)


THREADS = """
import threading
import jax, jax.numpy as jnp, numpy as np, torch
from fphys.bridge.torch import as_jax, as_torch

net = as_jax(torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Tanh()))
x = jnp.asarray(np.random.default_rng(0).standard_normal((400, 300)), jnp.float32)

@jax.jit
def loss(params, x):
    y, _ = jax.lax.scan(lambda y, _: (net(y @ y.T @ y / 1e4, params=params), None), x, None, length=3)
    return jnp.sum(y**2)

backward = jax.jit(jax.grad(loss))
wanted = np.asarray(backward(net.params, x)["0.weight"])
into = as_torch(lambda x: backward(net.params, x)["0.weight"])
wrong = []

def work():
    for _ in range(3):
        if not np.allclose(backward(net.params, x)["0.weight"], wanted, rtol=1e-4, atol=1e-3):
            wrong.append(1)
        if not np.allclose(into(torch.tensor(np.asarray(x))).numpy(), wanted, rtol=1e-4, atol=1e-3):
            wrong.append(2)

threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("done", wrong)
"""


@pytest.mark.parametrize("cores", ["1", pytest.param("32", marks=pytest.mark.slow)])
def test_no_deadlock_from_threads(cores):
    """In particular with only one thread for all of XLA's work."""
    child = subprocess.run(
        [sys.executable, "-c", THREADS],
        env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"NPROC": cores},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.stdout.strip() == "done []", child.stderr


@pytest.mark.parametrize("wrap", ["as_jax", "as_torch"])
def test_other_objects_are_refused_at_once(wrap):
    with pytest.raises(TypeError, match=f"{wrap} wraps a function, got 3"):
        getattr(fphys.bridge.torch, wrap)(3)
