"""Models from USD files, as ``mujoco.MjSpec``: bodies, masses, colliders, joints and drives of UsdPhysics.

Attributes of MuJoCo's and Newton's schemas are read where they stand. What is not simulated is refused by its path, and
what is read otherwise than it is written is named in one warning.
"""

import dataclasses
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from . import usd_shapes as shapes
from .caps import MAX_DOFS, MAX_TREE
from .structure import Integrator
from .usd_contacts import separate, standing
from .usd_couplings import Named, add_coupling, add_mimics, add_tendons, can_couple, is_coupling
from .usd_joints import Joint, Placed, joint, place
from .usd_mujoco import add_actuators, add_joint, add_motor, add_options
from .usd_stage import Stage, as_model_errors, is_usd, open_stage, path_of, pxr

__all__ = ["is_usd", "read"]


@dataclasses.dataclass(eq=False)
class Body:
    """A rigid body, and how it hangs in the tree."""

    prim: Any
    pose: np.ndarray  # in the world as the stage is written, rigid, (4, 4)
    colliders: list[shapes.Collider] = dataclasses.field(default_factory=list)
    parent: Any = None  # path, None for the world
    joints: list[tuple[Joint, int]] = dataclasses.field(default_factory=list)  # and which of its bodies this is
    kinematic: bool = False  # is moved by hand
    free: bool = False  # floats
    tree: Any = None  # path of the first body of its tree

    @property
    def moves(self) -> bool:
        """Whether it does so on its own, rather than with what it is fixed to."""
        return self.free or any(own.dofs for own, _ in self.joints)


def read(empty: Callable[[], Any], source: str | Path, root: str | Path | None = None) -> Any:
    """A ``mujoco.MjSpec`` of a USD file; one warning names what is read otherwise than it is written.

    Args:
        empty: makes an empty ``mujoco.MjSpec``.
        source: the file.
        root: as in :func:`fphys.load`.

    Raises:
        ModelError: the file is malformed, names files outside the roots, or is not physical.
        UnsupportedError: it has what is not simulated; the error names every such prim.
        MissingDependencyError: usd-core is not installed.
    """
    usd = open_stage(source, root)
    with as_model_errors(usd.label):
        spec = _read(usd, empty)
        warned = usd.finish()
    if warned:
        title = f"{usd.label}: it is read with these changes:"
        warnings.warn("\n  ".join([title, *warned]), UserWarning, stacklevel=2)
    return spec


def _read(usd: Stage, empty: Callable[[], Any]) -> Any:
    physics = pxr("UsdPhysics")
    bodies, static, joints = _bodies(usd, physics), [], []

    def owner(prim: Any) -> Any:
        while prim and not prim.IsPseudoRoot():
            if prim.GetPath() in bodies:
                return prim.GetPath()
            prim = prim.GetParent()
        return None

    for prim in usd.prims:
        if not owner(prim):
            usd.ask(prim, *shapes.MASS)  # what stands needs none
        if prim.HasAPI(physics.CollisionAPI):
            own = bodies.get(owner(prim))
            found = shapes.collider(usd, prim, own.pose if own else np.eye(4))
            (own.colliders if own else static).extend([found] if found else [])
        elif prim.IsA(physics.Joint) or str(prim.GetTypeName()).endswith("Joint"):
            joints += [found] if (found := joint(usd, prim, owner)) else []
    hung = sum(len(own.dofs) for own in joints)
    if 6 * (len(bodies) - len(joints)) + hung > MAX_DOFS or hung > MAX_TREE:
        most = f"{MAX_DOFS} degrees of freedom, or {MAX_TREE} in joints"
        raise ModelError(f"{usd.label}: it has more than {most}: use fewer bodies")
    couplings = [own for own in joints if is_coupling(usd, own)]
    couplings += _grow(usd, bodies, [own for own in joints if not own.free and own not in couplings])
    if not bodies and not static and not usd.refused:
        raise ModelError(f"{usd.label}: it has neither rigid bodies nor colliders of UsdPhysics")
    return _build(usd, empty, bodies, static, joints, couplings)


def _bodies(usd: Stage, physics: Any) -> dict[Any, Body]:
    """Every rigid body by its path, in the stage's order."""
    found = {}
    for prim in usd.prims:
        if not prim.HasAPI(physics.RigidBodyAPI):
            continue
        if usd.get(prim, "physics:rigidBodyEnabled", True) is False:
            usd.leave(prim)
        else:
            whole = usd.transform(prim)
            if abs(np.linalg.det(whole[:3, :3])) == 0:
                raise usd.fault(prim, "its scale is zero")
            kinematic = usd.get(prim, "physics:kinematicEnabled", False) is True
            found[prim.GetPath()] = Body(prim, shapes.rigid(whole), kinematic=kinematic)
            for name in ("physics:velocity", "physics:angularVelocity"):
                if np.any(usd.get(prim, name, np.zeros(3))):
                    usd.note(prim, f"its {name} is not read: give qvel to fphys.init")
    return found


def _grow(usd: Stage, bodies: dict[Any, Body], joints: list[Joint]) -> list[Joint]:
    """Hang every body on the world or on another body. A root without a joint floats.

    Returns:
        The joints that close a loop.
    """
    edges: dict[frozenset[Any], list[Joint]] = {}
    for own in joints:
        edges.setdefault(frozenset(own.bodies), []).append(own)
    for group in edges.values():
        if len(group) > 1 and not _add_up(usd, group):
            raise usd.fault(group[1].prim, f"it holds the bodies that {path_of(group[0].prim)} holds: keep one joint")
    closing = _open_loops(usd, edges)
    at: dict[Any, list[frozenset[Any]]] = {path: [] for path in [None, *bodies]}
    for pair in edges:
        for path in pair:
            at[path].append(pair)

    def grow(start: Any) -> None:
        todo = [start]
        while todo:
            here = todo.pop(0)
            for pair in at[here]:
                (there,) = pair - {here}
                if there is None or bodies[there].tree is not None:
                    continue  # it is the one above
                body = bodies[there]
                body.parent, body.joints = here, [(own, own.bodies.index(there)) for own in edges[pair]]
                body.tree = there if here is None else bodies[here].tree
                todo.append(there)

    grow(None)
    root = pxr("UsdPhysics").ArticulationRootAPI
    second = {own.bodies[1] for own in joints}
    for path in sorted(bodies, key=lambda path: (not bodies[path].prim.HasAPI(root), path in second)):
        if bodies[path].tree is None:
            bodies[path].free, bodies[path].tree = True, path
            grow(path)
    return closing


def _open_loops(usd: Stage, edges: dict[frozenset[Any], list[Joint]]) -> list[Joint]:
    """Take out of the edges the joints that close a loop: of each the last one that equality constraints can hold."""
    above: dict[Any, Any] = {}

    def top(path: Any) -> Any:
        while path in above:
            path = above[path]
        return path

    closing = []
    for pair in sorted(edges, key=lambda pair: len(edges[pair]) == 1 and can_couple(edges[pair][0])):
        one, other = map(top, pair)
        if one != other:
            above[one] = other
            continue
        group = edges.pop(pair)
        if len(group) > 1 or not can_couple(group[0]):
            why = "it closes a loop of joints, none of which is fixed, spherical or revolute and without a drive"
            raise usd.fault(group[0].prim, f"{why}: take it out, or split a body")
        usd.note(group[0].prim, "it closes a loop of joints: equality constraints hold it, which give a little")
        closing += group
    return closing


def _add_up(usd: Stage, group: list[Joint]) -> bool:
    """Whether several joints between two bodies add up, as MuJoCo's do, rather than hold the same thing twice."""
    if all("MjcJointAPI" in usd.schemas(own.prim) for own in group):
        return True
    return any(usd.get(prim, "newton:jointsAddMobility", False) is True for prim in usd.prims)


def _build(
    usd: Stage,
    empty: Callable[[], Any],
    bodies: dict[Any, Body],
    static: list[shapes.Collider],
    joints: list[Joint],
    couplings: list[Joint],
) -> Any:
    """The spec of bodies that hang in a tree."""
    spec, names = empty(), Names()
    add_options(usd, spec)
    every = [*static, *(own for body in bodies.values() for own in body.colliders)]
    shapes.measure(usd, every, empty)
    paths = {path: body.colliders for path, body in bodies.items()}
    masks = dict(zip(every, shapes.filters(usd, every, paths, _apart(usd, bodies)), strict=True))
    made: dict[Any, Any] = {None: spec.worldbody}
    placed: dict[Any, list[tuple[str, Placed]]] = {}
    geoms: dict[shapes.Collider, Any] = {}
    heavy = {path: shapes.mass_of(usd, body.prim, body.pose, body.colliders) for path, body in bodies.items()}
    _require_masses(usd, bodies, {path: own.mass for path, own in heavy.items()})

    def shape(body: Any, own: shapes.Collider) -> None:
        contype, conaffinity = masks[own]
        name = names.of("geom", own.prim)
        geoms[own] = shapes.add_geom(spec, body, own, name, contype=contype, conaffinity=conaffinity)

    for path, group in standing(joints, bodies, static).items():
        if path is not None:
            made[path] = spec.worldbody.add_body(name=names.of("body", usd.stage.GetPrimAtPath(path)))
            made[path].explicitinertial = True  # it has no mass
        for own in group:
            shape(made[path], own)
    for path in _order(bodies):
        body = bodies[path]
        base = np.eye(4) if body.parent is None else bodies[body.parent].pose
        reach, dofs = np.linalg.inv(base) @ body.pose, []
        for i, (own, child) in enumerate(body.joints):
            moved, more = place(usd, own, child, base, body.pose)
            reach = moved if i == 0 else reach
            dofs += [(own.prim, one) for one in more]
            if len(body.joints) > 1 and any(one.ref for one in more):
                usd.refuse(own.prim, "one of several joints between two bodies, away from its zero")
        new = made[path] = made[body.parent].add_body(
            name=names.of("body", body.prim), pos=reach[:3, 3], quat=shapes.quaternion(reach[:3, :3])
        )
        gravity = float(usd.get(body.prim, "physxRigidBody:disableGravity", False) is True)
        new.gravcomp = usd.get(body.prim, "mjc:body:gravcomp", gravity)
        if body.free and body.kinematic:
            new.mocap = True
        elif body.free:
            new.add_freejoint(name=names.of("joint", body.prim))
        if dofs and body.kinematic:
            usd.note(body.prim, "its kinematicEnabled is not read: it moves by its joint")
        for prim, one in dofs:
            name = names.of("joint", prim, one.dof.label)
            add_joint(usd, new, prim, one, name)
            placed.setdefault(prim.GetPath(), []).append((name, one))
            names.claim("actuator", name)
        if heavy[path].mass > 0:
            own_mass = heavy[path]
            new.explicitinertial, new.mass, new.ipos = True, own_mass.mass, own_mass.center
            xx, yy, zz = np.diag(own_mass.inertia)
            xy, xz, yz = own_mass.inertia[0, 1], own_mass.inertia[0, 2], own_mass.inertia[1, 2]
            new.fullinertia = (xx, yy, zz, xy, xz, yz)
        for own in body.colliders:
            shape(new, own)

    damped = any(one.dof.drive and one.dof.drive.damping for own in placed.values() for _, one in own)
    if damped and not usd.mujocos:
        spec.option.integrator = int(Integrator.IMPLICITFAST)  # as other engines take their damping
    one = {path: own[0] for path, own in placed.items() if len(own) == 1}
    named = Named(
        joints={path: name for path, (name, _) in one.items()},
        turning={path: each.dof.turns for path, (_, each) in one.items()},
        zero={path: each.ref for path, (_, each) in one.items()},
        sites=_sites(usd, bodies, made, names),
        geoms={own.prim.GetPath(): geom.name for own, geom in geoms.items()},
    )
    separate(usd, spec, joints, bodies, made, geoms)
    for own in couplings:
        ends = [(made[path], bodies[path].pose if path else np.eye(4)) for path in own.bodies]
        add_coupling(usd, spec, own, ends, names.of("equality", own.prim))
    add_mimics(usd, spec, named)
    add_tendons(usd, spec, named, lambda prim: names.of("tendon", prim))
    targets = [target for own in placed.values() for name, each in own for target in add_motor(spec, name, each)]
    targets += add_actuators(usd, spec, named, lambda prim: names.of("actuator", prim))
    if any(targets):
        spec.add_key(name="targets", ctrl=targets)
    return spec


def _order(bodies: dict[Any, Body]) -> list[Any]:
    """Parents before their children."""
    done: dict[Any, None] = {}

    def visit(path: Any) -> None:
        chain = []
        while path is not None and path not in done:
            chain.append(path)
            path = bodies[path].parent
        done.update(dict.fromkeys(reversed(chain)))

    for path in bodies:
        visit(path)
    return list(done)


def _require_masses(usd: Stage, bodies: dict[Any, Body], masses: dict[Any, float]) -> None:
    """Raise ModelError for what moves and has no mass, alone or with what is fixed to it."""
    total = dict(masses)
    for path in reversed(_order(bodies)):
        body = bodies[path]
        if body.moves:
            if total[path] <= 0 and not (body.free and body.kinematic):
                raise usd.fault(
                    body.prim, "it moves and has no mass: give it a physics:mass and an inertia, or colliders"
                )
        elif body.parent is not None:
            total[body.parent] += total[path]


def _apart(usd: Stage, bodies: dict[Any, Body]) -> list[set[shapes.Collider]]:
    """Colliders of articulations whose bodies do not touch one another."""
    found, names = [], ("newton:selfCollisionEnabled", "physxArticulation:enabledSelfCollisions")
    for prim in usd.prims:
        flags = [usd.get(prim, name, True) for name in names]
        if not all(flags):
            trees = {body.tree for path, body in bodies.items() if path.HasPrefix(prim.GetPath())}
            if not trees:  # on a joint
                targets = [*usd.targets(prim, "physics:body0"), *usd.targets(prim, "physics:body1")]
                trees = {bodies[target.GetPath()].tree for target in targets if target.GetPath() in bodies}
            found.append({own for body in bodies.values() if body.tree in trees for own in body.colliders})
    return found


def _sites(usd: Stage, bodies: dict[Any, Body], made: dict[Any, Any], names: "Names") -> dict[Any, str]:
    """Add the sites of MuJoCo's and Newton's schemas; their names by path."""
    found = {}
    for prim in usd.prims:
        if {"MjcSiteAPI", "NewtonSiteAPI"} & set(usd.schemas(prim)):
            path = next((p for p in prim.GetPath().GetAncestorsRange() if p in bodies), None)
            pose = shapes.rigid(np.linalg.inv(bodies[path].pose if path else np.eye(4)) @ usd.transform(prim))
            name = found[prim.GetPath()] = names.of("site", prim)
            made[path].add_site(name=name, pos=pose[:3, 3], quat=shapes.quaternion(pose[:3, :3]))
    return found


class Names:
    """Names of elements: those of their prims, with those of prims above where they would be the same."""

    def __init__(self) -> None:
        self._taken: dict[str, set[str]] = {"body": {"world"}}

    def claim(self, kind: str, name: str) -> None:
        """Keep a name from being given."""
        self._taken.setdefault(kind, set()).add(name)

    def of(self, kind: str, prim: Any, label: str = "") -> str:
        taken = self._taken.setdefault(kind, set())
        end, above = f":{label}" if label else "", prim.GetParent()
        shown = prim.GetDisplayName()
        name = shown if re.fullmatch(r"[\w./ -]+", shown) else prim.GetName()
        while f"{name}{end}" in taken and not above.IsPseudoRoot():
            name, above = f"{above.GetName()}/{name}", above.GetParent()
        if f"{name}{end}" in taken:
            name = f"{path_of(prim)[2:-1]}#{len(taken)}"
        taken.add(f"{name}{end}")
        return f"{name}{end}"
