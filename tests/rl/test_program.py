"""`fphys train`, `fphys play`, `fphys envs`, and policies as files."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import cli, envs, export, rl
from fphys.errors import FphysError
from fphys.experiments.dqn import PUSH, Carts
from fphys.nn.weights import read_safetensors
from fphys.rl import program, record


def test_train_and_play_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(program, "record", functools.partial(record, steps=50))  # the next test films a whole episode
    monkeypatch.setattr("fphys.view.Viewer.play", lambda viewer: None)  # it would play until Ctrl-C
    options = "--steps 512 --num-envs 4 --horizon 64 --minibatches 4 --epochs 1".split()
    assert cli.main(["train", "ppo", "inverted-pendulum", *options, "--out", str(tmp_path)]) == 0
    (folder,) = (tmp_path / "ppo-InvertedPendulum-v5").iterdir()
    files = {path.name for path in folder.iterdir()}
    assert {"policy.safetensors", "metrics.json", "return.png", "InvertedPendulum-v5.mp4", "result.npz"} <= files
    assert (folder / "policy.safetensors").stat().st_size < 30_000
    assert cli.main(["play", str(folder), "--steps", "5", "--out", str(tmp_path), "--view"]) == 0
    printed = capsys.readouterr().out
    assert "mean_return" in printed and "http://127.0.0.1" in printed
    assert (next((tmp_path / "play").iterdir()) / "InvertedPendulum-v5.mp4").is_file()


OWN = """
import jax.numpy as jnp
from fphys.envs import Env
from fphys.tree import pytree, static

@pytree
class Still(Env):
    source = "slider.xml"
    max_episode_steps: int = static(default=8)

    def start(self, key):
        return self.noisy_start(key, 0.1)

    def reward(self, before, after, action):
        return -after.qpos[:, 0] ** 2, {}
"""
SLIDER = """<mujoco><worldbody><body name="slider"><joint name="x" type="slide" axis="1 0 0"/><geom size="0.1"/></body>
</worldbody><actuator><motor joint="x" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_a_class_of_ones_own_is_trained_and_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_still.py").write_text(OWN)
    (tmp_path / "slider.xml").write_text(SLIDER)
    options = "--steps 64 --num-envs 4 --horizon 8 --minibatches 1 --epochs 1 --hidden 4".split()
    assert cli.main(["train", "ppo", "own_still:Still", *options]) == 0
    (folder,) = Path("runs/ppo-Still").iterdir()
    assert (folder / "Still.mp4").is_file()
    with monkeypatch.context() as quick:
        quick.setattr(program, "measured", lambda *_: {})
        quick.setattr("fphys.runs.Run.video", lambda *_, **__: None)
        assert cli.main(["train", "ppo", "own_still:Still", *options, "--resume", str(folder), "--out", "again"]) == 0
    assert "nothing was left to train: " in capsys.readouterr().err
    (again,) = Path("again/ppo-Still").iterdir()
    found = [json.loads((path / "metrics.json").read_text())["metrics"]["steps"] for path in (folder, again)]
    assert found == [64, 64]
    assert cli.main(["play", str(folder), "--steps", "3", "--no-video"]) == 0
    (played,) = Path("runs/play").iterdir()
    assert (played / "result.npz").is_file() and not list(played.glob("*.mp4"))

    policy = program.load_policy(folder / "policy.safetensors")[0]
    foreign = rl.save_policy(tmp_path / "foreign.safetensors", policy, "Hopper-v5")
    capsys.readouterr()
    assert cli.main(["play", str(foreign)]) == 2
    assert "a policy for 2 observations, and Hopper-v5 has 11" in capsys.readouterr().err


def test_a_policy_survives_a_file(tmp_path: Path):
    env = envs.make("InvertedPendulum-v5", 2)
    config = rl.ppo.Config(hidden=(8, 4))
    module, state = rl.ppo.init(env, config, jax.random.key(0))
    state = state.replace(moments=state.moments.update(jnp.asarray(np.random.default_rng(0).normal(size=(9, 4)))))
    policy = rl.ppo.policy(env, module, state)
    path = rl.save_policy(tmp_path / "policy.safetensors", policy, "InvertedPendulum-v5", {"frame_skip": 3})
    again, name, options = rl.load_policy(path)
    observation = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)))
    np.testing.assert_array_equal(jax.jit(again)(observation), jax.jit(policy)(observation))
    assert (name, options) == ("InvertedPendulum-v5", {"frame_skip": 3})
    half = policy.replace(params=jax.tree.map(lambda x: x.astype(jnp.bfloat16), policy.params))
    again, _, _ = rl.load_policy(rl.save_policy(path, half))
    assert {x.dtype for x in jax.tree.leaves(again.params)} == {np.dtype(jnp.bfloat16)}
    jax.tree.map(np.testing.assert_array_equal, again.params["actor"], half.params["actor"])
    export.save_weights(path, {"actor": np.zeros(3)})
    with pytest.raises(FphysError, match="is not a policy of fphys"):
        rl.load_policy(path)
    path.write_bytes(b"not an archive")
    with pytest.raises(FphysError, match="cannot be read as safetensors"):
        rl.load_policy(path)


@pytest.mark.parametrize("agent", [rl.sac, rl.dqn])
def test_other_networks_survive_a_file(agent: Any, tmp_path: Path):
    env: Any = Carts(2)
    config = agent.Config(hidden=(8, 4), capacity=2)
    module, state = jax.jit(functools.partial(agent.init, env, config))(jax.random.key(0))
    policy = agent.policy(env, module, state)
    again, _, _ = rl.load_policy(rl.save_policy(tmp_path / "policy.safetensors", policy))
    observation = jnp.asarray(np.random.default_rng(1).normal(size=(50, 4)), jnp.float32)
    actions = policy(observation)
    np.testing.assert_array_equal(again(observation), actions)
    whole = jnp.arange(-8, 8).reshape(4, 4)
    np.testing.assert_array_equal(policy(whole), policy(whole.astype(jnp.float32)))
    assert actions.shape == (50, 1) and len(np.unique(actions)) > 1 and np.abs(actions).max() <= PUSH


def test_files_from_before_networks_had_names_are_read(tmp_path: Path):
    env: Any = Carts(2)
    module, state = jax.jit(functools.partial(rl.ppo.init, env, rl.ppo.Config(hidden=(8,))))(jax.random.key(0))
    policy = rl.ppo.policy(env, module, state)
    path = rl.save_policy(tmp_path / "policy.safetensors", policy)
    held = read_safetensors(path)
    header = json.loads(bytes(held["header"]))
    del header["network"]
    export.save_weights(path, held | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)})
    observation = jnp.ones((3, 4), jnp.float32)
    np.testing.assert_array_equal(rl.load_policy(path)[0](observation), policy(observation))
    header["network"] = "Oracle"
    export.save_weights(path, held | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)})
    with pytest.raises(FphysError, match="network Oracle, this version reads 1 and ActorCritic"):
        rl.load_policy(path)


def test_what_is_measured_begins_where_training_did_not_and_leaves_out_what_was_lost():
    """Carts whose return is where they begin, but for the first, which has none."""
    env: Any = Carts(8, max_episode_steps=1)
    trained = jax.jit(functools.partial(rl.ppo.init, env, rl.ppo.Config()))(jax.random.key(3))[1].observation
    starts: list[np.ndarray] = []

    def policy(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda x: starts.append(np.asarray(x)), x)
        return jnp.zeros((8, 1), x.dtype)

    class Watched(Carts):
        def step(self, state: Any, action: jax.Array) -> Any:
            after, observation, _, *rest = super().step(state, action)
            return after, observation, jnp.where(jnp.arange(8) == 0, jnp.nan, state.x[:, 0]), *rest

    found = program.measured(Watched(8, max_episode_steps=1), policy, 3, 8)
    assert not (starts[0][:, None] == trained[None]).all(-1).any()
    assert found["lost_episodes"] == 1 and found["mean_length"] == 1
    np.testing.assert_allclose(found["mean_return"], starts[0][1:, 0].mean(), rtol=1e-5)
    np.testing.assert_allclose(found["deviation_of_returns"], starts[0][1:, 0].std(), rtol=1e-5)


@pytest.mark.parametrize("agent", program.AGENTS)
def test_every_agent_explains_its_options(agent: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", agent, "hopper", "--help"])
    assert "--learning-rate FLOAT" in capsys.readouterr().out


def test_any_function_is_filmed():
    env = envs.make("InvertedPendulum-v5")
    act, key = lambda observation: observation[:, :1], jax.random.key(0)
    images = rl.record(env, act, key, steps=2, height=60, width=80)
    assert images.shape == (2, 60, 80, 3) and images.std() > 0
    moved = jax.jit(lambda key: rl.motion(env, act, key, 2))(key)
    state, observation = jax.jit(env.reset)(key)
    np.testing.assert_allclose(moved.qpos[0], jax.jit(env.step)(state, act(observation))[0].qpos, rtol=1e-12)


def test_environments_are_listed(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["envs"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in envs.names())


@pytest.mark.parametrize(
    ("short", "name"),
    [("half-cheetah", "HalfCheetah-v5"), ("walker-walk", "dm_control/walker-walk"), ("ant", "Ant-v5")],
)
def test_short_names(short: str, name: str):
    assert program.full_name(short) == program.full_name(name) == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "ppo", "pigeon"], "no environment 'pigeon'"),
        (["train", "magic", "ant"], "usage: fphys train AGENT ENV"),
        (["train", "ppo", "hopper", "--num-envs", "-1"], "--num-envs is -1"),
        (["train", "ppo", "inverted-pendulum", "--horizon", "0"], "horizon is 0"),
        (["train", "ppo", "inverted-pendulum", "--resume", "nowhere"], "nowhere has no checkpoints"),
        (["play", "nowhere"], "nowhere is no run"),
        (["train", "ppo", "nowhere:Env"], "No module named 'nowhere'"),
        (["train", "ppo", "json:Env"], "json has no subclass of fphys.envs.Env"),
        (["train", "ppo", "fphys.envs:Env"], 'give the class `source = "robot.xml"`'),
    ],
)
def test_refusals(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("shac hopper --actors 2", "--actors are for ppo and sac"),
        ("ppo hopper --actors 2 --processes 2", "not together with --processes"),
        ("sac hopper --actors 2 --asynchronous", "--asynchronous is for ppo with --actors"),
        ("ppo hopper --actors -1", "--actors is -1: it must be 0 or more"),
        ("ppo hopper --asynchronous", "--asynchronous is for ppo with --actors"),
        ("ppo inverted-pendulum --actors 3 --num-envs 4 --horizon 64", "4 worlds do not divide evenly among 3 actors"),
        (
            "ppo inverted-pendulum --actors 2 --asynchronous --num-envs 2 --horizon 32",
            "1 worlds x 32 steps = 32, which",
        ),
    ],
)
def test_actors_that_cannot_be_leave_no_folder(command: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert cli.main(["train", *command.split(), "--out", str(tmp_path)]) == 2
    assert says in capsys.readouterr().err and not list(tmp_path.iterdir())
