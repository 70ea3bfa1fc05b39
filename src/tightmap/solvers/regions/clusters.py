"""Which clusters to add to a region graph: squares of grids, pairs shared by larger factors."""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import Graph

MOST_CLUSTERS = 2_000_000  # pairs; a model that would need more is refused


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


def square_clusters(graph: Graph) -> list[tuple[int, ...]]:
    """All 2 x 2 blocks of a grid that are not factors already."""
    width = grid_width(graph)
    if width is None:
        raise ModelError("clusters='squares' needs a grid: build the model with Model.grid, or use clusters='triplets'")
    rows, columns = np.divmod(np.arange(graph.n), width)
    corner = np.flatnonzero((columns < width - 1) & (rows < graph.n // width - 1))
    blocks = np.stack((corner, corner + 1, corner + width, corner + width + 1), axis=1)
    known = _scopes_of(graph, 4)
    return [b for b in map(tuple, blocks.tolist()) if b not in known]


def _scopes_of(graph: Graph, arity: int) -> set[tuple[int, ...]]:
    g = graph.arrays
    ids = np.flatnonzero(np.diff(g.scope_start) == arity)
    return set(map(tuple, np.sort(g.scope[g.scope_start[ids][:, None] + np.arange(arity)], axis=1).tolist()))


def pair_clusters(graph: Graph, shared: int = 2) -> list[tuple[int, ...]]:
    """Pairs of variables inside at least ``shared`` factors of order 3 or more, without a factor of their own."""
    g = graph.arrays
    keys = [np.zeros(0, dtype=np.int64)]
    sizes = np.diff(g.scope_start)
    for k in np.unique(sizes[sizes >= 3]):
        ids = np.flatnonzero(sizes == k)
        scopes = np.sort(g.scope[g.scope_start[ids][:, None] + np.arange(k)], axis=1).astype(np.int64)
        first, second = np.triu_indices(k, 1)
        keys.append((scopes[:, first] * graph.n + scopes[:, second]).reshape(-1))
    found, counts = np.unique(np.concatenate(keys), return_counts=True)
    found = found[counts >= shared]
    if len(found) > MOST_CLUSTERS:
        raise ModelError(f"clusters='pairs' would add {len(found)} pairs, more than {MOST_CLUSTERS}")
    known = _scopes_of(graph, 2)
    return [p for p in zip((found // graph.n).tolist(), (found % graph.n).tolist(), strict=True) if p not in known]
