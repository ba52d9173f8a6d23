"""The pieces of training: precision, loss scale, accumulation, skipped updates, rematerialisation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fphys import losses, optim, train
from fphys.train import scale
from fphys.train.step import all_finite

from .linear import batches, loss_fn, start


def advanced(loss=loss_fn, optimizer=None, params=None, data=None, aux=None, **options):
    optimizer = optimizer or optax.adam(0.1)
    precision = options.get("precision", train.AS_IT_IS)
    state = train.init(start() if params is None else params, optimizer, aux=aux, precision=precision)
    update = jax.jit(functools.partial(train.step, loss, optimizer, **options))
    rows = []
    for batch in data or batches(5):
        state, metrics = update(state, batch)
        rows.append(metrics)
    return state, rows


def test_a_step_is_optax_by_hand():
    optimizer = optax.adam(0.1)
    params = start()
    opt = optimizer.init(params)
    for batch in batches(5):
        grads = jax.grad(lambda p, batch=batch: loss_fn(p, None, batch, None)[0])(params)
        with jax.numpy_dtype_promotion("standard"):
            updates, opt = optimizer.update(grads, opt)
        params = optax.apply_updates(params, updates)
    state, rows = advanced(optimizer=optimizer)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), state.params, params)
    np.testing.assert_allclose(rows[-1]["grad_norm"], optax.tree.norm(grads), rtol=1e-5)
    assert int(state.step) == 5 and int(state.skipped) == 0 and int(state.last_skipped) == -1


@pytest.mark.parametrize("parts", [2, 3, 12])
def test_accumulation_is_the_whole_batch(parts):
    whole, whole_rows = advanced(optimizer=optax.sgd(0.1))
    cut, cut_rows = advanced(optimizer=optax.sgd(0.1), accumulate=parts)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6), cut.params, whole.params)
    for row, other in zip(cut_rows, whole_rows, strict=True):
        for name in ("loss", "bias", "grad_norm"):
            np.testing.assert_allclose(row[name], other[name], rtol=2e-5, atol=1e-6)


def test_micro_batches_see_each_other_through_aux_and_draw_for_themselves():
    def counting(params, aux, batch, key):
        draw = jax.random.uniform(key, (), jnp.float32)
        return (
            loss_fn(params, aux, batch, key)[0],
            {"calls": aux["calls"] + 1, "sum": aux["sum"] + draw},
            {"draw": draw},
        )

    aux = {"calls": jnp.int32(0), "sum": jnp.float32(0)}
    state, rows = advanced(counting, aux=aux, accumulate=3)
    assert int(state.aux["calls"]) == 15
    draws = [float(row["draw"]) for row in rows]
    assert len(set(draws)) == 5
    np.testing.assert_allclose(state.aux["sum"], 3 * sum(draws), rtol=1e-5)


def test_a_batch_that_cannot_be_cut_is_refused():
    with pytest.raises(ValueError, match=r"accumulate=5 .* \[12\] examples"):
        advanced(accumulate=5)


@pytest.mark.parametrize("precision", [train.FLOAT32, train.BFLOAT16, train.FLOAT16], ids=str)
def test_the_loss_computes_in_the_precision_and_parameters_keep_theirs(precision):
    seen = []

    def watching(params, aux, batch, key):
        seen.append((params["w"].dtype, batch["x"].dtype, batch["n"].dtype))
        return loss_fn(params, aux, batch, key)

    params = jax.tree.map(lambda x: x.astype(jnp.float64), start())
    data = [batch | {"n": np.arange(12)} for batch in batches(3)]
    state, rows = advanced(watching, params=params, data=data, precision=precision)
    assert set(seen) == {(np.dtype(precision.compute), np.dtype(precision.compute), np.dtype("int64"))}
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {np.dtype("float64")}
    assert rows[0]["loss"].dtype == jnp.float32
    exact = loss_fn(start(), None, batches(1)[0], None)[0]
    np.testing.assert_allclose(rows[0]["loss"], exact, rtol=float(jnp.finfo(precision.compute).eps) * 4)
    assert ("loss_scale" in rows[0]) == (precision is train.FLOAT16)


def test_the_scale_saves_gradients_that_half_precision_would_lose():
    def tiny(params, aux, batch, key):
        small = params["w"] * jnp.asarray(1e-4, params["w"].dtype)
        return small.sum().astype(jnp.float32) * 1e-4, aux, {}

    for scaled, kept in [(True, True), (False, False)]:
        precision = train.Precision(jnp.float16, scaled=scaled)
        state, _ = advanced(tiny, optimizer=optax.sgd(1e6), precision=precision, data=batches(1))
        assert bool((state.params["w"] != 0).all()) == kept
        if kept:  # the gradient itself is not a multiple of the scale
            np.testing.assert_allclose(state.params["w"], -0.01, rtol=2e-3)


def test_the_scale_backs_off_and_grows_again():
    held = scale.init(8.0, interval=3)
    values = []
    for finite in [True, True, True, True, False, True, True, True, False, False, False, False, False, False]:
        held = held.update(jnp.asarray(finite))
        values.append(float(held.value))
    assert values == [8, 8, 16, 16, 8, 8, 8, 16, 8, 4, 2, 1, 1, 1]
    with pytest.raises(ValueError, match="at least 1"):
        scale.init(0.5)


def test_training_in_half_precision_overflows_backs_off_and_learns():
    def steep(params, aux, batch, key):
        return loss_fn(params, aux, batch, key)[0] * 50, aux, {}

    state, rows = advanced(steep, precision=train.FLOAT16, data=batches(120))
    assert 0 < int(state.skipped) < 20
    assert float(rows[-1]["loss_scale"]) < 2.0**15
    np.testing.assert_allclose(state.params["w"][:, 0], [1, -2, 3], atol=0.1)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_update_that_is_not_finite_changes_nothing_and_is_counted(accumulate):
    def averaging(params, aux, batch, key):
        return loss_fn(params, aux, batch, key)[0], 0.5 * aux + batch["x"].mean(), {}

    options = {"aux": jnp.float32(0), "accumulate": accumulate}
    data = batches(6)
    clean, _ = advanced(averaging, data=data[:2] + data[3:4] + data[5:], **options)
    state, rows = advanced(
        averaging, data=[*data[:2], *batches(1, poison=(0,)), data[3], *batches(1, poison=(0,)), data[5]], **options
    )
    for name in ("params", "aux", "opt"):
        jax.tree.map(np.testing.assert_array_equal, getattr(state, name), getattr(clean, name))
    assert [int(row["skipped"]) for row in rows] == [0, 0, 1, 1, 2, 2]
    assert (int(state.step), int(state.last_skipped), int(state.skipped_in_a_row)) == (6, 4, 0)


def test_rematerialisation_changes_memory_not_numbers():
    def deep(params, aux, batch, key):
        x = batch["x"]
        for _ in range(4):
            x = jnp.tanh(x @ params["w"] @ params["w"].T)
        return (x**2).mean(), aux, {}

    params = {"w": jnp.ones((3, 1), jnp.float32)}
    plain, _ = advanced(deep, params=params)
    saved, _ = advanced(deep, params=params, remat=jax.checkpoint_policies.nothing_saveable)
    np.testing.assert_allclose(plain.params["w"], saved.params["w"], rtol=1e-6)
    text = str(
        jax.make_jaxpr(
            functools.partial(train.step, deep, optax.sgd(0.1), remat=jax.checkpoint_policies.dots_saveable)
        )(train.init(params, optax.sgd(0.1)), batches(1)[0])
    )
    assert "remat" in text or "checkpoint" in text


def test_init_copies_what_a_step_may_donate():
    params = start()
    optimizer = optax.adam(0.1)
    state = train.init(params, optimizer)
    jax.jit(functools.partial(train.step, loss_fn, optimizer), donate_argnums=0)(state, batches(1)[0])
    np.testing.assert_array_equal(params["w"], np.zeros((3, 1)))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda loss: loss, "must return"),
        (lambda loss: (loss, {}), "a tuple of 2"),
        (lambda loss: (loss[None], None, {}), "take the mean"),
    ],
)
def test_a_loss_of_another_form_is_refused(result, text):
    with pytest.raises(TypeError, match=text):
        advanced(lambda p, aux, batch, key: result(loss_fn(p, aux, batch, key)[0]))


def test_parameters_that_are_not_arrays_are_refused():
    with pytest.raises(TypeError, match=r"\['f'\] in params"):
        train.init({"f": len, "w": jnp.ones(2)}, optax.sgd(0.1))
    with pytest.raises(TypeError, match="holds no array"):
        train.init({}, optax.sgd(0.1))


def test_parameters_without_a_gradient_are_named():
    for params, name in (({"w": jnp.ones(2), "n": jnp.arange(3)}, r"\['n'\]"), (jnp.arange(3), "params")):
        with pytest.raises(TypeError, match=f"^{name} in params is int.*: cast it, or move it to aux"):
            train.init(params, optax.sgd(0.1))


def test_optimizers_that_need_more_are_refused():
    for optimizer in (optax.lbfgs(), optax.lookahead(optax.sgd(0.1), 5, 0.5)):
        with pytest.raises(TypeError, match="one that needs more, as lbfgs and lookahead do, needs a loop of your own"):
            advanced(optimizer=optimizer)


@pytest.mark.parametrize("name", ["loss", "skipped"])
def test_a_metric_does_not_replace_the_loss(name):
    found = advanced(lambda *inputs: (*loss_fn(*inputs)[:2], {name: jnp.float32(7)}))[1][-1]
    assert found[name] == advanced()[1][-1][name] != 7


def test_many_rows_are_learned_from_in_half_precision():
    """The sum of their losses is infinite in float16."""

    def classify(params, aux, batch, key):
        return losses.cross_entropy(batch["x"] @ params["w"], batch["label"]), aux, {}

    rows = 60_000
    x = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    batch = {"x": x, "label": x.argmax(1).astype(np.uint8)}
    options = {"data": [batch] * 20, "params": {"w": jnp.zeros((4, 4), jnp.float32)}, "precision": train.FLOAT16}
    state, found = advanced(classify, **options)
    assert int(state.skipped) == 0 and found[-1]["loss"] < found[0]["loss"] - 0.5


def test_all_finite():
    tree = {"a": jnp.ones(3), "n": jnp.arange(2)}
    assert all_finite(tree)
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        assert not all_finite(tree | {"b": jnp.float32(bad)})


def test_gradients_of_half_precision_are_averaged_in_float32():
    """The sum of four is infinite in float16; the sum of 256 in bfloat16 stops at 256."""

    def slope(params, aux, batch, key):
        return (batch["x"] * params[None]).astype(jnp.float32).mean(), aux, {}

    options = {"optimizer": optax.sgd(2.0**-16), "accumulate": 4}
    params, x = jnp.zeros(1, jnp.float16), jnp.full((8, 1), 3e4, jnp.float16)
    state, rows = advanced(slope, params=params, data=[{"x": x}], **options)
    assert int(state.skipped) == 0 and float(rows[0]["grad_norm"]) == float(x[0, 0])
    options = {"optimizer": optax.sgd(1.0), "accumulate": 1024}
    params, x = jnp.zeros(1, jnp.bfloat16), jnp.ones((1024, 1), jnp.bfloat16)
    state, _ = advanced(slope, params=params, data=[{"x": x}], **options)
    assert state.params.dtype == jnp.bfloat16 and float(state.params[0]) == -1


def test_metrics_of_small_types_are_means():
    def counting(params, aux, batch, key):
        found = {"any": batch["x"].any(), "count": batch["x"].sum(dtype=jnp.uint8), "half": jnp.float16(6e4)}
        return params["w"].sum(), aux, found

    x = jnp.asarray([[True] * 200, [False] * 200, [False] * 200, [True] * 200])
    row = advanced(counting, data=[{"x": x}], accumulate=4)[1][0]
    assert float(row["any"]) == 0.5 and float(row["count"]) == 100
    assert row["half"].dtype == jnp.float16 and row["half"] == jnp.float16(6e4)


def test_the_norm_of_a_gradient_in_float16_is_not_squared_in_float16():
    def slope(params, aux, batch, key):
        return (300 * params).astype(jnp.float32).sum(), aux, {}

    row = advanced(slope, params=jnp.ones(4, jnp.float16), optimizer=optax.sgd(0.1), data=batches(1))[1][0]
    assert float(row["grad_norm"]) == 600


def returning(new):
    return lambda params, aux, batch, key: (loss_fn(params, aux, batch, key)[0], new(aux), {})


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize(
    ("aux", "new", "message"),
    [
        (
            {"total": 0},
            lambda aux: {"total": aux["total"] + jnp.float32(2.7)},
            r"\['total'\] is float32 in the aux .* int64 .*: begin with \['total'\] in float32, or return it in int64",
        ),
        (jnp.uint8(3), lambda aux: 2.7, "^aux is float64 in the aux .* uint8"),
        ({"seen": jnp.asarray(False)}, lambda aux: {"seen": jnp.int32(2)}, "is int32 in the aux .* bool"),
        ({"total": 0.0}, lambda aux: None, "returned an aux of another structure .*: return aux itself"),
        ({"a": 0.0}, lambda aux: {"a": 0.0, "b": 0.0}, "another structure"),
        (None, lambda aux: {"a": 0.0}, "another structure"),
    ],
)
def test_an_aux_that_would_change_is_refused(aux, new, message, accumulate):
    """A float cut to an integer, above all: 2.7 would be 2."""
    with pytest.raises(TypeError, match=message), jax.numpy_dtype_promotion("standard"):
        advanced(returning(new), aux=aux, accumulate=accumulate)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_aux_keeps_its_types(accumulate):
    """Mixed precision computes it in another width; plain numbers are welcome."""
    aux = {"mean": 0.0, "half": jnp.float16(0), "n": 0, "small": jnp.int32(0), "any": jnp.int32(0)}
    new = {"mean": 2.5, "half": jnp.float32(0.5), "n": 3, "small": jnp.int64(4), "any": jnp.asarray(True)}
    state, _ = advanced(returning(lambda aux: new), aux=aux, accumulate=accumulate, precision=train.BFLOAT16)
    assert jax.tree.map(float, state.aux) == jax.tree.map(float, new)
    assert jax.tree.map(lambda x: x.dtype, state.aux) == jax.tree.map(lambda x: jnp.asarray(x).dtype, aux)


@pytest.mark.parametrize("optimizer", [optax.adam(0.1), optax.chain(optax.rmsprop(0.1), optax.identity())])
def test_a_gradient_whose_square_is_not_finite_is_skipped(optimizer):
    """Otherwise the second moment is infinite for ever, and nothing is learned, unnoticed."""

    def slope(params, aux, batch, key):
        return (params * batch["g"]).sum(), aux, {}

    data = [{"g": jnp.full((1,), g, jnp.float32)} for g in (1.0, 1e20, 1.0)]
    options = {"loss": slope, "optimizer": optimizer, "params": jnp.zeros(1, jnp.float32)}
    state, rows = advanced(data=data, **options)
    clean, _ = advanced(data=data[::2], **options)
    assert [int(row["skipped"]) for row in rows] == [0, 1, 1] and float(rows[1]["grad_norm"]) == np.float32(1e20)
    jax.tree.map(np.testing.assert_array_equal, (state.params, state.opt), (clean.params, clean.opt))


def test_an_optimizer_may_begin_with_infinity():
    """``ReduceLROnPlateau`` holds the best loss so far."""
    state, _ = advanced(optimizer=optax.chain(optax.adam(0.1), optim.ReduceLROnPlateau(every=3)))
    assert int(state.skipped) == 0
