"""Finite elements in plain JAX: the incremental potential of a step, for JAX to differentiate as often as it likes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.deformables import constraints, fem


def lame(law: Any, sheet: bool = False) -> tuple[Any, Any]:
    mu = law.young / (2 * (1 + law.poisson))
    lam = 2 * mu * law.poisson / (1 - 2 * law.poisson)
    return mu, (2 * mu * lam / (lam + 2 * mu) if sheet or getattr(law, "plane_stress", False) else lam)


def density(law: Any, f: Any, sheet: bool = False) -> Any:
    """Energy per volume, of deformation gradients of shape (element, 3, 3), by their singular values."""
    mu, lam = lame(law, sheet)
    j = jnp.linalg.det(f)
    square = jnp.einsum("eij,eij->e", f, f)
    if isinstance(law, fem.NeoHookean):
        m, l = 4 / 3 * mu, lam + 5 / 6 * mu
        return 0.5 * m * (square - 3 - jnp.log(square + 1)) + 0.5 * l * (j - 1 - 0.75 * m / l) ** 2
    if isinstance(law, fem.Corotated):
        s = jnp.linalg.svd(f, compute_uv=False)
        s = s.at[:, 2].multiply(jnp.sign(j))
        return mu * ((s - 1) ** 2).sum(1) + 0.5 * lam * (j - 1) ** 2
    e = 0.5 * (jnp.einsum("eki,ekj->eij", f, f) - jnp.eye(3)[None])
    return mu * jnp.einsum("eij,eij->e", e, e) + 0.5 * lam * jnp.einsum("eii->e", e) ** 2


def edges(x: Any, elements: Any) -> Any:
    """(element, 3, 3), edges as columns; a triangle's third is the plane's normal, or its own in space."""
    d = jnp.stack([x[elements[:, a]] - x[elements[:, 0]] for a in range(1, elements.shape[1])], -1)
    if d.shape[-1] == 3:
        return d
    if d.shape[1] == 3:
        n = jnp.cross(d[..., 0], d[..., 1])
        return jnp.concatenate([d, (n / jnp.linalg.norm(n, axis=-1, keepdims=True))[..., None]], -1)
    return jnp.pad(d, ((0, 0), (0, 1), (0, 1))).at[:, 2, 2].set(1.0)


def angles(x: Any, hinges: Any) -> Any:
    """Between the normals of two triangles, (hinge,)."""
    a, b, c, d = (x[hinges[:, k]] for k in range(4))
    e = b - a
    n, m = jnp.cross(e, c - a), jnp.cross(d - a, e)
    sine = (jnp.cross(n, m) * e).sum(-1) / jnp.linalg.norm(e, axis=-1)
    return jnp.arctan2(sine, (n * m).sum(-1))


def bending(params: fem.Params, after: Any) -> Any:
    """Energy of a sheet's hinges."""
    rest, topology, law = jnp.asarray(params.mesh.vertices), params.mesh.topology, params.material
    plate = law.young * params.thickness**3 / (12 * (1 - law.poisson**2))
    each = jnp.broadcast_to(plate if params.bending is None else params.bending, (1, len(topology.elements)))
    k = constraints.hinge_stiffness(rest[None], topology, each)[0]
    return 0.5 * (k * (angles(after, topology.hinges) - angles(rest, topology.hinges)) ** 2).sum()


def potential(params: fem.Params, x: Any, v: Any, force: Any, after: Any) -> Any:
    """W of one world, of shape ()."""
    elements, rest = params.mesh.elements, edges(jnp.asarray(params.mesh.vertices), params.mesh.elements)
    volume = jnp.linalg.det(rest) / (6 if elements.shape[1] == 4 else 2)
    sheet = elements.shape[1] == x.shape[1]
    volume = volume * params.thickness if sheet else volume
    share = jnp.broadcast_to(params.material.density, volume.shape) * volume / elements.shape[1]
    mass = jnp.zeros(len(x)).at[elements].add(jnp.broadcast_to(share[:, None], elements.shape))[:, None]
    u, h = after - x, params.timestep
    kinetic = mass * (0.5 * u**2 * (1 / h**2 + params.damping / h) - u * (v / h + jnp.asarray(params.gravity)[None]))
    f = jnp.einsum("eij,ejk->eik", edges(after, elements), jnp.linalg.inv(rest))
    energy = (kinetic - u * force).sum() + (volume * density(params.material, f, sheet)).sum()
    return energy + bending(params, after) if sheet else energy


def free(params: fem.Params) -> np.ndarray:
    """Numbers of the vertices that are not pinned."""
    return np.setdiff1d(np.arange(len(params.mesh.vertices)), params.pinned)


@jax.jit
def newton(params: fem.Params, x: Any, v: Any, force: Any, after: Any) -> Any:
    """A step of Newton's method with a dense Hessian; pinned vertices stay where they are in ``after``."""
    loose = free(params)

    def value(y: Any) -> Any:
        return potential(params, x, v, force, after.at[loose].set(y.reshape(-1, x.shape[1])))

    y = after[loose].reshape(-1)
    y = y - jnp.linalg.solve(jax.hessian(value)(y), jax.grad(value)(y))
    return after.at[loose].set(y.reshape(-1, x.shape[1]))
