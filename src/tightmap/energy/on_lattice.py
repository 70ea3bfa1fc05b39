"""Energies of labellings of a lattice, row by row: sums are kept per row, so threads change nothing."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tightmap.graph.lattice import IntArray, Pixels
from tightmap.graph.pixel_costs import copy_costs, cost_at
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled


@compiled
def _rows(first, last, g, labels, unary, rest, size):
    """unary[r], rest[r]: what the pixels of row r pay, and the edges that begin there; size[r]: of both, in size."""
    W, S = g.width, g.labels
    for r in range(first, last):
        total, amount = 0.0, 0.0
        for c in range(W):
            p = r * W + c
            v = cost_at(g.unary, g.single, p * S + labels[p])
            total += v
            amount += abs(v)
        unary[r] = total
        total = 0.0
        for k in range(len(g.down)):
            dr, dc = g.down[k], g.right[k]
            if r + dr >= g.height:
                continue
            begin = max(0, -dc)
            edge = g.first[k] + r * (W - abs(dc))
            for c in range(begin, W - max(0, dc)):
                p = r * W + c
                d = abs(labels[p] - labels[p + dr * W + dc])
                if d > 0:
                    v = g.weight[(edge + c - begin) * g.listed] * g.profile[d]
                    total += v
                    amount += abs(v)
        rest[r] = total
        size[r] = amount


def lattice_sums(pixels: Pixels, labels: npt.NDArray[np.integer]) -> tuple[float, float]:
    """Energy of a labelling without the constant, and the sum of the absolute values of its terms."""
    parts = np.zeros((3, pixels.height))
    given = np.ascontiguousarray(labels, dtype=np.int64)
    parallel.run(_rows, pixels.height, pixels, given, *parts)
    return math.fsum(parts[:2].reshape(-1)), math.fsum(parts[2])


def lattice_minima(pixels: Pixels, edges: int) -> float:
    """Sum of the absolute values of the smallest entries of all unaries and of the tables of so many edges."""
    low = np.abs(pixels.costs.reshape(-1, pixels.labels).min(axis=1).astype(np.float64)).sum()
    each = np.abs(np.minimum(pixels.weight, 0.0)).sum() * pixels.profile.max()
    return float(low + each * (1 if pixels.listed else edges))


@compiled
def _cheapest(first, last, g, labels):
    S = g.labels
    cost = np.empty(S)
    for p in range(first * g.width, last * g.width):
        copy_costs(g.unary, g.single, p * S, S, cost)
        best = 0
        for s in range(1, S):
            if cost[s] < cost[best]:
                best = s
        labels[p] = best


def lattice_argmin(pixels: Pixels) -> IntArray:
    """The labelling that minimises the unaries alone, lowest label on ties."""
    labels = np.empty(pixels.height * pixels.width, dtype=np.int64)
    parallel.run(_cheapest, pixels.height, pixels, labels)
    return labels
