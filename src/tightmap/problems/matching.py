"""Graph matching: assign every left point a right point, no right point twice, with costs on pairs of assignments.

A variable per left point, a label per right point (and one more for "unmatched" where that is allowed).  That no right
point is used twice is a hard constraint, +inf on the diagonal of a table between every two left points.  For points in
the plane the cost of two assignments i -> a, j -> b is how much the distance changes,

    strength * | |p_i - p_j| - |q_a - q_b| |,

which does not change when one of the two sets is rotated, mirrored or moved.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.model.model import Model


def matching(
    costs: npt.ArrayLike,
    pairs: npt.ArrayLike | None = None,
    pair_costs: npt.ArrayLike | None = None,
    unmatched: float | None = None,
) -> Model:
    """A matching model from costs.

    Parameters
    ----------
    costs : (L, R), the cost of left point i going to right point a; +inf forbids.
    pairs : (m, 2) pairs of different left points that have costs together; all pairs by default.
    pair_costs : (m, R, R), what left points pairs[c] pay together when they go to a and b; none by default.
    unmatched : the cost of leaving a left point unmatched, as label R; by default every left point must be matched.
    """
    table = np.asarray(costs, dtype=np.float64)
    if table.ndim != 2:
        raise ModelError(f"matching: costs: expected (left points, right points), got a shape of {table.shape}")
    n_left, n_right = table.shape
    if unmatched is None and n_left > n_right:
        raise ModelError(f"matching: {n_left} left points cannot all have one of {n_right} right points; set unmatched")
    every = np.stack(np.triu_indices(n_left, 1), axis=1)
    chosen = every if pairs is None else np.asarray(pairs).reshape(-1, 2)
    labels = n_right if unmatched is None else n_right + 1
    model = Model(np.full(n_left, labels))
    if unmatched is not None:
        table = np.column_stack([table, np.full(n_left, float(unmatched))])
    model.add_unaries(table)
    unique = np.zeros((labels, labels))
    unique[np.arange(n_right), np.arange(n_right)] = np.inf
    if pair_costs is None:
        model.add_factors(every, unique)
        return model
    values = np.asarray(pair_costs, dtype=np.float64)
    if values.shape != (len(chosen), n_right, n_right):
        raise ModelError(
            f"matching: pair_costs: expected {(len(chosen), n_right, n_right)} for {len(chosen)} pairs, "
            f"got a shape of {values.shape}"
        )
    if len(chosen) and (chosen.min() < 0 or chosen.max() >= n_left or (chosen[:, 0] == chosen[:, 1]).any()):
        raise ModelError(f"matching: pairs: expected two different left points in 0..{n_left - 1}")
    padded = np.zeros((len(chosen), labels, labels))
    padded[:, :n_right, :n_right] = values
    model.add_factors(chosen, padded + unique)
    # pairs without costs share one table that only keeps them apart
    joined = {(min(a, b), max(a, b)) for a, b in chosen.tolist()}
    model.add_factors(np.array([p for p in every.tolist() if tuple(p) not in joined]).reshape(-1, 2), unique)
    return model


def match_points(
    left: npt.ArrayLike, right: npt.ArrayLike, strength: float = 1.0, unmatched: float | None = None
) -> Model:
    """A matching model of two sets of points, (L, dim) and (R, dim), that keeps distances between all pairs."""
    p, q = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if p.ndim != 2 or q.ndim != 2 or p.shape[1] != q.shape[1]:
        raise ModelError(f"match_points: expected two arrays (points, dimension), got {p.shape} and {q.shape}")
    pairs = np.stack(np.triu_indices(len(p), 1), axis=1)
    ours = np.linalg.norm(p[pairs[:, 0]] - p[pairs[:, 1]], axis=1)
    theirs = np.linalg.norm(q[:, None] - q[None, :], axis=2)
    change = strength * np.abs(ours[:, None, None] - theirs)
    return matching(np.zeros((len(p), len(q))), pairs, change, unmatched)


def random_points(
    seed: int, points: int = 12, outliers: int = 2, noise: float = 0.05
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Left points in the unit square, right points (turned, noisy, with outliers, shuffled), and the true matching."""
    rng = np.random.default_rng(seed)
    left = rng.random((points, 2))
    angle = rng.random() * 2 * np.pi
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = (left - 0.5) @ turn.T + 0.5 + noise * rng.normal(size=(points, 2))
    order = rng.permutation(points + outliers)
    right = np.concatenate([moved, rng.random((outliers, 2))])[order]
    truth = np.argsort(order)[:points]
    return left, right, truth.astype(np.int64)


def read_matching(path: str | os.PathLike[str]) -> Model:
    """A .dd file as a complete matching, with the cheapest assignment of every left point shifted to cost 0.

    In a complete matching every left point pays exactly one assignment, so the shift is a constant; it gives the scale
    in which the OpenGM benchmark reports its matching models.
    """
    from tightmap.io import read

    model = read(path, unmatched=False)
    cheapest = np.minimum.reduceat(model.unaries, model.offset[:-1]) if model.num_variables else np.zeros(0)
    model.add_constant(-float(cheapest[np.isfinite(cheapest)].sum()))
    return model
