"""Environments: tasks for agents, thousands of worlds at once, pure and differentiable.

::

    env = fphys.envs.make("Ant-v5", num_envs=1024)
    state, observation = env.reset(jax.random.key(0))
    state, observation, reward, terminated, truncated, info = jax.jit(env.step)(state, action)

Importing this room registers every environment with Gymnasium: ``gymnasium.make_vec("fphys/Ant-v5", num_envs=4096)``.
"""

from .ant import Ant
from .arms import Pusher, Reacher
from .curriculum import Curriculum, auto_adapt, set_difficulty
from .drive import Mode
from .env import Env, EnvState, Episode, Info, Spec, Start
from .fluid import FluidManipulation
from .franka_reach import FrankaReach
from .hand import ShadowHandManipulate
from .humanoids import Humanoid, HumanoidStandup
from .locomotion import AntLocomotion
from .make import GYMNASIUM, TASKS, make, names, register
from .pendulums import InvertedDoublePendulum, InvertedPendulum
from .planar import HalfCheetah, Hopper, Swimmer, Walker2d
from .quadrotor import QuadrotorHover
from .randomize import ranges
from .standup import Standup
from .suite import SUITE
from .vector import FphysVectorEnv

__all__ = [
    "GYMNASIUM",
    "SUITE",
    "TASKS",
    "Ant",
    "AntLocomotion",
    "Curriculum",
    "Env",
    "EnvState",
    "Episode",
    "FluidManipulation",
    "FphysVectorEnv",
    "FrankaReach",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "Info",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Mode",
    "Pusher",
    "QuadrotorHover",
    "Reacher",
    "ShadowHandManipulate",
    "Spec",
    "Standup",
    "Start",
    "Swimmer",
    "Walker2d",
    "auto_adapt",
    "make",
    "names",
    "ranges",
    "register",
    "set_difficulty",
]

register()
