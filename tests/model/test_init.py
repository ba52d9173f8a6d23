"""States: made, reset and checked; what does not fit is refused by name."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.errors import StateError
from fphys.model import State, Status, check, init, load, reset

from .test_load import DROP, SCENE, with_leaf


def test_init_broadcasts_and_traces():
    model = load(SCENE, disable=("contact",))
    s = model.structure
    state = init(model, 4)
    assert isinstance(state, State)
    shapes = {"qpos": (s.nq,), "qvel": (s.nv,), "act": (s.na,), "time": (), "status": (), "warmstart": (s.nv,)}
    for name, shape in shapes.items():
        assert getattr(state, name).shape == (4, *shape)
    assert state.status.dtype == jnp.uint32
    np.testing.assert_array_equal(state.qpos, np.tile(model.qpos0, (4, 1)))
    np.testing.assert_array_equal(state.mocap_pos, np.tile([[1, 2, 3], [4, 5, 6]], (4, 1, 1)))
    np.testing.assert_array_equal(state.mocap_quat[0], [[0, 1, 0, 0], [1, 0, 0, 0]])
    for qpos in (model.key.qpos[0], model.key.qpos, jnp.tile(model.key.qpos, (4, 1)), np.asarray(model.key.qpos[0])):
        given = jax.jit(lambda model, qpos: init(model, 4, qpos=qpos))(model, qpos)
        np.testing.assert_array_equal(given.qpos, np.tile(model.key.qpos, (4, 1)))
    assert init(model, 1, max_contacts=3, max_constraints=12).max_constraints == 12


def test_rows_follow_the_contacts_that_are_asked_for():
    """Four for each contact of a pyramid, until the ball's one and the box's four have theirs."""
    model = load(DROP.format(floor=""))
    assert (init(model, 1).max_contacts, init(model, 1).max_constraints) == (5, 20)
    for contacts, rows in ((1, 4), (3, 12), (5, 20), (100, 20)):
        state = init(model, 1, max_contacts=contacts)
        assert (state.max_contacts, state.max_constraints) == (contacts, rows)


def test_init_does_not_share_numpys_memory():
    model = load(SCENE)
    size, nq = 64, model.structure.nq
    raw = np.zeros(size * nq + 8)
    start = -raw.ctypes.data // 8 % 8  # where JAX takes an array over without a copy, aligned to 64 bytes
    given = raw[start : start + size * nq].reshape(size, nq)
    given[:] = model.qpos0
    state = init(model, size, qpos=given)
    given[:] = 7.0
    np.testing.assert_array_equal(state.qpos, np.tile(model.qpos0, (size, 1)))


def test_init_follows_the_models_precision():
    model = load(SCENE, disable=("contact",), dtype="float32")
    state = init(model, 2, qpos=np.asarray(model.qpos0, np.float64))
    assert {x.dtype for x in jax.tree.leaves(state)} == {jnp.dtype("float32"), jnp.dtype("uint32")}


def test_init_refuses_wrong_shapes_and_types():
    model = load(SCENE, disable=("contact",))
    cases = [
        (
            {"qpos": jnp.zeros((4, 12))},
            ValueError,
            r"qpos has shape \(4, 12\), the model needs \(num_worlds, 13\): a free joint takes 7 numbers",
        ),
        ({"qpos": jnp.zeros((3, 13))}, ValueError, r"qpos has shape \(3, 13\), .* num_worlds = 4"),
        ({"qvel": jnp.zeros(13)}, ValueError, r"qvel has shape \(13,\), the model needs \(num_worlds, 11\)"),
        ({"qpos": jnp.zeros(13, jnp.float32)}, TypeError, "qpos is float32, the model is float64"),
        ({"qpos": jnp.zeros(13, jnp.int32)}, TypeError, "qpos is int32, the model is float64"),
        ({"max_contacts": -1}, ValueError, "max_contacts is -1"),
    ]
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            init(model, 4, **arguments)
    with pytest.raises(ValueError, match="num_worlds is 0"):
        init(model, 0)
    randomised = with_leaf(model, "qpos0", jnp.tile(model.qpos0, (3, 1)))
    with pytest.raises(ValueError, match="num_worlds = 4"):
        init(randomised, 4)
    assert init(randomised, 3).qpos.shape == (3, 13)


def test_a_state_without_room_for_contacts_is_refused_where_there_may_be_some():
    model = load(DROP.format(floor=""))
    with pytest.raises(ValueError, match=r"max_contacts is 0.*disable=\(\"contact\",\)"):
        init(model, 1, max_contacts=0)
    free = load(DROP.format(floor=""), disable=("contact",))
    assert init(free, 1, max_contacts=0).max_contacts == 0


def test_reset_puts_the_masked_worlds_back_and_no_other():
    model = load(SCENE, disable=("contact",))
    start = init(model, 3, max_contacts=7)
    moved = jax.tree.map(lambda x: x + 1, start)
    mask = jnp.array([False, True, False])
    after = jax.jit(reset)(model, moved, mask)
    assert after.max_contacts == 7
    for world, source in enumerate((moved, start, moved)):
        jax.tree.map(lambda a, b, w=world: np.testing.assert_array_equal(a[w], b[w]), after, source)
    with pytest.raises(ValueError, match="mask has shape"):
        reset(model, moved, jnp.array([True]))
    with pytest.raises(ValueError, match="bool"):
        reset(model, moved, jnp.array([0, 1, 0]))


def test_check_names_world_fault_field_and_remedy():
    model = load(DROP.format(floor=""))
    state = init(model, 9)
    assert check(state) is None
    status = jnp.array([0, 2, 1, 8 + 16, 0, 4 + 128, 2, 2, 2], jnp.uint32)
    faulty = state.replace(status=status, qvel=state.qvel.at[2, 4].set(jnp.nan))
    with pytest.raises(StateError) as error:
        check(faulty)
    for expected in (
        "7 of 9 worlds",
        "world 1: BADCTRL",
        "world 2: NONFINITE",
        "qvel[4] is nan",
        "world 3: CONTACT_OVERFLOW: more contacts than max_contacts=5: raise max_contacts",
        "world 3: CONSTRAINT_OVERFLOW: more constraint rows than max_constraints=20: raise max_constraints",
        "world 5: UNCONVERGED",
        "and 2 more",
    ):
        assert expected in str(error.value)
    assert "world 0" not in str(error.value)
    with pytest.raises(TypeError, match="on the host"):
        jax.jit(check)(faulty)
    rigid = ("NONFINITE", "BADCTRL", "UNCONVERGED", "CONTACT_OVERFLOW", "CONSTRAINT_OVERFLOW", "BADPARAM")
    assert all(name in str(error.value) for name in rigid)
    with pytest.raises(StateError, match="world 0: OOB: this solver does not set it"):
        check(state.replace(status=jnp.full(9, int(Status.OOB), jnp.uint32)))


def test_few_programs_are_compiled(caplog: pytest.LogCaptureFixture):
    """Outside jit every operation is a program of its own: what every user calls first must not have dozens."""

    def programs(call: Callable[[], Any]) -> tuple[Any, int]:
        caplog.clear()
        with jax.log_compiles(True):
            found = call()
        return found, caplog.text.count("Compiling jit(")

    text = '<mujoco><worldbody><body><joint/><geom size="0.37" mass="1"/></body></worldbody></mujoco>'
    model, loading = programs(lambda: load(text))
    _, starting = programs(lambda: init(model, 7))
    _, changing = programs(lambda: model.replace({"body.mass": np.array([0.0, 2.0])}))
    assert loading == 0 and starting == 1 and changing <= 3, (loading, starting, changing)
