"""Scenes: one description of bodies, particles and sensors, simulated natively or by another engine."""

from .compare import compare
from .materials import FEM, MPM, PBD, SPH, Drain, Rigid, Surface
from .morphs import MJCF, URDF, USD, Box, Capsule, Cloth, Cylinder, Mesh, Plane, Rope, Source, Sphere, Terrain
from .native import Gains, State, World
from .scene import Domain, Scene
from .sensors import IMU, Camera, Contact, JointState, Rays
from .specs import ActionSpec, ObservationSpec

__all__ = [
    "FEM",
    "IMU",
    "MJCF",
    "MPM",
    "PBD",
    "SPH",
    "URDF",
    "USD",
    "ActionSpec",
    "Box",
    "Camera",
    "Capsule",
    "Cloth",
    "Contact",
    "Cylinder",
    "Domain",
    "Drain",
    "Gains",
    "JointState",
    "Mesh",
    "ObservationSpec",
    "Plane",
    "Rays",
    "Rigid",
    "Rope",
    "Scene",
    "Source",
    "Sphere",
    "State",
    "Surface",
    "Terrain",
    "World",
    "compare",
]
