"""Fusion: the best mixture of two labellings that roof duality can find, for factors of any order.

Every mixture of x and z is a vector of binary choices; its energy is made quadratic (quadratise.py) and handed to QPBO.
Labelled choices are persistent, unlabelled ones keep x, so the result is never worse than x.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.energy import energy
from tightmap.graph import Graph
from tightmap.graphcut.components import component_fusion
from tightmap.graphcut.qpbo import QPBO
from tightmap.graphcut.quadratise import quadratise

Labels = npt.NDArray[np.int64]
IMPROVE = 256  # unlabelled choices up to which they are settled one by one


def fuse_proposal(
    graph: Graph, labels: Labels, proposal: Labels, method: str = "fix", rng: np.random.Generator | None = None
) -> Labels:
    """A mixture of the two that is no worse than ``labels`` (a new array).

    ``rng``: also settle a limited number of unlabelled choices, in random order.
    """
    labels = np.asarray(labels, np.int64)
    proposal = np.asarray(proposal, np.int64)
    q = quadratise(graph, labels, proposal, method)
    out = labels.copy()
    if q is None:  # a factor in which too many variables differ: whole regions only
        component_fusion(graph.arrays, out, proposal)
        return out
    if len(q.variables) == 0:
        return out
    roof = QPBO(q.linear, q.first, q.second, q.weight, q.constant)
    chosen = roof.solve()
    n = len(q.variables)
    if rng is not None:
        unknown = np.flatnonzero(chosen[:n] < 0)
        if 0 < len(unknown) <= IMPROVE:
            chosen = roof.improve(np.maximum(chosen, 0).astype(np.int8), unknown, rng)
    take = q.variables[chosen[:n] == 1]
    out[take] = proposal[take]
    return out if energy(graph, out) <= energy(graph, labels) else labels.copy()


def fuse(graph: Graph, labels_a: Labels, labels_b: Labels, seed: int = 0) -> Labels:
    """The best mixture of two labellings that roof duality and region swaps find; never worse than the better one."""
    a, b = np.asarray(labels_a, np.int64), np.asarray(labels_b, np.int64)
    if energy(graph, b) < energy(graph, a):
        a, b = b, a
    out = fuse_proposal(graph, a, b, rng=np.random.default_rng(seed))
    before = out.copy()
    component_fusion(graph.arrays, out, b)
    return out if energy(graph, out) <= energy(graph, before) else before
