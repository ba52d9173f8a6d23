"""Worlds on two devices: every solver takes the same steps, has the same gradient, and sends nothing but its sum."""

import dataclasses
import functools
import re
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import fphys
from fphys import distributed, envs, optim, train
from fphys.deformables import mesh, pbd
from fphys.distributed.messages import Message, messages
from fphys.rl import ppo, shac
from fphys.scene import MJCF, PBD, ActionSpec, Cloth, ObservationSpec, Rigid, Sphere
from fphys.scene.native import World

from ..compiled import as_users
from .solvers import GRAVITY, WORLDS, of_fem, of_mpm, of_pbd, of_rigid, of_sph, same, shaken

MESH = distributed.mesh()


def collectives(compiled: Any) -> dict[str, int]:
    """How often each kind of message stands in a compiled program."""
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
    return dict(Counter(re.findall(rf" ({kinds})(?:-start)?\(", compiled.as_text())))


@pytest.mark.parametrize(
    ("make", "dtype", "tolerance"),
    [
        (of_rigid, jnp.float64, 1e-12),
        (of_mpm, jnp.float64, 1e-12),
        (of_mpm, jnp.float32, 1e-6),
        (of_sph, jnp.float64, 1e-12),
        (of_fem, jnp.float64, 1e-12),
        (of_pbd, jnp.float64, 1e-12),
    ],
)
def test_a_step_and_its_gradient_are_those_of_one_device(make: Any, dtype: Any, tolerance: float):
    step, state = make(dtype)
    floats = lambda s: [x for x in jax.tree.leaves(s) if jnp.issubdtype(x.dtype, jnp.floating)]  # noqa: E731

    def cost(gravity: Any, state: Any) -> Any:
        after = step(gravity, state)
        return sum((x**2).sum() for x in floats(after)), after

    run = jax.value_and_grad(cost, argnums=(0, 1), has_aux=True, allow_int=True)
    value = lambda g, s: (lambda out: (out[0][1], out[1][0], floats(out[1][1])))(run(g, s))  # noqa: E731
    gravity = jnp.asarray(GRAVITY, dtype)
    expected = jax.jit(value)(gravity, state)
    assert jnp.abs(expected[1]).max() > 0
    args = gravity, distributed.split(state, MESH)

    by_compiler = jax.jit(value).lower(*args).compile()
    found = by_compiler(*args)
    same(found, expected, tolerance)
    assert len(found[0].status.sharding.device_set) == 2
    assert set(collectives(by_compiler)) == {"all-reduce"}
    alone = jax.jit(step).lower(*args).compile()
    if make in (of_fem, of_pbd):  # bits: whether all worlds stand still, for parameters that they share
        sent = re.findall(r"= (.*?) all-reduce\(", alone.as_text())
        assert set(re.findall(r"\w+\[\d*\]", " ".join(sent))) == {"pred[]"}
        assert collectives(alone) == {"all-reduce": 1}
    else:
        assert collectives(alone) == {}

    outs = (P("world"), P(), P("world"))
    by_hand = jax.shard_map(value, mesh=MESH, in_specs=(P(), P("world")), out_specs=outs, check_vma=True)
    by_hand = jax.jit(by_hand).lower(*args).compile()
    same(by_hand(*args), expected, tolerance)
    assert set(collectives(by_hand)) == {"all-reduce"}


def test_an_environment_asks_no_other_device_and_draws_the_same_numbers():
    env = envs.make("InvertedPendulum-v5", WORLDS, max_episode_steps=2)

    def run(over: Any) -> Any:
        state, _ = jax.jit(env.reset)(jax.random.key(0))
        state = distributed.split(state) if over else state
        step = jax.jit(env.step)
        messages = collectives(step.lower(state, action).compile())
        for _ in range(3):  # a new episode begins
            out = step(state, action)
            state = out[0]
        return out, messages

    action = jnp.full((WORLDS, 1), 0.5)
    (one, _) = run(None)
    with jax.set_mesh(MESH):
        action = distributed.split(action)
        two, messages = run(MESH)
    assert messages == {} and len(two[1].sharding.device_set) == 2
    assert jnp.all(two[0].episode == 1)
    for a, b in zip(jax.tree.leaves(one[1:5]), jax.tree.leaves(two[1:5]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_fit_spreads_its_batches():
    def loss(params: Any, aux: Any, batch: Any, key: Any) -> Any:
        return ((jnp.tanh(batch @ params["w"]) - 1) ** 2).mean(), aux, {}

    params, batch = {"w": jnp.linspace(-1.0, 1.0, 3)}, np.sin(np.arange(24.0)).reshape(8, 3)
    run = lambda: train.fit(loss, params, optim.Adam(0.1), [batch] * 5)  # noqa: E731
    one = run()
    with jax.set_mesh(MESH):
        two = run()
        with pytest.raises(ValueError, match=r"shape \(7, 3\): its first axis does not divide evenly among 2"):
            train.fit(loss, params, optim.Adam(0.1), [batch[:7]])
    assert len(two.params["w"].sharding.device_set) == 2
    same(one.params, two.params, 1e-12)


def test_a_mean_by_each_device_of_its_own_examples():
    """Loss, metrics and gradient are those of one device, in one message of one array, whatever scales the loss."""

    def loss(params: Any, aux: Any, batch: Any, key: Any) -> Any:
        error = (jnp.tanh(batch[0] @ params["w"]) @ params["v"] - batch[1]) ** 2
        return error.mean(), aux, {"most": jnp.abs(error).mean(), "size": jnp.square(batch[1]).mean()}

    params = {"w": jnp.linspace(-1.0, 1.0, 6).reshape(3, 2), "v": jnp.array([1.0, -2.0])}
    batch = jnp.sin(jnp.arange(24.0)).reshape(8, 3), jnp.cos(jnp.arange(8.0))
    start = train.init(params, optim.SGD(0.1), aux={"count": jnp.int32(3)})
    for parts in (1, 2):
        run = lambda fn, parts=parts: jax.jit(functools.partial(train.step, fn, optim.SGD(0.1), accumulate=parts))  # noqa: E731
        one = run(loss)(start, batch)
        with jax.set_mesh(MESH):
            rows, learner = distributed.split(batch), distributed.everywhere(start)
            two = run(distributed.averaged(loss)).lower(learner, rows).compile()
            ours, theirs = two(learner, rows), one
            same((ours[0].params, ours[1]), (theirs[0].params, theirs[1]), 1e-12)
        if parts == 1:  # six and two weights, the loss and two metrics
            assert messages(two) == {Message("all-reduce", 8 * (8 + 3)): 1}
    assert distributed.averaged(loss) is loss  # without a mesh

    def square(params: Any, batch: Any) -> Any:
        return distributed.averaged(loss)(params, {}, distributed.split(batch), jax.random.key(0))[0] ** 2

    expected = jax.jit(jax.grad(square))(params, batch)
    with jax.set_mesh(MESH):
        same(jax.jit(jax.grad(square))(params, distributed.split(batch)), expected, 1e-12)


def test_each_device_draws_its_own():
    """The mean of two devices' numbers; a loss without a key needs none."""

    def loss(params: Any, aux: Any, batch: Any, key: Any) -> Any:
        noise = jnp.zeros(()) if key is None else jax.random.normal(key)
        return (batch @ params).mean() + noise, aux, {"noise": noise}

    params, batch, key = jnp.ones(3), jnp.ones((8, 3)), jax.random.key(0)
    with jax.set_mesh(MESH):
        value, _, metrics = distributed.averaged(loss)(params, {}, batch, key)
        quiet = distributed.averaged(loss)(params, {}, batch, None)[0]
    drawn = np.mean([jax.random.normal(jax.random.fold_in(key, i)) for i in range(2)])
    np.testing.assert_allclose([metrics["noise"], value - quiet], drawn, rtol=1e-12)


def test_what_each_device_would_do_in_its_own_way_is_refused():
    def loss(params: Any, aux: Any, batch: Any, key: Any) -> Any:
        return (batch @ params).mean(), {"count": aux["count"] + 1}, {}

    params, aux, key = jnp.ones(3), {"count": jnp.int32(0)}, jax.random.key(0)
    with jax.set_mesh(MESH):
        with pytest.raises(ValueError, match="the loss changes aux"):
            distributed.averaged(loss)(params, aux, jnp.ones((8, 3)), key)
        with pytest.raises(ValueError, match=r"shape \(7, 3\): its first axis does not divide evenly among 2"):
            distributed.averaged(loss)(params, aux, jnp.ones((7, 3)), key)
        correct = lambda params, aux, batch, key: ((batch @ params).mean(), aux, {"correct": (batch > 0).sum()})  # noqa: E731
        with pytest.raises(ValueError, match=r"the metric correct is of int.*, must be a float, and a mean"):
            distributed.averaged(correct)(params, {}, jnp.ones((8, 3)), key)
        with pytest.raises(ValueError, match="parameters are in float16: take bfloat16"):
            distributed.averaged(loss)(params.astype(jnp.float16), aux, jnp.ones((8, 3)), key)


def test_what_all_devices_saw_is_gathered_in_one_message():
    tree = {"x": jnp.arange(24.0).reshape(3, 4, 2), "y": -jnp.arange(12.0).reshape(3, 4)}

    def draw(tree: Any) -> Any:
        rows, unpack = distributed.gathered(tree)
        return unpack(rows[jnp.array([5, 0, 11])])

    with jax.set_mesh(MESH):
        given = jax.device_put(tree, jax.NamedSharding(MESH, P(None, "world")))
        compiled = jax.jit(draw).lower(given).compile()
        assert messages(compiled) == {Message("all-gather", 8 * 36): 1}
        found = compiled(given)
    np.testing.assert_array_equal(found["x"], tree["x"].reshape(12, 2)[np.array([5, 0, 11])])
    np.testing.assert_array_equal(found["y"], [-5, 0, -11])
    with pytest.raises(ValueError, match=r"begin with \[\(3, 2\), \(3, 4\)\], must all have the same times and worlds"):
        distributed.gathered(tree | {"y": jnp.ones((3, 2))})


def test_a_total_is_of_numbers():
    sum_of = lambda tree: jax.jit(jax.shard_map(distributed.total, mesh=MESH, in_specs=P("world"), out_specs=P()))(tree)  # noqa: E731
    pair = jax.jit(jax.shard_map(lambda x: distributed.total((x, 1.5)), mesh=MESH, in_specs=P("world"), out_specs=P()))
    same(pair(jnp.arange(4.0)), (jnp.array([2.0, 4.0]), 3.0), 0)
    with pytest.raises(ValueError, match="total: random keys have no sum"):
        sum_of(jax.random.split(jax.random.key(0), 4))


def weighed(gain: Any, state: Any, weight: Any) -> Any:
    """A loss of states (world, n): a sum over worlds."""
    return gain * (jnp.atleast_2d(weight) * state["x"]).sum(), state["x"]


def test_the_gradient_of_arrays_that_are_not_all_of_one_number_of_worlds_is_refused():
    x, gain = jnp.arange(8.0).reshape(4, 2), jnp.ones(())
    state, weight = {"x": x, "y": x, "key": jax.random.split(jax.random.key(0), 4)}, jnp.array([1.0, 10.0])
    expected = jax.value_and_grad(weighed, has_aux=True)(gain, state, weight)
    with jax.set_mesh(MESH):
        (value, slope), aux = distributed.gradient(weighed, gain, distributed.split(state), weight[None])  # no jit
        same((value, slope, aux), (expected[0][0], expected[1], expected[0][1]), 1e-12)
        with pytest.raises(
            ValueError, match=r"args\[1\] has shape \(2,\) beside arrays of 4 worlds.*leading axis of 1"
        ):
            distributed.gradient(weighed, gain, state, weight)
        with pytest.raises(ValueError, match=r"\['w'\] has shape \(2,\) beside arrays of 4 worlds"):
            distributed.split({"w": weight, **state})
        with pytest.raises(ValueError, match="one does not divide evenly among 2 devices; take a multiple of 2"):
            distributed.gradient(weighed, gain, jax.tree.map(lambda x: x[:1], state), weight[None])
        with pytest.raises(ValueError, match=r"args\[0\]\['key'\] has shape \(3,\): its first axis does not divide"):
            distributed.gradient(weighed, gain, jax.tree.map(lambda x: x[:3], state), weight[None])


def test_the_keyframes_of_a_model_go_to_every_device():
    model = fphys.load(fphys.asset("cartpole"))
    model = model.replace({"body.mass": model.body.mass * jnp.arange(1.0, 1 + WORLDS)[:, None]})
    assert len(model.key.qpos) not in (1, WORLDS)
    placed = distributed.split(model, MESH)
    assert placed.key.qpos.is_fully_replicated and placed.body.mass.sharding.spec == P("world")


def test_the_vertices_that_all_worlds_share_go_to_every_device():
    """As many vertices as worlds, or any other number; those of each world are spread."""
    for vertices in (WORLDS, 5):
        rope = mesh.rope(vertices - 1, 0.1)
        assert len(rope.vertices) == vertices
        damping, gravity = jnp.linspace(0.1, 1.0, WORLDS), jnp.array([0.1, -9.81, 0.0])
        params = pbd.Params(rope, 0.2, 1e-3, 1e-3, damping=damping, pinned=(0,), substeps=2)
        state = pbd.init(params, shaken(rope.vertices, jnp.float64))

        def cost(gravity: Any, params: Any, state: Any) -> Any:
            after = pbd.step(params.replace(gravity=gravity), state)
            return (after.v**2).sum(), after.x

        (value, x), slope = jax.jit(jax.value_and_grad(cost, has_aux=True))(gravity, params, state)
        with jax.set_mesh(MESH):
            placed = distributed.split((params, state))
            found = jax.jit(functools.partial(distributed.gradient, cost))(gravity, *placed)
        same(found, ((value, slope), x), 1e-12)
        assert placed[0].mesh.vertices.is_fully_replicated and placed[0].damping.sharding.spec == P("world")
    apart = rope.replace(vertices=jnp.tile(jnp.asarray(rope.vertices), (WORLDS, 1, 1)))
    assert distributed.split(apart, MESH).vertices.sharding.spec == P("world")


def swinging(mass: Any) -> World:
    """A scene of two worlds with two controls, whose gains could be taken for worlds."""
    arm = "<body pos='{} 0 1'><joint name='j' axis='0 1 0'/><geom size='.1' pos='.2 0 0' contype='0'/></body>"
    scene = fphys.Scene(timestep=0.01)
    for i in range(2):
        scene.add(MJCF(f"<mujoco><worldbody>{arm.format(i)}</worldbody></mujoco>"), name=f"arm{i}")
    scene.add(Sphere(0.1, pos=(0, 3, 1)), Rigid(mass=mass), name="ball")
    return scene.build(2, action=ActionSpec("position", kp=(10.0, 20.0), kd=0.1))


def swung(gravity: Any, world: World, target: Any) -> Any:
    world = world.replace(model=world.model.replace({"opt.gravity": gravity}))
    state, _ = fphys.scan(lambda s, _: (world.step(s, target), None), world.init(), None, length=3)
    return (state.rigid.qpos**2).sum(), state.rigid.qpos


def test_the_world_of_a_scene_among_the_arguments_is_cut_where_it_has_worlds():
    world, target = swinging(mass=(1.0, 2.0)), jnp.array([[0.3, -0.2], [0.1, 0.4]])
    (value, qpos), slope = jax.jit(jax.value_and_grad(swung, has_aux=True))(world.model.opt.gravity, world, target)
    state = world.init()
    assert jnp.abs(slope).max() > 0 and jnp.abs(qpos[:, :2]).min() > 0
    with jax.set_mesh(MESH):
        run = jax.jit(functools.partial(distributed.gradient, swung))
        same(run(world.model.opt.gravity, world, target), ((value, slope), qpos), 1e-12)
        placed = distributed.split(world)
        assert placed.model.body.mass.sharding.spec == P("world") and placed.kp.is_fully_replicated
        closed = lambda _, state, target: (world.step(state, target).rigid.qpos.sum(), None)  # noqa: E731
        with pytest.raises(
            ValueError, match=r"1 of the worlds, world.model has numbers for 2: pass the world in `args`"
        ):
            jax.eval_shape(functools.partial(distributed.gradient, closed), value, state, target)


def test_the_world_of_a_scene_that_all_devices_share_takes_the_worlds_of_each():
    world, target = swinging(mass=1.0), jnp.array([[0.3, -0.2], [0.1, 0.4]])

    def cost(world: World, state: Any, target: Any) -> Any:
        return (world.step(state, target).rigid.qvel ** 2).sum(), world.observe(state, ObservationSpec("all"))

    args = world, world.init(jnp.array([[0.1, 0.2], [0.3, 0.4]])), target
    (value, aux), slope = jax.jit(jax.value_and_grad(cost, has_aux=True))(*args)
    with jax.set_mesh(MESH):
        found = jax.jit(functools.partial(distributed.gradient, cost))(*args)
    same(found, ((value, slope), aux), 1e-12)
    assert jnp.abs(slope.kp).min() > 0


def test_the_matter_of_a_scene_goes_to_every_device():
    scene = fphys.Scene()
    scene.add(Cloth((1.0, 1.0), (1, 1)), PBD(0.2), name="cloth")  # as many vertices as worlds
    placed = distributed.split(scene.build(WORLDS), MESH)
    assert all(x.is_fully_replicated for x in jax.tree.leaves(placed.filling))


def test_what_has_no_worlds_comes_from_no_gradient():
    state = jnp.arange(8.0).reshape(4, 2)
    by = lambda aux: lambda gain, x: ((gain * x).sum(), aux(x))  # noqa: E731
    with jax.set_mesh(MESH):
        for aux, name in (
            (lambda x: {"mean": x.mean()}, r"aux\['mean'\] has shape \(\)"),
            (lambda x: x.mean(0, keepdims=True), r"aux has shape \(1, 2\)"),
        ):
            with pytest.raises(ValueError, match=rf"gradient: {name}, must have the 2 worlds of this device first"):
                distributed.gradient(by(aux), jnp.ones(()), state)
        assert distributed.gradient(by(lambda x: None), jnp.ones(()), state)[1] is None


def test_a_state_on_an_explicit_mesh_takes_a_step():
    model = fphys.load(fphys.asset("cartpole"))
    state = fphys.init(model, WORLDS, qpos=np.linspace(-0.2, 0.3, 2 * WORLDS).reshape(WORLDS, 2))
    explicit = jax.NamedSharding(jax.make_mesh((2,), ("world",)), P("world"))
    placed = jax.tree.map(lambda x: jax.device_put(x, explicit), state)
    same(jax.jit(fphys.step)(model, placed).qpos, fphys.step(model, state).qpos, 1e-12)


def test_steps_need_no_jit_in_a_shard_map_but_bare_operations_do():
    step, state = of_sph(jnp.float64)

    def cost(gravity: Any, state: Any) -> Any:
        after = step(gravity, state)
        return (after.v**2).sum(), after.x

    gravity = jnp.asarray(GRAVITY)
    (value, _), slope = jax.jit(jax.value_and_grad(cost, has_aux=True))(gravity, state)
    with jax.set_mesh(MESH):
        same(distributed.gradient(cost, gravity, distributed.split(state))[0], (value, slope), 1e-12)
        apart = functools.partial(jax.shard_map, in_specs=P("world"), out_specs=P("world"))
        same(apart(lambda s: step(gravity, s))(state), step(gravity, state), 1e-12)
        with pytest.raises(fphys.errors.BridgeError, match=r"jax\.jit\(jax\.shard_map"):
            apart(lambda s: fphys.worlds.choose(s.status > 0, 0, s.x))(state)


def test_a_mesh_that_does_not_fit_is_refused():
    with jax.set_mesh(jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))):
        for place in (distributed.split, distributed.everywhere):
            with pytest.raises(ValueError, match=r"has the axes \('data',\), needs one named 'world'"):
                place(jnp.ones(4))
        own = jax.jit(jax.shard_map(distributed.split, in_specs=P("data"), out_specs=P("data")))
        assert own(jnp.ones(6)).shape == (6,)  # one device's share of somebody else's mesh
    with pytest.raises(TypeError, match="devices is 3, must be a sequence"):
        distributed.mesh(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="devices has 'cpu', must be of devices"):
        distributed.mesh(["cpu"])
    with pytest.raises(ValueError, match="devices has one twice"):
        distributed.mesh([jax.devices()[0]] * 2)
    with pytest.raises(TypeError, match=r"model is 2\.0, must be a whole number"):
        distributed.mesh(model=2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="total: outside a shard_map over 'world'"):
        distributed.total(jnp.ones(4))
    with pytest.raises(ValueError, match="needs one named 'world'"):
        distributed.split(jnp.ones(4), jax.make_mesh((2,), ("batch",)))
    with (
        jax.set_mesh(jax.make_mesh((2,), ("world",), axis_types=(jax.sharding.AxisType.Explicit,))),
        pytest.raises(ValueError, match="not of AxisType"),
    ):
        distributed.split(jnp.ones(4))
    with pytest.raises(ValueError, match="not of AxisType"):  # by default, those of JAX are explicit
        distributed.split(jnp.ones(4), jax.make_mesh((2,), ("world",)))
    x = jnp.ones(4)
    assert distributed.split(x) is x and distributed.everywhere(x) is x  # without a mesh


@pytest.mark.parametrize("agent", ["ppo", "shac"])
def test_an_update_of_an_agent_is_that_of_one_device(agent: str):
    env = envs.make("InvertedPendulum-v5", WORLDS, max_episode_steps=20)
    module = {"ppo": ppo, "shac": shac}[agent]
    few: dict[str, Any] = {"steps": 800, "horizon": 4, "hidden": (4,)}
    config = ppo.Config(**few, epochs=1, minibatches=2) if agent == "ppo" else shac.Config(**few, critic_epochs=1)
    network, state = jax.jit(functools.partial(module.init, env, config))(jax.random.key(0))

    def run() -> Any:
        update = as_users(functools.partial(module.update, env, config, network)).lower(state).compile()
        return update(state), update

    (one, _) = run()
    with jax.set_mesh(MESH):
        state = state.replace(env=distributed.split(state.env), observation=distributed.split(state.observation))
        rest = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
        rest = {name: distributed.everywhere(x) for name, x in rest.items() if name not in ("env", "observation")}
        state = state.replace(**rest)
        two, compiled = run()
    assert len(two[0].env.qpos.sharding.device_set) == 2
    np.testing.assert_allclose(one[1]["grad_norm"], two[1]["grad_norm"], rtol=1e-6)
    learned = lambda s: s.learner.params if agent == "ppo" else (s.actor, s.critic.params)  # noqa: E731
    same(learned(one[0]), learned(two[0]), 2e-6)
    keys = [jax.random.key_data(s[0].env.key) for s in (one, two)]
    np.testing.assert_array_equal(keys[0], keys[1])
    same(one[0].env.qpos, two[0].env.qpos, 1e-12)
    sent, weights = messages(compiled), lambda tree: sum(x.size for x in jax.tree.leaves(tree))
    sums = 1 + 2 * state.observation.shape[1]  # of observations: count, sums, squares
    if agent == "ppo":  # in each step; for each minibatch, with the loss and five metrics
        repeated, numbers = {4 * sums: config.horizon, 4 * (weights(state.learner.params) + 6): 2}, 4 + 1 + 4
    else:  # for each minibatch of the critic, with the loss; none in a step
        repeated, numbers = {4 * (weights(state.critic.params) + 1): 4}, 4 + 1
    assert {m: n for m, n in sent.items() if n > 1} == {Message("all-reduce", m): n for m, n in repeated.items()}
    examples = Message("all-gather", 4 * numbers * WORLDS * config.horizon)
    assert [m for m in sent if m.kind != "all-reduce"] == [examples]
    arrays = re.findall(r"= \(?([^=]*) all-reduce\(", re.sub(r"/\*.*?\*/", "", compiled.as_text()))
    once = [m for m, n in sent.items() if n == 1 and m != examples]
    if agent == "ppo":  # all steps' gains together; scalars to log
        assert len(once) <= 2 and sum(f"f32[{config.horizon},3]" in message for message in arrays) == 1
    else:  # the gradient through the physics as one array, with the value; with it the sums, and scalars to log
        assert len(once) == 1
        for size in (1 + weights(state.actor), sums):
            assert sum(f"f32[{size}]" in message for message in arrays) == 1
