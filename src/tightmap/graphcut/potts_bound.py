"""The certificate of kept duals on Potts models, without writing them out as messages.

``energies.lower_bound`` certifies any messages, but has to be given them: for FastPD on many labels that is several
times the memory of the duals.  On a Potts edge the minimum of its bracket has a closed form,

    min over a, b of  w [a != b] - k y(a) + k y(b)  =  min(0, w - k (max y - min y)),

and the sum of the messages to a variable is what its heights have gained.  The same sums are formed here from the duals
in one pass, for several multiples k at once, with the same allowance for rounding.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, certify
from tightmap.energy.energies import BLOCK
from tightmap.graph.graph import Graph, Kind
from tightmap.graphcut.expansion import Expansion
from tightmap.runtime.compiled import compiled


@compiled
def _edges(scope, weight, y, first, step, labels, scale, shares, low, error, reach):
    """Partial sums over blocks of edges; ``reach`` collects the largest messages around every variable."""
    top, bottom = np.empty(BLOCK), np.empty(BLOCK)
    for block in range(low.shape[1]):
        begin = block * BLOCK
        count = min(BLOCK, len(weight) - begin)
        top[:] = -np.inf
        bottom[:] = np.inf
        for a in range(labels):
            for i in range(count):
                v = y[first[begin + i] + step * a]
                top[i] = max(top[i], v)
                bottom[i] = min(bottom[i], v)
        for i in range(count):
            f = begin + i
            size = scale * max(abs(top[i]), abs(bottom[i]))
            reach[scope[2 * f]] += size
            reach[scope[2 * f + 1]] += size
            for j in range(len(shares)):
                best = min(0.0, weight[f] - shares[j] * scale * (top[i] - bottom[i]))
                low[j, block] += best
                error[j, block] += 64.0 * (2.0 * size + abs(best) + abs(weight[f]))
        for j in range(len(shares)):
            error[j, block] += BLOCK * abs(low[j, block])


@compiled
def _variables(unary, adj_start, h, before, start, step, labels, scale, shares, low, error, reach):
    best = np.empty((len(shares), BLOCK))
    most = np.empty(BLOCK)
    for block in range(low.shape[1]):
        begin = block * BLOCK
        count = min(BLOCK, len(start) - begin)
        best[:] = np.inf
        most[:] = 0.0
        for a in range(labels):
            for i in range(count):
                at = start[begin + i] + step * a
                own = unary[(begin + i) * labels + a]
                gain = scale * (h[at] - before[(begin + i) * labels + a])
                most[i] = max(most[i], abs(own))
                for j in range(len(shares)):
                    best[j, i] = min(best[j, i], own + shares[j] * gain)
        for i in range(count):
            p = begin + i
            for j in range(len(shares)):
                low[j, block] += best[j, i]
                error[j, block] += (adj_start[p + 1] - adj_start[p] + 4) * (most[i] + reach[p])
        for j in range(len(shares)):
            error[j, block] += BLOCK * abs(low[j, block])


def has_closed_form(graph: Graph, moves: Expansion) -> bool:
    return moves.uniform and moves.model.settled is None and bool((graph.arrays.kind == Kind.POTTS).all())


def potts_bounds(graph: Graph, moves: Expansion, shares: list[float]) -> list[float]:
    """Certified bounds of these multiples of the duals."""
    g, model = graph.arrays, moves.model
    scale, multiples = model.scale, np.array(shares)
    reach = np.zeros(graph.n)

    def blocks(count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        shape = (len(shares), (count + BLOCK - 1) // BLOCK)
        return np.zeros(shape), np.zeros(shape)

    low_f, error_f = blocks(graph.m)
    _edges(
        g.scope, g.weight, moves.y, moves.first[model.number], moves.edge_step, moves.count,
        scale, multiples, low_f, error_f, reach,
    )  # fmt: skip
    low_v, error_v = blocks(graph.n)
    _variables(
        g.unary, g.adj_start, moves.h, model.unary, moves.start[model.node], moves.label_step, moves.count,
        scale, multiples, low_v, error_v, reach,
    )  # fmt: skip
    out: list[float] = []
    for j in range(len(shares)):
        raw = math.fsum((graph.constant, *low_v[j].tolist(), *low_f[j].tolist()))
        error = math.fsum(error_v[j].tolist()) + math.fsum(error_f[j].tolist())
        out.append(certify(graph, raw, UNIT * error))
    return out
