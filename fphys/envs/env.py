"""What every environment does: episodes of many worlds, side by side and pure.

An environment is a frozen pytree: a model, options, and five functions that a subclass writes (``start``, ``look``,
``observation``, ``reward``, ``terminated``), or more (``starts``, ``control``, ``measure``; ``matter``, ``advance`` and
``points`` where bodies push matter). The base class makes episodes of them: it draws starts from a key of each world,
advances the physics, counts steps and returns, and starts finished worlds anew within the same step.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import alongside
from ..distributed import local
from ..model import Model, State, init
from ..rigid.last import LastSolve, unsolved
from ..rigid.step import solved_step
from ..tree import Tree, pytree, static
from ..worlds import Status, choose, flag, idle, sound
from . import drive, expect, randomize
from .drive import Mode
from .randomize import Ranges, merged

Array = jax.Array

FEW = 16
"""If at most one world in sixteen has finished, only so many starts are computed."""

PARAMETERS, NOISE, PUSHES = -1, -2, -3
"""What an episode's key is folded with for random numbers that no start draws: a start may split the key."""


class Spec(NamedTuple):
    """Shape, type and bounds of one world's action or observation; bounds have that shape."""

    shape: tuple[int, ...]
    dtype: Any  # float32 or float64
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def unit(cls, size: int, dtype: Any) -> Self:
        """Numbers from -1 to 1, shape (size,)."""
        return cls((size,), dtype, -np.ones(size), np.ones(size))


class Start(NamedTuple):
    """The beginning of one world's episode."""

    qpos: Array  # (nq,)
    qvel: Array  # (nv,)
    goal: Any = ()  # anything else that is drawn, for example a target: a pytree of arrays


@pytree
class EnvState(Tree):
    """The worlds in the middle of their episodes. Every array has the world axis first."""

    physics: State
    matter: tuple[Any, ...]  # the state of each medium that the bodies push; () if there is none
    seen: dict[str, Array]  # what ``look`` read of the last step, and ``measure`` of this state
    goal: Any  # what ``start`` drew besides positions and velocities
    drawn: dict[str, Array]  # parameters of this episode (``fphys.envs.randomize``)
    history: Array  # actions that have not acted yet, the newest first, (world, delay, action); see drive.neutral
    difficulty: Array  # of the next episodes, from 0 to 1
    key: Array  # a random key of each world; episode i draws from ``fold_in(key, i)``
    episode: Array  # finished episodes, int32
    faults: Array  # episodes that ended because the simulation became non-finite, int32
    length: Array  # steps of this episode, int32
    total: Array  # sum of this episode's rewards

    @property
    def qpos(self) -> Array:
        """Generalised position [m or rad], shape (world, nq)."""
        return self.physics.qpos

    @property
    def qvel(self) -> Array:
        """Generalised velocity [m/s or rad/s], shape (world, nv)."""
        return self.physics.qvel

    @property
    def status(self) -> Array:
        """Fault bits (fphys.Status) of bodies and matter, uint32, shape (world,)."""
        return functools.reduce(jnp.bitwise_or, [part.status for part in (self.physics, *self.matter)])


class Episode(NamedTuple):
    """The episode that this step belongs to; its values are final where it terminated or was truncated."""

    total: Array  # return, shape (world,)
    length: Array  # steps, int32, shape (world,)
    number: Array  # episodes that this world finished before, int32, shape (world,)


@pytree
class Info(Tree):
    """What a step reports besides its result."""

    final_obs: Array  # the observation before any reset, shape (world, n): that of the state that the reward is for
    episode: Episode
    terms: dict[str, Array]  # terms of the reward and other readings, each with the world axis first
    status: Array  # fault bits (fphys.Status) of the step, uint32, shape (world,)


class _Compiled(NamedTuple):
    """An environment's functions, each as a program."""

    begin: Callable[[EnvState], tuple[EnvState, Array]]
    step: Callable[[EnvState, Array], tuple[EnvState, Array, Array, Array, Array, Info]]
    restart: Callable[[EnvState, Array], tuple[EnvState, Array]]


@pytree
class Env(Tree):
    """Base class of environments. See ``docs/envs.md`` for one built step by step.

    A subclass writes ``start`` for one world, and ``look``, ``observation``, ``reward`` and ``terminated`` for all
    worlds at once. ``reset`` and ``step`` compose with jit, grad, vmap, scan and shard_map.
    """

    model: Model
    num_envs: int = static(default=1)
    frame_skip: int = static(default=1)
    max_episode_steps: int | None = static(default=1000)
    randomize: Ranges = static(default=())
    action_mode: Mode = static(default="ctrl")
    kp: float = static(default=0.0)  # stiffness of "position" [N/m or N m/rad]
    kd: float = static(default=0.0)  # damping of "position" and "velocity" [N s/m or N m s/rad]

    source: ClassVar[str] = ""
    """The MJCF that ``make`` loads."""

    varied: ClassVar[Ranges] = (("body.mass", 0.8, 1.2), ("geom.friction", 0.5, 1.5))
    """What ``make(..., randomize=True)`` varies."""

    camera: ClassVar[str | None] = None
    """The model's camera that films it; by default one that sees the whole motion."""

    # --- what a subclass writes -----------------------------------------------------------------

    def start(self, key: Array) -> Start:
        """Draw the start of one world's episode from a random key, shape ().

        Positions [m or rad] have shape (nq,), velocities [m/s or rad/s] (nv,). Gradients flow to the model if used.
        Raises NotImplementedError if a class writes neither this nor ``starts``.
        """
        raise NotImplementedError(f"{type(self).__name__} needs start(self, key), which draws an episode's beginning")

    def starts(self, keys: Array, model: Model, difficulty: Array) -> Start:
        """Draw the starts of all worlds from a random key and a difficulty of each, both of shape (world,).

        By default ``start`` for every world by itself. ``model`` holds their own mechanisms. Positions [m or rad] have
        shape (world, nq), velocities [m/s or rad/s] (world, nv). Gradients flow to model and difficulty if used.
        """
        return jax.vmap(self.start)(keys)

    def control(self, physics: State, action: Array) -> Array:
        """The actuators' controls in a step of the physics [the actuators' units], shape (world, nu).

        By default as ``action_mode`` says. A class that writes it says in ``action_spec`` what its actions are.
        Gradients flow to state, action and model.

        Raises:
            UnsupportedError: targets are for motors on hinges and slides, and there is another actuator.
        """
        return drive.control(self.model, physics, action, self.action_mode, self.kp, self.kd)

    def matter(self, physics: State) -> tuple[Any, ...]:
        """What the bodies push besides each other, at the start of all worlds' episodes: the state of each medium.

        By default nothing. Every array of it has the world axis first; its static fields do not depend on ``physics``.
        """
        return ()

    def advance(self, physics: State, matter: tuple[Any, ...], ctrl: Array) -> tuple[State, tuple[Any, ...], LastSolve]:
        """A step of the physics. By default of bodies alone; with matter it is :func:`fphys.coupling.step`.

        Args:
            ctrl: controls [the actuators' units], shape (world, nu).

        Returns:
            The next states, and the step's last solve, which ``look`` reads (``fphys.rigid.last.unsolved`` of the
            bodies' state where it is not known). Gradients flow to physics, ctrl and model.

        Raises:
            TypeError: there is matter, and the class does not say how it moves.
        """
        if matter:
            raise TypeError(
                f"{type(self).__name__} has matter, but no advance(self, physics, matter, ctrl), so that it would "
                "stand still: write one that calls fphys.coupling.step"
            )
        physics, last = solved_step(self.model, physics, ctrl)
        return physics, matter, last

    def points(self, state: EnvState) -> dict[str, Array]:
        """What is drawn besides bodies, by name: particles [m], (world, n, 3), NaN where there is none.

        By default nothing. They have the radius ``grain`` [m].
        """
        return {}

    @property
    def grain(self) -> float:
        """Radius of the points [m]."""
        return 0.01

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        """Readings of the step's last solve (:mod:`fphys.rigid.last`), kept in ``state.seen``. By default none.

        They are arrays by name, with the world axis first, and pass gradients on. ``ctrl``, shape (world, nu) [the
        actuators' units], is zero where an episode begins.
        """
        return {}

    def measure(self, physics: State) -> dict[str, Array]:
        """Readings of the state itself, kept in ``state.seen`` too, with the world axis first. By default none."""
        return {}

    def observation(self, state: EnvState) -> Array:
        """The observation, shape (world, n). By default ``qpos`` [m or rad], then ``qvel`` [m/s or rad/s]."""
        return jnp.concatenate([state.qpos, state.qvel], -1)

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        """The reward of a step, shape (world,), and its terms by name, each with the world axis first.

        ``action`` is that of ``step``, shape (world, ...) [the units of ``action_spec``]. ``after.length`` counts this
        step; ``after.total`` is still without this reward. Gradients flow to the action and to both states. Raises
        NotImplementedError if a class does not write it.
        """
        raise NotImplementedError(f"{type(self).__name__} needs reward(self, before, after, action)")

    def terminated(self, state: EnvState) -> Array:
        """Where the task has ended, bool, shape (world,). By default nowhere. Length and total count the last step."""
        return jnp.zeros(state.length.shape, bool)

    def at_limit(self, before: EnvState) -> Array:
        """Whether the step that follows reaches the time limit, bool, shape (world,)."""
        return before.length + 1 >= (self.max_episode_steps or np.iinfo(np.int32).max)

    def _expect_options(self) -> None:
        """Refuse options of this class that cannot work; ValueError. What all classes have is checked before."""

    # --- what follows ---------------------------------------------------------------------------

    def noisy_start(self, key: Array, scale: float, velocity: str = "uniform") -> Start:
        """The reference position and no velocity, plus noise from a random key, shape ().

        It is within +-scale [m or rad, m/s or rad/s]; velocities may be "normal" instead, with that standard deviation.
        Shapes are (nq,) and (nv,). Gradients flow to ``model.qpos0``.
        """
        s, real = self.model.structure, self.model.qpos0.dtype
        keys = jax.random.split(key)
        qpos = self.model.qpos0[0] + jax.random.uniform(keys[0], (s.nq,), real, -scale, scale)
        if velocity == "normal":
            return Start(qpos, scale * jax.random.normal(keys[1], (s.nv,), real))
        return Start(qpos, jax.random.uniform(keys[1], (s.nv,), real, -scale, scale))

    @property
    def dt(self) -> Array:
        """Time between two actions [s], shape (1,) or (world,)."""
        return self.model.opt.timestep * self.frame_skip

    @property
    def action_spec(self) -> Spec:
        """Of one world: controls in the actuators' units and ranges, or targets [m or rad, m/s or rad/s]."""
        return Spec((self.model.structure.nu,), self.model.qpos0.dtype, *drive.bounds(self.model, self.action_mode))

    @property
    def observation_spec(self) -> Spec:
        """Of one world; unbounded."""
        shape = jax.eval_shape(lambda: self.reset(jax.random.key(0))[1]).shape[1:]
        return Spec(shape, self.model.qpos0.dtype, np.full(shape, -np.inf), np.full(shape, np.inf))

    def reset(self, key: Array) -> tuple[EnvState, Array]:
        """Begin an episode in every world, at time 0 [s]: state and observation (world, n), from one random key.

        Gradients flow to the model.

        Raises:
            ValueError: an option cannot work. TypeError: a count is no whole number, or a function of the class returns
                something else than it must. ModelError: ``randomize`` has a name that is not in the model.
            UnsupportedError: ``action_mode`` does not suit the actuators, see ``control``.
        """
        expect.expect_options(self)
        worlds, real, delay = self.num_envs, self.model.qpos0.dtype, randomize.longest_delay(self.randomize)
        own = type(self).action_spec is not Env.action_spec
        action = self.action_spec.shape if own else (self.model.structure.nu,)  # without bounds: they may be traced
        count = jnp.zeros(worlds, jnp.int32)
        return self._compiled.begin(
            EnvState(
                physics=init(self.model, worlds),
                matter=(),
                seen={},
                goal=(),
                drawn={},
                history=jnp.zeros((worlds, delay, *action), real),
                difficulty=jnp.ones(worlds, real),
                key=jax.random.split(key, worlds),
                episode=count,
                faults=count,
                length=count,
                total=jnp.zeros(worlds, real),
            )
        )

    def step(self, state: EnvState, action: Array) -> tuple[EnvState, Array, Array, Array, Array, Info]:
        """Act once in every world. Finished worlds begin their next episode within the same step.

        Args:
            action: shape (world, ``*action_spec.shape``) [the units of ``action_spec``], of the model's precision;
                lists and NumPy's arrays of floating point are cast to it.

        Returns:
            The next state; its observation (world, n), that of a new episode where one has begun; the reward (world,);
            where the task terminated and where it was truncated by the time limit, bool (world,); and :class:`Info`.
            Gradients flow from all of these to state, action and model, and are cut where an episode ends. A world
            that skipped a step, or whose simulation, observation or reward became non-finite, terminates;
            ``info.status`` says why if it was the simulation, the action or a parameter: BADCTRL where an action is not
            finite or larger than ``fphys.worlds.HUGE``, which counts as 0 in the reward and passes no gradient. Where
            an episode's first observation is not finite, zeros are given for it, and the episode terminates in its
            first step.

        Raises:
            ValueError: the action has another shape. TypeError: it has another type, or a function of the class returns
                something else than it must.
        """
        return self._compiled.step(state, expect.expected_action(self, action, state.history))

    @functools.cached_property
    def _compiled(self) -> "_Compiled":
        """Programs for calls outside ``jit``, with this environment's numbers as constants."""
        return _Compiled(jax.jit(self._begin), jax.jit(self._step_apart), jax.jit(self._restart))

    def _step_apart(self, state: EnvState, action: Array) -> tuple[EnvState, Array, Array, Array, Array, Info]:
        """:meth:`step`, in which devices compute their own worlds."""
        worlds = len(state.length)
        if self._of_worlds(worlds):
            return self._step(state, action)

        def own(model: Model, state: EnvState, action: Array) -> Any:
            return self.replace(model=dataclasses.replace(model, key=self.model.key))._step(state, action)

        return local(own, worlds)(dataclasses.replace(self.model, key=None), state, action)  # keyframes have no worlds

    def _step(self, state: EnvState, action: Array) -> tuple[EnvState, Array, Array, Array, Array, Info]:
        after, final, reward, terminated, truncated, info = self._acted(state, action)
        after, observation = self._next(after, final, terminated | truncated)
        return after, observation, reward, terminated, truncated, info

    def _acted(self, state: EnvState, action: Array) -> tuple[EnvState, Array, Array, Array, Array, Info]:
        """:meth:`step` before any world begins its next episode."""
        env, worlds = self.of(state), len(state.length)
        wrong = ~sound([action], worlds)
        action = choose(wrong, 0, action)
        after = env._act(state, action, wrong).replace(length=state.length + 1)
        found = env.reward(state, after, action)
        expect.expect_reward(env, found, worlds)
        reward, terms = found
        reward = reward.astype(state.total.dtype)
        after = after.replace(total=state.total + reward)
        ended = env.terminated(after)
        expect.expect_terminated(env, ended, worlds)
        truncated = self.at_limit(state)
        final = env._observe(after)
        fault = idle(after.status) | ~(jnp.isfinite(reward) & jnp.isfinite(final).all(1))
        terminated = ended | fault
        info = Info(final, Episode(after.total, after.length, state.episode), terms, after.status)
        done = terminated | truncated
        ended = after.replace(
            episode=after.episode + done.astype(jnp.int32), faults=after.faults + fault.astype(jnp.int32)
        )
        return ended, final, reward, terminated, truncated, info

    def _next(self, state: EnvState, observation: Array, done: Array) -> tuple[EnvState, Array]:
        """What :meth:`step` gives after :meth:`_acted`: new episodes where one is done."""
        return jax.lax.cond(done.any(), self._renew, lambda s, o, _: (s, o), state, observation, done)

    def restart(self, state: EnvState, mask: Array) -> tuple[EnvState, Array]:
        """Begin a new episode in the worlds of ``mask``, bool, shape (world,): ``reset(ids)`` of other libraries.

        Their time is 0 [s] again. Gives the state and the observation (world, n) of all worlds. Gradients flow to the
        model, and in the other worlds to the state.

        Raises:
            TypeError: the mask is of another type or shape.
        """
        expect.expect_array(f"{type(self).__name__}.restart", "mask", mask, (len(state.length),), jnp.bool_)
        return self._compiled.restart(state, mask)

    def _restart(self, state: EnvState, mask: Array) -> tuple[EnvState, Array]:
        state = state.replace(episode=state.episode + mask.astype(jnp.int32))
        return self._renew(state, self.of(state)._observe(state), mask)

    def _renew(self, state: EnvState, observation: Array, mask: Array) -> tuple[EnvState, Array]:
        """New episodes in the worlds of the mask, computed for these alone if they are few."""

        def every() -> tuple[EnvState, Array]:
            return self._begin(state)

        def some() -> tuple[EnvState, Array]:
            ids = jnp.nonzero(mask, size=few, fill_value=0)[0]
            pick = lambda x: x[ids] if x.shape[:1] == mask.shape else x  # noqa: E731
            model, chosen = jax.tree.map(pick, (self.model, state))
            model = dataclasses.replace(model, key=self.model.key)  # keyframes have no worlds
            fresh = self.replace(model=model, num_envs=few)._begin(chosen)
            place = jnp.clip(jnp.cumsum(mask) - 1, 0, few - 1)  # of each world among the few
            return alongside(jax.tree.map(lambda x: x[place], fresh), mask)

        few = 0 if self._of_worlds(len(mask)) else len(mask) // FEW
        fresh, seen = jax.lax.cond(mask.sum() <= few, some, every) if few > 1 else every()
        return merged(mask, fresh, state), merged(mask, seen, observation)

    def _begin(self, state: EnvState) -> tuple[EnvState, Array]:
        """Every world at the start of its episode ``state.episode``."""
        keys = jax.vmap(jax.random.fold_in)(state.key, state.episode)
        zero, old = jnp.zeros_like, state.physics
        drawn = randomize.draw(self.model, self.randomize, _each(keys, PARAMETERS), state.difficulty)
        env = self.replace(model=randomize.with_parameters(self.model, drawn))
        start = self.starts(keys, env.model, state.difficulty)
        if not isinstance(start, Start):
            where = expect.function_name(self, "start")
            raise TypeError(f"{where} returned a {type(start).__name__}, must return an fphys.envs.Start")
        physics = init(
            self.model, len(state.length), max_contacts=old.max_contacts, max_constraints=old.max_constraints
        )
        physics = physics.replace(qpos=start.qpos, qvel=start.qvel)
        ctrl = jnp.zeros((len(state.length), self.model.structure.nu), physics.qpos.dtype)
        history = zero(state.history)
        if type(self).control is Env.control:
            history = history + drive.neutral(self.model, physics, self.action_mode)[:, None]
        state = state.replace(
            physics=physics,
            matter=expect.expected_matter(env, env.matter(physics), len(state.length)),
            seen={**env.look(unsolved(physics), ctrl), **env.measure(physics)},
            goal=start.goal,
            drawn=drawn,
            history=history,
            length=zero(state.length),
            total=zero(state.total),
        )
        expect.expect_points(env, state)
        observation = env._observe(state)
        lost = ~jnp.isfinite(observation).all(1)  # the next step ends such an episode as a fault
        physics = physics.replace(status=physics.status | flag(Status.NONFINITE, lost))
        return alongside((state.replace(physics=physics), choose(lost, 0, observation)), keys)

    def _of_worlds(self, worlds: int) -> bool:
        """Whether an array that a class has besides the model might have the world axis: one cannot know."""
        own = [getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "model"]
        return any(np.shape(x)[:1] == (worlds,) for x in jax.tree.leaves(own) if hasattr(x, "shape"))

    def of(self, state: EnvState) -> Self:
        """This environment with the parameters that the worlds' episodes have drawn."""
        return self.replace(model=randomize.with_parameters(self.model, state.drawn))

    def _observe(self, state: EnvState) -> Array:
        observation = self.observation(state)
        expect.expect_observation(self, observation, len(state.length))
        return randomize.noisy(observation, state.drawn, _each(state.key, state.episode, NOISE, state.length))

    def _act(self, state: EnvState, action: Array, wrong: Array) -> EnvState:
        """``frame_skip`` steps of the physics under one action, which the worlds of ``wrong`` skip."""
        action, history = randomize.late(action, state.history, state.drawn)

        def substep(carry: tuple[State, tuple[Any, ...], LastSolve], _: None) -> tuple[Any, None]:
            physics, matter = carry[:2]
            ctrl = choose(wrong, jnp.nan, self.control(physics, action))
            return expect.expected_advance(self, self.advance(physics, matter, ctrl), (physics, matter)), None

        start = self._pushed(state), state.matter
        shapes = jax.eval_shape(lambda: substep((*start, ()), None))[0][2]  # type: ignore[arg-type]
        last = alongside(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), start[0])
        (physics, matter, last), _ = jax.lax.scan(substep, (*start, last), None, self.frame_skip)
        seen = {**self.look(last, self.control(last.state, action)), **self.measure(physics)}
        physics = physics.replace(status=physics.status | flag(Status.BADCTRL, wrong))
        return state.replace(physics=physics, matter=matter, history=history, seen=seen)

    def _pushed(self, state: EnvState) -> State:
        """The physics after a push, if it is time for one: every second."""
        if randomize.PUSH not in state.drawn:
            return state.physics
        every = jnp.maximum(jnp.round(1 / self.dt), 1).astype(jnp.int32)
        now = (state.length > 0) & (state.length % every == 0)
        keys = _each(state.key, state.episode, PUSHES, state.length)
        return state.physics.replace(qvel=randomize.pushed(self.model, state.qvel, state.drawn, keys, now))


def _each(keys: Array, *numbers: Array | int) -> Array:
    """Keys of the worlds, with numbers folded in."""
    for number in numbers:
        number = jnp.broadcast_to(jnp.asarray(number, jnp.int32), keys.shape)
        keys = jax.vmap(jax.random.fold_in)(keys, number)
    return keys
