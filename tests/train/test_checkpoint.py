"""Checkpoints return what was saved, with its structure and precision."""

import os

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from fphys import train
from fphys.train import CheckpointError, Checkpoints


def tree():
    params = {"w": jnp.arange(6.0).reshape(2, 3), "half": jnp.ones(2, jnp.bfloat16), "empty": jnp.zeros((0, 3))}
    return (
        params,
        optax.adam(0.1).init(params),
        [jnp.int32(7), None, np.float32(2.5), jnp.asarray(True)],
        {"typed": jax.random.key(3), "many": jax.random.split(jax.random.key(4), 3), "raw": jax.random.PRNGKey(5)},
    )


def same(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_numbers_of_python_come_back(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(1, {"rate": 0.5, "count": 3, "w": jnp.ones(2)})
    found, _ = kept.restore({"rate": 0.0, "count": 0, "w": jnp.zeros(2)})
    assert found["rate"] == 0.5 and found["count"] == 3
    with pytest.raises(CheckpointError, match="count has int64"):
        kept.restore({"rate": 0.0, "count": 0.0, "w": jnp.zeros(2)})


def test_what_is_saved_comes_back(tmp_path):
    kept = Checkpoints(tmp_path / "deep" / "er")
    assert kept.restore(tree()) is None
    extra = {"data": {"next": 3, "nested": [1, None]}, "best": 0.1}
    kept.save(3, tree(), extra)
    blank = jax.tree.map(
        lambda x: x if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.zeros_like(x), tree()
    )
    found, held = kept.restore(blank)
    same(found, tree())
    assert held == extra


def test_two_arrays_of_one_name_are_refused(tmp_path):
    kept, both = Checkpoints(tmp_path), {"a.b": jnp.ones(2), "a": {"b": jnp.zeros(3)}}
    with pytest.raises(ValueError, match=r"\['a'\]\['b'\] and \['a.b'\] would both be named a\.b: rename one"):
        kept.save(1, both)
    assert kept.steps == []
    kept.save(1, {"a.b": jnp.ones(2)})
    with pytest.raises(ValueError, match=r"would both be named a\.b"):
        kept.restore(both)


def test_a_value_without_a_structure(tmp_path):
    Checkpoints(tmp_path).save(1, jnp.arange(3))
    found, extra = Checkpoints(tmp_path).restore(jnp.zeros(3, int))
    np.testing.assert_array_equal(found, [0, 1, 2])
    assert extra == {}


def test_a_restored_state_is_compiled_for_once(tmp_path, caplog):
    """Empty arrays are not saved. A state of which a part is not bound to its device is compiled for again."""
    state = {"x": jnp.ones(3), "empty": jnp.zeros((3, 0)), "key": jax.random.key(0)}
    Checkpoints(tmp_path).save(1, state)
    found, _ = Checkpoints(tmp_path).restore(state)

    @jax.jit
    def advance(s):
        return s | {"x": s["x"] + s["empty"].sum(-1), "empty": 2 * s["empty"]}

    with jax.log_compiles(True):
        advance(advance(found))
    assert caplog.text.count("Compiling jit(advance)") == 1


def test_the_newest_are_kept(tmp_path):
    kept = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 10, 9):
        kept.save(step, {"x": jnp.float32(step)})
    assert kept.steps == [9, 10]
    assert float(kept.restore({"x": jnp.float32(0)})[0]["x"]) == 10
    kept.save(10, {"x": jnp.float32(-1)})
    assert float(kept.restore({"x": jnp.float32(0)})[0]["x"]) == -1


def test_what_was_just_saved_is_never_removed(tmp_path):
    """Though later steps of another run are there, damaged or not; what is no checkpoint does not count."""
    kept = Checkpoints(tmp_path, keep=2)
    for step in (3, 300):
        kept.save(step, {"x": jnp.float32(step)})
    (tmp_path / "300" / "manifest.json").unlink()
    (tmp_path / "99").mkdir()
    for step, held in ((101, [3, 99, 101, 300]), (102, [101, 102, 300]), (50, [50, 101, 102, 300])):
        assert kept.save(step, {"x": jnp.float32(step)}).is_dir()
        assert kept.steps == held
    with pytest.warns(UserWarning, match="300"):
        assert float(kept.restore({"x": jnp.float32(0)})[0]["x"]) == 102


def test_a_step_is_saved_again(tmp_path):
    kept = Checkpoints(tmp_path, keep=1)
    for value in (1, 2):
        kept.save(7, {"x": jnp.float32(value)})
    assert float(kept.restore({"x": jnp.float32(0)})[0]["x"]) == 2
    assert os.listdir(tmp_path) == ["7"]


def test_a_step_whose_replacement_was_killed_is_put_back(tmp_path):
    """The old one has been renamed, the new one not yet."""
    kept, blank = Checkpoints(tmp_path, keep=1), {"x": jnp.float32(0)}
    kept.save(7, {"x": jnp.float32(1)})
    os.rename(tmp_path / "7", tmp_path / ".7.old.part")
    assert float(kept.restore(blank)[0]["x"]) == 1
    os.rename(tmp_path / "7", tmp_path / ".7.old.part")
    kept.save(6, {"x": jnp.float32(2)})
    assert kept.steps == [6, 7]
    assert float(kept.restore(blank)[0]["x"]) == 1


@pytest.mark.parametrize(
    ("step", "extra", "text"),
    [(-1, None, "step is -1"), (2.5, None, "step is .*2.5"), (1, {"x": object()}, "extra does not fit JSON")],
)
def test_what_would_not_be_found_again_is_refused(tmp_path, step, extra, text):
    with pytest.raises((TypeError, ValueError), match=text):
        Checkpoints(tmp_path).save(step, {"x": jnp.zeros(2)}, extra)
    assert os.listdir(tmp_path) == []


def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = Checkpoints("saved")
    os.makedirs("elsewhere")
    monkeypatch.chdir("elsewhere")
    kept.save(1, {"x": jnp.ones(2)})
    assert (tmp_path / "saved" / "1").is_dir()


@pytest.mark.parametrize(
    ("like", "text"),
    [
        ({"w": jnp.ones((2, 2), jnp.float32)}, r"w has float32\(2, 3\), must have float32\(2, 2\)"),
        ({"w": jnp.ones((2, 3), jnp.bfloat16)}, "w has float32.*must have bfloat16"),
        ({"w": jnp.ones((2, 3), jnp.float32), "b": jnp.ones(1)}, "b is missing"),
        ({"v": jnp.ones((2, 3), jnp.float32)}, "v is missing; w is not expected"),
    ],
)
def test_another_tree_is_refused_by_name(tmp_path, like, text):
    Checkpoints(tmp_path).save(1, {"w": jnp.ones((2, 3), jnp.float32)})
    with pytest.raises(CheckpointError, match=f"another model.*{text}"):
        Checkpoints(tmp_path).restore(like)


def test_sharded_arrays_come_back_sharded(tmp_path):
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("shard",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("shard"))
    x = jax.device_put(jnp.arange(8.0), sharding)
    Checkpoints(tmp_path).save(1, {"x": x})
    found = Checkpoints(tmp_path).restore({"x": jax.device_put(jnp.zeros(8), sharding)})[0]["x"]
    assert found.sharding == sharding
    np.testing.assert_array_equal(found, x)


def test_impossible_numbers_are_refused(tmp_path):
    for wrong in ({"every": 0}, {"keep": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            Checkpoints(tmp_path, **wrong)


def test_no_type_is_lost(tmp_path):
    dtypes = [ml_dtypes.bfloat16, np.float16, np.float64, np.int8, np.uint8, np.int64, np.bool_, np.complex64]
    values = {np.dtype(d).name: jnp.ones(3, d) for d in dtypes}
    Checkpoints(tmp_path).save(1, values)
    same(Checkpoints(tmp_path).restore(values)[0], values)


def test_training_states_are_trees(tmp_path):
    state = train.init({"w": jnp.ones(3)}, optax.adam(0.1), precision=train.FLOAT16)
    Checkpoints(tmp_path).save(0, state)
    same(Checkpoints(tmp_path).restore(state)[0], state)


def test_a_file_in_place_of_a_checkpoint_is_named(tmp_path):
    (tmp_path / "3").write_text("mine")
    with pytest.raises(CheckpointError, match=r"3 is a file: move it away"):
        Checkpoints(tmp_path).save(3, tree())
    assert (tmp_path / "3").read_text() == "mine"


def test_a_file_in_the_place_of_a_step_is_named(tmp_path):
    """Also one in the place of the hidden folder; the disk is not full."""
    for name in ("5", ".5.part"):
        folder = tmp_path / f"of{name}"
        folder.mkdir()
        (folder / name).write_text("")
        with pytest.raises(CheckpointError, match=rf"{name} is a file: move it away"):
            Checkpoints(folder).save(5, {"x": np.ones(3)})
