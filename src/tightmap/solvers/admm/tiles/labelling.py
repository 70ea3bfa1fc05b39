"""Moves on the labels of one tile while the rows around it stay: descent, fusion with a proposal, and energies.

A pixel's cost given its neighbours is c_p(s) = u_p(s) + sum_q w_pq V(|s - x_q|).  Descent takes the best label of one
pixel after the other.  Fusion looks at the connected regions in which a proposal differs: the energy difference of a
region is a sum over its own pixels and edges, so each is decided by itself.  Tiles of even number move first, then the
odd ones; the rows of a tile's neighbours stay meanwhile, so nothing depends on which worker has which tile, and the
energy never rises.

Arrays: labels have a row above and one below the tile, weights a row above it (DIRECTIONS tells where edges lead).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.moves.disjoint_sets import find_root
from tightmap.runtime.compiled import compiled, lean
from tightmap.solvers.admm.tiles.rows import GridRows
from tightmap.solvers.admm.tiles.store import Store

ROUNDS = 30  # sweeps of descent in one visit of a tile: few rows are still awake after the first three


class Tile(NamedTuple):
    """Costs of a tile."""

    unary: npt.NDArray[np.float64]  # (rows, width, labels)
    weight: npt.NDArray[np.float64]  # (directions, 1 + rows, width)
    profile: npt.NDArray[np.float64]


def tile_of(model: GridRows, tile: int) -> Tile:
    lo, hi = model.rows_of(tile, tile + 1)
    weight = np.zeros((model.directions, 1 + hi - lo, model.width))
    above = min(lo, 1)
    weight[:, 1 - above :] = model.planes(lo - above, hi)
    return Tile(model.unaries(lo, hi), weight, np.array(model.profile))


def labels_around(model: GridRows, store: Store, name: str, tile: int) -> npt.NDArray[np.int32]:
    """Labels of a tile and of the rows above and below it; beyond the image no edge leads."""
    lo, hi = model.rows_of(tile, tile + 1)
    labels = np.zeros((hi - lo + 2, model.width), np.int32)
    a, b = max(0, lo - 1), min(model.height, hi + 1)
    labels[a - lo + 1 : b - lo + 1] = store.read(name, a, b)
    return labels


@lean
def _down(direction):
    return 0 if direction == 0 else 1


@lean
def _right(direction):
    return 1 if direction == 0 or direction == 2 else (-1 if direction == 3 else 0)


@lean
def _costs(tile, labels, r, c, out):
    """Cost of every label of a pixel (row of the tile, column), given its neighbours."""
    width = tile.unary.shape[1]
    for s in range(tile.unary.shape[2]):
        out[s] = tile.unary[r, c, s]
    for d in range(tile.weight.shape[0]):
        down, right = _down(d), _right(d)
        if 0 <= c + right < width:
            w = tile.weight[d, r + 1, c]
            if w != 0.0:
                other = labels[r + 1 + down, c + right]
                for s in range(len(out)):
                    out[s] += w * tile.profile[abs(s - other)]
        if 0 <= c - right < width:
            w = tile.weight[d, r + 1 - down, c - right]
            if w != 0.0:
                other = labels[r + 1 - down, c - right]
                for s in range(len(out)):
                    out[s] += w * tile.profile[abs(s - other)]


@compiled
def descend(tile, labels, rounds):
    """Coordinate descent in the order of rows, in place; rows near which nothing changed are left out."""
    height, width = tile.unary.shape[:2]
    awake = np.ones(height + 2, np.uint8)
    cost = np.empty(tile.unary.shape[2])
    for _ in range(rounds):
        moved = False
        for r in range(height):
            if awake[r + 1] == 0:
                continue
            awake[r + 1] = 0
            for c in range(width):
                _costs(tile, labels, r, c, cost)
                best = labels[r + 1, c]
                for s in range(len(cost)):
                    if cost[s] < cost[best]:
                        best = s
                if best != labels[r + 1, c]:
                    labels[r + 1, c] = best
                    moved = True
                    awake[r : r + 3] = 1
        if not moved:
            return


@lean
def _edge_change(tile, labels, proposal, r, c, d):
    """What the edge from a pixel (row counted from the row above the tile) changes when its region is swapped."""
    down, right = _down(d), _right(d)
    w = tile.weight[d, r, c]
    a, b = labels[r, c], labels[r + down, c + right]
    x = proposal[r, c]
    y = proposal[r + down, c + right]
    return w * (tile.profile[abs(x - y)] - tile.profile[abs(a - b)])


@compiled
def fuse(tile, labels, proposal):
    """Take every connected region of the tile in which the proposal is better; returns how many.

    Both arrays have the rows around the tile, and there they must be equal: those rows stay.
    """
    height, width = tile.unary.shape[:2]
    parent = np.arange((height + 2) * width)
    for r in range(1, height + 1):
        for c in range(width):
            if labels[r, c] == proposal[r, c]:
                continue
            for d in range(tile.weight.shape[0]):
                q, e = r + _down(d), c + _right(d)
                if 0 <= e < width and tile.weight[d, r, c] != 0.0 and labels[q, e] != proposal[q, e]:
                    a, b = find_root(parent, r * width + c), find_root(parent, q * width + e)
                    parent[max(a, b)] = min(a, b)
    change = np.zeros((height + 2) * width)
    for r in range(height + 1):
        for c in range(width):
            mine = labels[r, c] != proposal[r, c]
            root = find_root(parent, r * width + c)
            if mine:
                change[root] += tile.unary[r - 1, c, proposal[r, c]] - tile.unary[r - 1, c, labels[r, c]]
            for d in range(tile.weight.shape[0]):
                q, e = r + _down(d), c + _right(d)
                if 0 <= e < width and tile.weight[d, r, c] != 0.0:
                    if mine:
                        change[root] += _edge_change(tile, labels, proposal, r, c, d)
                    elif labels[q, e] != proposal[q, e]:
                        change[find_root(parent, q * width + e)] += _edge_change(tile, labels, proposal, r, c, d)
    taken = 0
    for i in range(width, (height + 1) * width):
        r, c = i // width, i % width
        root = find_root(parent, i)
        if labels[r, c] != proposal[r, c] and change[root] < 0.0:
            taken += root == i
            labels[r, c] = proposal[r, c]
    return taken


@compiled
def tile_energy(tile, labels):
    """Energy of the tile's pixels and of the edges that begin there: partial sums by row, then these in order."""
    height, width = tile.unary.shape[:2]
    total = 0.0
    for r in range(height):
        row = 0.0
        for c in range(width):
            row += tile.unary[r, c, labels[r + 1, c]]
            for d in range(tile.weight.shape[0]):
                w = tile.weight[d, r + 1, c]
                if w != 0.0:
                    other = labels[r + 1 + _down(d), c + _right(d)]
                    row += w * tile.profile[abs(labels[r + 1, c] - other)]
        total += row
    return total
