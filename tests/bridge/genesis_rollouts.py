"""Rollouts of Genesis in a process of their own, because Genesis is configured once per process and reseeds others.

``python -m tests.bridge.genesis_rollouts rigid`` (or ``free``, ``mpm``) prints a JSON object: errors of gradients, and
the errors raised where Genesis would return zero.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import genesis as gs
import jax
import jax.numpy as jnp
import numpy as np
import torch

from fphys.bridge.genesis import as_jax
from fphys.testing import check_grads

WORLDS, STEPS = 2, 4
ARM = """
<mujoco>
  <worldbody>
    <body pos="0 0 1">
      <joint type="hinge" axis="0 1 0"/><geom type="capsule" size=".04" fromto="0 0 0 .4 0 0"/>
      <body pos=".4 0 0">
        <joint type="hinge" axis="0 1 0"/><geom type="capsule" size=".04" fromto="0 0 0 .4 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def raised(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def total(tree: Any) -> jax.Array:
    return sum((jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(tree)), jnp.zeros(()))


def rigid() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "arm.xml").write_text(ARM)
        options = gs.options.SimOptions(dt=0.01, requires_grad=True)
        scene = gs.Scene(sim_options=options, show_viewer=False)
        arm = scene.add_entity(gs.morphs.MJCF(file=str(path)))
        early = raised(lambda: as_jax(scene, lambda x: x))
        scene.build(n_envs=WORLDS)
    forces = jnp.asarray(rng.standard_normal((STEPS, WORLDS, 2)))
    velocity = jnp.asarray(rng.standard_normal((WORLDS, 2)))

    def after(*read: str) -> Any:
        def run(force: Any, velocity: Any = None) -> Any:
            if velocity is not None:
                arm.set_dofs_velocity(velocity)
            for f in force:
                arm.control_dofs_force(f)
                scene.step()
            state = scene.rigid_solver.get_state()
            return {name: getattr(state, name) for name in read}

        return run

    rollout = as_jax(scene, after("qpos", "dofs_vel", "links_pos"))
    found: dict[str, Any] = {"gradient": check_grads(rollout, (forces, velocity), tol=1e-4, directions=4)}

    def policy(gain: Any) -> Any:
        for _ in range(STEPS):
            state = scene.rigid_solver.get_state()
            arm.control_dofs_force(-gain * torch.sin(state.qpos + 1) - 0.1 * state.dofs_vel)
            scene.step()
        return state.qpos

    found["closed loop"] = check_grads(as_jax(scene, policy), (velocity,), tol=1e-4, directions=4)
    found["some joints and worlds"] = check_grads(
        as_jax(
            scene, lambda f: [arm.control_dofs_force(f, [1], [0]), scene.step(), scene.rigid_solver.get_state().qpos][2]
        ),
        (velocity[:1, :1],),
        tol=1e-4,
        directions=2,
    )

    loss = jax.jit(lambda f, v: total(rollout(f, v)))
    one, two = (loss(forces, velocity) for _ in range(2))
    found["repeats"] = bool(one == two)
    alone = [jax.grad(loss)(f, velocity) for f in (forces, -forces)]
    both = jax.jit(jax.vmap(jax.grad(loss), in_axes=(0, None)))(jnp.stack([forces, -forces]), velocity)
    found["vmap"] = float(np.max(np.abs(both - jnp.stack(alone))))
    threads: list[Any] = []
    thread = threading.Thread(target=lambda: threads.append(jax.grad(loss)(forces, velocity)))
    thread.start()
    thread.join()
    found["thread"] = float(np.max(np.abs(threads[0] - alone[0])))

    def refused(run: Any, *args: Any) -> str:
        return raised(lambda: jax.grad(lambda *args: total(as_jax(scene, run)(*args)))(*args))

    def held(read: Any) -> Any:
        return lambda f: [arm.control_dofs_force(f), scene.step(), read()][2]

    def pushed(gain: Any) -> Any:
        for _ in range(STEPS):
            arm.set_dofs_velocity(0.5 * scene.rigid_solver.get_state().dofs_vel + gain)
            scene.step()
        return scene.rigid_solver.get_state().qpos

    def one_step(set_: Any) -> Any:
        return lambda x: [set_(x), scene.step(), scene.rigid_solver.get_state().qpos][2]

    found["raised"] = {
        "not built": early,
        "one force for all worlds": refused(after("qpos"), forces[:, 0]),
        "one row for all worlds": refused(after("qpos"), forces[:, :1]),
        "one column for all joints": refused(after("qpos"), forces[:, :, :1]),
        "one velocity for all worlds": refused(one_step(arm.set_dofs_velocity), velocity[0]),
        "float32": refused(after("qpos"), forces.astype("float32")),
        "velocities set again": refused(pushed, velocity),
        "accelerations": refused(after("dofs_acc"), forces),
        "accelerations among others": refused(after("qpos", "dofs_acc"), forces),
        "a getter": refused(held(arm.get_dofs_position), velocity),
        "a getter among others": refused(held(lambda: (scene.rigid_solver.get_state().qpos, arm.get_qpos())), velocity),
        "an argument that is not used": refused(lambda f, v: after("qpos")(f), forces, velocity),
        "positions set": refused(one_step(arm.set_dofs_position), velocity),
        "targets of PD": refused(one_step(arm.control_dofs_position), velocity),
    }
    untaped = gs.Scene(show_viewer=False)
    untaped.add_entity(gs.morphs.Plane())
    untaped.build(n_envs=WORLDS)
    found["raised"]["no tape"] = raised(lambda: as_jax(untaped, lambda x: x))
    fluid = gs.Scene(sim_options=gs.options.SimOptions(dt=1e-3, requires_grad=True), show_viewer=False)
    fluid.add_entity(gs.morphs.Box(pos=(0, 0, 0.5), size=(0.1, 0.1, 0.1)), material=gs.materials.SPH.Liquid())
    fluid.build()
    found["raised"]["SPH"] = raised(lambda: as_jax(fluid, lambda x: x))
    return found


def free() -> dict[str, Any]:
    scene = gs.Scene(sim_options=gs.options.SimOptions(dt=0.01, requires_grad=True), show_viewer=False)
    box = scene.add_entity(gs.morphs.Box(size=(0.1, 0.2, 0.3), pos=(0, 0, 1)))
    scene.build(n_envs=WORLDS)

    def run(position: Any, turned: Any, velocity: Any) -> Any:
        box.set_pos(position)
        box.set_quat(turned / torch.linalg.vector_norm(turned, dim=1, keepdim=True))
        box.set_dofs_velocity(velocity)
        for _ in range(STEPS):
            scene.step()
        state = scene.rigid_solver.get_state()
        return state.qpos, state.dofs_vel

    rng = np.random.default_rng(0)
    start = tuple(jnp.asarray(rng.standard_normal((WORLDS, size))) for size in (3, 4, 6))
    return {"gradient": check_grads(as_jax(scene, run), start, tol=1e-4, directions=4)}


def mpm() -> dict[str, Any]:
    scene = gs.Scene(
        sim_options=gs.options.SimOptions(dt=2e-3, substeps=2, requires_grad=True),
        mpm_options=gs.options.MPMOptions(lower_bound=(0, 0, -0.2), upper_bound=(1, 1, 1), grid_density=16),
        show_viewer=False,
    )
    material = gs.materials.MPM.Elastic(E=1e4, nu=0.3, rho=1000.0, sampler="regular")
    scene.add_entity(gs.morphs.Plane())
    block = scene.add_entity(gs.morphs.Box(pos=(0.5, 0.5, 0.08), size=(0.12, 0.12, 0.12)), material=material)
    scene.build(n_envs=WORLDS)

    def run(position: Any, velocity: Any) -> Any:
        block.set_position(position)
        block.set_velocity(velocity)
        for _ in range(STEPS):
            scene.step()
        state = block.get_state()
        return state.pos, state.vel, state.F

    start = jnp.asarray(block.get_particles_pos().numpy().astype(np.float64))
    velocity = jnp.asarray(np.random.default_rng(0).standard_normal(start.shape) - np.array([[[0, 0, 2.0]]]))

    def outputs(x: Any, v: Any) -> Any:
        return x, v, jax.ShapeDtypeStruct((*x.shape, 3), x.dtype)

    rollout = as_jax(scene, run, outputs=outputs)

    def again(v: Any) -> Any:
        block.set_velocity(v)
        scene.step()
        block.set_velocity(0.5 * block.get_state().vel)
        scene.step()
        return block.get_state().pos

    free = -9.81 * (2e-3 * STEPS)
    return {
        "particles": start.shape[1],
        "stopped by the floor": float(np.max(np.asarray(rollout(start, velocity)[1] - velocity)[..., 2]) - free),
        "gradient": check_grads(rollout, (start, velocity), tol=1e-4, directions=4),
        "raised": {
            "velocities set again": raised(
                lambda: jax.grad(lambda v: jnp.sum(as_jax(scene, again, outputs=lambda v: v)(v)))(velocity)
            ),
            "a getter": raised(
                lambda: jax.grad(
                    lambda v: jnp.sum(
                        as_jax(scene, lambda v: [block.set_velocity(v), scene.step(), block.get_particles_pos()][2])(v)
                    )
                )(velocity)
            ),
        },
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    gs.init(backend=gs.cpu, precision="64", logging_level="error")
    print(json.dumps({"rigid": rigid, "free": free, "mpm": mpm}[sys.argv[1]]()))
