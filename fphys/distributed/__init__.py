"""Several devices and machines: worlds spread over a mesh by XLA, processes joined by ``jax.distributed``."""

from .launch import launch
from .processes import ProcessError, group, initialize, is_first, joined, meet, on_host, shard
from .sharding import (
    MODEL,
    WORLD,
    averaged,
    everywhere,
    gathered,
    gradient,
    local,
    mesh,
    place,
    split,
    total,
)

__all__ = [
    "MODEL",
    "WORLD",
    "ProcessError",
    "averaged",
    "everywhere",
    "gathered",
    "gradient",
    "group",
    "initialize",
    "is_first",
    "joined",
    "launch",
    "local",
    "meet",
    "mesh",
    "on_host",
    "place",
    "shard",
    "split",
    "total",
]
