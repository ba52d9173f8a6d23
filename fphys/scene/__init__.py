"""Scenes: one description of bodies, particles and sensors, simulated natively or by another engine."""

from .materials import MPM, SPH, Rigid, Surface
from .morphs import MJCF, URDF, Box, Capsule, Cylinder, Mesh, Plane, Sphere, Terrain
from .scene import Domain, Scene
from .sensors import IMU, Camera, Contact, JointState, Rays
from .specs import ActionSpec, ObservationSpec

__all__ = [
    "IMU",
    "MJCF",
    "MPM",
    "SPH",
    "URDF",
    "ActionSpec",
    "Box",
    "Camera",
    "Capsule",
    "Contact",
    "Cylinder",
    "Domain",
    "JointState",
    "Mesh",
    "ObservationSpec",
    "Plane",
    "Rays",
    "Rigid",
    "Scene",
    "Sphere",
    "Surface",
    "Terrain",
]
