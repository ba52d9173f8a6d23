"""An arm pours water into a basin: FluidManipulation."""

import dataclasses
import functools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import coupling
from ..model import Model, State
from ..model.arguments import whole_number
from ..particles import sample, sph
from ..particles.arguments import known
from ..rigid.inverse import smooth_inverse
from ..rigid.last import LastSolve, unsolved
from ..rigid.tree.kinematics import kinematics
from ..tree import pytree, static
from .env import Env, EnvState, Spec, Start
from .expect import expect_number
from .randomize import Ranges

Array = jax.Array

CUP = np.array([[0.07, -0.08], [0.27, 0.12]])
"""Ends of the cup's inside from the wrist [m]."""

BASIN = np.array([[-0.15, 0.0], [0.15, 0.20]])
"""Ends of the basin's inside from its origin [m]."""

EDGE = 0.1
"""Of this length [m] all edges of both insides are multiples."""

WALL = 0.06
"""Thickness of all walls [m], to whole layers of particles: the kernel reaches three spacings."""

DRAIN = -0.15
"""Height at which spilled water is gone [m]."""


class Water(NamedTuple):
    """Where the water is, in worlds side by side."""

    there: Array  # whether a particle has not been spilled, as a number, (world, particle)
    in_cup: Array  # from 0 to 1, smooth, (world, particle)
    in_basin: Array  # likewise
    rest: Array  # middle of what is in the cup, from where it rests there, in the cup's axes [m], (world, 2)
    flow: Array  # its velocity over that of the cup [m/s], (world, 2)
    lip: Array  # the cup's lip, from the middle of the basin's mouth [m], (world, 2)


@pytree
class FluidManipulation(Env):
    """A planar arm pours water from a cup into a basin: reward is the share of the water in the basin.

    An action, from -1 to 1, is a joint's speed over ``speeds``. Computed torque follows it. The law knows masses and
    gravity, also where they are drawn, and the weight of the full cup. It does not know the friction of the joints, nor
    by how much the motors are too strong or too weak, nor that the water moves and leaves the cup. The water is an
    incompressible fluid of SPH (:mod:`fphys.particles.sph`), a slice ``thickness`` thick; it pushes cup and basin, and
    they push it. Its time step and gravity are those of the model. The basin stands to the left or right of the middle
    of its range, the farther away the higher the difficulty. A small reward is for the lip above the basin. What misses
    it falls through a grating and is gone. The policy sees joints, the way from lip to basin, the shares of the water
    in both, and how the water in the cup is displaced and moves. It is a success if a share of at least ``enough`` is
    in the basin when the time is up.
    """

    source: ClassVar[str] = "pourer"
    varied: ClassVar[Ranges] = (("actuator.gear", 0.95, 1.05), ("dof.damping", 0.5, 2.0))
    camera: ClassVar[str | None] = "overview"
    speeds: ClassVar[tuple[float, ...]] = (1.5, 2.0, 3.0)  # of shoulder, elbow and wrist [rad/s]

    frame_skip: int = static(default=10)  # 25 actions a second
    max_episode_steps: int | None = static(default=100)
    spacing: float = static(default=0.02)  # of the water's particles [m]; a whole number of them is 0.1 m
    depth: float = static(default=0.14)  # of the water in the cup at first [m], a whole number of spacings
    thickness: float = static(default=0.1)  # of the slice [m]
    substeps: int = static(default=2)  # of the water in a step of the arm
    tolerance: float = static(default=1e-3)  # of the water's density, where a step is not differentiated
    following: float = static(default=100.0)  # acceleration for an error of speed [1/s]
    enough: float = static(default=0.9)
    near_weight: float = static(default=0.2)
    ctrl_cost_weight: float = static(default=0.01)
    reset_noise_scale: float = static(default=0.1)  # of shoulder and elbow [rad]
    reset_distance: float = static(default=0.15)  # of the basin, to each side [m]

    @property
    def action_spec(self) -> Spec:
        return Spec.unit(self.model.structure.nu, self.model.qpos0.dtype)

    @property
    def grain(self) -> float:
        """Radius of the water's particles [m]: half their spacing."""
        return self.spacing / 2

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        """The cup is level and at rest; at difficulty 0 the basin is within a tenth of the greatest distance."""
        home = self.model.key.qpos[self.model.id("key", "home")]
        noise = jax.vmap(lambda key: jax.random.uniform(key, home.shape, home.dtype, -1, 1))(keys)
        bent = home[None, :2] + self.reset_noise_scale * noise[:, :2]
        basin = home[None, 3] + self.reset_distance * (0.1 + 0.9 * difficulty) * noise[:, 3]
        qpos = jnp.concatenate([bent, -bent.sum(1, keepdims=True), basin[:, None]], 1)
        return Start(qpos, jnp.zeros_like(qpos))

    def control(self, physics: State, action: Array) -> Array:
        known = dataclasses.replace(
            self.model, dof=self.model.dof.replace(damping=jnp.zeros_like(self.model.dof.damping))
        )
        speed = jnp.clip(action, -1, 1) * jnp.asarray(self.speeds, action.dtype)[None]
        wanted = jnp.pad(self.following * (speed - physics.qvel[:, :3]), ((0, 0), (0, 1)))
        return smooth_inverse(known, physics, wanted)[:, :3] + self._load(physics)

    def matter(self, physics: State) -> tuple[sph.State, ...]:
        """Still water in the cup, and the walls of cup and basin, as one state of SPH: the water first."""
        water, cup, basin = self._layout
        real, worlds = physics.qpos.dtype, len(physics.qpos)
        places = jnp.asarray(np.concatenate([water, cup, basin]), real)[None]
        parts = [len(water) + len(cup), len(basin)]
        pos, turn = (jnp.repeat(a, np.array(parts), axis=1) for a in self._frames(physics))
        above = np.pad(CUP[0, 1] + self.depth - water[:, 1], (0, len(cup) + len(basin)))  # none above walls
        pressure = self._fluid.density * -self.model.opt.gravity[:, 1:2] * jnp.asarray(above, real)[None]
        kinds = np.repeat([sph.FLUID, sph.WALL], [len(water), len(cup) + len(basin)])
        return (
            sph.init(
                self._fluid,
                pos + _turned(turn, places),
                material=kinds,
                pressure=jnp.broadcast_to(pressure, (worlds, len(kinds))),
                extent=(1.5, 1.0),
            ),
        )

    def advance(
        self, physics: State, matter: tuple[sph.State, ...], ctrl: Array
    ) -> tuple[State, tuple[sph.State, ...], LastSolve]:
        _, cup, basin = self._layout
        walls = np.pad(np.concatenate([cup, basin]), ((0, 0), (0, 1)))
        medium = coupling.SPH(self._fluid, walls, ("cup",) * len(cup) + ("basin",) * len(basin))
        physics, (water,) = coupling.step(self.model, physics, (medium,), matter, substeps=self.substeps, ctrl=ctrl)
        spilled = (water.kind == sph.FLUID) & (water.x[..., 1] < DRAIN)
        water = water.replace(
            kind=jnp.where(spilled, sph.EMPTY, water.kind), v=jnp.where(spilled[..., None], 0, water.v)
        )
        return physics, (water,), unsolved(physics)

    def points(self, state: EnvState) -> dict[str, Array]:
        (water,), count = state.matter, len(self._layout[0])
        there = water.kind[:, :count, None] == sph.FLUID
        return {"water": jnp.where(there, jnp.pad(water.x[:, :count], ((0, 0), (0, 0), (0, 1))), jnp.nan)}

    def observation(self, state: EnvState) -> Array:
        water = self._water(state)
        tilt = state.qpos[:, :3].sum(1)
        shares = jnp.stack([water.in_cup.mean(1), water.in_basin.mean(1), jnp.cos(tilt), jnp.sin(tilt)], 1)
        parts = state.qpos[:, :3], 0.3 * state.qvel[:, :3], 2 * water.lip, shares, 10 * water.rest, water.flow
        return jnp.concatenate(parts, 1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        water = self._water(after)
        poured = water.in_basin.mean(1)
        near = self.near_weight / (1 + (water.lip[:, 0] / 0.15) ** 2)
        cost = self.ctrl_cost_weight * (action**2).sum(1)
        share = (water.in_basin > 0.5).mean(1, dtype=poured.dtype)
        return poured + near - cost, {
            "reward_poured": poured,
            "reward_near": near,
            "reward_ctrl": -cost,
            "poured": share,
            "spilled": (1 - water.there).mean(1),
            "success": (share >= self.enough) & self.at_limit(before),
        }

    def _load(self, physics: State) -> Array:
        """Torques that carry the weight of the full cup's water, where it rests [N m], (world, 3)."""
        water, found, real = self._layout[0], kinematics(self.model, physics), physics.qpos.dtype
        pos = found.body.pos[:, np.array([self.model.id("body", name) for name in ("upper", "fore", "cup")])]
        middle = _turned(physics.qpos[:, :3].sum(1, keepdims=True), jnp.asarray(water.mean(0), real)[None, None])
        x, y = jnp.moveaxis(pos[:, 2:, :2] + middle - pos[..., :2], 2, 0)
        gravity = self.model.opt.gravity
        return len(water) * self.spacing**2 * self._fluid.density * (y * gravity[:, :1] - x * gravity[:, 1:2])

    @property
    def _fluid(self) -> sph.Params:
        """Water in a slice: per metre of depth it has the mass of ``thickness``. The model may differ by worlds."""
        opt = self.model.opt
        timestep, gravity = known(opt.timestep, opt.gravity) or (opt.timestep, opt.gravity)
        return sph.Params(
            self.spacing,
            timestep / self.substeps,
            sound_speed=10.0,
            density=1000.0 * self.thickness,
            gravity=gravity[:, :2],
            artificial=0.05,
            method="dfsph",
            tolerance=self.tolerance,
        )

    @functools.cached_property
    def _layout(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Particles of water and cup from the wrist, and of the basin from its origin [m], each (n, 2)."""
        top = CUP[0, 1] + self.depth
        water = sample.box(tuple(CUP[0]), (CUP[1, 0], top), self.spacing)
        return water, _walls(CUP, self.spacing), _walls(BASIN, self.spacing)

    def _expect_options(self) -> None:
        for name in ("thickness", "tolerance", "following"):
            expect_number(self, name, positive=True)
        for name in ("near_weight", "ctrl_cost_weight", "reset_noise_scale"):
            expect_number(self, name)
        expect_number(self, "enough", high=1)
        expect_number(self, "reset_distance", high=self._rail)
        expect_number(self, "spacing", low=-np.inf)
        expect_number(self, "depth", low=-np.inf)
        if whole_number("FluidManipulation: substeps", self.substeps) < 1:
            raise ValueError(f"FluidManipulation: substeps is {self.substeps}, must be at least 1")
        self._expect_rows()

    def _expect_rows(self) -> None:
        """Refuse what is not filled by whole rows of particles; ValueError."""
        high, spacing, depth = CUP[1, 1] - CUP[0, 1], self.spacing, self.depth
        if not (0 < spacing <= WALL / 3 and spacing <= depth <= high):
            raise ValueError(
                f"FluidManipulation: spacing is {spacing}, depth {depth}: spacing is at most {WALL / 3:g} m, "
                f"so that walls are three layers, and water from one spacing to {high:g} m deep"
            )
        if not _is_whole(EDGE / spacing):
            n = int(EDGE / spacing)
            raise ValueError(
                f"FluidManipulation: spacing is {spacing}: whole rows of particles must fill cup and basin, whose "
                f"edges are multiples of {EDGE:g} m; the nearest spacings are {EDGE / (n + 1):.6g} and {EDGE / n:.6g} m"
            )
        if not _is_whole(depth / spacing):
            n = int(depth / spacing)
            raise ValueError(
                f"FluidManipulation: depth is {depth}, and spacing {spacing}: water is whole rows of particles deep; "
                f"the nearest depths are {n * spacing:.6g} and {(n + 1) * spacing:.6g} m"
            )

    @property
    def _rail(self) -> float:
        """How far the basin can be from home, to each side [m]; no bound is known of a traced model."""
        if (found := known(self.model.joint.range, self.model.key.qpos)) is None:
            return np.inf
        ends = found[0][:, self.model.id("joint", "basin")] - found[1][self.model.id("key", "home"), 3]
        return float(np.abs(ends).min()) + 1e-6

    def _frames(self, physics: State) -> tuple[Array, Array]:
        """Origins [m] and angles [rad] of cup and basin, (world, 2, 2) and (world, 2)."""
        bodies = np.array([self.model.id("body", name) for name in ("cup", "basin")])
        tilt = physics.qpos[:, :3].sum(1)
        return kinematics(self.model, physics).body.pos[:, bodies, :2], jnp.stack([tilt, jnp.zeros_like(tilt)], 1)

    def _water(self, state: EnvState) -> Water:
        """What is seen of the water, from the state alone."""
        physics, (water,), count = state.physics, state.matter, len(self._layout[0])
        x, v, there = water.x[:, :count], water.v[:, :count], water.kind[:, :count] == sph.FLUID
        x = jnp.where(there[..., None], x, 0)  # an empty slot's numbers mean nothing
        there = there.astype(x.dtype)
        pos, turn = self._frames(physics)
        from_cup = _turned(-turn[:, :1], x - pos[:, :1])
        from_basin = x - pos[:, 1:]
        in_cup = there * _inside(CUP, from_cup, self.spacing)
        weight = in_cup / (in_cup.sum(1, keepdims=True) + 1e-3)
        middle = np.array([CUP[:, 0].mean(), CUP[0, 1] + self.depth / 2])
        found = kinematics(self.model, physics)
        cup = found.body.vel[:, self.model.id("body", "cup")]
        ahead = _turned(turn[:, :1], jnp.asarray(middle, x.dtype)[None, None])[:, 0]
        moving = cup[:, :2] + cup[:, 5:] * jnp.stack([-ahead[:, 1], ahead[:, 0]], 1)
        lip, mouth = (found.site.pos[:, self.model.id("site", name), :2] for name in ("lip", "mouth"))
        return Water(
            there=there,
            in_cup=in_cup,
            in_basin=there * _inside(BASIN, from_basin, self.spacing),
            rest=(weight[..., None] * (from_cup - jnp.asarray(middle, x.dtype)[None, None])).sum(1),
            flow=(weight[..., None] * (v - moving[:, None])).sum(1),
            lip=lip - mouth,
        )


def _walls(inside: np.ndarray, spacing: float) -> np.ndarray:
    """Layers of particles below and beside an open vessel, outward from its inner faces, (n, 2)."""
    thick = spacing * int(WALL / spacing + 1e-6)
    found = sample.box(tuple(inside[0] - thick), (inside[1, 0] + thick, inside[1, 1]), spacing)
    return found[((found < inside[0]) | (found > inside[1])).any(1)]


def _is_whole(ratio: float) -> bool:
    return abs(ratio - round(ratio)) < 1e-6


def _turned(angle: Array, x: Array) -> Array:
    """Points (world, n, 2) after a turn by angles (world, n | 1)."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([c * x[..., 0] - s * x[..., 1], s * x[..., 0] + c * x[..., 1]], -1)


def _inside(ends: np.ndarray, x: Array, spacing: float) -> Array:
    """Whether points (world, n, 2) are in a vessel, from 0 to 1, smooth across its mouth; walls are without a step."""
    low, high = ends[0] - spacing, np.array([ends[1, 0] + spacing, ends[1, 1]])
    low, high = (jnp.asarray(end, x.dtype)[None, None] for end in (low, high))
    return jax.nn.sigmoid(jnp.concatenate([x - low, high - x], -1) * (2 / spacing)).prod(-1)
