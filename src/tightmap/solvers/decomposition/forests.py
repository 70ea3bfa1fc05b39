"""Which factors go together: lines of grids, spanning forests of any graph, acyclic parts of factors of any order.

lines    the edges (i, i + d) with one difference d of the numbers of their ends: paths, because every variable has one
         successor.  In an image d = 1 are its rows, d = width its columns, d = width + 1 and width - 1 its diagonals.
forests  Kruskal: a factor joins the first forest in which all its variables are still in different components.  With
         factors of three and more variables that is an acyclic part of a hypergraph.
chains   second-order chains of triples (i, i + d, i + 2 d), see ``chains.py``; what is left over goes into forests.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.energy.energies import smallest_entries
from tightmap.graph.graph import Graph
from tightmap.graph.one_form import one_form
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import check_time
from tightmap.solvers.decomposition.chains import chain_parts
from tightmap.solvers.decomposition.subproblems import Part, Subproblems, assemble, trees

DECOMPOSITIONS = ("auto", "lines", "forests", "chains")
MOST_LINES = 12  # directions of lines: more are not what anybody would call a grid


@one_form
@compiled
def _forest(g, order, left):
    """Kruskal over the factors that are left, in this order; what is taken is left no more."""
    n = len(g.cards)
    parent = np.arange(n)
    taken = np.zeros(len(g.kind), np.bool_)
    roots = np.empty(128, np.int64)
    for f in order:
        if not left[f]:
            continue
        begin, end = g.scope_start[f], g.scope_start[f + 1]
        fits = True
        for p in range(begin, end):
            r = np.int64(g.scope[p])
            while parent[r] != r:
                parent[r] = parent[parent[r]]
                r = parent[r]
            roots[p - begin] = r
            for q in range(p - begin):
                fits &= roots[q] != r
        if fits:
            taken[f] = True
            left[f] = False
            for q in range(1, end - begin):
                parent[roots[q]] = roots[0]
    return taken


def forests(graph: Graph, left: npt.NDArray[np.bool_], context: Context | None = None) -> list[npt.NDArray[np.bool_]]:
    """Forests that together have every factor that is left exactly once.

    Factors are taken by number, which suits images, or in a fixed random order where that needs fewer forests (by
    number a complete graph falls into stars).
    """
    tried = []
    arity = np.diff(graph.arrays.scope_start)
    least = -(-int((arity - 1)[left].sum()) // max(1, graph.n - 1))  # joins, of which a forest has at most n - 1
    for order in (np.arange(graph.m), np.random.default_rng(0).permutation(graph.m)):
        remaining, found = left.copy(), []
        while remaining.any():
            check_time(context)
            found.append(_forest(graph.arrays, order, remaining))
        tried.append(found)
        if len(found) <= least + 1:
            break
    return min(tried, key=len)


def lines(graph: Graph) -> list[npt.NDArray[np.bool_]] | None:
    """Lines of a pairwise graph, direction by direction; None where there are too many directions."""
    if graph.order > 2:
        return None
    if graph.m == 0:
        return []
    edges = graph.edges.astype(np.int64)
    step = edges[:, 1] - edges[:, 0]
    least = int(step.min())
    directions = np.flatnonzero(np.bincount(step - least)) + least  # counted, not sorted: there are millions of edges
    if len(directions) > MOST_LINES:
        return None
    chosen = [step == d for d in directions]
    # two factors on one pair, which are a cycle, begin at the same variable and have the same direction
    twice = any(np.bincount(edges[of, 0]).max() > 1 for of in chosen)
    return None if twice else chosen


def decompose(graph: Graph, what: str, context: Context | None = None) -> tuple[Subproblems, str]:
    """Subproblems, and in words what they are; "auto" takes chains, then lines, where the model has them.

    TimeUp when the time limit of the context passes before they are ready.
    """
    left = np.ones(graph.m, dtype=np.bool_)
    parts: list[Part] = []
    words = []
    if what in ("auto", "chains"):
        parts, left = chain_parts(graph)
        if parts:
            words.append(f"{sum(len(p.place_start) - 1 for p in parts)} second-order chains")
    check_time(context)
    nobody = np.zeros(graph.n, dtype=np.bool_)
    directions = lines(graph) if what in ("auto", "lines") and not parts else None
    if directions is not None and (what == "lines" or graph.m >= 8 * len(directions)):
        chosen, word = directions, "lines"
    else:
        chosen, word = forests(graph, left, context), "trees"
    made = []
    for factors in chosen:  # of millions, which take their time
        check_time(context)
        made.append(trees(graph, factors, nobody))
    if made:
        words.append(f"{sum(len(p.place_start) - 1 for p in made)} {word}")
    parts = [*parts, *made]
    alone = np.ones(graph.n, dtype=np.bool_)
    alone[graph.arrays.scope] = False
    if alone.any():
        parts.append(trees(graph, np.zeros(graph.m, dtype=np.bool_), alone))
    check_time(context)
    least = smallest_entries(graph)
    check_time(context)
    return assemble(graph, parts, least), " and ".join(words)
