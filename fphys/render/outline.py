"""What of a model is seen, as MJCF: to show a motion later without the files that the model came from."""

import operator
from typing import Any

import numpy as np

from ..model.structure import GeomType, JointType
from .canvas import visible_geoms


def outline(model: Any, world: int = 0) -> str:
    """MJCF text of a model's bodies, joints and visible geoms, with their colours and meshes.

    ``qpos`` and mocap poses mean the same as in ``model``. There is no dynamics in it: no actuators, no contacts, and
    every body has a mass of 1 kg. Textures become plain colours. Numbers have six digits.

    Args:
        model: a fphys.Model.
        world: whose parameters.
    """
    from ..model.init import init
    from ..model.load import read_spec, to_mujoco
    from ..model.model import world_counts

    m, _ = to_mujoco(model, init(model, max(world + 1, *world_counts(model).values())), world)
    spec: Any = read_spec()
    spec.modelname, spec.option.timestep = "outline", m.opt.timestep
    for i in np.unique(m.geom_dataid[m.geom_type == GeomType.MESH]):
        vertex, face = m.mesh_vertadr[i], m.mesh_faceadr[i]
        spec.add_mesh(
            name=f"mesh{i}",
            uservert=m.mesh_vert[vertex : vertex + m.mesh_vertnum[i]].ravel(),
            userface=m.mesh_face[face : face + m.mesh_facenum[i]].ravel(),
            inertia=3,  # mjMESH_INERTIA_SHELL: the mesh may be open
        )
    for i in np.unique(m.geom_dataid[m.geom_type == GeomType.HFIELD]):
        rows, columns, first = m.hfield_nrow[i], m.hfield_ncol[i], m.hfield_adr[i]
        heights = m.hfield_data[first : first + rows * columns]
        spec.add_hfield(name=f"field{i}", nrow=rows, ncol=columns, size=m.hfield_size[i], userdata=heights)
    bodies = [spec.worldbody]
    for i in range(1, m.nbody):
        mocap = bool(m.body_mocapid[i] >= 0)
        body = bodies[m.body_parentid[i]].add_body(
            name=f"body{i}", pos=m.body_pos[i], quat=m.body_quat[i], mocap=mocap, mass=1.0
        )
        body.ipos, body.inertia, body.explicitinertial = np.zeros(3), np.ones(3), True
        bodies.append(body)
    for j in range(m.njnt):
        kind, first = m.jnt_type[j], m.jnt_qposadr[j]
        joint = bodies[m.jnt_bodyid[j]].add_joint(name=f"joint{j}", type=kind, pos=m.jnt_pos[j], axis=m.jnt_axis[j])
        if kind in (JointType.HINGE, JointType.SLIDE):
            joint.ref = m.qpos0[first]
    for g in np.flatnonzero(visible_geoms(m)):
        material, kind = m.geom_matid[g], m.geom_type[g]
        geom = bodies[m.geom_bodyid[g]].add_geom(
            name=f"geom{g}",
            type=kind,
            pos=m.geom_pos[g],
            quat=m.geom_quat[g],
            rgba=m.geom_rgba[g] if material < 0 else m.mat_rgba[material],
            contype=0,
            conaffinity=0,
        )
        if kind == GeomType.MESH:
            geom.meshname = f"mesh{m.geom_dataid[g]}"
        elif kind == GeomType.HFIELD:
            geom.hfieldname = f"field{m.geom_dataid[g]}"
        else:
            geom.size = m.geom_size[g]
    spec.compiler.degree = False
    spec.compile()
    return spec.to_xml()


def unlike(model: Any) -> list[str]:
    """Leaves of a model in which worlds differ so that they look unlike though their states are equal."""
    s, geom = model.structure, visible_geoms(model.structure.source)
    free = s.joint.type == JointType.FREE
    fixed = s.body.mocap < 0
    fixed[s.joint.body[free]] = False  # the pose of the others is the state's
    axes = s.joint.qpos[np.isin(s.joint.type, (JointType.HINGE, JointType.SLIDE))]
    seen = {"body.pos": fixed, "body.quat": fixed, "joint.pos": ~free, "joint.axis": ~free, "qpos0": axes}
    seen |= dict.fromkeys(("geom.pos", "geom.quat", "geom.size"), geom)
    seen |= dict.fromkeys(("hfield.size", "hfield.data"), slice(None))
    leaves = {path: np.asarray(operator.attrgetter(path)(model)) for path in seen}
    return [path for path, leaf in leaves.items() if (leaf[:, seen[path]] != leaf[:1, seen[path]]).any()]
