"""Which clusters to add to a region graph: squares of grids, pairs shared by larger factors."""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import Graph
from tightmap.graph.stencil import grid_width

MOST_CLUSTERS = 2_000_000  # pairs; a model that would need more is refused


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
