"""Actors of Ray: the results of one process, whoever dies, in a stated time, and nothing left behind."""

import dataclasses
import functools
import json
import operator
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import envs
from fphys.distributed import ProcessError, on_host
from fphys.distributed.actors import Actors, cluster
from fphys.rl import actors as remote
from fphys.rl import asynchronous, ppo, sac, shac, shards

from .left import LOOPBACK, descendants, listening, lives

pytestmark = pytest.mark.extra("ray")
WORLDS, UPDATES = 4, 3
CONFIG = ppo.Config(steps=800, horizon=8, epochs=1, minibatches=2, hidden=(4,), normalize=False)


PROGRAM = """
import os, signal, sys, time, ray
import jax.numpy as jnp
from fphys.distributed.actors import Actors
with Actors(lambda shared, part: shared + part, 2) as actors:
    assert [int(x) for x in actors(jnp.ones((), int), [jnp.ones((), int)] * 2)] == [2, 2]
    pids = ray.get([actor.__ray_call__.remote(lambda _: os.getpid()) for actor in actors._actors])
    os.kill(pids[1], signal.SIGSTOP)
    print("up", flush=True)
    sys.stdin.read()
print("down", flush=True)
time.sleep(100)
"""


@pytest.fixture(scope="module")
def env() -> envs.Env:
    return envs.make("InvertedPendulum-v5", WORLDS, max_episode_steps=5)


@pytest.fixture(scope="module")
def begun(env: envs.Env) -> Any:
    """The network, and the state before the first update."""
    return jax.jit(functools.partial(ppo.init, env, CONFIG))(jax.random.key(0))


@pytest.fixture(scope="module")
def ray_runs() -> Iterator[None]:
    """Ray's servers for all tests here: they take seconds to start. Two cores are those of ``actors``."""
    with cluster(6):
        yield


@pytest.fixture(scope="module")
def actors(env: envs.Env, begun: Any, ray_runs: None) -> Iterator[Actors]:
    with Actors(functools.partial(remote.act, env, CONFIG, begun[0]), 2, restarts=30, patience=200) as actors:
        yield actors


def learned(env: envs.Env, begun: Any, actors: Actors, config: ppo.Config = CONFIG, updates: int = UPDATES) -> Any:
    """State and scalars after some updates."""
    module, state = begun
    iteration, scalars = remote.update(env, config, module, actors), None
    for _ in range(updates):
        state, scalars = iteration(state)
    return state, scalars


@pytest.fixture(scope="module")
def undisturbed(env: envs.Env, begun: Any, actors: Actors) -> Any:
    return learned(env, begun, actors)


def pids(actors: Actors) -> list[int]:
    import ray

    return ray.get([actor.__ray_call__.remote(lambda _: os.getpid()) for actor in actors._actors])


def arrays(tree: Any) -> list[np.ndarray]:
    number = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    return [np.asarray(number(x)) for x in jax.tree.leaves(tree)]


def same(ours: Any, theirs: Any, tolerance: float) -> None:
    for a, b in zip(arrays(ours), arrays(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))


def test_updates_of_two_and_four_actors_are_those_of_one_process(
    env: envs.Env, begun: Any, undisturbed: Any, full: bool
):
    module, state = begun
    update, scalars = jax.jit(functools.partial(ppo.update, env, CONFIG, module)), {}
    for _ in range(UPDATES):
        state, scalars = update(state)
    assert float(scalars["episodes"]) > 0  # episodes begin and end on the way
    same(undisturbed, (state, scalars), 1e-6)
    if full:
        with Actors(functools.partial(remote.act, env, CONFIG, module), 4, patience=200) as four:
            same(learned(env, begun, four), (state, scalars), 1e-6)
    assert np.abs(arrays(state.learner.params)[0] - arrays(begun[1].learner.params)[0]).max() > 1e-4


def test_scales_are_of_all_worlds_and_count_each_observation_once(env: envs.Env, begun: Any, actors: Actors):
    config = dataclasses.replace(CONFIG, normalize=True)
    here = Actors(functools.partial(remote.act, env, config, begun[0]), 0)
    ours, theirs = (learned(env, begun, each, config) for each in (actors, here))
    same(ours, theirs, 1e-6)
    assert int(ours[0].moments.count) == int(ours[0].gain_moments.count) == UPDATES * CONFIG.horizon * WORLDS


def test_a_killed_actor_is_replaced_and_nothing_changes(
    env: envs.Env, begun: Any, actors: Actors, undisturbed: Any, full: bool
):
    begin = time.monotonic()
    learned(env, begun, actors)
    lasts, chance = time.monotonic() - begin, random.Random(0)
    for _ in range(20 if full else 1):
        before = pids(actors)
        timer = threading.Timer(chance.uniform(0, lasts), os.kill, (before[1], signal.SIGKILL))
        timer.start()
        found = learned(env, begun, actors)
        timer.join()
        same(found, undisturbed, 0)
        assert pids(actors)[0] == before[0] and pids(actors)[1] != before[1]


def test_the_weights_are_written_once_and_results_are_read_where_they_stand(actors: Actors, begun: Any, env: envs.Env):
    import ray

    wrote, put = [], ray.put
    state = begun[1]
    shared = state.learner.params, state.moments, jax.random.key(0)
    parts = [
        (*jax.tree.map(operator.itemgetter(slice(i, i + 2)), (state.env, state.observation)), np.int32(i))
        for i in (0, 2)
    ]
    before = actors.puts, actors.received
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "put", lambda x: wrote.append(x) or put(x))
        found = actors(shared, parts)
    assert len(wrote) == 1 and actors.puts - before[0] == 1 + 2 + 2
    assert actors.received - before[1] == sum(x.nbytes for x in jax.tree.leaves(found) if isinstance(x, np.ndarray))
    assert not any(x.flags.owndata or x.flags.writeable for x in (found[0][2].action, found[1][2].action))


def test_an_actor_that_hangs_is_named_in_time(actors: Actors, env: envs.Env, begun: Any):
    stopped = pids(actors)[1]
    os.kill(stopped, signal.SIGSTOP)
    patience, actors.patience = actors.patience, 3.0
    begin = time.monotonic()
    try:
        with pytest.raises(ProcessError, match="actor 1 of 2 has not answered for 3 s"):
            learned(env, begun, actors)
    finally:
        os.kill(stopped, signal.SIGCONT)
        actors.patience = patience
    assert time.monotonic() - begin < 13


def test_a_straggler_is_waited_for(env: envs.Env, begun: Any, actors: Actors, undisturbed: Any):
    slow, begin = pids(actors)[1], time.monotonic()
    os.kill(slow, signal.SIGSTOP)
    timer = threading.Timer(5, os.kill, (slow, signal.SIGCONT))
    timer.start()
    found = learned(env, begun, actors)
    timer.join()
    assert time.monotonic() - begin >= 5
    same(found, undisturbed, 0)


@pytest.fixture
def one_core(ray_runs: None, actors: Actors) -> Iterator[Any]:
    """Of the cluster's cores one is free, until this is called."""
    import ray

    class Busy:
        pass

    busy = ray.remote(num_cpus=3)(Busy).remote()
    ray.get(busy.__ray_ready__.remote(), timeout=200)
    yield functools.partial(ray.kill, busy)
    ray.kill(busy)


@pytest.mark.slow
def test_an_actor_that_joins_late_is_waited_for(env: envs.Env, begun: Any, undisturbed: Any, one_core: Any):
    with Actors(functools.partial(remote.act, env, CONFIG, begun[0]), 2, patience=200) as actors:
        timer = threading.Timer(5, one_core)
        timer.start()
        same(learned(env, begun, actors), undisturbed, 0)
        assert timer.finished.is_set()


def test_an_actor_that_joins_late_is_learned_from_beside_those_that_did_not_wait(env: envs.Env, one_core: Any):
    module, state = jax.jit(functools.partial(asynchronous.init, env, CONFIG, 2))(jax.random.key(0))
    with Actors(functools.partial(remote.act, env, CONFIG, module), 2, patience=200) as actors:
        iteration = asynchronous.Iteration(env, CONFIG, module, actors)
        for _ in range(3):
            state, scalars = iteration(state)
        assert sorted(state.rounds.tolist()) == [0, 3]
        one_core()
        end = time.monotonic() + 200
        while not state.rounds.min() and time.monotonic() < end:
            state, scalars = iteration(state)
    rounds = int(state.rounds.sum())
    assert int(state.rounds.min()) == 1 and int(state.ppo.learner.step) == rounds * CONFIG.minibatches
    assert int(scalars["lag"]) == (rounds - 1) * CONFIG.minibatches  # it was asked before the first update
    assert np.isfinite(arrays(state.ppo.learner.params)[0]).all()


LEARNER = """
import random, sys, time
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from fphys import envs
from fphys.rl import actors, ppo
from fphys.train import Checkpoints

class Told(Checkpoints):
    def save(self, step, *rest):
        super().save(step, *rest)
        print("saved", step, flush=True)
        time.sleep(float(sys.argv[3]))

env = envs.make("InvertedPendulum-v5", 4, max_episode_steps=5)
config = ppo.Config(steps=480, horizon=8, epochs=1, minibatches=2, hidden=(4,), normalize=False)
policy, _ = actors.train(env, config, jax.random.key(0), 2, checkpoints=Told(sys.argv[1], every=1))
np.savez(sys.argv[2], *jax.tree.leaves(policy.params))
"""


def test_a_killed_learner_goes_on(
    env: envs.Env, begun: Any, actors: Actors, tmp_path: Path, environment: dict[str, str]
):
    """At a random moment. Its parameters are those of one that was not."""
    command = [sys.executable, "-c", LEARNER, str(tmp_path / "checkpoints"), str(tmp_path / "found.npz")]
    options: dict[str, Any] = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "0.2"], **options) as killed:
        while killed.stdout.readline() != "saved 5\n":
            assert killed.poll() is None
        time.sleep(random.uniform(0, 1))
        killed.kill()
    done = subprocess.run([*command, "0"], timeout=300, check=True, **options)
    first, *_, last = (int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("saved"))
    assert first > 5 and last == 480 // (CONFIG.horizon * WORLDS)
    config = dataclasses.replace(CONFIG, steps=480)
    expected = learned(env, begun, actors, config, last)[0].learner.params
    same(list(np.load(tmp_path / "found.npz").values()), jax.tree.leaves(expected), 1e-6)


def test_an_actor_that_fails_or_dies_too_often_is_named(ray_runs: None):
    def work(shared: Any, part: Any) -> Any:
        key = jnp.issubdtype(shared.dtype, jax.dtypes.prng_key)
        return jax.random.bits(shared, (3,)) if key else shared @ part if part.ndim else shared * part

    with jax.threefry_partitionable(False), Actors(work, 1, restarts=0, patience=100) as actors:
        np.testing.assert_array_equal(actors(jax.random.key(0), [0])[0], jax.random.bits(jax.random.key(0), (3,)))
        assert actors(2.0, [3, np.float32(4)]) == [6.0, 8.0]  # numbers of Python, too
        expect_refusals(actors)
        np.testing.assert_array_equal(actors(np.ones(2), [np.ones(2)])[0], 2.0)
        with pytest.raises(ProcessError, match=r"actor 0 of 1 failed: .* same shape, got \(2,\) and \(3,\)"):
            actors(np.ones(2), [np.ones(3)])
        os.kill(pids(actors)[0], signal.SIGKILL)
        with pytest.raises(ProcessError, match="actor 0 of 1 died and restarts is 0"):
            actors(np.ones(2), [np.ones(2)])
    expect_closed(actors)


def expect_refusals(actors: Actors) -> None:
    for number in (-1, 1):
        with pytest.raises(ValueError, match=rf"there is no actor {number}: {actors.number} actors are numbered"):
            actors.ask(number, 2.0, 3.0)
    with pytest.raises(ValueError, match=r"first\(\): no actor is at work"):
        actors.first()


def expect_closed(actors: Actors) -> None:
    puts = actors.puts
    for call in (lambda: actors(2.0, [3.0]), lambda: actors.ask(0, 2.0, 3.0), actors.first):
        with pytest.raises(ValueError, match="these actors are closed"):
            call()
    assert actors.puts == puts and not actors.busy


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_of_actors_add_up_to_that_of_one_process(ray_runs: None, number: int):
    def cost(gains: Any, model: Any, state: Any) -> Any:
        def advance(s: Any, _: Any) -> Any:
            s = fphys.step(model, s, (s.qpos @ gains[:2] + s.qvel @ gains[2:])[:, None])
            return s, (s.qpos**2).mean(1)

        return fphys.scan(advance, state, jnp.arange(5))[1].mean(0).sum()

    def work(shared: Any, state: Any) -> Any:
        return jax.value_and_grad(cost)(*shared, state)

    with Actors(work, number, patience=200) as actors:
        for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float64, 1e-12)):
            model = fphys.load(fphys.asset("cartpole"), dtype=dtype)
            lean, gains = np.linspace(-0.2, 0.2, WORLDS, dtype=dtype), np.array([0.0, 1.0, 0.0, 1.0], dtype)
            qpos = np.stack([np.zeros(WORLDS, dtype), lean], 1)
            parts = [fphys.init(model, len(part), qpos=part) for part in np.split(qpos, number)]
            found = jax.tree.map(lambda *each: sum(each), *actors((gains, model), parts))
            expected = jax.jit(work)((gains, model), fphys.init(model, WORLDS, qpos=qpos))
            assert found[1].dtype == dtype
            same(found, expected, tolerance)


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_of_shac_and_of_fit_add_up_to_those_of_one_process(env: envs.Env, ray_runs: None, number: int):
    config = shac.Config(steps=800, horizon=4, hidden=(4,), critic_epochs=1)
    module, state = jax.jit(functools.partial(shac.init, env, config))(jax.random.key(0))

    def work(shared: Any, part: Any) -> Any:
        (state, w), (worlds, x) = shared, part
        objective = functools.partial(shac._objective, env, config, module, state)
        slope = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)
        return jax.value_and_grad(objective, has_aux=True)(state.actor, *worlds)[1], slope

    whole = on_host((shac._start(env, config, state, jax.random.key(1)), np.sin(np.arange(24.0)).reshape(8, 3)))
    shared = state, np.linspace(-1.0, 1.0, 3)
    parts = [
        (remote.rows(whole[0], i * WORLDS // number, WORLDS // number), part)
        for i, part in enumerate(np.split(whole[1], number))
    ]
    expected = jax.jit(work)(shared, whole)
    assert np.abs(arrays(expected[0])[0]).max() > 1e-3
    with Actors(work, number, patience=200) as actors:
        found = jax.tree.map(lambda *each: sum(each), *actors(shared, parts))
    same(found[0], expected[0], 1e-6)
    same(found[1], expected[1], 1e-12)


def asynchronously(env: envs.Env, number: int, updates: int, kill: bool = False) -> tuple[Any, list[int]]:
    """State and lags after some updates; in one of them, the first actor is killed."""
    module, state = jax.jit(functools.partial(asynchronous.init, env, CONFIG, number))(jax.random.key(0))
    lags = []
    with Actors(functools.partial(remote.act, env, CONFIG, module), number, restarts=3, patience=200) as actors:
        iteration = asynchronous.Iteration(env, CONFIG, module, actors)
        for i in range(updates):
            state, scalars = iteration(state)
            lags.append(int(scalars["lag"]))
            if kill and i == 1:
                os.kill(pids(actors)[0], signal.SIGKILL)
    return state, lags


def test_one_actor_that_never_waits_does_what_this_process_does_even_if_it_is_killed(env: envs.Env, ray_runs: None):
    here, _ = asynchronously(env, 0, 4)
    there, lags = asynchronously(env, 1, 4, kill=True)
    assert lags == [0, 2, 2, 2]
    same(there, here, 1e-6)


def test_each_rollout_of_two_actors_is_learned_from_once(ray_runs: None):
    env = envs.make("Reacher-v5", WORLDS, max_episode_steps=5)  # no episode is shorter
    state, lags = asynchronously(env, 2, 8, kill=True)
    assert int(state.rounds.sum()) == 8 and int(state.rounds.min()) >= 1
    assert int(state.ppo.learner.step) == 8 * CONFIG.minibatches and 0 <= min(lags) and max(lags) > 0
    begun = jax.jit(functools.partial(ppo.init, env, CONFIG))(jax.random.key(0))[1]
    shares = [(i * 2, int(count)) for i, count in enumerate(state.rounds)]
    for first, count in shares:  # worlds have taken the steps of their rollouts, and no more
        taken = state.ppo.env.episode[first : first + 2] - begun.env.episode[first : first + 2]
        assert (5 * taken <= 8 * count).all() and (5 * (taken + 1) > 8 * count).all()


def test_a_memory_in_two_actors_is_that_of_two_in_this_process_and_dies_with_its_actor(env: envs.Env, ray_runs: None):
    from fphys.distributed.actors import _Worker

    config = sac.Config(steps=4000, horizon=5, warmup=30, batch_size=8, hidden=(8,), updates_per_step=0.5)
    module, begun = jax.jit(functools.partial(shards.init, env, config))(jax.random.key(0))
    work, keep = functools.partial(shards.act, env, config, module, 2), functools.partial(shards.begin, env, config, 2)

    class Here:
        number, workers = 2, [_Worker(work, keep), _Worker(work, keep)]

        def __call__(self, shared: Any, parts: Any) -> Any:
            return [worker.work(shared, part) for worker, part in zip(self.workers, parts, strict=True)]

    with Actors(work, 2, keep=keep, patience=200) as actors:
        ours, theirs = (shards.update(env, config, module, each) for each in (actors, Here()))
        state = other = begun
        for _ in range(3):
            (state, row), (other, _) = ours(state), theirs(other)
        same(state, other, 1e-6)
        assert np.isfinite(row["q_loss"])
        os.kill(pids(actors)[1], signal.SIGKILL)
        seen, call = [], Actors.__call__
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Actors, "__call__", lambda *args: seen.append(call(*args)) or seen[-1])
            state, row = ours(state)
        assert [int(found.count) for found in seen[0]] == [40, 10]  # of worlds that went on: four iterations, and one
        same(state.env, theirs(other)[0].env, 1e-6)
        assert int(state.moments.count) == WORLDS * (1 + 4 * config.horizon) and np.isfinite(row["q_loss"])


def in_use(actors: Actors) -> int:
    """Bytes of memory of this process and the actors: their own, and what they have used of Ray's store."""
    status = [Path(f"/proc/{pid}/status").read_text() for pid in (os.getpid(), *pids(actors))]
    return sum(1024 * int(kb) for text in status for kb in re.findall(r"Rss(?:Anon|Shmem):\s+(\d+) kB", text))


@pytest.mark.slow
def test_memory_is_flat(ray_runs: None, full: bool):
    """Full size: 16,384 worlds in four actors, 10,000 steps. The bound is half of what is sent meanwhile."""
    worlds, number, iterations, horizon = (16_384, 4, 200, 50) if full else (8_192, 2, 16, 8)
    env = envs.make("InvertedPendulum-v5", worlds, dtype=jnp.float32)
    config = ppo.Config(steps=1 << 30, horizon=horizon, epochs=1, minibatches=1, hidden=(4,))
    module, state = jax.jit(functools.partial(ppo.init, env, config))(jax.random.key(0))
    with Actors(functools.partial(remote.act, env, config, module), number, patience=400) as actors:
        iteration, used = remote.update(env, config, module, actors), list[int]()
        for i in range(8 + iterations):
            if i == 8:  # all is compiled, and the store has been used
                before = actors.sent + actors.received
            state, _ = iteration(state)
            used.append(in_use(actors))
        sent = actors.sent + actors.received - before
    print(f"sent {sent / 1e6:.0f} MB; in use [MB]: {[round(each / 1e6) for each in used[:: 1 + iterations // 20]]}")
    assert used[-1] - used[8] < 0.5 * sent


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "ppo inverted-pendulum --asynchronous --steps 512 --horizon 16 --minibatches 2 --epochs 1",
        "sac inverted-pendulum --steps 512 --horizon 16 --updates-per-step 0.5 --warmup 100 --batch-size 16",
    ],
)
def test_the_command_line_trains_with_actors(options: str, tmp_path: Path, environment: dict[str, str]):
    command = [sys.executable, "-m", "fphys.cli", "train", *options.split(), "--actors", "2", "--num-envs", "8"]
    subprocess.run([*command, "--hidden", "4", "--out", str(tmp_path)], check=True, timeout=600, env=environment)
    (metrics,) = tmp_path.glob("*/*/metrics.json")
    assert json.loads(metrics.read_text())["metrics"]["steps"] == 512


@pytest.mark.alone
def test_it_listens_on_loopback_and_leaves_no_process_behind(environment: dict[str, str]):
    """Whether the learner ends or is killed, with an actor that is stopped."""
    options: dict[str, Any] = {"env": environment, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    programs = [subprocess.Popen([sys.executable, "-c", PROGRAM], **options) for _ in range(2)]
    try:
        began = []
        for program in programs:
            assert program.stdout.readline() == "up\n"
            began.append(descendants(program.pid))
            assert len(began[-1]) >= 4  # servers and actors
            assert {address for address, _ in listening([program.pid, *began[-1]])} <= LOOPBACK
        agents = [pid for pid in began[1] if "Agent" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert len(agents) <= 2  # they look for the others for a while before they end
        ports = listening([programs[0].pid, *began[0], *(pid for pid in began[1] if pid not in agents)])
        assert ports
        programs[0].stdin.close()
        assert programs[0].stdout.readline() == "down\n"
        programs[1].kill()
        end = time.monotonic() + 30
        while any(map(lives, began[0])) or any(lives(pid) for pid in began[1] if pid not in agents):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert not ports & listening()
    finally:
        for program in programs:
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()


def test_what_cannot_work_is_refused(env: envs.Env, monkeypatch: pytest.MonkeyPatch):
    with Actors(lambda shared, part: shared * part, 0) as here:
        assert here(2.0, [3]) == [6.0]
        expect_refusals(here)
    expect_closed(here)
    with pytest.raises(ValueError, match="4 worlds do not divide evenly among 3 actors"):
        remote.expect(env, 3)
    many = env.replace(model=env.model.replace({"dof.damping": jnp.ones((WORLDS, 2))}))
    with pytest.raises(ValueError, match="arrays of each world"):
        remote.expect(many, 2)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"fphys\[ray\]|\.\[ray\]"):
        Actors(lambda shared, part: part, 1)
