"""The mechanisms of the rigid-body tests, random states for them, and MuJoCo's own answers beside ours."""

import copy
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import fphys
from fphys.math import quat_unit
from fphys.rigid.tree.chain import places

from ..gymnasium_models import gymnasium_models

UNCONSTRAINED = ("contact", "limit", "equality", "frictionloss")
INTEGRATORS = {"euler": mujoco.mjtIntegrator.mjINT_EULER, "rk4": mujoco.mjtIntegrator.mjINT_RK4}
INTEGRATORS |= {"implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST}
"""Every integrator that the tests go through: add one here and all of them cover it."""

EVERYTHING = """
<mujoco>
  <option timestep="0.001" gravity="0.3 0.2 -9.81" density="300" viscosity="3" wind="1 0.5 0.2"/>
  <worldbody>
    <site name="fixed" pos="0.1 0.2 0.3" euler="10 20 30"/>
    <body name="torso" pos="0 0 1" gravcomp="0.3">
      <joint name="float" type="free" stiffness="4" damping="0.4" armature="0.05"/>
      <geom type="box" size="0.1 0.2 0.3" mass="2" pos="0.1 0.05 0.02" euler="20 10 5"/>
      <body name="shoulder" pos="0.2 0 0.1" euler="10 20 30">
        <joint name="socket" type="ball" pos="0.05 0.01 0" stiffness="3" damping="0.2" armature="0.01"/>
        <geom type="capsule" size="0.05" fromto="0 0 0 0.4 0 0.1" mass="1"/>
        <body name="forearm" pos="0.4 0 0.1">
          <joint name="bend" axis="0 1 0.3" pos="0.01 0.02 0.03" stiffness="5" damping="0.3" armature="0.02"
                  springref="20"/>
          <joint name="reach" type="slide" axis="1 0.2 0" pos="0.1 0 0" stiffness="20" damping="1" springref="0.1"/>
          <joint name="twist" axis="1 0 0" pos="0 0.03 0" damping="0.1" ref="15"/>
          <geom type="box" size="0.1 0.05 0.08" pos="0.1 0 0.05" mass="0.7"/>
          <site name="tip" pos="0.1 0.2 0.3" euler="5 6 7"/>
        </body>
      </body>
      <body name="leg" pos="-0.1 0 -0.3" gravcomp="1">
        <joint name="hip" axis="1 0 0.2" ref="0.3" damping="0.1"/>
        <geom type="capsule" size="0.06" fromto="0 0 0 0 0.1 -0.5" mass="1"
              fluidshape="ellipsoid"/>
        <geom type="sphere" size="0.08" pos="0 0.1 -0.5" mass="0.1"/>
      </body>
    </body>
    <body name="hand" mocap="true" pos="1 1 1" euler="30 0 0">
      <geom type="sphere" size="0.1"/>
      <site name="palm" pos="0 0.1 0" euler="0 0 40"/>
    </body>
    <body name="swing" pos="0 2 1">
      <joint name="swing" axis="1 0 0" damping="0.1"/>
      <joint name="lift" type="slide" axis="0 0 1" pos="0.2 0 0" stiffness="300" damping="4"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0 0.1 -0.5" mass="1"/>
      <body name="lump" pos="0 0.1 -0.5"><geom type="ellipsoid" size="0.1 0.05 0.07" mass="0.4" fluidshape="ellipsoid"
              fluidcoef="0.4 0.3 1.2 0.8 0.9"/><geom type="cylinder" size="0.04 0.1" pos="0.1 0 0" mass="0.1"
              fluidshape="ellipsoid"/></body>
    </body>
    <body name="pebble" pos="0 -2 1"><freejoint name="pebble"/><geom type="box" size="0.1 0.2 0.3" mass="3"
            fluidshape="ellipsoid"/></body>
    <body name="top" pos="0 -4 1">
      <joint name="top" type="ball" damping="0.02"/>
      <geom type="box" size="0.1 0.2 0.05" pos="0.1 0 0.2" mass="1"/>
    </body>
  </worldbody>
  <tendon>
    <fixed name="across" stiffness="4" damping="0.5" springlength="0.1 0.2">
      <joint joint="bend" coef="1.5"/><joint joint="hip" coef="-0.7"/><joint joint="swing" coef="0.4"/>
    </fixed>
    <fixed name="slack" stiffness="6" springlength="-9 9"><joint joint="lift" coef="2"/></fixed>
  </tendon>
  <actuator>
    <motor name="limited" joint="bend" gear="3" ctrllimited="true" ctrlrange="-0.5 0.5"/>
    <position name="servo" joint="reach" kp="30" kv="2"/>
    <velocity name="reel" tendon="across" kv="3"/>
    <general name="affine" joint="socket" gear="1 2 3" gaintype="affine" gainprm="2 0.3 0.1" biastype="affine"
            biasprm="0.5 -1 -0.2"/>
    <general name="inparent" jointinparent="socket" gear="1 -2 3" gainprm="2" biastype="affine" biasprm="0.1 -0.5
            -0.3"/>
    <motor name="thrust" joint="float" gear="1 2 3 0.1 0.2 0.3"/>
    <motor name="thrustin" jointinparent="pebble" gear="1 2 3 0.1 0.2 0.3"/>
    <motor name="weak" joint="hip" gear="5" forcelimited="true" forcerange="-0.4 0.4"/>
    <general name="filter" joint="hip" dyntype="filter" dynprm="0.1" gainprm="3" biastype="affine" biasprm="0 -1 -0.1"/>
    <general name="exact" joint="swing" dyntype="filterexact" dynprm="0.05" gainprm="4"/>
    <general name="ramp" tendon="across" dyntype="integrator" gainprm="2" actlimited="true" actrange="-0.3 0.3"/>
    <general name="both" joint="lift" dyntype="integrator" gainprm="9" ctrllimited="true" ctrlrange="-0.6 0.6"
            forcelimited="true" forcerange="-2 2"/>
    <intvelocity name="intvelocity" joint="twist" kp="5" actrange="-1 1"/>
    <damper name="damper" joint="twist" kv="2" ctrlrange="0 1"/>
    <cylinder name="cylinder" joint="lift" timeconst="0.2" area="3" bias="0.1 -1 -0.5"/>
  </actuator>
</mujoco>
"""
"""Every joint, several on one body, offsets, springs, medium, mocap, tendons across branches, every actuator."""

SMALL = """
<mujoco>
  <option timestep="0.005" gravity="0.3 0.2 -9.81" density="100" viscosity="0.5" wind="1 0.5 0.2"/>
  <worldbody>
    <body pos="0 0 1" gravcomp="0.3">
      <joint name="ball" type="ball" pos="0.1 0.02 0.3" stiffness="8" damping="0.2" armature="0.03"/>
      <geom type="box" size="0.1 0.2 0.3" mass="2" pos="0.1 0.05 0.02" euler="20 10 5"/>
      <body pos="0.2 0.1 -0.3" euler="10 20 30" gravcomp="0.8">
        <joint name="slide" type="slide" axis="1 0.2 0.1" stiffness="60" damping="1" armature="0.02"
                actuatorgravcomp="true"/>
        <joint name="hinge" axis="0 1 0.3" pos="0.01 0.02 0.3" stiffness="5" damping="0.3" armature="0.02"
                springref="20" actuatorgravcomp="true"/>
        <geom type="box" size="0.1 0.05 0.2" pos="0.05 0.02 -0.1" mass="0.7" fluidshape="ellipsoid"
                fluidcoef="0.6 0.2 1.5 0.5 1.2"/>
        <site name="tip" pos="0.1 0.2 0.3" euler="5 6 7"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="line" stiffness="14" damping="0.5" springlength="-0.2 -0.1"><joint joint="hinge" coef="1.5"/><joint
            joint="slide" coef="-0.7"/></fixed>
  </tendon>
  <actuator>
    <position joint="slide" kp="30" kv="2"/>
    <general joint="ball" gear="1 2 3" gaintype="affine" gainprm="2 0.3 0.1" biastype="affine" biasprm="0.5 -1 -0.2"/>
    <velocity tendon="line" kv="3"/>
    <general joint="hinge" dyntype="filter" dynprm="0.1" gainprm="3"/>
    <motor joint="hinge" gear="2" ctrllimited="true" ctrlrange="-0.4 0.5"/>
    <motor joint="slide" gear="3" forcelimited="true" forcerange="-0.1 0.2"/>
  </actuator>
</mujoco>
"""
"""The smallest mechanism in which every kind of term acts: one tree, ball, slide and hinge."""


SPATIAL = """
<mujoco>
  <option timestep="0.004" gravity="0.3 0.2 -9.81" density="100" viscosity="0.5" wind="1 0.5 0.2"/>
  <worldbody>
    <site name="roof" pos="-0.3 0.05 1.35"/>
    <site name="wall" pos="0.5 -0.1 1.1" euler="10 20 30"/>
    <geom name="peg" type="sphere" size="0.08" pos="0 0.02 1.3" euler="20 0 10"/>
    <site name="over" pos="0 0 1.45"/>
    <body name="arm" pos="0 0 1">
      <joint name="ball" type="ball" stiffness="3" damping="0.3" armature="0.03"/>
      <geom type="box" size="0.06 0.08 0.15" mass="2" pos="0.02 0.05 0.1" euler="20 10 5"/>
      <geom name="drum" type="cylinder" size="0.05 0.1" pos="0.25 0 0" euler="80 10 5" mass="0.1"/>
      <site name="shoulder" pos="0.1 0.06 0.02" euler="5 6 7"/>
      <site name="elbow" pos="0.25 0 0.12"/>
      <body name="hand" pos="0.3 0 0">
        <joint name="hinge" axis="0 1 0.3" stiffness="2" damping="0.2" armature="0.02"/>
        <joint name="slide" type="slide" axis="1 0.2 0.1" stiffness="60" damping="1" armature="0.02"/>
        <geom type="box" size="0.1 0.05 0.08" pos="0.15 0.02 0" mass="0.7"/>
        <site name="tip" pos="0.2 0.03 0.05" euler="5 6 7"/>
        <site name="palm" pos="0.1 -0.02 0.03" euler="0 40 7"/>
      </body>
    </body>
    <body name="cart" pos="0.6 0.3 0.8">
      <joint name="rail" type="slide" axis="1 0 0" damping="1" armature="0.1"/>
      <joint name="crank" axis="0 0 1" damping="0.1" armature="0.05"/>
      <geom type="box" size="0.05 0.05 0.05" mass="0.5" pos="0.02 0 0"/>
      <site name="pin" pos="0.05 0.02 0"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="straight" stiffness="30" damping="0.5" springlength="0.2 0.3" armature="0.4">
      <site site="wall"/><site site="palm"/><site site="pin"/>
    </spatial>
    <spatial name="around" stiffness="50">
      <site site="roof"/><geom geom="peg"/><site site="shoulder"/><geom geom="drum" sidesite="elbow"/><site
              site="palm"/>
    </spatial>
    <spatial name="sided" stiffness="10" damping="0.2">
      <site site="roof"/><geom geom="peg" sidesite="over"/><site site="tip"/>
    </spatial>
    <spatial name="block" stiffness="20" springlength="0.1">
      <site site="wall"/><site site="tip"/><pulley divisor="2"/><site site="tip"/><site site="pin"/>
      <pulley divisor="3"/><site site="shoulder"/><geom geom="drum"/><site site="tip"/>
    </spatial>
    <fixed name="fixed" stiffness="4" damping="0.3" armature="0.2"><joint joint="hinge" coef="1.5"/><joint joint="rail"
            coef="-0.7"/></fixed>
  </tendon>
  <actuator>
    <motor name="pull" tendon="straight" gear="2"/>
    <position name="servo" tendon="around" kp="20" kv="2"/>
    <general name="affine" tendon="block" gaintype="affine" gainprm="2 0.3 0.1" biastype="affine"
            biasprm="0.5 -1 -0.2"/>
    <motor name="jet" site="tip" gear="1 2 3 0.1 0.2 0.3"/>
    <general name="relative" site="tip" refsite="wall" gear="1 2 3 0.3 0.2 0.1" gainprm="3" biastype="affine"
            biasprm="0.2 -2 -0.3"/>
    <position name="attitude" site="palm" refsite="shoulder" gear="0 0 0 0.2 1 0.3" kp="3" kv="0.1"/>
    <general name="crank" cranksite="pin" slidersite="wall" cranklength="0.9" gear="0.7" gainprm="4" biastype="affine"
            biasprm="0.1 -3 -0.2"/>
  </actuator>
</mujoco>
"""
"""Spatial tendons: straight, around a sphere and a cylinder, past side sites, over pulleys; actuators at sites."""

MUSCLE = """
<mujoco>
  <option timestep="0.004" density="100" viscosity="0.5"/>
  <worldbody>
    <site name="origin" pos="-0.15 0.03 0.05"/>
    <site name="behind" pos="-0.1 0 -0.1"/>
    <geom name="joint" type="cylinder" size="0.04 0.1" pos="0 0 0" euler="90 0 0"/>
    <site name="front" pos="0.03 0 0.08"/>
    <body name="upper" pos="0 0 0">
      <joint name="shoulder" axis="0 1 0" damping="0.1" armature="0.02" actuatorfrcrange="-1.5 2"
              actuatorgravcomp="true"/>
      <geom type="capsule" size="0.03" fromto="0 0 0 0.3 0 0" mass="1"/>
      <site name="bone" pos="0.1 0 0.04"/>
      <site name="under" pos="0.12 0.01 -0.03"/>
      <body name="lower" pos="0.3 0 0" gravcomp="0.4">
        <joint name="elbow" type="ball" damping="0.1" armature="0.02"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0.25 0.05 0" mass="0.6"/>
        <site name="insertion" pos="0.06 0 0.03"/>
        <body name="wrist" pos="0.25 0.05 0">
          <joint name="wrist" axis="0 0.3 1" damping="0.05" armature="0.01"/>
          <geom type="box" size="0.05 0.03 0.01" pos="0.05 0 0" mass="0.3"/>
          <site name="hand" pos="0.06 0.01 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <spatial name="biceps" stiffness="5" springlength="0.1">
      <site site="origin"/><geom geom="joint" sidesite="front"/><site site="bone"/><site site="insertion"/>
    </spatial>
    <spatial name="triceps" actuatorfrclimited="true" actuatorfrcrange="-4 4"><site site="behind"/><site
            site="under"/><site site="hand"/></spatial>
    <spatial name="long"><site site="behind"/><site site="bone"/><site site="hand"/></spatial>
    <fixed name="both"><joint joint="shoulder" coef="0.5"/><joint joint="wrist" coef="-0.3"/></fixed>
  </tendon>
  <actuator>
    <muscle name="flexor" tendon="biceps" lengthrange="0.2 0.4" force="30" tausmooth="0.2"/>
    <motor name="cable" tendon="triceps" gear="6"/>
    <muscle name="extensor" tendon="long" lengthrange="0.4 0.8" scale="40" timeconst="0.02 0.06" range="0.6 1.2"
            vmax="1.2"/>
    <muscle name="turner" joint="wrist" lengthrange="-2 2" force="3" lmin="0.4" lmax="1.7" fpmax="1.1" fvmax="1.3"/>
    <general name="early" joint="shoulder" dyntype="filter" dynprm="0.03" gainprm="3" actearly="true"/>
    <general name="exact" joint="wrist" dyntype="filterexact" dynprm="0.02" gaintype="affine" gainprm="1 0.2 -0.3"
            actearly="true"/>
    <general name="ramp" tendon="triceps" dyntype="integrator" gainprm="20" actearly="true" actlimited="true"
            actrange="-0.3 0.3"/>
    <muscle name="hasty" tendon="both" lengthrange="-1 1" force="4"/>
    <position name="turn" joint="elbow" gear="0.3 0.5 0.2" kp="2" kv="0.05"/>
    <general name="held" joint="shoulder" gaintype="affine" gainprm="1 0.2 0.3" ctrllimited="true" ctrlrange="-0.5 0.5"
            forcelimited="true" forcerange="-1 1"/>
  </actuator>
</mujoco>
"""
"""Muscles on tendons and joints, activations of the next step, ranges for sums of forces, a servo for rotations."""


TWINS = {"gymnasium-pusher_v5", "gymnasium-walker2d_v5", "gymnasium-humanoidstandup"}
"""Differ from a sibling in contacts and starting pose only; left to the full sizes."""


class Case(NamedTuple):
    """A mechanism of ours and of MuJoCo's, with the same constraints disabled."""

    model: fphys.Model
    source: mujoco.MjModel


class Inputs(NamedTuple):
    """A state and what acts on it, world axis first; float64."""

    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray
    mocap_pos: np.ndarray
    mocap_quat: np.ndarray
    ctrl: np.ndarray
    wrench: np.ndarray
    force: np.ndarray


def corpus() -> dict[str, Any]:
    """Name -> file of every mechanism of Gymnasium's, of ours, and the texts above."""
    ours = {
        path.stem: path
        for path in sorted(Path(str(fphys.asset("ant"))).parent.iterdir())
        if path.suffix in (".xml", ".urdf")
    }
    assert {"ant", "franka", "double-pendulum", "cartpole", "arm-urdf"} <= set(ours)
    return gymnasium_models() | ours | {"everything": EVERYTHING, "small": SMALL, "spatial": SPATIAL, "muscle": MUSCLE}


@functools.cache
def case(name: str, integrator: str | None = None, dtype: str = "float64") -> Case:
    """A mechanism of the corpus, by default with its own integrator."""
    source = corpus()[name]
    model = fphys.load(source, disable=UNCONSTRAINED, dtype=dtype)
    if integrator is not None:
        changed = copy.copy(model.structure.source)
        changed.opt.integrator = INTEGRATORS[integrator]
        model = fphys.load(changed, disable=UNCONSTRAINED, dtype=dtype)
    return Case(model, model.structure.source)


def random_inputs(m: mujoco.MjModel, worlds: int, seed: int = 0, size: float = 0.6) -> Inputs:
    """Different data in every world: positions around the reference, controls that cross their ranges, and loads in
    proportion to the inertia that they act on."""
    rng = np.random.default_rng(seed)
    qpos = np.tile(m.qpos0, (worlds, 1))
    for w in range(worlds):
        mujoco.mj_integratePos(m, qpos[w], size * rng.standard_normal(m.nv), 1.0)
    low, high = np.where(m.actuator_ctrllimited[:, None].astype(bool), m.actuator_ctrlrange, [-1.0, 1.0]).T
    quat = rng.standard_normal((worlds, m.nmocap, 4))
    weight = np.repeat([10.0 * m.body_mass, 100.0 * m.body_inertia.max(1)], 3, axis=0).T
    return Inputs(
        qpos=qpos,
        qvel=size * 2.0 * rng.standard_normal((worlds, m.nv)),
        act=size * rng.standard_normal((worlds, m.na)),
        mocap_pos=rng.standard_normal((worlds, m.nmocap, 3)),
        mocap_quat=quat / np.linalg.norm(quat, axis=-1, keepdims=True),
        ctrl=0.5 * (low + high) + 1.3 * 0.5 * (high - low) * rng.uniform(-1, 1, (worlds, m.nu)),
        wrench=weight * rng.standard_normal((worlds, m.nbody, 6)),
        force=10.0 * m.dof_M0 * rng.standard_normal((worlds, m.nv)),
    )


def to_state(model: fphys.Model, x: Inputs) -> fphys.State:
    """Our state of these worlds, in the model's precision."""
    real = model.qpos0.dtype
    state = fphys.init(model, len(x.qpos))
    return state.replace(
        **{name: jnp.asarray(getattr(x, name), real) for name in ("qpos", "qvel", "act", "mocap_pos", "mocap_quat")}
    )


def loads(model: fphys.Model, x: Inputs) -> tuple[Any, Any, Any]:
    """Control, wrench and force in the model's precision."""
    return tuple(jnp.asarray(value, model.qpos0.dtype) for value in (x.ctrl, x.wrench, x.force))  # type: ignore[return-value]


def at_sites(model: fphys.Model, state: fphys.State) -> Any:
    """Position, quaternion, velocity and angular velocity of every site, as an observation has them; and accelerations,
    linear and angular, where those of the dofs are 0.7 their velocities: shape (world, site, 19)."""
    sites = model.structure.site.body.tolist(), model.site.pos, quat_unit(model.site.quat)
    return jnp.concatenate(places(model, state, *sites, 0.7 * state.qvel), -1)  # type: ignore[arg-type]


def with_leaves(model: fphys.Model, leaves: dict[str, Any]) -> fphys.Model:
    """The model with other values for leaves named by path; nothing is derived from them."""
    for path, value in leaves.items():
        group, name = path.split(".")
        model = dataclasses.replace(model, **{group: dataclasses.replace(getattr(model, group), **{name: value})})
    return model


def in_own_units(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function with each leaf of its first argument measured in a unit of its own size, a power of two.

    One step of a difference then suits a density of 300, a time step of 0.005 and an inertia of 1e-3.
    """

    def unit(x: Any) -> Any:
        size = np.abs(np.asarray(x, float)).max(initial=0.0)
        return 2.0 ** np.round(np.log2(max(size, 2.0**-8))) if size > 0 else 1.0

    units = jax.tree.map(unit, args[0])
    scaled = jax.tree.map(lambda x, u: np.asarray(x) / u, args[0], units)
    return lambda first, *rest: fn(jax.tree.map(lambda x, u: x * u, first, units), *rest), (scaled, *args[1:])


def put(d: mujoco.MjData, x: Inputs, world: int) -> None:
    """One world into MuJoCo's data."""
    d.qpos[:], d.qvel[:], d.act[:] = x.qpos[world], x.qvel[world], x.act[world]
    d.mocap_pos[:], d.mocap_quat[:] = x.mocap_pos[world], x.mocap_quat[world]
    d.ctrl[:], d.xfrc_applied[:], d.qfrc_applied[:] = x.ctrl[world], x.wrench[world], x.force[world]


def errors(ours: Any, theirs: Any) -> np.ndarray:
    """The largest difference of each world, relative to the world's largest entry, shape (world,)."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    assert ours.shape == theirs.shape, f"{ours.shape} and {theirs.shape}"
    if not ours.size:
        return np.zeros(len(ours))
    axes = tuple(range(1, ours.ndim))
    gap, scale = np.abs(ours - theirs).max(axes), np.abs(theirs).max(axes)
    error = np.where(gap == 0, 0.0, gap / np.maximum(scale, np.finfo(float).tiny))
    return np.where(np.isfinite(error), error, np.inf)


def relative(ours: Any, theirs: Any) -> float:
    """The largest of :func:`errors`."""
    return float(errors(ours, theirs).max())
