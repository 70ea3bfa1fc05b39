"""Cover the factors of a model by forests, for tree-reweighted methods.

A set of factors is a forest when no two of them share more than one variable and none closes a cycle: adding them one
after the other, all variables of a factor are in different components before it comes.  Minimising over a forest is
exact dynamic programming.  If every factor is in at least one of T forests, the share rho_f = (forests with f) / T is
a valid appearance probability (Wainwright, Jaakkola and Willsky 2005; hyperforests for order > 2).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.one_form import one_form
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import check_time


class Cover(NamedTuple):
    """Forests as elimination orders: within a forest, factors from the leaves to the roots."""

    start: IntArray  # (T + 1,) where each forest begins in the two lists
    factor: npt.NDArray[np.int64]
    towards: npt.NDArray[np.int64]  # position, in the factor's scope, of the variable nearest to the root
    rho: FloatArray  # (m,) appearance probability of every factor


@compiled
def _grow(scope_start, scope, n, order):
    """Kruskal: the factors of one maximal forest, preferring those early in ``order``."""
    parent = np.arange(n)
    taken = np.zeros(len(order), np.bool_)
    roots = np.empty(128, np.int64)
    for f in order:
        a, b = scope_start[f], scope_start[f + 1]
        fits = True
        for p in range(a, b):
            r = scope[p]
            while parent[r] != r:
                parent[r] = parent[parent[r]]
                r = parent[r]
            roots[p - a] = r
            for q in range(p - a):
                if roots[q] == r:
                    fits = False
            if not fits:
                break
        if fits:
            taken[f] = True
            for q in range(1, b - a):
                parent[roots[q]] = roots[0]
    return taken


@one_form
@compiled
def _eliminate(g, taken, factor, towards):
    """Breadth first from the lowest variable of every component; filled backwards, so that leaves come first."""
    n = len(g.cards)
    count = 0
    for f in range(len(taken)):
        count += taken[f]
    at = count
    seen = np.zeros(n, np.bool_)
    done = np.zeros(len(taken), np.bool_)
    queue = np.empty(n, np.int64)
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        queue[0] = root
        head, tail = 0, 1
        while head < tail:
            i = queue[head]
            head += 1
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = g.adj_factor[a]
                if taken[f] and not done[f]:
                    done[f] = True
                    at -= 1
                    factor[at] = f
                    towards[at] = g.adj_pos[a]
                    for p in range(g.scope_start[f], g.scope_start[f + 1]):
                        j = g.scope[p]
                        if not seen[j]:
                            seen[j] = True
                            queue[tail] = j
                            tail += 1
    return count


def forest_cover(graph: Graph, context: Context | None = None) -> Cover:
    """Maximal forests, each preferring the factors used least so far, until every factor has been used.

    TimeUp when the time limit of the context passes before.

    Ties go by index, which covers a grid by two combs.  Where that needs many more forests than there are edges to
    place (it makes a star of every variable of a dense graph), ties in a fixed random order are tried as well.
    """
    covers = [_cover(graph, np.arange(graph.m), context)]
    needed = np.diff(graph.arrays.scope_start).astype(np.int64).sum() - graph.m  # joins, of which a forest has n - 1
    if len(covers[0].start) - 1 > 2 + needed // max(1, graph.n - 1):
        covers.append(_cover(graph, np.random.default_rng(0).permutation(graph.m), context))
    return min(covers, key=lambda cover: len(cover.start))


def _cover(graph: Graph, ties: npt.NDArray[np.int64], context: Context | None) -> Cover:
    g = graph.arrays
    uses = np.zeros(graph.m, dtype=np.int64)
    sizes = [0]
    factors: list[npt.NDArray[np.int64]] = []
    towards: list[npt.NDArray[np.int64]] = []
    while not factors or uses.min() == 0:
        check_time(context)
        order = ties[np.argsort(uses[ties], kind="stable")]
        taken = _grow(g.scope_start, g.scope, graph.n, order)
        uses += taken
        own, side = np.empty(int(taken.sum()), np.int64), np.empty(int(taken.sum()), np.int64)
        sizes.append(int(_eliminate(g, taken, own, side)))
        factors.append(own)
        towards.append(side)
    rho = uses / len(factors)
    return Cover(np.cumsum(np.array(sizes, dtype=np.int64)), np.concatenate(factors), np.concatenate(towards), rho)
