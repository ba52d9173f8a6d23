"""The kernels that sums in a fixed order need, compiled for a GPU that is not here, for the scenes that are run so.

``JAX_PLATFORMS=cpu XLA_FLAGS=--xla_gpu_deterministic_ops=true python -m tests.gpu.ordered_kernels ARCH FOLDER``
"""

import sys
from collections.abc import Iterable

import jax

from fphys.bridge import ahead, ffi
from fphys.bridge.ordered import ordered

from . import scenes
from .stand_in import standing_in

REPEATED = ("ant", "elliptic cone, condim 6", "hand grasping a ball", "sph", "fem", "pbd", "mpm, all materials")
"""Scenes that are run ten times, in float32."""
SHARED = ("pyramidal cone, condim 1", "fem, explicit")
"""Scenes that are run ten times with gradients by what worlds share, in float64."""


def main(arch: int, folder: str) -> None:
    assert ordered("cuda"), "the flag of XLA is missing"
    jax.config.update("jax_enable_x64", True)
    wanted = [scenes.SCENES[name]("float32") for name in REPEATED]
    wanted += [scenes.by_all(scenes.SCENES[name]("float64")) for name in SHARED]
    modules = list(dict.fromkeys(module for scene in wanted for module in launched(scene)))
    binaries = []
    for i, module in enumerate(modules, 1):
        binaries.append(ahead.build_module(module, arch, folder))
        print(f"{i}/{len(modules)} {module.name}", file=sys.stderr, flush=True)
    ahead.remove_others(binaries, in_order=True)


def launched(scene: scenes.Scene) -> Iterable[object]:
    """The modules of the kernels with loops in place of threads that a scene launches."""
    with standing_in():
        lowered = scenes.compiled(scene.fn).lower(scene.fixed, scene.moved)
        kernels = [launch.kernel for held in ffi.plans().held.values() for launch, _ in held.plan.launches]
        del lowered
    return [kernel.module for kernel in kernels if kernel.key.endswith("_in_order")]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
