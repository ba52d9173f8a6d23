"""An outline has the model's shapes where the model has them."""

import numpy as np
import pytest

import fphys
from fphys.render import outline
from fphys.render.canvas import visible_geoms
from fphys.render.outline import unlike

SHAPES = """<mujoco>
  <asset>
    <mesh name="wedge" vertex="0 0 0 1 0 0 0 1 0 0 0 2"/>
    <hfield name="hills" nrow="3" ncol="4" size="1 1 0.5 0.1" elevation="0 1 2 3 4 5 6 7 8 9 10 11"/>
    <material name="red" rgba="1 0 0 1"/>
  </asset>
  <worldbody>
    <geom type="hfield" hfield="hills" pos="0 0 -3"/>
    <body pos="0 0 1" euler="20 30 40">
      <joint type="hinge" ref="30" axis="1 1 0" pos="0.1 0.2 0.3"/>
      <geom type="mesh" mesh="wedge" pos="0.1 0.2 0.3" euler="10 20 30" material="red"/>
      <geom size="0.1" group="4"/>
      <body pos="0 1 0"><joint type="slide" ref="0.2"/><joint type="ball"/><geom type="cylinder" size="0.1 0.2"/></body>
    </body>
    <body mocap="true" pos="1 1 1"><geom type="box" size="0.1 0.2 0.3"/></body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize("source", [SHAPES, fphys.asset("franka")], ids=["shapes", "franka"])
def test_an_outline_looks_like_its_model(source):
    model = fphys.load(source)
    drawn = fphys.load(outline(model))
    s = model.structure
    rng = np.random.default_rng(0)
    qpos = rng.normal(size=s.nq)
    mocap = rng.normal(size=(1, s.nmocap, 3))
    (m, here), (o, there) = (
        fphys.to_mujoco(each, fphys.init(each, 1, qpos=qpos).replace(mocap_pos=mocap)) for each in (model, drawn)
    )
    seen = np.flatnonzero(visible_geoms(m))
    assert len(seen) == o.ngeom and (m.geom_type[seen] == o.geom_type).all()
    for a, b in zip(seen, range(o.ngeom), strict=True):
        np.testing.assert_allclose(points(m, here, a), points(o, there, b), atol=5e-6)  # six digits of its numbers
        color = m.geom_rgba[a] if m.geom_matid[a] < 0 else m.mat_rgba[m.geom_matid[a]]
        np.testing.assert_allclose(o.geom_rgba[b], color, atol=1e-6)
    if m.nhfield:
        np.testing.assert_allclose(o.hfield_data, m.hfield_data, atol=1e-6)


def test_each_world_has_its_outline():
    model = fphys.load(SHAPES)
    factor = np.array([1.0, 2.0, 3.0])[:, None, None]
    model = model.replace({"body.pos": factor * model.body.pos, "geom.size": factor * model.geom.size})
    for world in range(3):
        drawn = fphys.load(outline(model, world))
        np.testing.assert_allclose(drawn.geom.size[0, -1], model.geom.size[world, -1], rtol=1e-5)
        np.testing.assert_allclose(drawn.body.pos[0], model.body.pos[world], rtol=1e-5)
    assert unlike(model) == ["body.pos", "geom.size"]
    here = np.ones((3, model.structure.nbody, 1))
    here[1, -1] = 2  # a mocap body's pose is the state's
    assert unlike(fphys.load(SHAPES).replace({"body.pos": here * model.body.pos[:1]})) == []


def points(m, data, geom):
    """Corners of a geom's box, or a mesh's vertices, in the world."""
    if m.geom_type[geom] == 7:  # whose own frame is its principal axes, in some order
        i = m.geom_dataid[geom]
        own = m.mesh_vert[m.mesh_vertadr[i] :][: m.mesh_vertnum[i]]
    else:
        own = m.geom_size[geom] * np.array([[1, 1, 1], [-1, 1, 0.5], [0, 0, 1.0]])
    return own @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
