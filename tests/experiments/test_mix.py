import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.experiments import mix


def test_all_five_solvers_push_each_other(play):
    metrics, result = play(mix, mix.Config(duration=0.2, steps=0))
    assert metrics["water_lost"] == metrics["sand_lost"] == 0
    assert abs(metrics["wood_below_level"]) < mix.WOOD and abs(metrics["rubber_below_level"]) < mix.WOOD
    assert np.ptp(result["qpos"][:, 0, 0]) > 1e-3  # the paddle moves
    assert result["x"][-1, 0, -result["parts"][3] :, 2].min() < mix.HIGH - 0.02  # the cloth bears the sand


@pytest.mark.slow
def test_one_gradient_goes_through_all_five(play):
    metrics, _ = play(mix, mix.Config())
    assert metrics["success"] and metrics["gradient_error"] < mix.BAR


@pytest.mark.slow
def test_vmap_of_that_gradient_is_the_gradient_of_each():
    with jax.enable_x64(True):
        scene, (rigid, matter) = mix.beginning(mix.Config())

        def slope(numbers):
            def moved(numbers):
                begun = rigid.replace(qvel=rigid.qvel + numbers[1]), matter
                end = mix.advance(scene, begun, numbers[:1])
                return sum((x**2).sum() for x in jax.tree.leaves(end) if jnp.issubdtype(x.dtype, jnp.floating))

            return jax.grad(moved)(numbers)

        given = jnp.asarray([[0.5, 0.0], [-1.0, 0.3]])
        found = jax.jit(jax.vmap(slope))(given)
        assert jnp.abs(found).min() > 0
        np.testing.assert_allclose(found, [jax.jit(slope)(one) for one in given], rtol=1e-9)
