"""Recognise regular grids: models whose edges are the same few displacements everywhere, with one shared table.

An image model has no need of neighbour lists: the neighbours of pixel (r, c) are (r + dr, c + dc) for a handful of
displacements, and what varies is only the weight.  ``find_stencil`` reads this off the canonical edge list, so that a
kernel can run over rows of contiguous memory with implicit neighbours (displacements N4, N8, or any small set, in
whichever direction the variables were numbered).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Graph, Kind
from tightmap.graph.lattice import Lattice, weight_images
from tightmap.runtime.compiled import lean

_TRANSLATION_INVARIANT = (Kind.POTTS, Kind.LINEAR, Kind.QUADRATIC)


@dataclass(frozen=True, eq=False)
class Stencil:
    """A grid of variables i = r * width + c with edges (r, c) -> (r + dr, c + dc) of cost weight * table(|a - b|)."""

    height: int
    width: int
    labels: int
    kind: Kind
    displacements: npt.NDArray[np.int64]  # (K, 2) rows (dr, dc) with dr * width + dc > 0, ascending
    weights: npt.NDArray[np.float64]  # (K, height, width), kept at the edge's first end; 0 where there is no edge
    profile: npt.NDArray[np.float64]  # (labels,) table(0), table(1), ...: the cost by difference of labels
    equal: float | None = None  # the weight of all edges, where they have one and ``weights`` were not asked for

    @property
    def radius(self) -> int:
        """How far a neighbour can be, in rows or in columns."""
        return int(np.abs(self.displacements).max())

    @property
    def total_weight(self) -> float:
        """Sum of the sizes of all weights."""
        if self.equal is None:
            return float(np.abs(self.weights).sum())
        edges = sum((self.height - dr) * (self.width - abs(dc)) for dr, dc in self.displacements.tolist())
        return abs(self.equal) * edges

    def outline(self) -> Stencil:
        """The same without the weights: for whoever keeps a stencil and reads the weights once."""
        return replace(self, weights=self.weights[:, :0, :0].copy())


def find_stencil(graph: Graph, max_displacements: int = 12, max_radius: int = 4, images: bool = True) -> Stencil | None:
    """The stencil of a pairwise grid with equal label counts and one shared table of differences, or None.

    images : False where images of the weights are not needed if these are known to be one number (``Stencil.equal``)
    """
    if graph.lattice is not None:
        return _of_lattice(graph.lattice, max_displacements, images)
    a = graph.arrays
    if graph.m == 0 or graph.order != 2 or not graph.uniform:
        return None
    kind = Kind(int(a.kind[0]))
    if kind not in _TRANSLATION_INVARIANT or (a.kind != a.kind[0]).any():
        return None
    limit = np.inf
    if kind != Kind.POTTS:
        limits = a.params[a.param]
        limit = float(limits[0])
        if (limits != limit).any():
            return None
    distinct = np.zeros(max_displacements, dtype=np.int64)
    count = distinct_steps(a.scope, distinct)
    if count < 0:
        return None
    distinct = distinct[:count].copy()
    found = _shape(graph, distinct, max_radius)
    if found is None:
        return None
    height, width, displacements = found
    weights = np.zeros((len(distinct), graph.n))
    _place_weights(a.scope, a.weight, distinct, weights)
    labels = int(a.cards[0])
    difference = np.arange(labels, dtype=np.float64)
    if kind == Kind.POTTS:
        profile = (difference > 0).astype(np.float64)
    else:
        profile = np.minimum(difference if kind == Kind.LINEAR else difference**2, limit)
    return Stencil(height, width, labels, kind, displacements, weights.reshape(-1, height, width), profile)


def _of_lattice(lattice: Lattice, max_displacements: int, images: bool) -> Stencil | None:
    g = lattice.pixels
    if len(g.down) > max_displacements:
        return None
    order = np.argsort(g.down * g.width + g.right)
    displacements = np.stack([g.down, g.right], axis=1)[order]
    if not images and not g.listed:
        none, equal = np.zeros((len(order), 0, 0)), float(g.weight[0])
        return Stencil(g.height, g.width, g.labels, Kind(lattice.kind), displacements, none, g.profile, equal)
    weights = weight_images(g)
    if not np.array_equal(order, np.arange(len(order))):
        weights = weights[order]
    return Stencil(g.height, g.width, g.labels, Kind(lattice.kind), displacements, weights, g.profile)


@lean
def _place(distinct, step, guess):
    """Where a step is in the list, looked for from the last place on: neighbouring edges mostly take turns."""
    k = len(distinct)
    for q in range(k):
        at = (guess + q) % k
        if distinct[at] == step:
            return at
    return -1


@lean
def distinct_steps(scope, steps):
    """The differences between the ends of factors, ascending in ``steps``; returns how many, or -1 if too many."""
    count = 0
    for f in range(len(scope) // 2):
        d = np.int64(scope[2 * f + 1]) - scope[2 * f]
        i = 0
        while i < count and steps[i] < d:
            i += 1
        if i < count and steps[i] == d:
            continue
        if count == len(steps):
            return -1
        for j in range(count, i, -1):
            steps[j] = steps[j - 1]
        steps[i] = d
        count += 1
    return count


@lean
def _stays_inside(scope, distinct, right, width):
    """No edge leaves the grid by its sides when a step moves so many columns to the right."""
    at = 0
    for e in range(len(scope) // 2):
        at = _place(distinct, np.int64(scope[2 * e + 1]) - scope[2 * e], at)
        column = scope[2 * e] % width + right[at]
        if column < 0 or column >= width:
            return False
    return True


@lean
def _place_weights(scope, weight, distinct, weights):
    at = 0
    for e in range(len(weight)):
        at = _place(distinct, np.int64(scope[2 * e + 1]) - scope[2 * e], at)
        weights[at, scope[2 * e]] = weight[e]


def _shape(
    graph: Graph, distinct: npt.NDArray[np.int64], max_radius: int
) -> tuple[int, int, npt.NDArray[np.int64]] | None:
    """Height, width and displacements, for the first width under which no edge leaves the grid."""
    n = graph.n
    widths = [] if graph.grid_shape is None else [graph.grid_shape[1]]
    widths += [int(w) for step in distinct for w in (step, step + 1, step - 1)]
    widths += [n]  # a chain
    for width in dict.fromkeys(widths):
        if width < 2 or n % width:
            continue
        down = (distinct + width // 2) // width
        right = distinct - down * width
        if max(down.max(), np.abs(right).max()) > max_radius:
            continue
        if _stays_inside(graph.arrays.scope, distinct, right, width):
            return n // width, width, np.stack([down, right], axis=1)
    return None


def grid_width(graph: Graph) -> int | None:
    """Width of a grid of variables i = r * W + c, as the user said or as the pairwise edges show; None if neither."""
    if graph.grid_shape is not None:
        return graph.grid_shape[1]
    g = graph.arrays
    pairs = np.flatnonzero(np.diff(g.scope_start) == 2)
    ends = g.scope[g.scope_start[pairs][:, None] + np.arange(2)].astype(np.int64)
    steps, counts = np.unique(ends[:, 1] - ends[:, 0], return_counts=True)
    common = steps[2 * counts > graph.n]
    if len(common) == 2 and common[0] == 1:
        width = int(common[1])
    elif len(common) == 4 and common[0] == 1 and common[2] - common[1] == 1 and common[3] - common[2] == 1:
        width = int(common[2])
    else:
        return None
    return width if width > 1 and graph.n % width == 0 else None
