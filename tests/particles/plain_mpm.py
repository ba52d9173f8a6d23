"""One step of the material point method in NumPy, float64: materials by singular values, transfers node by node."""

from typing import Any

import numpy as np

from fphys.particles import mpm

Array = np.ndarray


def step(params: mpm.Params, state: mpm.State, force: Any = 0.0, actuation: Any = 0.0) -> tuple[Array, ...]:
    """x, v, C, F, history of all worlds; walls as ``params.walls`` has them, one contact for all faces."""
    worlds = [
        one(params, *(np.asarray(a[w], float) for a in arrays(state)), force, actuation) for w in worlds_of(state)
    ]
    return tuple(np.stack(parts) for parts in zip(*worlds, strict=True))


def arrays(state: mpm.State) -> tuple[Any, ...]:
    return state.x, state.v, state.C, state.F, state.history, state.volume, state.material


def worlds_of(state: mpm.State) -> range:
    return range(state.x.shape[0])


def one(params, x, v, c, f, history, volume, material, force, actuation):
    h, dx, dim = float(params.timestep), params.cell, params.dim
    materials = [params.materials[int(m)] for m in material]
    trial = f + h * c @ f
    answers = [respond(m, *rest) for m, *rest in zip(materials, trial, f, c, history, [h] * len(x), strict=True)]
    f, history, tau = (np.stack(part) for part in zip(*answers, strict=True))
    tau = tau + f @ np.broadcast_to(actuation, f.shape) @ f.transpose(0, 2, 1)
    mass = volume * np.array([float(m.density) for m in materials])
    slope = mass[:, None, None] * c - (4 * h / dx**2) * volume[:, None, None] * tau
    slope = slope[:, :dim, :dim]
    push = mass[:, None] * v + h * np.broadcast_to(force, v.shape)

    shape = tuple(n + 4 for n in params.shape)
    grid_mass, momentum, brought = np.zeros(shape), np.zeros((*shape, dim)), np.zeros((*shape, dim))
    y = x / dx + 1.5
    base = np.floor(y - 0.5).astype(int)
    place = y - base
    weight = np.stack([0.5 * (1.5 - place) ** 2, 0.75 - (place - 1) ** 2, 0.5 * (place - 0.5) ** 2], 1)
    for node in np.ndindex(*(3,) * dim):
        w = np.prod([weight[:, node[a], a] for a in range(dim)], 0)
        arm = (np.array(node) - place) * dx
        at = tuple((base + np.array(node)).T)
        np.add.at(grid_mass, at, w * mass)
        np.add.at(brought, at, (w * mass)[:, None] * (v + np.einsum("pij,pj->pi", c[:, :dim, :dim], arm)))
        np.add.at(momentum, at, w[:, None] * (push + np.einsum("pij,pj->pi", slope, arm)))

    with np.errstate(invalid="ignore", divide="ignore"):
        u = np.where(grid_mass[..., None] > 0, momentum / grid_mass[..., None], 0.0)
        before = np.where(grid_mass[..., None] > 0, brought / grid_mass[..., None], 0.0)
    gravity = np.broadcast_to(np.asarray(params.gravity, float).reshape(-1), (dim,))
    u = np.where(grid_mass[..., None] > 0, u + h * gravity, 0.0)
    sticky = params.walls.contact == "sticky"
    for axis in range(dim if sticky else 0):  # the nodes on both sides of a face move oppositely
        m, w = np.moveaxis(grid_mass, axis, 0), np.moveaxis(u, axis, 0)
        for inside, outside in ((2, 1), (-3, -2)):
            both = np.maximum(m[inside] + m[outside], 1e-300)
            mean = (m[inside][..., None] * w[inside] - m[outside][..., None] * w[outside]) / both[..., None]
            w[inside], w[outside], m[inside], m[outside] = mean, -mean, both, both
    if face := params.walls.hold == "face" and not sticky:
        for axis in range(dim):
            held_at_face(u, grid_mass, axis, params.walls.contact, float(params.walls.friction))
    for axis in range(dim):
        for side in (0, 1):
            for node in range(1 if sticky or face else 3):
                index: list[Any] = [slice(None)] * dim
                index[axis] = slice(node, node + 1) if side == 0 else slice(shape[axis] - 1 - node, shape[axis] - node)
                held(u[tuple(index)], axis, 1 - 2 * side, params.walls.contact, float(params.walls.friction))

    v0, v, rate = v, np.zeros_like(v), np.zeros_like(c)
    keep = getattr(params.transfer, "keep", 0.0)
    v += keep * v0
    moved = np.zeros_like(v)
    for node in np.ndindex(*(3,) * dim):
        w = np.prod([weight[:, node[a], a] for a in range(dim)], 0)
        arm = (np.array(node) - place) * dx
        g = u[tuple((base + np.array(node)).T)]
        moved += w[:, None] * g
        v += w[:, None] * (g - keep * before[tuple((base + np.array(node)).T)])
        rate[:, :dim, :dim] += (4 / dx**2) * w[:, None, None] * g[:, :, None] * arm[:, None, :]
    return x + h * moved, v, rate, f, history


def held(u: Array, axis: int, sign: int, contact: str, friction: float) -> None:
    """The wall's contact, in place."""
    if contact == "sticky":
        u[...] = 0.0
    n = sign * u[..., axis].copy()
    act = np.ones(n.shape, bool) if contact == "slip" else n < 0
    if contact in ("slip", "separate"):
        t = u.copy()
        t[..., axis] = 0.0
        size = np.sqrt((t**2).sum(-1))
        factor = np.maximum(1 - friction * np.abs(n) / np.maximum(size, 1e-12), 0.0)
        u[act] = (t * factor[..., None])[act]


def held_at_face(u: Array, mass: Array, axis: int, contact: str, friction: float) -> None:
    """The contact of both faces of an axis, by equal impulses on the nodes half a cell inside and outside."""
    m, w = np.moveaxis(mass, axis, 0), np.moveaxis(u, axis, 0)
    for inside, outside, sign in ((2, 1, 1), (-3, -2, -1)):
        a, b = m[inside], m[outside]
        for at in np.argwhere((a > 0) & (b > 0)):
            i = tuple(at)
            reduced = a[i] * b[i] / (a[i] + b[i])
            gap = w[inside][i] + w[outside][i]
            if contact == "separate" and sign * gap[axis] >= 0:
                continue
            push = np.zeros(u.shape[-1])
            push[axis] = -reduced * gap[axis]
            slide = reduced * gap
            slide[axis] = 0.0
            if (size := np.linalg.norm(slide)) > 0:
                push -= slide * min(1.0, friction * abs(push[axis]) / size)
            w[inside][i] += push / a[i]
            w[outside][i] += push / b[i]


def respond(m: Any, trial: Array, f0: Array, c: Array, history: float, h: float) -> tuple[Array, float, Array]:
    """F, history and Kirchhoff's stress of one particle."""
    eye = np.eye(3)
    if isinstance(m, mpm.Liquid):
        j = np.linalg.det(f0) * (1 + h * np.trace(c))
        d = 0.5 * (c + c.T)
        p = m.bulk / m.gamma * (j**-m.gamma - 1)
        return np.cbrt(j) * eye, history, 2 * m.viscosity * j * (d - np.trace(d) / 3 * eye) - j * p * eye
    mu = m.young / (2 * (1 + m.poisson))
    lam = m.young * m.poisson / ((1 + m.poisson) * (1 - 2 * m.poisson))
    u, s, vt = np.linalg.svd(trial)
    if isinstance(m, mpm.NeoHookean):
        tau = mu * (trial @ trial.T - eye) + lam * np.log(np.linalg.det(trial)) * eye
        return trial, history, tau
    if isinstance(m, mpm.Corotated):
        return trial, history, corotated(trial, u @ vt, mu, lam)
    if isinstance(m, mpm.Snow):
        held = np.clip(s, 1 - m.compression, 1 + m.stretch)
        history = history * np.prod(s) / np.prod(held)
        hard = np.exp(m.hardening * (1 - history))
        f = u @ np.diag(held) @ vt
        return f, history, corotated(f, u @ vt, mu * hard, lam * hard)
    e = np.log(s)
    if isinstance(m, mpm.VonMises):
        dev = e - e.mean()
        size = np.sqrt((dev**2).sum())
        radius = np.sqrt(2 / 3) * (m.strength + m.hardening * history) / (2 * mu)
        share = max(0.0, 1 - radius / size) / (1 + m.hardening / (3 * mu)) if size > 0 else 0.0
        flow = share * dev
        history, e = history + np.sqrt(2 / 3 * (flow**2).sum()), e - flow
    if isinstance(m, mpm.Sand):
        moved = e + history / 3
        dev = moved - moved.mean()
        size, pull = np.sqrt((dev**2).sum()), moved.sum() - m.cohesion
        sine = np.sin(m.friction)
        slope = np.sqrt(2 / 3) * 2 * sine / (3 - sine)
        if isinstance(m, mpm.MohrCoulomb):
            t = np.arcsin(0.999 * 3 * np.sqrt(6) * np.prod(dev / size)) / 3 if size > 0 else 0.0
            slope = np.sqrt(2 / 3) * sine / (np.sqrt(3) * np.cos(t) + np.sin(t) * sine)
        excess = size + (3 * lam + 2 * mu) / (2 * mu) * slope * pull
        if pull >= 0:
            new = np.full(3, m.cohesion / 3)
        else:
            new = moved if excess <= 0 else moved - excess * dev / size
        history, e = history + e.sum() - new.sum(), new
    tau = u @ np.diag(2 * mu * e + lam * e.sum()) @ u.T
    return u @ np.diag(np.exp(e)) @ vt, history, tau


def corotated(f: Array, r: Array, mu: float, lam: float) -> Array:
    j = np.linalg.det(f)
    return 2 * mu * (f - r) @ f.T + lam * j * (j - 1) * np.eye(3)
