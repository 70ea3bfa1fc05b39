"""Two shapes of flow network behind one small interface, so that the max-flow kernel is written once.

An arc is a slot of its tail: slot k of node p is the arc p -> head(net, p, k) with residual capacity
cap[arc(net, p, k)], and sister(net, p, k) is the index of the reverse arc.  Every arc has a reverse arc.

``Csr``   any graph: the arcs of node p are start[p]:start[p + 1].
``Grid``  implicit neighbours: node p has ``degree`` slots with fixed strides, and slot k ^ 1 points back.  The grid
          carries a frame of dead nodes whose capacities stay zero, so that no kernel ever tests for the border.

The two arcs of a pair belong to the edge number ``edge(net, p, k)``: per-edge data are indexed by it.  On a grid every
node owns ``degree / 2`` edge numbers, those of its slots 0, 2, 4 ...; the end of an edge with the smaller index is its
tail.

The functions below are chosen by the type of the network when a kernel is compiled; they cost nothing at run time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from tightmap.runtime.compiled import compiled

IntArray = npt.NDArray[np.int64]


class Csr(NamedTuple):
    start: IntArray  # (n + 1,)
    heads: npt.NDArray[np.int32]  # (arcs,)
    sisters: npt.NDArray[np.int32]  # (arcs,)
    edges: npt.NDArray[np.int32]  # (arcs,) edge that an arc belongs to


class Grid(NamedTuple):
    strides: IntArray  # (degree,) head of slot k is p + strides[k]; strides[k ^ 1] = -strides[k]
    degree: int


def _is_grid(net: Any) -> bool:
    return isinstance(net, types.NamedTuple) and net.instance_class is Grid


# The bodies further below are what Numba compiles; these stand for them in plain Python.  Nodes and slots come in types
# of all widths, of which NumPy, unlike Numba, would make floating-point numbers or too narrow integers: hence int().


def degree(net, p):
    return net.degree if isinstance(net, Grid) else int(net.start[int(p) + 1] - net.start[p])


def arc(net, p, k):
    return int(p) * net.degree + int(k) if isinstance(net, Grid) else int(net.start[p]) + int(k)


def head(net, p, k):
    return int(p) + int(net.strides[k]) if isinstance(net, Grid) else int(net.heads[arc(net, p, k)])


def sister(net, p, k):
    if isinstance(net, Grid):
        return head(net, p, k) * net.degree + (int(k) ^ 1)
    return int(net.sisters[arc(net, p, k)])


def back(net, p, k):
    """Slot of head(net, p, k) that points back at p."""
    if isinstance(net, Grid):
        return int(k) ^ 1
    return sister(net, p, k) - int(net.start[head(net, p, k)])


def edge(net, p, k):
    if isinstance(net, Grid):
        return (int(p) if k % 2 == 0 else head(net, p, k)) * (net.degree // 2) + int(k) // 2
    return int(net.edges[arc(net, p, k)])


def _unsigned(p: Any) -> bool:
    """Kernels that count nodes in uint64 get indices of that type: Numba then leaves out its test for negative ones,
    which the max-flow kernel would pay at every step."""
    return isinstance(p, types.Integer) and not getattr(p, "signed", True)


@overload(degree)
def _degree(net, p):
    if _is_grid(net):
        return lambda net, p: net.degree
    if _unsigned(p):
        return lambda net, p: net.start[p + np.uint64(1)] - net.start[p]
    return lambda net, p: net.start[p + 1] - net.start[p]


@overload(arc)
def _arc(net, p, k):
    if _is_grid(net):
        if _unsigned(p):
            return lambda net, p, k: p * np.uint64(net.degree) + np.uint64(k)
        return lambda net, p, k: p * net.degree + k
    if _unsigned(p):
        return lambda net, p, k: np.uint64(net.start[p] + k)
    return lambda net, p, k: net.start[p] + k


@overload(head)
def _head(net, p, k):
    if _is_grid(net):
        if _unsigned(p):
            return lambda net, p, k: p + np.uint64(net.strides[np.uint64(k)])
        return lambda net, p, k: p + net.strides[k]
    if _unsigned(p):
        return lambda net, p, k: np.uint64(net.heads[np.uint64(net.start[p] + k)])
    return lambda net, p, k: np.int64(net.heads[net.start[p] + k])


@overload(sister)
def _sister(net, p, k):
    if _is_grid(net):
        if _unsigned(p):
            return lambda net, p, k: (
                (p + np.uint64(net.strides[np.uint64(k)])) * np.uint64(net.degree) + np.uint64(k ^ 1)
            )
        return lambda net, p, k: (p + net.strides[k]) * net.degree + (k ^ 1)
    if _unsigned(p):
        return lambda net, p, k: np.uint64(net.sisters[np.uint64(net.start[p] + k)])
    return lambda net, p, k: np.int64(net.sisters[net.start[p] + k])


@overload(back)
def _back(net, p, k):
    if _is_grid(net):
        return lambda net, p, k: k ^ 1

    def csr(net, p, k):
        a = net.start[p] + k
        return net.sisters[a] - net.start[net.heads[a]]

    return csr


@overload(edge)
def _edge(net, p, k):
    if _is_grid(net):
        return lambda net, p, k: (p if k & 1 == 0 else p + net.strides[k]) * (net.degree >> 1) + (k >> 1)
    return lambda net, p, k: np.int64(net.edges[net.start[p] + k])


@compiled
def _fill_csr(n, tails, heads, start, out_heads, out_sisters, out_edges, forward):
    """Bucket both directions of every edge under their tails; edge e owns the arcs forward[e] and its sister."""
    m = len(tails)
    for e in range(m):
        start[tails[e] + 1] += 1
        start[heads[e] + 1] += 1
    for p in range(n):
        start[p + 1] += start[p]
    fill = start[:-1].copy()
    for e in range(m):
        u, v = tails[e], heads[e]
        a = fill[u]
        fill[u] += 1
        b = fill[v]
        fill[v] += 1
        out_heads[a] = v
        out_heads[b] = u
        out_sisters[a] = b
        out_sisters[b] = a
        out_edges[a] = e
        out_edges[b] = e
        forward[e] = a


def csr_from_edges(
    n: int, tails: npt.NDArray[np.integer], heads: npt.NDArray[np.integer]
) -> tuple[Csr, npt.NDArray[np.int32]]:
    """Network with an arc pair for every edge, and the index of the arc tails[e] -> heads[e]."""
    m = len(tails)
    start = np.zeros(n + 1, dtype=np.int64)
    out_heads = np.empty(2 * m, dtype=np.int32)
    out_sisters = np.empty(2 * m, dtype=np.int32)
    out_edges = np.empty(2 * m, dtype=np.int32)
    forward = np.empty(m, dtype=np.int32)
    tails = np.ascontiguousarray(tails, dtype=np.int32)
    heads = np.ascontiguousarray(heads, dtype=np.int32)
    _fill_csr(n, tails, heads, start, out_heads, out_sisters, out_edges, forward)
    return Csr(start, out_heads, out_sisters, out_edges), forward
