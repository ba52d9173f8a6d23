"""Every numeric field of MuJoCo's model: read, irrelevant to the dynamics, or required to be its default.

A test asserts that the three cover the installed MuJoCo, so that no new field goes unnoticed.
Fields of ``MjModel.opt`` are written ``opt.NAME``, those of ``MjModel.stat`` ``stat.NAME``.
"""

import dataclasses
import re
from typing import Any

import numpy as np

from . import leaves


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GROUPS: dict[str, tuple[type, str]] = {
    "opt": (leaves.Options, "opt."),
    "body": (leaves.Body, "body_"),
    "joint": (leaves.Joint, "jnt_"),
    "dof": (leaves.Dof, "dof_"),
    "geom": (leaves.Geom, "geom_"),
    "hfield": (leaves.HeightField, "hfield_"),
    "pair": (leaves.Pair, "pair_"),
    "equality": (leaves.Equality, "eq_"),
    "site": (leaves.Site, "site_"),
    "tendon": (leaves.Tendon, "tendon_"),
    "actuator": (leaves.Actuator, "actuator_"),
    "key": (leaves.Keyframes, "key_"),
}
"""Group of the model's leaves -> its class, and MuJoCo's prefix."""

_RENAMED = {
    "opt.meaninertia": "stat.meaninertia",
    "tendon.coef": "wrap_prm",
    "key.mocap_pos": "key_mpos",
    "key.mocap_quat": "key_mquat",
}


def field(group: str, name: str) -> str:
    """MuJoCo's name of a leaf: ``("joint", "axis")`` -> ``"jnt_axis"``."""
    prefix = GROUPS[group][1]
    return _RENAMED.get(f"{group}.{name}", f"{prefix}{name}")


OWN = frozenset({"opt.softness", "tendon.follows"})
"""Leaves that MuJoCo does not have."""

LEAVES = {
    f"{group}.{leaf.name}": field(group, leaf.name)
    for group, (cls, _) in GROUPS.items()
    for leaf in dataclasses.fields(cls)
    if f"{group}.{leaf.name}" not in OWN
} | {"qpos0": "qpos0", "qpos_spring": "qpos_spring"}
"""Path of a leaf in the model -> MuJoCo's field."""

STRUCTURE = _words("""
    nq nv nu na nbody njnt ngeom nsite ntendon nmocap nkey nsensor
    body_parentid body_rootid body_mocapid body_weldid body_treeid body_jntnum body_jntadr
    jnt_type jnt_qposadr jnt_dofadr jnt_bodyid dof_jntid dof_bodyid dof_parentid
    geom_type geom_bodyid geom_condim geom_priority geom_contype geom_conaffinity exclude_signature site_bodyid
    hfield_nrow hfield_ncol hfield_adr geom_dataid geom_rbound
    mesh_graph mesh_graphadr mesh_vert mesh_vertadr mesh_vertnum mesh_polyadr mesh_polynum
    mesh_polyvertadr mesh_polyvertnum mesh_polyvert mesh_polynormal
    npair pair_dim pair_geom1 pair_geom2 neq eq_type eq_obj1id eq_obj2id eq_objtype eq_active0
    jnt_limited jnt_actgravcomp tendon_limited
    tendon_type tendon_adr tendon_num wrap_type wrap_objid tendon_actfrclimited jnt_actfrclimited
    actuator_trntype actuator_trnid actuator_dyntype actuator_gaintype actuator_biastype actuator_actadr
    actuator_actearly actuator_ctrllimited actuator_forcelimited actuator_actlimited
    opt.integrator opt.cone opt.solver opt.iterations opt.ls_iterations opt.noslip_iterations opt.noslip_tolerance
    opt.disableflags opt.enableflags
""")
"""Read into the structure."""

READ = frozenset(LEAVES.values()) | STRUCTURE

DEFAULT = {
    "opt.disableactuator": 0,
    "nflex": 0,
    "nplugin": 0,
    "nplastic": 0,
    "nefm0dof": 0,
    "body_plugin": -1,
    "jnt_actuatorid": -1,
    "jnt_plasticadr": -1,
    "jnt_springyield": 0,
    "jnt_stiffnesspoly": 0,
    "dof_dampingpoly": 0,
    "geom_plugin": -1,
    "geom_adhesion": 0,
    "pair_adhesion": 0,
    "geom_surfacevel": 0,
    "tendon_actuatorid": -1,
    "tendon_dampingpoly": 0,
    "tendon_plasticadr": -1,
    "tendon_springyield": 0,
    "tendon_stiffnesspoly": 0,
    "actuator_armature": 0,
    "actuator_ctrlnum": 1,
    "actuator_outnum": 1,
    "actuator_damping": 0,
    "actuator_dampingpoly": 0,
    "actuator_delay": 0,
    "actuator_history": 0,
    "actuator_historyadr": -1,
    "actuator_plugin": -1,
}
"""Fields that must equal this value; each is a feature that is not simulated."""

_IGNORED_PREFIXES = _words("""
    bvh_ oct_ B_ M_ D_ ten_J_ efm0_ efmC_ flexedge_ flex_ name_ names_
    cam_ light_ mesh_ skin_ mat_ tex_ hfield_
    sensor_ plugin_ numeric_ text_ tuple_
""")
# In order: search trees, sparsity, flex (nflex is 0), names; visual data, and shape data that is not read; sensors
# (fphys.sensors refuses those that it lacks), plugins (nplugin is 0), user data.

IGNORED = _words("""
    nB nC nD nM nJfe nJmom nJten nactuator nout ntree nbvh nbvhdynamic nbvhstatic noct ncam nlight nexclude nhistory
    nflexbending nflexedge nflexelem nflexelemdata nflexelemedge nflexnode nflexshelldata nflexstiffness nflextexcoord
    nflexvert nefm0L nefmCvert nmesh nmeshvert nmeshnormal nmeshtexcoord nmeshface nmeshgraph nmeshpoly nmeshpolyvert
    nmeshpolymap nmeshdegmax npolygonmax nskin nskinbone nskinbonevert nskinface nskintexvert nskinvert nhfield
    nhfielddata ntex ntexdata nmat nnumeric nnumericdata ntext ntextdata ntuple ntupledata npluginattr npluginstate
    nsensordata nuserdata nuser_actuator nuser_body nuser_cam nuser_geom nuser_jnt nuser_sensor nuser_site nuser_tendon
    nnames nnames_map npaths narena nbuffer nconmax njmax nemax ngravcomp nwrap signature
    flg_gravcomp flg_surfacevel flg_adhesion plugin mapD2M mapM2D mapM2M

    body_user jnt_user geom_user site_user tendon_user actuator_user
    geom_group geom_matid geom_rgba geom_castshadow site_group site_matid site_rgba site_size site_type site_dataid
    jnt_group tendon_group tendon_matid tendon_rgba tendon_width actuator_group

    body_bvhadr body_bvhnum body_conaffinity body_contype body_dofadr body_dofnum body_geomadr body_geomnum body_margin
    body_sameframe body_simple body_subtreemass geom_sameframe site_sameframe geom_aabb
    dof_M0 dof_Madr dof_length dof_simplenum dof_treeid tree_bodyadr tree_bodynum tree_dofadr tree_dofnum
    tree_sleep_policy tendon_treenum tendon_treeid
    actuator_actnum actuator_ctrladr actuator_ctrlspec actuator_outadr actuator_length0

    key_plastic pair_signature

    opt.jacobian opt.ls_tolerance opt.ccd_tolerance opt.ccd_iterations
    opt.sleep_tolerance opt.o_margin opt.o_solref opt.o_solimp opt.o_friction opt.sdf_initpoints opt.sdf_iterations
    stat.center stat.extent stat.meanmass stat.meansize
""")
# In order: sizes of the above and of refused features; visual data; data derived from fields that are read, or that
# serves MuJoCo's own algorithms; parameters of constraints and features that are refused if enabled; options of
# MuJoCo's solvers and of refused features.


def is_ignored(name: str) -> bool:
    """Whether a MuJoCo field has no part in the simulated dynamics."""
    return name in IGNORED or (name not in READ and name.startswith(tuple(_IGNORED_PREFIXES)))


def numeric_fields(m: Any) -> dict[str, np.ndarray]:
    """Every numeric field of a MuJoCo model, including its options and statistics."""
    found = {}
    for prefix, owner in (("", m), ("opt.", m.opt), ("stat.", m.stat)):
        for name in dir(owner):
            if re.match(r"[A-Za-z]", name):
                value = getattr(owner, name)
                if isinstance(value, (np.ndarray, bool, int, float)):
                    found[prefix + name] = np.asarray(value)
    return found
