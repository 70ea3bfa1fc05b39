"""ADMM on a decomposition of the energy, Algorithm 4 with the updates of §4.2 and of supplement B.3.

Differences from the printed text, all deliberate:
  (38)        is printed with +p^D; the Lagrangian above it in the supplement, (111), has -p^D, which is right.
  symmetrize  as printed, (20), the variable at position d of a clique uses copy d, once.  Symmetrised, a clique is
              there in its D rotations, with a D-th of its costs each, so that every variable meets every copy.
  rho         instead of dividing the costs by their scale, rho and rho_max are multiplied by it: the same iterates.
"""

from __future__ import annotations

import numpy as np

from tightmap.errors import OptionError
from tightmap.model.model import Model
from tightmap.reference.bcd import descend
from tightmap.reference.dense import softened, tables
from tightmap.reference.model import Outcome, Tables
from tightmap.reference.simplex import project
from tightmap.reference.tensor import Vector, contract


def linear_term(t: Tables, x: Vector, d: int, symmetrize: bool) -> Vector:
    """p^d, (32): what F(x^1, .., x^D), (20), is linear in x^d with.  x is (D, labels); copies count from 0 here."""
    copies = len(x)
    p = t.unary.copy() if d == 0 else np.zeros(len(t.unary))
    for _, costs, entries in t.groups:
        k = len(entries)
        for mine in range(k) if symmetrize else [d] if d < k else []:  # positions of a clique that use copy d
            copy = [(d + q - mine) % copies for q in range(k)] if symmetrize else range(k)
            part = contract(costs, mine, [x[c][e] for c, e in zip(copy, entries, strict=True)])
            share = part / copies if symmetrize else part
            p += np.bincount(entries[mine].ravel(), share.ravel(), len(p))  # the sum over the cliques of a variable
    return p


def centre(decomposition: str, x: Vector, y: Vector, p: Vector, d: int, rho: float) -> Vector:
    """c^d, the minimiser of the augmented Lagrangian (34) in x^d without constraints."""
    c: Vector
    last = len(x) - 1
    if decomposition == "cyclic":  # (24): x^(d-1) = x^d
        if d == 0:
            c = x[1] - (y[1] + p) / rho  # (36)
        elif d < last:
            c = 0.5 * (x[d - 1] + x[d + 1]) + (y[d] - y[d + 1] - p) / (2.0 * rho)  # (37)
        else:
            c = x[d - 1] + (y[d] - p) / rho  # (38) with the sign of (111)
    elif decomposition == "star":  # (25): x^1 = x^d
        if d == 0:
            c = (x[1:].sum(axis=0) - (y[1:].sum(axis=0) + p) / rho) / last
        else:
            c = x[0] + (y[d] - p) / rho
    else:  # symmetric, (26): x^d = mean of all
        others = (x.sum(axis=0) - x[d]) / last
        c = others - (last + 1) / (rho * last) * (p + y[d] - y.mean(axis=0))
    return c


def disagreement(decomposition: str, x: Vector) -> Vector:
    """The left side of the constraints (24)-(26), one row a copy; the first two have none for x^1."""
    gaps = np.zeros_like(x)
    if decomposition == "symmetric":
        gaps[:] = x - x.mean(axis=0)
    else:
        gaps[1:] = (x[:-1] if decomposition == "cyclic" else x[0]) - x[1:]
    return gaps


def sweep(t: Tables, x: Vector, y: Vector, rho: float, decomposition: str, symmetrize: bool, sets: str) -> float:
    """One iteration, in place; returns the residual (30)."""
    before = x.copy()
    for d in range(len(x)):  # Step 2, (28): every copy given the latest others
        c = centre(decomposition, x, y, linear_term(t, x, d, symmetrize), d, rho)
        simplex = d == 0 or sets == "simplex"
        x[d] = project(c, t.offset) if simplex else np.clip(c, 0.0, 1.0 if sets == "box" else None)  # (35)
    gaps = disagreement(decomposition, x)
    y += rho * gaps  # Step 3, (29)
    return float((gaps**2).sum() + ((x - before) ** 2).sum())


def admm(
    model: Model | Tables,
    iterations: int = 20_000,
    rho0: float = 0.001,
    decomposition: str = "cyclic",
    symmetrize: bool = False,
    sets: str = "nonnegative",
    wait: tuple[int, int] = (500, 500),
    growth: float = 1.2,
    rho_max: float = 100.0,
    tolerance: float = 1e-6,
) -> Outcome:
    """ADMM from x_i(s) = 1 / |S_i| and y = 0 with the paper's schedule, then rounding of x^1 by BCD.

    sets       where x^2, .. are: "nonnegative" (the paper), "box" (also at most 1: with three copies or more and
               negative costs nothing else may keep them finite) or "simplex" (quick and poor, says the paper)
    wait       I_1, I_2: iterations before rho may grow at all, and without a better residual before it grows
    tolerance  stop at this residual, relative to the squared norm of the copies
    """
    if decomposition not in ("cyclic", "star", "symmetric") or sets not in ("nonnegative", "box", "simplex"):
        raise OptionError(f"admm: there is no decomposition {decomposition!r} with sets {sets!r}")
    hard = tables(model)
    t = softened(hard)
    sizes = np.diff(t.offset)
    x = np.tile(np.repeat(1.0 / sizes, sizes), (max(t.order, 2), 1))  # Step 1
    y = np.zeros_like(x)
    rho, best, last = rho0 * t.scale, np.inf, 0
    trace = []
    for k in range(1, iterations + 1):
        residual = sweep(t, x, y, rho, decomposition, symmetrize, sets)
        trace.append({"residual": residual, "rho": rho})
        if residual <= tolerance * float((x**2).sum()):
            break
        if residual < best:
            best, last = residual, k
        if k >= wait[0] and k - last >= wait[1] and rho < rho_max * t.scale:  # adaptive penalty
            rho, best, last = min(growth * rho, rho_max * t.scale), residual, k
    labels, _ = descend(t, x[0])
    return Outcome(labels, hard.energy(labels), trace)
