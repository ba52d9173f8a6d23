"""Faults 3 and 27 to 30: gradients that are not finite; hostile, damaged and incomplete checkpoints."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fphys import data, train
from fphys.train import CheckpointError, Checkpoints, TrainingError


def tree(value):
    return {"w": jnp.full((64, 3), value, jnp.float32), "n": jnp.int32(value)}


def loss_fn(params, aux, batch, key):
    scores = batch["x"] @ params["w"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch["label"]).mean(), aux, {}


def problem(n=40):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 5)).astype(np.float32)
    return x, x[:, :3].argmax(1).astype(np.int32)


def fit(x, label, rate=0.1, **options):
    loader = data.loader(data.Arrays(x=x, label=label), 8, epochs=5)
    params = {"w": jnp.zeros((5, 3), jnp.float32)}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax's loss needs them
        return train.fit(loss_fn, params, optax.sgd(rate), loader, every=5, **options)


# --- fault 3: a gradient that is not finite


def test_nan_in_the_input_is_a_counted_skip():
    x, label = problem()
    x[7, 2] = np.nan
    with pytest.warns(RuntimeWarning, match=r"record 7 of the data \(Arrays\) holds nan at \['x'\]\[2\]") as said:
        result = fit(x, label)
    assert len(said) == 1
    assert int(result.state.skipped) == 5 and int(result.state.last_skipped) >= 20  # once an epoch
    assert np.isfinite(result.params["w"]).all() and np.abs(result.params["w"]).max() > 0
    assert result.history[-1]["skipped"] == 5


def test_an_infinite_learning_rate_ends_with_an_error():
    with pytest.raises(TrainingError, match=r"last 10 updates were skipped, up to step 9: .*learning rate"):
        fit(*problem(), rate=float("inf"), patience=10)
    with pytest.warns(UserWarning, match="all 25 updates were skipped, nothing is learned: .*learning rate"):
        result = fit(*problem(), rate=float("inf"))
    assert int(result.state.skipped) == 25
    np.testing.assert_array_equal(result.params["w"], 0)


def test_labels_out_of_range():
    x, label = problem()
    label[11] = 3
    assert int(fit(x, label).state.skipped) == 5  # too large: NaN
    with pytest.raises(ValueError, match="label 3 of record 11 is out of range"):
        data.check_labels(label, 3)
    label[11] = -1
    with pytest.raises(ValueError, match="label -1 of record 11"):
        data.check_labels(label, 3)
    with pytest.raises(ValueError, match="float32, must be integers"):
        data.check_labels(label.astype(np.float32), 3)


def test_an_empty_dataset_and_a_batch_that_is_too_large():
    x, label = problem()
    with pytest.raises(ValueError, match="is empty"):
        fit(x[:0], label[:0])
    with pytest.raises(ValueError, match="batch_size=8 is more than the 7 records"):
        fit(x[:7], label[:7])
    with pytest.raises(ValueError, match="data gave no batch"):
        train.fit(loss_fn, {"w": jnp.zeros((5, 3))}, optax.sgd(0.1), [])


# --- fault 27: a hostile checkpoint


class Touch:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_posing_as_a_checkpoint_is_never_loaded(tmp_path):
    marker, folder = tmp_path / "touched", tmp_path / "run"
    poison = pickle.dumps(Touch(marker))
    (tmp_path / "model.pkl").write_bytes(poison)
    with pytest.raises(CheckpointError, match="is a file, and looks like a pickle"):
        Checkpoints(tmp_path / "model.pkl")
    folder.mkdir()
    (folder / "7").write_bytes(poison)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is intact.*and looks like a pickle"):
        Checkpoints(folder).restore(tree(0))
    (folder / "7").unlink()
    for file in [file for file in Checkpoints(folder).save(5, tree(1)).rglob("*") if file.is_file()]:
        saved = file.read_bytes()
        file.write_bytes(poison)
        with pytest.raises(CheckpointError, match="is intact"):
            Checkpoints(folder).restore(tree(0))
        file.write_bytes(saved)
    assert int(Checkpoints(folder).restore(tree(0))[0]["n"]) == 1
    assert not marker.exists()
    pickle.loads(poison).close()
    assert marker.exists()  # the pickle does run code when it is loaded


# --- fault 28: a damaged checkpoint


def damages(content, full):
    """The content truncated at each sixteenth, and with single bytes flipped."""
    sixteenths = range(16) if full else (0, 5, 8, 15)
    cut = {len(content) * k // 16 for k in sixteenths} | {len(content) - 1}
    yield from (content[:n] for n in sorted(cut))
    for i in {len(content) * k // 16 for k in sixteenths}:
        yield content[:i] + bytes([content[i] ^ 0x10]) + content[i + 1 :]


def test_a_damaged_checkpoint_says_so_and_the_one_before_is_loaded(tmp_path, full):
    kept = Checkpoints(tmp_path)
    kept.save(1, tree(1), {"position": 1})
    newest = kept.save(2, tree(2), {"position": 2})
    files = [file for file in newest.rglob("*") if file.is_file()]
    assert len(files) > 5
    for file in files:
        content = file.read_bytes()
        for damaged in damages(content, full):
            file.write_bytes(damaged)
            with pytest.warns(UserWarning, match="damaged, so step 1 is loaded"):
                found, extra = kept.restore(tree(0))
            assert (int(found["n"]), extra) == (1, {"position": 1})
        file.unlink()
        with pytest.warns(UserWarning, match="damaged"):
            assert int(kept.restore(tree(0))[0]["n"]) == 1
        file.write_bytes(content)
    assert int(kept.restore(tree(0))[0]["n"]) == 2
    for step in (1, 2):
        shutil.rmtree(tmp_path / str(step) / "state")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is intact: .*2: .*changed.*; .*1: "):
        kept.restore(tree(0))


# --- fault 29: killed while writing

SAVE = """
    import sys
    import jax.numpy as jnp
    from fphys.train import Checkpoints

    kept = Checkpoints(sys.argv[1])
    step = max(kept.steps, default=0)
    while True:
        step += 1
        kept.save(step, {"w": jnp.full((64, 3), step, jnp.float32), "n": jnp.int32(step)}, {"position": step})
        print(step, flush=True)
"""


def test_killed_while_writing_the_last_good_one_loads(tmp_path, full):
    rng = np.random.default_rng()
    kept = Checkpoints(tmp_path)
    for _ in range(50 if full else 2):
        before = max(kept.steps, default=0)
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVE), str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout and int(child.stdout.readline()) == before + 1
        time.sleep(rng.uniform(0, 0.3))
        child.send_signal(signal.SIGKILL)
        told = [before + 1, *map(int, child.communicate()[0].split())]
        found, extra = kept.restore(tree(0))  # a damaged one would warn, and fail the test
        step = extra["position"]
        assert step >= told[-1]
        np.testing.assert_array_equal(found["w"], step)


# --- fault 30: a full disk, a read-only folder

FULL = """
    import resource, signal, sys
    import jax.numpy as jnp
    from fphys.train import CheckpointError, Checkpoints

    kept = Checkpoints(sys.argv[1])
    kept.save(1, {"w": jnp.arange(50_000.0)})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for limit in (0, 100, 2_000, 20_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            kept.save(2, {"w": jnp.arange(50_000.0) ** 1.5})
        except CheckpointError as error:
            assert "could not save step 2" in str(error) and "step 1 can still be loaded" in str(error), error
        else:
            raise AssertionError(f"saved in {limit} bytes")
        assert kept.steps == [1]
        found, _ = kept.restore({"w": jnp.zeros(50_000)})
        assert (found["w"] == jnp.arange(50_000.0)).all()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    kept.save(2, {"w": jnp.arange(50_000.0) ** 1.5})
    assert kept.steps == [1, 2]
    print("survived")
"""


def test_a_full_disk_leaves_what_was_saved(tmp_path):
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert child.stdout == "survived\n", child.stderr


def test_an_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"could not save step 3 in .*read-only\?"):
        Checkpoints(tmp_path / "file" / "below").save(3, tree(1))
    if os.geteuid():  # root writes anywhere
        os.chmod(tmp_path, 0o500)
        with pytest.raises(CheckpointError, match="PermissionError"):
            Checkpoints(tmp_path / "run").save(3, tree(1))
