"""Lists the packages; everything else is in pyproject.toml.

The kernels stand at the top of the repository, in ``kernels/``, and are imported as ``fphys.kernels``.
"""

from setuptools import find_namespace_packages as find
from setuptools import setup

setup(
    packages=[
        *find(include=["fphys", "fphys.*"]),
        *(f"fphys.{name}" for name in find(include=["kernels", "kernels.*"])),
    ]
)
