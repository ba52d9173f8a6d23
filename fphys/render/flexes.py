"""What deforms, in images: mujoco draws it as flexes, smoothly shaded, with the rigid things around them."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from .flex import Flex
from .matter import Grains, Surface


class Flexes:
    """What deforms, as a mujoco model of its own, which is put where it is at each time.

    Particles' triangles are others at each time. They take the place of those of a flex with room for as many.
    """

    def __init__(self, given: Sequence[Flex | Surface | Grains], world: int, every: int = 1) -> None:
        paths = [flex.path(world, every) for flex in given]
        if len(lengths := {len(path) for path in paths}) > 1:
            raise ValueError(f"the flexes have {sorted(lengths)} times: they must be from one motion")
        self._given, self._paths = given, paths
        size = [flex.spacing if isinstance(flex, Surface) else flex.radius for flex in given]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All-NaN slice")  # all particles are lost: the box stays as it is
            low = [np.nanmin(path, 1) - r for path, r in zip(paths, size)]
            high = [np.nanmax(path, 1) + r for path, r in zip(paths, size)]
            self.low, self.high = np.nanmin(low, 0), np.nanmax(high, 0)  # [m], (time, 3)
        self._triangles: list[Any] = []
        self._room = [-1] * len(given)
        self.put(0)

    def _build(self) -> None:
        import mujoco

        from ..model.load import read_spec

        spec: Any = read_spec()
        self._strands, self._spans, first = [], [], 0
        for i, flex in enumerate(self._given):
            color = (*flex.color, 1.0)[:4]
            if isinstance(flex, Flex):
                elements, vertices = np.asarray(flex.elements), self._paths[i][0]
                if elements.shape[1] == 2:  # mujoco draws no flex of edges beside one of triangles without its edges
                    self._strands += [(first + pair, flex.radius, np.array(color, np.float32)) for pair in elements]
            else:
                elements = np.arange(3 * max(self._room[i] // 8 + 1, 1)).reshape(-1, 3)  # 2 faces and 3 x 2 at edges
                vertices = np.random.default_rng(i).random((elements.size, 3))
            self._spans.append(slice(first, first + len(vertices)))
            first += len(vertices)
            spec.add_flex(
                name=f"flex{i}",
                dim=elements.shape[1] - 1,
                vert=vertices.ravel(),
                elem=elements.ravel(),
                vertbody=["world"],
                radius=flex.radius if isinstance(flex, Flex) else 1e-3,
                rgba=color,
            )
        self.model: Any = spec.compile()
        self.data = mujoco.MjData(self.model)

    def put(self, t: int) -> None:
        """Move everything to where it is at time ``t``. The model is another one afterwards if more room was needed."""
        pairs = zip(self._given, self._paths)
        self._triangles = [None if isinstance(flex, Flex) else flex.triangles(path[t]) for flex, path in pairs]
        needed = [0 if pair is None else len(pair[0]) for pair in self._triangles]
        if any(n > room for n, room in zip(needed, self._room)):
            self._room = [max(2 * n, room) for n, room in zip(needed, self._room)]
            self._build()
        for flex, path, span in zip(self._given, self._paths, self._spans):
            if isinstance(flex, Flex):
                self.data.flexvert_xpos[span] = path[t]

    def draw(self, option: Any, scene: Any) -> None:
        """Make them the content of a mujoco scene."""
        import mujoco

        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self.model, self.data, option, None, mujoco.MjvCamera(), everything, scene)
        for geom in scene.geoms[: scene.ngeom]:
            if geom.type == mujoco.mjtGeom.mjGEOM_FLEX and (pair := self._triangles[geom.objid]) is not None:
                first, count = 9 * scene.flexfaceadr[geom.objid], len(pair[0])
                scene.flexface[first : first + 9 * count] = pair[0].ravel()
                scene.flexnormal[first : first + 9 * count] = pair[1].ravel()
                scene.flexfaceused[geom.objid] = count
                geom.specular = geom.shininess = self._given[geom.objid].shine  # type: ignore[union-attr]
        capsule = mujoco.mjtGeom.mjGEOM_CAPSULE
        for ends, radius, color in self._strands[: scene.maxgeom - scene.ngeom]:
            geom = scene.geoms[scene.ngeom]
            mujoco.mjv_initGeom(geom, capsule, np.zeros(3), np.zeros(3), np.zeros(9), color)
            mujoco.mjv_connector(geom, capsule, radius, *self.data.flexvert_xpos[ends])
            scene.ngeom += 1
