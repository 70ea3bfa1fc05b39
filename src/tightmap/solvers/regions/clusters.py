"""Which clusters to add to a region graph: squares of grids, pairs shared by larger factors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.kernels import incident_ranges
from tightmap.graph.graph import Graph, IntArray
from tightmap.graph.stencil import grid_width

MOST_CLUSTERS = 2_000_000  # pairs; a model that would need more is refused


def open_variables(graph: Graph) -> npt.NDArray[np.bool_]:
    """(n,) variables whose factors together could make up for what another label costs more than their cheapest one.

    The others have that label in every optimum, also in those of any relaxation: all that they have elsewhere could be
    moved to it, which changes factors by less than it saves.
    """
    g = graph.arrays
    low = np.minimum.reduceat(g.unary, g.offset[:-1])
    reachable = g.unary <= np.repeat(low + incident_ranges(g), g.cards)
    count: IntArray = np.add.reduceat(reachable.astype(np.int64), g.offset[:-1])
    return count > 1


def square_clusters(graph: Graph) -> list[tuple[int, ...]]:
    """All 2 x 2 blocks of a grid that are not factors already and may raise the bound.

    Three open variables are needed: settled ones make unary costs of their pairs, and what is left of a block with two
    open ones is a single pair.
    """
    width = grid_width(graph)
    if width is None:
        raise ModelError("clusters='squares' needs a grid: build the model with Model.grid, or use clusters='triplets'")
    rows, columns = np.divmod(np.arange(graph.n), width)
    corner = np.flatnonzero((columns < width - 1) & (rows < graph.n // width - 1))
    blocks = np.stack((corner, corner + 1, corner + width, corner + width + 1), axis=1)
    blocks = blocks[open_variables(graph)[blocks].sum(axis=1) >= 3]
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
