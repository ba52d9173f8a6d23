"""The loop: learning, logging, early stopping, resuming."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fphys import data, losses, train
from fphys.runs import Run

from .linear import batches, loss_fn, start


def fit(count=60, **options):
    return train.fit(loss_fn, start(), optax.adam(0.2), batches(count), **{"every": 10} | options)


def source(n=50):
    (batch,) = batches(1, size=n)
    return data.Arrays(**batch)


def test_it_learns_and_says_so():
    result = fit(200)
    np.testing.assert_allclose(result.params["w"][:, 0], [1, -2, 3], atol=0.02)
    assert result.reason == "data" and int(result.state.step) == 200
    assert [row["step"] for row in result.history] == list(range(10, 201, 10))
    assert result.history[-1]["loss"] < 1e-3 < result.history[0]["loss"]
    assert set(result.history[0]) == {"step", "loss", "grad_norm", "skipped", "bias"}


def test_a_source_instead_of_a_loader_is_refused():
    with pytest.raises(TypeError, match=r"data is Arrays, which gives single records: use fphys.data.loader\(Arrays"):
        train.fit(loss_fn, start(), optax.adam(0.2), source(), steps=7)


def test_labels_out_of_range_are_named():
    """Under ``jit`` the loss cannot look at them: it is NaN, and the update is skipped."""

    def classify(params, aux, batch, key):
        return losses.cross_entropy(batch["x"] @ params["w"], batch["label"]), aux, {}

    params, x = {"w": jnp.zeros((3, 4), jnp.float32)}, np.ones((5, 3), np.float32)
    why = "labels hold 4, must be from 0 to 3"
    wrong = [{"x": x, "label": np.int32([0, 1, 2, 3, 4])}] * 6
    with pytest.warns(UserWarning, match=f"all 6 updates were skipped, nothing is learned: {why}"):
        train.fit(classify, params, optax.adam(0.1), wrong)
    with pytest.raises(train.TrainingError, match=f"the last 4 updates were skipped, up to step 3: {why}"):
        train.fit(classify, params, optax.adam(0.1), wrong, every=2, patience=3)
    with pytest.warns(UserWarning, match="learned: loss, gradient or update is not finite. Look for"):
        train.fit(classify, params, optax.adam(0.1), [{"x": np.nan * x, "label": np.int32([0] * 5)}])


@pytest.mark.parametrize("given", [{"x": np.ones(3)}, batches])
def test_data_that_is_not_batches_is_refused(given):
    with pytest.raises(TypeError, match=r"data is of type (dict|function), must be an iterable of batches: \[batch\]"):
        train.fit(loss_fn, start(), optax.adam(0.2), given, steps=7)


def test_steps_end_it_without_an_extra_batch():
    drawn = iter(batches(9))
    result = train.fit(loss_fn, start(), optax.adam(0.2), drawn, steps=7, every=2)
    assert result.reason == "steps" and len(list(drawn)) == 2
    assert [row["step"] for row in result.history] == [2, 4, 6, 7]


def test_clipping_shortens_long_gradients_only():
    (batch,) = batches(1)
    options = {"steps": 1, "every": 1}
    plain = train.fit(loss_fn, start(), optax.sgd(1.0), [batch], **options)
    length = plain.history[0]["grad_norm"]
    for clip, factor in [(0.5, 0.5 / length), (2 * length, 1.0)]:
        clipped = train.fit(loss_fn, start(), optax.sgd(1.0), [batch], clip=clip, **options)
        np.testing.assert_allclose(clipped.params["w"], factor * plain.params["w"], rtol=1e-5)
        np.testing.assert_allclose(clipped.history[0]["grad_norm"], length, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_clipping_learns_in_every_precision(dtype):
    """The square of 300 is infinite in float16."""
    slope = lambda params, aux, batch, key: ((batch * params).astype(jnp.float32).sum(), aux, {})  # noqa: E731
    batch = jnp.full(4, 300, dtype)
    result = train.fit(slope, jnp.zeros(4, dtype), optax.sgd(1.0), [batch], clip=1.0, every=1)
    np.testing.assert_array_equal(result.params, jnp.full(4, -0.5, dtype))
    assert result.history[0]["grad_norm"] == 600


def test_a_run_gets_the_log_and_the_bar(tmp_path, capsys):
    with Run("fit", root=tmp_path) as run:
        result = fit(40, run=run, evaluate=lambda params, aux: {"accuracy": params["b"].sum()})
    assert run.history["loss"] == [row["loss"] for row in result.history]
    assert run.history["accuracy"] == [row["accuracy"] for row in result.history]
    assert "loss=" in capsys.readouterr().err


def test_early_stop_ends_it():
    scores = iter([5.0, 4.0, 4.5, 3.0, 3.0, 3.5, 2.99, 1.0, 1.0])
    stop = train.EarlyStop("score", patience=3, delta=0.02)
    result = fit(90, stop=stop, evaluate=lambda params, aux: {"score": next(scores)})
    assert result.reason == "early stop" and int(result.state.step) == 70
    assert next(scores) == 1.0
    with pytest.raises(ValueError, match="must be one of the logged metrics, step, bias"):
        fit(20, stop=train.EarlyStop("accuracy"))


def test_early_stop_with_maximise_and_nan():
    stop = train.EarlyStop("score", patience=2, maximise=True)
    state = stop.init()
    for value, waited in [(0.1, 0), (float("nan"), 1), (0.2, 0), (0.2, 1), (0.15, 2)]:
        assert not stop.done(state)
        state = stop.update(state, value)
        assert state[1] == waited
    assert stop.done(state) and state[0] == 0.2
    with pytest.raises(ValueError, match="patience=0"):
        train.EarlyStop(patience=0)


def resumed(folder, steps, size=8, **options):
    loader = data.loader(source(), size, seed=1)
    saving = train.Checkpoints(folder, every=4, keep=2)
    return train.fit(loss_fn, start(), optax.adam(0.1), loader, steps=steps, every=3, checkpoints=saving, **options)


def test_an_interrupted_training_ends_the_same(tmp_path):
    whole = resumed(tmp_path / "whole", 20)
    for steps in (3, 4, 11, 20):
        partial = resumed(tmp_path / "parts", steps)
        assert int(partial.state.step) == steps
    jax.tree.map(np.testing.assert_array_equal, partial.params, whole.params)
    jax.tree.map(np.testing.assert_array_equal, partial.state.opt, whole.state.opt)
    again = resumed(tmp_path / "parts", 20)
    assert again.history == [] and again.reason == "steps"
    jax.tree.map(np.testing.assert_array_equal, again.params, whole.params)
    assert train.Checkpoints(tmp_path / "parts").steps == [16, 20]


def test_a_pending_early_stop_is_resumed(tmp_path):
    def run(folder, steps):
        scores = {3: 1.0, 6: 2.0, 9: 2.0, 12: 2.0, 15: 2.0}
        calls = []

        def evaluate(params, aux):
            calls.append(1)
            return {"score": scores[min(15, started + 3 * len(calls))]}

        started = max(train.Checkpoints(folder).steps, default=0) // 3 * 3
        return resumed(folder, steps, stop=train.EarlyStop("score", patience=3), evaluate=evaluate)

    assert int(run(tmp_path / "whole", 30).state.step) == 12
    run(tmp_path / "parts", 9)
    result = run(tmp_path / "parts", 30)
    assert int(result.state.step) == 12 and result.reason == "early stop"
    assert int(run(tmp_path / "parts", 30).state.step) == 12  # it has stopped and does not go on


def test_a_changed_stop_rule_starts_over(tmp_path):
    resumed(tmp_path, 6)
    stop = train.EarlyStop("score", patience=2)
    result = resumed(tmp_path, 30, stop=stop, evaluate=lambda params, aux: {"score": 100.0})
    assert int(result.state.step) == 15


def test_data_that_cannot_be_resumed_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match=r"list_iterator.*fphys\.data\.loader"):
        fit(checkpoints=train.Checkpoints(tmp_path))
    assert train.Checkpoints(tmp_path).steps == []


def test_resuming_with_other_batches_is_refused(tmp_path):
    resumed(tmp_path, 8)
    assert resumed(tmp_path, 5).reason == "steps"  # the checkpoint is beyond step 5
    with pytest.raises(ValueError, match=r"has batches of .*'float32', \[8, 3\].*gives .*'float32', \[10, 3\]"):
        resumed(tmp_path, 12, size=10)
    with pytest.raises(ValueError, match=r"has batches of .*'float32', \[8, 3\].*gives .*'float32', \[4, 3\]"):
        resumed(tmp_path, 12, size=4)


def test_arguments_that_make_no_sense_are_refused_before_training(tmp_path):
    for steps in (-3, 10.5):
        with pytest.raises(ValueError, match=f"steps is {steps}, must be a whole number of batches"):
            fit(steps=steps)
    with pytest.raises(TypeError, match=r"optimizer is 0.001, must be an optax optimizer such as fphys\.optim\.adam"):
        train.fit(loss_fn, start(), 1e-3, batches(3))
    with pytest.raises(ValueError, match=r"gap has shape \(2,\), must be a scalar"):
        fit(evaluate=lambda params, aux: {"gap": np.zeros(2)})
    for name, wrong, text in [
        ("clip", -1.0, "clip is -1.0, must be positive"),
        ("clip", 0.0, "clip is 0.0, must be positive"),
        ("clip", np.nan, "clip is nan, must be positive"),
        ("every", 0, "every=0 and patience=100 must be at least 1"),
        ("every", -1, "every=-1 and"),
        ("patience", 0, "patience=0 must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=text):
            fit(**{name: wrong})
    (tmp_path / "file").touch()
    with pytest.raises(train.CheckpointError, match="cannot be created"):
        resumed(tmp_path / "file" / "inside", 8)


def test_a_data_loader_of_grain_is_resumed(tmp_path):
    import grain

    def loader():
        sampler = grain.samplers.IndexSampler(len(source()), shuffle=True, seed=2, num_epochs=None)
        batch = grain.transforms.Batch(8, drop_remainder=True)
        return grain.DataLoader(data_source=source(), sampler=sampler, operations=[batch])

    def run(folder, steps):
        saving = train.Checkpoints(folder, every=100)
        return train.fit(loss_fn, start(), optax.adam(0.1), loader(), steps=steps, checkpoints=saving).params

    run(tmp_path / "parts", 5)
    jax.tree.map(np.testing.assert_array_equal, run(tmp_path / "parts", 12), run(tmp_path / "whole", 12))


def test_flax_modules_with_running_statistics(tmp_path):
    class Net(nnx.Module):
        def __init__(self, rngs):
            options = {"param_dtype": jnp.float32, "rngs": rngs}
            self.hidden, self.out = nnx.Linear(3, 8, **options), nnx.Linear(8, 1, **options)
            self.norm, self.drop = nnx.BatchNorm(8, **options), nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x):
            return self.out(self.drop(nnx.relu(self.norm(self.hidden(x)))))

    graph, params, aux = nnx.split(Net(nnx.Rngs(0)), nnx.Param, ...)

    def loss(params, aux, batch, key):
        net = nnx.merge(graph, params, aux)
        value = ((net(batch["x"]) - batch["y"]) ** 2).mean()
        return value, nnx.state(net, nnx.Not(nnx.Param)), {}

    def run(folder, steps):
        loader = data.loader(source(), 8, seed=1)
        saving = train.Checkpoints(folder)
        options = {"aux": aux, "steps": steps, "every": 5, "checkpoints": saving}
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # flax needs them
            return train.fit(loss, params, optax.adam(0.05), loader, **options)

    whole = run(tmp_path / "whole", 30)
    assert whole.history[-1]["loss"] < 0.5 * whole.history[0]["loss"]
    assert not np.array_equal(jax.tree.leaves(whole.aux)[0], jax.tree.leaves(aux)[0])
    run(tmp_path / "parts", 13)
    parts = run(tmp_path / "parts", 30)
    jax.tree.map(np.testing.assert_array_equal, parts.params, whole.params)


def test_the_end_of_the_data_is_logged_and_evaluated(tmp_path):
    evaluated = []

    def evaluate(params, aux):
        evaluated.append(params["w"].sum())
        return {"score": evaluated[-1]}

    result = fit(7, evaluate=evaluate)
    assert [row["step"] for row in result.history] == [7] and result.reason == "data"
    assert result.history[0]["score"] == float(result.params["w"].sum()) and len(evaluated) == 1
    with Run("fit", root=tmp_path) as run:
        assert [row["step"] for row in fit(24, run=run).history] == [10, 20, 24]
    assert len(run.history["loss"]) == 3
    assert [row["step"] for row in fit(20).history] == [10, 20]
    with pytest.raises(ValueError, match="must be one of the logged metrics, step, bias"):
        fit(7, stop=train.EarlyStop("accuracy"))


def test_the_end_of_the_data_is_logged_once(tmp_path):
    def run(steps):
        loader = data.loader(source(), 8, seed=1, epochs=2)  # 12 batches
        saving = train.Checkpoints(tmp_path, every=4)
        result = train.fit(loss_fn, start(), optax.adam(0.1), loader, steps=steps, every=5, checkpoints=saving)
        return [row["step"] for row in result.history]

    assert run(7) == [5, 7]
    assert run(None) == [10, 12]
    assert run(None) == [] == run(None)


def test_last_rows_do_not_count_as_waiting(tmp_path):
    """Otherwise training in many short calls would stop earlier than in one."""
    options = {"stop": train.EarlyStop("score", patience=3), "evaluate": lambda params, aux: {"score": 1.0}}
    for steps in (1, 2, 4, 5, 7, 8, 10, 11):
        assert resumed(tmp_path, steps, **options).reason == "steps"
    result = resumed(tmp_path, 30, **options)
    assert int(result.state.step) == 12 and result.reason == "early stop"


def test_the_step_s_number_is_no_metric():
    stepped = lambda *inputs: (*loss_fn(*inputs)[:2], {"step": jnp.float32(7)})  # noqa: E731
    with pytest.raises(ValueError, match="a metric is named step, which is the number of the row's step: rename it"):
        train.fit(stepped, start(), optax.adam(0.2), batches(3), every=1)
    with pytest.raises(ValueError, match="a metric is named step"):
        fit(3, evaluate=lambda params, aux: {"step": 3})


@pytest.mark.parametrize(("given", "kind"), [(None, "None"), (0.5, "float"), ([("a", 1.0)], "list")])
def test_an_evaluation_of_another_form_is_refused(given, kind):
    with pytest.raises(TypeError, match=f"evaluate returned {kind}.*, must return a dict of scalars"):
        fit(3, evaluate=lambda params, aux: given)


def test_a_metric_may_be_an_array_of_one_number():
    result = fit(3, evaluate=lambda params, aux: {"score": np.ones(1), "bias": params["b"]})
    assert result.history[0]["score"] == 1.0 and result.history[0]["bias"] == float(result.params["b"][0])


@pytest.mark.parametrize("where", ["data", "evaluate"])
def test_an_interrupt_at_the_end_of_the_data_is_not_lost(tmp_path, where):
    class Stream(list):
        def get_state(self):
            return {}

        def __iter__(self):
            return self

        def __next__(self):
            if not self:
                interrupt("data")
                raise StopIteration
            return self.pop()

    def interrupt(here):
        if here == where:
            signal.raise_signal(signal.SIGINT)
        return {}

    saving = train.Checkpoints(tmp_path)
    options = {"checkpoints": saving, "evaluate": lambda params, aux: interrupt("evaluate")}
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            train.fit(loss_fn, start(), optax.adam(0.1), Stream(batches(3)), **options)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert saving.steps == [3]
