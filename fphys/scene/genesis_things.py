"""The things of a scene in Genesis: morphs, materials and surfaces."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from ..model.load import read_spec
from ..model.structure import GeomType
from .compose import compose
from .genesis_faults import held_up
from .genesis_particles import material, options, substeps
from .lattice import filled
from .materials import MPM, SPH
from .morphs import MECHANISMS, MJCF, URDF, Box, Cylinder, Mesh, Plane, Sphere, Terrain
from .sensors import IMU, Camera, Rays

NEAR, FAR = 0.02, 100.0  # clipping distances of cameras [m]
_HULL = {"decompose_object_error_threshold": float("inf")}  # meshes touch as their hulls, of 500 triangles at most
_HIDDEN = 3  # a group that is not drawn
TIMECONST = 0.02  # of contacts [s]: MuJoCo's default, and so the native back end's


def lay(scene: Any, m: Any) -> Any:
    """An empty ``genesis.Scene`` with the options of a scene, whose ``mujoco.MjModel`` is ``m``."""
    gs: Any = importlib.import_module("genesis")
    return gs.Scene(
        sim_options=gs.options.SimOptions(
            dt=scene.timestep, substeps=substeps(scene), gravity=tuple(m.opt.gravity.tolist())
        ),
        rigid_options=gs.options.RigidOptions(constraint_timeconst=TIMECONST, batch_links_info=True),
        vis_options=gs.options.VisOptions(rendered_envs_idx=[0], show_world_frame=False),
        show_viewer=False,
        **options(scene),
    )


def things(stage: Any, scene: Any, m: Any, folder: Path) -> dict[str, Any]:
    """Add all things to a stage; files are written to ``folder``, which must last until the stage is built."""
    gs: Any = importlib.import_module("genesis")
    made = {}
    for part in scene.parts:
        if isinstance(part.material, MPM | SPH):
            count, spacing = len(filled(part, scene.domain)), scene.domain.spacing
            made[part.name] = stage.add_entity(
                gs.morphs.Nowhere(n_particles=count),
                material=material(part.material, spacing),
                surface=gs.surfaces.Default(color=part.surface.rgba, vis_mode="particle"),
                name=part.name,
            )
            continue
        color = gs.surfaces.Default(color=part.surface.rgba)
        surface = {} if isinstance(part.morph, MECHANISMS) else {"surface": color}
        made[part.name] = stage.add_entity(_morph(part, folder), material=_rigid(part, m), name=part.name, **surface)
    return made


def _rigid(part: Any, m: Any) -> Any:
    gs: Any = importlib.import_module("genesis")
    given = part.material
    several = isinstance(given.friction, tuple)
    friction = 1.0 if several or given.friction is None else given.friction
    if given.friction is None and isinstance(part.morph, MECHANISMS):
        friction = None  # the file's value
    return gs.materials.Rigid(
        rho=1000.0 if given.density is None else given.density,
        friction=friction,
        coup_friction=1.0 if friction is None else friction,
        gravity_compensation=held_up(m, part.name),
    )


def _morph(part: Any, folder: Path) -> Any:
    """Simple shapes use Genesis's own morphs; mechanisms, and shapes that it lacks, go through MJCF."""
    morphs: Any = importlib.import_module("genesis").morphs
    morph = part.morph
    pose = {"pos": morph.pos, "quat": morph.quat}
    match morph:
        case Plane():
            w, x, y, z = morph.quat
            normal = (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y))
            return morphs.Plane(pos=morph.pos, normal=normal)
        case Box(size=size):
            return morphs.Box(size=size, fixed=morph.fixed, **pose)
        case Sphere(radius=radius):
            return morphs.Sphere(radius=radius, fixed=morph.fixed, **pose)
        case Cylinder(radius=radius, length=length):
            return morphs.Cylinder(radius=radius, height=length, fixed=morph.fixed, **pose)
        case Mesh(file=file, scale=scale):
            path = str(Path(file).absolute())
            return morphs.Mesh(file=path, scale=scale, fixed=morph.fixed, file_meshes_are_zup=True, **_HULL, **pose)
        case Terrain(heights=heights, spacing=spacing):
            return morphs.Terrain(
                height_field=np.asarray(heights, float), horizontal_scale=spacing, vertical_scale=1.0, **pose
            )
    spec = compose([part], {}, 0.002, (0.0, 0.0, -9.81))
    if isinstance(morph, MJCF | URDF):
        _find_files(spec, read_spec(morph.source, morph.root))
    path = folder / f"{part.name}.xml"
    _extend_planes(spec)
    spec.compile()
    path.write_text(spec.to_xml())
    return morphs.MJCF(file=str(path), default_armature=None, **_HULL)


def _find_files(spec: Any, own: Any) -> None:
    """Have a spec name its files by their full paths; ``own`` is that of the file that it comes from."""
    for assets, place in ((spec.meshes, own.meshdir), (spec.hfields, own.meshdir), (spec.textures, own.texturedir)):
        for asset in assets:
            if asset.file:
                asset.file = str((Path(own.modelfiledir) / place / asset.file).absolute())


def _extend_planes(spec: Any) -> None:
    """Have planes that touch end nowhere, as in MuJoCo, but be drawn in their size."""
    m = spec.compile()
    for plane in [geom for geom in spec.geoms if geom.type == GeomType.PLANE and (geom.contype or geom.conaffinity)]:
        x, y, grid = plane.size
        if x > 0 or y > 0:
            looks = {name: getattr(plane, name) for name in ("group", "material", "rgba")}
            pose = {"pos": m.geom_pos[plane.id], "quat": m.geom_quat[plane.id]}
            plane.parent.add_geom(type=plane.type, size=(x, y, grid), contype=0, conaffinity=0, **pose, **looks)
            plane.size, plane.group = (0.0, 0.0, grid), _HIDDEN


def sense(stage: Any, link: Any, sensor: Any) -> Any:
    """Add a sensor to a stage, on a link, or None for the world; returns None if it needs no device of Genesis."""
    gs: Any = importlib.import_module("genesis")
    place = {} if link is None else {"entity_idx": link.entity.idx, "link_idx_local": link.idx_local}
    match sensor:
        case IMU():
            return stage.add_sensor(gs.sensors.IMU(pos_offset=sensor.pos, **place))
        case Rays():
            return stage.add_sensor(
                gs.sensors.Raycaster(pattern=_pattern(sensor), max_range=sensor.max_range, return_points=False)
            )
        case Camera():
            camera = stage.add_camera(
                res=(sensor.width, sensor.height),
                pos=sensor.pos,
                lookat=sensor.lookat,
                up=sensor.up,
                fov=sensor.fov,
                near=NEAR,
                far=FAR,
            )
            if link is not None:
                mount = np.eye(4)
                mount[:3, :3], mount[:3, 3] = sensor.axes.T, sensor.pos
                camera.attach(link, mount)
            return camera
    return None


def _pattern(sensor: Rays) -> Any:
    """A Genesis pattern for our own rays."""
    torch = importlib.import_module("torch")
    base: Any = importlib.import_module("genesis.options.sensors.raycaster").RaycastPattern

    class Listed(base):
        def _get_return_shape(self) -> tuple[int, ...]:
            return (len(sensor.directions),)

        def compute_ray_dirs(self) -> None:
            self._ray_dirs[:] = torch.as_tensor(sensor.directions, dtype=self._ray_dirs.dtype)

        def compute_ray_starts(self) -> None:
            self._ray_starts[:] = torch.as_tensor(sensor.origins, dtype=self._ray_starts.dtype)

    return Listed()
