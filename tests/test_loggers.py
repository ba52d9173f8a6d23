"""Loggers take what a run and a training log: lines of JSON, any object with two methods, and Weights & Biases."""

import json
import sys
import types

import jax.numpy as jnp
import optax
import pytest

from fphys import train
from fphys.errors import MissingDependencyError
from fphys.loggers import JsonLines, TensorBoard, WandB
from fphys.runs import Run


class Kept:
    """A logger of one's own."""

    def __init__(self):
        self.rows, self.closed = [], 0

    def log(self, step, values):
        self.rows.append((step, dict(values)))

    def close(self):
        self.closed += 1


def test_a_run_gives_its_loggers_every_row_and_closes_them(tmp_path):
    own, lines = Kept(), JsonLines(tmp_path / "new" / "log.jsonl")
    with Run("fit", root=tmp_path, quiet=True, loggers=[own, lines]) as run:
        run.log(1, loss=0.5)
        assert json.loads(lines.path.read_text()) == {"step": 1, "loss": 0.5}  # at once
        run.log(2, loss=float("nan"), rate=jnp.asarray(2))
        assert not own.closed
    assert own.closed == 1 and own.rows[0] == (1, {"loss": 0.5}) and own.rows[1][1]["rate"] == 2.0
    text = lines.path.read_text()
    assert "NaN" not in text and json.loads(text.splitlines()[1]) == {"step": 2, "loss": None, "rate": 2.0}
    assert not list(run.path.glob("events.*"))  # in place of TensorBoard
    assert run.history["rate"] == [2.0]


def test_a_training_logs_with_and_without_a_run(tmp_path):
    def loss(params, aux, batch, key):
        return (params["w"] - batch) ** 2, aux, {"distance": jnp.abs(params["w"] - batch)}

    def fitted(**log):
        data = [jnp.float32(1.0)] * 6
        return train.fit(loss, {"w": jnp.float32(0.0)}, optax.sgd(0.1), data, every=2, **log)

    own = Kept()
    result = fitted(loggers=[own])
    assert [step for step, _ in own.rows] == [2, 4, 6] and not own.closed
    assert [{"step": step} | values for step, values in own.rows] == result.history
    seen = Kept()
    with Run("fit", root=tmp_path, quiet=True, loggers=[seen]) as run:
        fitted(run=run)
    assert seen.rows == own.rows


def test_tensorboard_makes_its_file_with_the_first_scalar(tmp_path):
    board = TensorBoard(tmp_path)
    board.close()
    assert not list(tmp_path.iterdir())
    board.log(1, {"loss": 1.0})
    board.close()
    assert len(list(tmp_path.glob("events.*"))) == 1


def test_weights_and_biases(monkeypatch):
    said = []
    fake = types.SimpleNamespace(
        log=lambda values, step: said.append((step, values)), finish=lambda: said.append("finished")
    )
    module = types.ModuleType("wandb")
    module.init = lambda **options: said.append(options) or fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    logger = WandB(project="fphys", mode="offline")
    logger.log(3, {"loss": 0.5})
    logger.close()
    assert said == [{"project": "fphys", "mode": "offline"}, (3, {"loss": 0.5}), "finished"]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingDependencyError, match="pip install wandb"):
        WandB()
