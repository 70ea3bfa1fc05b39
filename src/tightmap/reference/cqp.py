"""The convex quadratic relaxation of a pairwise model (Ravikumar and Lafferty 2006), (96)-(102), by Frank-Wolfe."""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.model.model import Model
from tightmap.reference.bcd import descend
from tightmap.reference.dense import softened, tables
from tightmap.reference.model import Outcome, Tables
from tightmap.reference.tensor import Vector


def diagonal(t: Tables) -> Vector:
    """d_i(s), half the absolute costs of all pairs that the label s of i is part of, (96)."""
    d = np.zeros(len(t.unary))
    for _, costs, (first, second) in t.groups:
        np.add.at(d, first, 0.5 * np.abs(costs).sum(axis=2))
        np.add.at(d, second, 0.5 * np.abs(costs).sum(axis=1))
    return d


def cqp(model: Model | Tables, iterations: int = 1000, tolerance: float = 1e-6) -> Outcome:
    """Minimise E_cqp over the simplices, then round: BCD from there.

    E_cqp is convex (d makes its matrix diagonally dominant) and equals E at labellings, so E_cqp(x) minus the gap is
    below every energy: the trace has it as "bound".
    """
    hard = tables(model)
    if hard.order > 2:
        raise ModelError(f"cqp: pairwise models only, this one has a factor of {hard.order} variables")
    t = softened(hard)
    d = diagonal(t)
    x = np.repeat(1.0 / np.diff(t.offset), np.diff(t.offset))
    trace = []
    for _ in range(iterations):
        slope = t.gradient(x) - d + 2.0 * d * x
        s = t.one_hot(t.argmin(slope))  # (85)
        r = s - x
        value = t.multilinear(x) - float(d @ x) + float(d @ x**2)  # (97), C' (102)
        gap = -float(slope @ r)
        trace.append({"energy": value, "gap": gap, "bound": value - gap})
        if gap <= tolerance * (1.0 + abs(value)):
            break
        a = t.multilinear(r) - t.constant - float(t.unary @ r)  # A, (92)
        a += float(d @ r**2)  # A', (100)
        b = -gap  # B', (93) and (101): the derivative at alpha = 0
        x = x + min(-b / (2.0 * a), 1.0) * r if a > 0.0 else x + r  # the minimum of A' alpha^2 + B' alpha on [0, 1]
    labels, _ = descend(t, x)
    return Outcome(labels, hard.energy(labels), trace)
