"""Fusion: the best mixture of two labellings that roof duality can find, for factors of any order.

Every mixture of x and z is a vector of binary choices; its energy is made quadratic (quadratise.py) and handed to QPBO.
Labelled choices are persistent, unlabelled ones keep x, so the result is never worse than x.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tightmap.energy.energies import energy
from tightmap.graph.graph import Graph
from tightmap.graphcut.qpbo import QPBO
from tightmap.graphcut.quadratise import quadratise
from tightmap.moves.components import component_fusion, regions_in_parts
from tightmap.moves.context import Context
from tightmap.runtime.pace import TimeUp, time_left

Labels = npt.NDArray[np.int64]
IMPROVE = 256  # unlabelled choices up to which they are settled one by one


def fuse_proposal(
    graph: Graph,
    labels: Labels,
    proposal: Labels,
    method: str = "fix",
    rng: np.random.Generator | None = None,
    context: Context | None = None,
) -> Labels:
    """A mixture of the two that is no worse than ``labels`` (a new array).

    ``rng``: also settle a limited number of unlabelled choices, in random order.
    """
    out = np.array(labels, np.int64)
    fuse_into(graph, out, np.asarray(proposal, np.int64), method, rng, context=context)
    return out


def fuse_into(
    graph: Graph,
    labels: Labels,
    proposal: Labels,
    method: str = "fix",
    rng: np.random.Generator | None = None,
    largest: int | None = None,
    context: Context | None = None,
) -> None:
    """Fuse in place.  A network takes some hundred bytes for every choice; ``largest`` limits the choices of one.

    More choices than that are made one part after the other; the regions of moves/components.py do not meet, so that
    this changes nothing as long as a region is not larger itself.  With a context it ends when the time limit has
    passed, with the parts that are done.
    """
    value = energy(graph, labels)
    parts: Iterable[npt.NDArray[np.int64]] = [np.flatnonzero(labels != proposal)]
    if largest is not None:
        parts = regions_in_parts(graph.arrays, labels, proposal, largest)
    for variables in parts:
        if context is not None and context.remaining() <= 0.0:
            return
        try:
            take = _chosen(graph, labels, proposal, variables, method, rng, context)
        except TimeUp:
            return
        if take is None:  # a factor in which too many variables differ: whole regions only
            component_fusion(graph.arrays, labels, proposal)
            return
        before = labels[take]
        labels[take] = proposal[take]
        after = energy(graph, labels)
        if after <= value:
            value = after
        else:
            labels[take] = before


def _chosen(
    graph: Graph,
    labels: Labels,
    proposal: Labels,
    variables: npt.NDArray[np.int64],
    method: str,
    rng: np.random.Generator | None,
    context: Context | None,
) -> npt.NDArray[np.int64] | None:
    """The variables that take their label from the proposal; None if a factor is too wide for a network."""
    if len(variables) == 0:
        return variables
    q = quadratise(graph, labels, proposal, method, variables)
    if q is None:
        return None
    roof = QPBO(q.linear, q.first, q.second, q.weight, q.constant)
    del q
    chosen = roof.solve(time_left(context))
    n = len(variables)
    if rng is not None:
        unknown = np.flatnonzero(chosen[:n] < 0)
        if 0 < len(unknown) <= IMPROVE:
            chosen = roof.improve(np.maximum(chosen, 0).astype(np.int8), unknown, rng)
    return variables[chosen[:n] == 1]


def fuse(graph: Graph, labels_a: Labels, labels_b: Labels, seed: int = 0) -> Labels:
    """The best mixture of two labellings that roof duality and region swaps find; never worse than the better one."""
    a, b = np.asarray(labels_a, np.int64), np.asarray(labels_b, np.int64)
    if energy(graph, b) < energy(graph, a):
        a, b = b, a
    out = fuse_proposal(graph, a, b, rng=np.random.default_rng(seed))
    before = out.copy()
    component_fusion(graph.arrays, out, b)
    return out if energy(graph, out) <= energy(graph, before) else before
