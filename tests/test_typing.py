"""Shapes in signatures are checked on request, also while tracing; an error names the argument and both shapes."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from fphys.typing import Array, Bool, Float, Int, ShapeError, checked, shaped

LOGITS, LABELS = jnp.ones((4, 10)), jnp.zeros(3, jnp.int32)


@shaped
def loss(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"], mask: Bool[Array, " batch"] | None = None
):
    return logits.sum()


@shaped
def crooked(x: Float[Array, "rows columns"]) -> Float[Array, "columns rows"]:
    return x


def test_off_by_default():
    loss(LOGITS, LABELS)
    crooked(LOGITS)


@pytest.mark.parametrize("call", [loss, jax.jit(loss), jax.grad(loss)], ids=["eager", "jit", "grad"])
def test_a_mismatch_names_both_shapes_and_the_argument(call):
    message = (
        r"loss: labels is int32 of shape \(3,\), must be Int of shape \(batch\), "
        r"where logits is float64 of shape \(4, 10\), as Float of shape \(batch, classes\)"
    )
    with checked(), pytest.raises(ShapeError, match=message):
        call(LOGITS, LABELS)
    with checked():
        loss(LOGITS, LABELS[:1].repeat(4), mask=None)
    with checked(), checked(on=False):
        loss(LOGITS, LABELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LOGITS[0], LABELS), r"logits is float64 of shape \(10,\), must be Float of shape \(batch, classes\)$"),
        ((LOGITS, LOGITS[:, 0]), r"labels is float64 of shape \(4,\), must be Int"),
        ((3.0, LABELS), "logits is float 3.0, must be"),
        ((LOGITS[:3], LABELS, LABELS), r"mask is int32 of shape \(3,\), must be Bool"),
    ],
)
def test_the_message_says_what_is_wrong(arguments, message):
    with checked(), pytest.raises(ShapeError, match=message):
        loss(*arguments)


def test_the_result_is_checked():
    with checked(), pytest.raises(ShapeError, match=r"crooked: the result is float64 of shape \(4, 10\)"):
        crooked(LOGITS)


def test_a_name_holds_for_one_call_only():
    with checked():
        loss(LOGITS, LABELS[:1].repeat(4))
        loss(LOGITS[:3], LABELS)


PROGRAM = """
import jax.numpy as jnp
import fphys
try:
    fphys.tensor.cdist(jnp.ones((5, 3)), jnp.ones((7, 2)))
except fphys.typing.ShapeError as error:
    print("ShapeError", error)
except TypeError as error:
    print("TypeError")
"""


@pytest.mark.parametrize(
    ("variable", "file", "expected"),
    [
        (None, None, "TypeError"),
        ("1", None, "ShapeError"),
        (None, "shapes = true", "ShapeError"),
        ("0", "shapes = true", "TypeError"),
    ],
)
def test_environment_and_file(tmp_path, variable, file, expected):
    environment = {name: value for name, value in os.environ.items() if name != "FPHYS_SHAPES"}
    if variable:
        environment["FPHYS_SHAPES"] = variable
    if file:
        (tmp_path / "fphys.toml").write_text(f"[fphys]\n{file}\n")
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert child.stdout.startswith(expected)


def test_the_setting_is_a_boolean(tmp_path):
    from fphys.config import ConfigError, read_config

    (tmp_path / "fphys.toml").write_text('[fphys]\nshapes = "yes"\n')
    with pytest.raises(ConfigError, match="line 2: shapes is 'yes'; it must be true or false"):
        read_config(tmp_path / "fphys.toml")
