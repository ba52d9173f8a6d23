"""Matter as particles: :mod:`fphys.particles.mpm`, the material point method, and :mod:`fphys.particles.sph`, fluid.

Both are a pure ``step`` of ``Params`` and a state with the world axis first. What they meet is in
:mod:`fphys.particles.boundary`, what they are made of in :mod:`fphys.particles.materials`.
"""
