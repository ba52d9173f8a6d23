"""The protocol of gradients through contact: a difference counts only where no perturbed run changes its signature.

The *signature* of a step is its contacts' pairs and features, and for every row of every constraint whether it is
open, acts within its bounds, or slides. Columns are single coordinates of the state, in tangent space, and random
directions of every parameter. A difference is the best over its steps, of those that count.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.bridge import kernels, warp_op
from fphys.model.structure import Integrator
from fphys.rigid import stages as rigid_stages
from fphys.rigid.linearize import difference
from fphys.rigid.solve import constraint
from fphys.rigid.tree import topology
from fphys.rigid.tree.integrate import integrate_positions

STEPS = (1e-5, 1e-6, 1e-7)
RELATIVE = ("body.mass", "body.inertia", "dof.damping", "dof.armature", "geom.friction", "geom.solref", "geom.solimp")
LEAVES = (
    *RELATIVE, "body.pos", "body.ipos", "geom.size", "geom.pos", "hfield.data", "hfield.size", "actuator.gear",
    "actuator.gainprm", "actuator.biasprm", "opt.gravity", "opt.timestep", "opt.impratio",
)  # fmt: skip
BATCH = 1024
FLOOR = 2e-10
"""A difference of ends of the order of one is not known better than this for each step that rounds."""


class Result(NamedTuple):
    """Every column of every window: the group it belongs to, whether it counts, and its gradient error."""

    group: np.ndarray  # (column,)
    counts: np.ndarray  # (window, column)
    error: np.ndarray  # (window, column)
    apart: np.ndarray  # by how much differences of neighbouring steps disagree, as an error, (window, column)


class Windows:
    """Some steps from each of some states, as a function of everything that they depend on."""

    def __init__(self, model: fphys.Model, state: fphys.State, ctrls: np.ndarray, seed: int = 0, ways: int = 2) -> None:
        """``ctrls``: shape (steps, window, nu); ``ways``: random directions of each parameter."""
        s = model.structure
        self.model, self.state, self.ctrls = model, state, jnp.asarray(ctrls)
        self.leaves = {path: np.asarray(leaf) for path in LEAVES if (leaf := _get(model, path)).size and leaf.any()}
        self.units = {path: _unit(path, leaf) for path, leaf in self.leaves.items()}
        sizes = {"qpos": s.nv, "qvel": s.nv, "act": s.na, "ctrl": s.nu}
        sizes = {k: n for k, n in sizes.items() if n} | {k: leaf.size for k, leaf in self.leaves.items()}
        ends = np.cumsum([0, *sizes.values()])
        self.parts = {k: slice(a, b) for k, a, b in zip(sizes, ends[:-1], ends[1:], strict=True)}
        self.size = int(ends[-1])
        rng = np.random.default_rng(seed)
        columns, groups = [], []
        for name, part in self.parts.items():
            if name in self.leaves:
                inner = rng.standard_normal((ways, part.stop - part.start)) * (self.units[name].ravel() > 0)
            else:
                inner = np.eye(part.stop - part.start)
            outer = np.zeros((len(inner), self.size))
            outer[:, part] = inner
            columns.append(outer)
            groups += [name] * len(inner)
        self.columns, self.groups = np.concatenate(columns), np.array(groups)
        self.final = jax.jit(self._final)(model, state, self.ctrls)
        self._run = jax.jit(functools.partial(self.run, signed=True))
        self._pull = jax.jit(self.pull)

    def _final(self, model: fphys.Model, state: fphys.State, ctrls: Any) -> Any:
        return jax.lax.scan(lambda x, u: (fphys.step(model, x, u), None), state, ctrls)[0]

    def changed(self, x: Any) -> fphys.Model:
        """The model of every world, its constants derived anew."""
        leaves = {
            path: jnp.asarray(leaf) + x[:, self.parts[path]].reshape(-1, *leaf.shape[1:]) * self.units[path][None]
            for path, leaf in self.leaves.items()
        }
        return self.model.replace(leaves)

    def run(self, x: Any, state: fphys.State, ctrls: Any, final: fphys.State, signed: bool = False) -> Any:
        """Where the worlds end, relative to ``final``, and the signature of every step."""
        model, part = self.changed(x), self.parts
        state = state.replace(
            qpos=integrate_positions(model, state.qpos, x[:, part["qpos"]], jnp.ones(1, x.dtype)),
            qvel=state.qvel + x[:, part["qvel"]],
        )
        if "act" in part:
            state = state.replace(act=state.act + x[:, part["act"]])
        ctrls = ctrls + x[None, :, part["ctrl"]] if "ctrl" in part else ctrls

        def step(at: fphys.State, u: Any) -> Any:
            after = fphys.step(model, at, u)
            if not signed:
                return after, None
            return after, sum(signature(model, *stage) for stage in stages(model, at, u, after.warmstart))

        end, marks = jax.lax.scan(step, state, ctrls)
        out = [difference(self.model, final.qpos, end.qpos), 0.1 * (end.qvel - final.qvel), end.act - final.act]
        return jnp.concatenate(out, 1), marks

    def pull(self, state: fphys.State, ctrls: Any, final: fphys.State, weights: Any) -> Any:
        """The gradient of a weighted sum of the end of every window."""
        x = jnp.zeros((len(weights), self.size))
        return jax.grad(lambda x: jnp.vdot(self.run(x, state, ctrls, final)[0], weights))(x)

    def gradient(self, weights: Any) -> np.ndarray:
        return np.asarray(self._pull(self.state, self.ctrls, self.final, weights))

    def check(self, seed: int = 1) -> Result:
        """The gradient error of every column in every window."""
        windows, columns = len(self.state.qpos), len(self.columns)
        width = self.model.structure.nv * 2 + self.model.structure.na
        weights = np.random.default_rng(seed).standard_normal((windows, width))
        g = self.gradient(jnp.asarray(weights))
        slope = np.einsum("wp,cp->wc", g, self.columns)
        norm = np.stack([np.linalg.norm(g[:, part], axis=1) for part in self.parts.values()], 1)
        own = np.array([list(self.parts).index(group) for group in self.groups])
        scale = norm[:, own] * np.linalg.norm(self.columns, axis=1)
        window, column = (v.ravel() for v in np.mgrid[:windows, :columns])
        _, nominal = self.outcomes(np.arange(windows), np.zeros((windows, self.size)))
        differences, kept = [], []
        for h in STEPS:
            (high, a), (low, b) = (self.outcomes(window, sign * h * self.columns[column]) for sign in (1, -1))
            differences.append((((high - low) / (2 * h)) * weights[window]).sum(1).reshape(windows, columns))
            kept.append(((a == nominal[window]) & (b == nominal[window])).reshape(windows, columns))
        fd, kept = np.where(kept, differences, np.nan), np.array(kept)
        floor, bound = FLOOR * len(self.ctrls), np.maximum(np.abs(fd), 1e-3 * scale)
        gap = np.abs(slope - fd)
        error = np.where(gap <= floor, 0, gap / np.maximum(bound, 1e-300))
        error = np.where(kept, error, np.inf)
        apart = np.where(kept[1:] & kept[:-1], np.abs(np.diff(fd, axis=0)) / np.maximum(bound[1:], 1e-300), np.inf).min(
            0
        )
        return Result(self.groups, kept.any(0), error.min(0), np.where(np.isfinite(apart), apart, 0))

    def outcomes(self, window: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends and signatures (hashed) of many perturbed windows, in batches of one size."""
        batch, ends, marks = min(BATCH, -(-len(x) // 64) * 64), [], []
        for i in range(0, len(x), batch):
            here = np.resize(np.arange(i, min(i + batch, len(x))), batch)
            pick = window[here]
            state, final = (jax.tree.map(lambda v, p=pick: v[p], s) for s in (self.state, self.final))
            end, mark = self._run(jnp.asarray(x[here]), state, self.ctrls[:, pick], final)
            n = min(batch, len(x) - i)
            ends.append(np.asarray(end)[:n])
            marks.append(np.asarray(mark)[:, :n])
        flat = np.concatenate(marks, 1)
        mixed = (flat * np.random.default_rng(9).integers(1, 2**63, len(flat), np.uint64)[:, None] % 2**61).sum(0)
        return np.concatenate(ends), mixed


def _get(model: fphys.Model, path: str) -> np.ndarray:
    group, name = path.split(".")
    return np.asarray(getattr(getattr(model, group), name))


def _unit(path: str, leaf: np.ndarray) -> np.ndarray:
    """What one unit of a column is: each number's own size, or a share of the leaf's where it may be zero."""
    size = np.abs(leaf[0])
    return size if path in RELATIVE or path.startswith("opt") else np.maximum(size, 0.1 * size.max())


def stages(model: fphys.Model, state: fphys.State, ctrl: Any, qacc: Any) -> list[Any]:
    """The states at which a step asks for accelerations, and these: one, or four of Runge and Kutta's."""
    found, h = [(state, qacc)], model.opt.timestep
    if model.structure.integrator != Integrator.RK4:
        return found
    for part in (0.5, 0.5, 1.0):
        last, qacc = found[-1]
        at = state.replace(
            qpos=integrate_positions(model, state.qpos, last.qvel, part * h),
            qvel=state.qvel + part * h[:, None] * qacc,
        )  # activations, that no contact depends on within a step, stay
        found.append((at, fphys.forward(model, at, ctrl)[0]))
    return found


def signature(model: fphys.Model, state: fphys.State, qacc: Any) -> Any:
    """A hash of what must not change within a window, uint32, shape (world,)."""
    if not constraint.constrained(model, state):
        return jnp.zeros(len(state.qpos), jnp.uint64)
    given = constraint.Parameters(constraint.mix_pairs(model), constraint.bonds(model))
    args = jax.lax.stop_gradient((model, state, given, qacc))
    (pair, feature), error, weight, force, _ = _marks_op(*args)
    free = -weight * error
    inside = jnp.abs(force - free) <= 1e-12 * jnp.abs(free)
    row = jnp.where(weight > 0, jnp.where(inside, 1, jnp.where(force == 0, 2, 3)), 0)
    feature = jnp.where(pair < 0, -1, feature)
    marks = jnp.concatenate([pair, feature, row], 1).astype(jnp.uint64)
    primes = np.random.default_rng(3).integers(1, 2**63, marks.shape[1], np.uint64)
    return (marks * primes[None]).sum(1)


class Marks(NamedTuple):
    """Contacts, and every row's error, weight and force."""

    ids: constraint.Ids
    error: Any
    weight: Any
    force: Any
    status: Any


def _marks(launch: Any, model: Any, state: Any, given: Any, qacc: Any, out: Marks) -> None:
    """Contacts, and every row's error, weight and force at given accelerations."""
    s, t = model.structure, rigid_stages.types(state.qpos)
    setting = constraint.set_up(launch, model, state, given, None, out.ids, out.status)
    work = constraint.working_memory(launch, model, setting) | {"error": out.error, "force": out.force}
    total = launch.scratch((launch.worlds, s.nv), t.real)
    stiffness = launch.scratch((launch.worlds, topology.packed_size(s.nv)), t.real)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.newton").restoring_forces,
        dim=launch.worlds,
        inputs=[qacc, setting.rows, constraint.cones(model, given.pairs, setting)],
        outputs=[total, stiffness, work],
    )
    zero = launch.scratch(out.weight.shape, t.real, zeroed=True)
    copy = kernels(state.qpos.dtype, "rigid.forces.forces").subtract
    launch(copy, dim=out.weight.shape, inputs=[setting.rows.weight, zero], outputs=[out.weight])


def _marks_shapes(model: Any, state: Any, given: Any, qacc: Any) -> Marks:
    w, shape = qacc.shape[0], jax.ShapeDtypeStruct
    contact = shape((w, state.max_contacts), jnp.int32)
    row = shape((w, state.max_constraints), qacc.dtype)
    return Marks(constraint.Ids(contact, contact), row, row, row, shape((w,), jnp.uint32))


_marks_op = warp_op(_marks, _marks_shapes, differentiable=False, name="signature")
