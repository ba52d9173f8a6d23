"""A forked child has lost JAX's threads and would wait for them forever: it gets an error instead."""

import os
from typing import Any

from ..errors import BridgeError
from . import ffi, private

FORKED = (
    "this process was forked after JAX had started, and JAX and its threads do not survive a fork: "
    'start workers with multiprocessing.get_context("spawn")'
)


def guard() -> None:
    """Guard every child that is forked from now on."""
    os.register_at_fork(after_in_child=_in_child)


def _refuse(*_: Any, **__: Any) -> Any:
    raise BridgeError(FORKED)


def _in_child() -> None:
    if private.jax_has_started():
        private.forget_compiled()
        private.refuse_calls(_refuse)
        ffi.close(FORKED)
