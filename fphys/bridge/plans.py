"""The plans that calls may name: packed for the CPU, and freed once nothing can call them any more.

A call names its plan by a number. Traces hold the number, so JAX's own caches decide how long a trace keeps its plan.
Executables are counted: XLA tells the native code when it creates one and when it deletes one.
"""

import ctypes
import threading
import weakref
from typing import Any

import numpy as np
import warp as wp

from . import driver, profile
from .plan import Plan, Program, fingerprint
from .workers import Blocks, Team, make_queue, shares

FEW = 64
"""How many plans are kept without checking whether they are still needed."""


class PlanNumber(np.int64):
    """The number that names a plan: a hash of it, so that every process compiles the same module from one trace."""


class Held:
    """A plan and all that is packed for it."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.number: Any = None  # a weak reference
        self.entry = driver.PlanEntry()
        self.packed: tuple[Any, ...] = ()  # what the entry points to
        self.on_gpus: dict[int, tuple[Program, np.ndarray]] = {}  # by the device's ordinal: likewise

    def pack(self, team: Team) -> None:
        """Compile and pack the plan for the CPU."""
        plan, device = self.plan, wp.get_device("cpu")
        programs = [[Program(plan, device, run) for run in share] for share in shares(plan.worlds, plan.blocks)]
        jobs = [np.array([len(share), *(p.words.ctypes.data for p in share)], np.uint64) for share in programs]
        queue = make_queue([job.ctypes.data for job in jobs])
        team.grow(queue.helpers)
        for share in programs:
            profile.add(share)
        self.packed = (programs, jobs, queue)
        self.entry.helpers = queue.helpers
        self.entry.queue = ctypes.addressof(queue.words)

    def pack_gpu(self, ordinal: int) -> None:
        """Compile, load and pack the plan for a GPU.

        Its constants are copied on Warp's stream, and XLA's stream, which reads them, does not wait for that one.
        """
        device = wp.get_cuda_device(ordinal)
        program = Program(self.plan, device, Blocks(0, 0, self.plan.worlds, 1))
        words = program.gpu_words()
        wp.synchronize_stream(device)
        self.on_gpus[ordinal] = program, words
        self.entry.gpus[ordinal] = words.ctypes.data

    def is_free(self) -> bool:
        """Whether neither a trace nor an executable names the plan."""
        return self.number() is None and not self.entry.references


class Plans:
    """All plans of a process, and the slots in which the native code looks for them."""

    def __init__(self, bridge: driver.Bridge):
        self.bridge, self.team = bridge, Team(bridge.team)
        self.held: dict[int, Held] = {}
        self.lock = threading.RLock()
        self._limit = FEW
        self._slots = self._before = (driver.Slot * FEW)()
        self._show(self._slots)

    def register(self, plan: Plan) -> PlanNumber:
        """Give a plan the number by which calls name it. Equal plans share one number."""
        with self.lock:
            value = fingerprint(plan)
            held = self.held.get(value)
            number = None if held is None else held.number()
            if number is None:
                number = PlanNumber(value)
                if held is None:
                    held = self._hold(value, plan)
                held.number = weakref.ref(number)
            return number

    def prepare(self, number: int) -> None:
        """Compile and pack a plan for the CPU before its first call, so that the call only runs it."""
        with self.lock:
            if not self.held[number].entry.queue:
                self.held[number].pack(self.team)

    def prepare_gpu(self, number: int, ordinal: int) -> None:
        """Compile and pack a plan for a GPU, before its first call there."""
        with self.lock:
            if not self.held[number].entry.gpus[ordinal]:
                self.held[number].pack_gpu(ordinal)

    def sweep(self) -> None:
        """Free the plans that nothing can call any more.

        The native code may be searching the slots, so they are replaced, and the old ones are kept for a while.
        """
        with self.lock:
            self.held = {value: held for value, held in self.held.items() if not held.is_free()}
            self._limit = max(FEW, 2 * len(self.held))
            slots = (driver.Slot * max(len(self._slots), self._limit))()
            for slot, (value, held) in zip(slots, self.held.items()):
                slot.number, slot.plan = value, ctypes.addressof(held.entry)
            self._before, self._slots = self._slots, slots
            self._show(slots)

    def _hold(self, value: int, plan: Plan) -> Held:
        if len(self.held) >= self._limit:
            self.sweep()
        held = self.held[value] = Held(plan)
        held.entry.number = value
        slot = self._slots[len(self.held) - 1]
        slot.plan, slot.number = ctypes.addressof(held.entry), value
        self.bridge.num_slots = len(self.held)
        return held

    def _show(self, slots: Any) -> None:
        self.bridge.slots = ctypes.cast(slots, type(self.bridge.slots))
        self.bridge.num_slots = len(self.held)
