"""Matter as particles: :mod:`fphys.particles.mpm`, the material point method, and :mod:`fphys.particles.sph`, fluid.

Each has a pure ``step`` of ``Params`` and a state with the world axis first. Walls and colliders are in
:mod:`fphys.particles.boundary`, materials in :mod:`fphys.particles.materials`, and points to begin with in
:mod:`fphys.particles.sample`.
"""
