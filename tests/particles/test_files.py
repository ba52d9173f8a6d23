"""Files of particles: what is written is read, bit for bit, by fphys and by meshio."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import files, mpm, sph

from .mpm_scenes import scene


def water() -> sph.State:
    params = sph.Params(spacing=0.1, density=1000.0, sound_speed=10.0, timestep=1e-3)
    x = np.random.default_rng(0).uniform(0, 1, (2, 12, 2)).astype(np.float32)
    return sph.init(params, x, velocities=np.ones_like(x))


def matter() -> mpm.State:
    return scene("all", 3, worlds=2)[1].replace(time=jnp.array([0.25, 0.5]))


@pytest.mark.extra("meshio")
@pytest.mark.parametrize("suffix", [".vtu", ".ply"])
@pytest.mark.parametrize("state", [matter, water])
def test_what_is_written_is_read(state: Any, suffix: str, tmp_path: Path):
    import meshio

    now = state()
    path = files.save(tmp_path / f"now{suffix}", now, world=1)
    blank = jax.tree.map(jnp.zeros_like, now)
    found = files.load(path, blank, world=1)
    for a, b, zero in zip(*map(jax.tree.leaves, (now, found, blank)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a[1], b[1])
        np.testing.assert_array_equal(zero[0], b[0])
    plain = meshio.read(path)
    np.testing.assert_array_equal(plain.points[:, : now.x.shape[2]], now.x[1])
    np.testing.assert_array_equal(plain.point_data["v_1"], now.v[1, :, 1])
    assert plain.points.dtype == now.x.dtype


@pytest.mark.extra("meshio")
def test_files_that_do_not_fit(tmp_path: Path):
    now, other = matter(), water()
    path = files.save(tmp_path / "now.vtu", now)
    with pytest.raises(ValueError, match="has 20 particles, the state 12"):
        files.load(path, other)
    with pytest.raises(ValueError, match="has no rho: it is not a file of"):
        files.load(path, sph_of(20))
    with pytest.raises(ValueError, match="world is 2, the state has 2"):
        files.save(path, now, world=2)
    with pytest.raises(ValueError, match="world is -1, the state has 2"):
        files.load(path, now, world=-1)
    single = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == jnp.float64 else a, now)
    with pytest.raises(TypeError, match=r"now\.vtu has x in float64, the state in float32"):
        files.load(path, single)
    again = files.load(files.save(tmp_path / "single.vtu", single), now)  # wider is exact
    assert again.x.dtype == now.x.dtype and np.array_equal(again.x[0], single.x[0])
    for suffix, content in ((".vtu", path.read_bytes()[:400]), (".ply", b"ply"), (".vtu", b"")):
        (damaged := tmp_path / f"damaged{suffix}").write_bytes(content)
        with pytest.raises(ValueError, match=rf"damaged{suffix} cannot be read"):
            files.load(damaged, now)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        files.load(tmp_path / "none.vtu", now)


def sph_of(n: int) -> sph.State:
    params = sph.Params(spacing=0.1, density=1000.0, sound_speed=10.0, timestep=1e-3)
    return sph.init(params, np.random.default_rng(0).uniform(0, 1, (1, n, 3)))
