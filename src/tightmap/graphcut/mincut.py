"""``tm.maxflow``: the max-flow kernel as a public call, on grids of any dimension and on edge lists.

    value = max flow from source to sink = least cost of a cut (S, T) of the nodes,

    cost(S, T) = sum over S of sink[p] + sum over T of source[p] + sum over edges p -> q, p in S, q in T, of capacity

The flow is computed in whole numbers.  Capacities that are not whole are rounded to multiples of 2^-40 of the largest
one (fewer bits where the sum of all would not fit), and ``value`` is the cost of the cut that was found, in the
capacities as given; ``error`` is how far that can be above the least one.  A capacity that no minimum cut can pay,
because a cut that was found costs less than a quarter of it, counts as twice that cut, and the flow is computed again:
large numbers that are meant as infinity do not take the bits of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graphcut.flow import Flow, GridFlow, MaxFlow, ends, framed_cells
from tightmap.model.checks import as_array
from tightmap.runtime.memory import require

BITS = 40  # of the largest capacity after rounding
ROOM = 61  # bits for the sum of all
SMALL = 2.0**30  # sums around a node below this fit into 32 bits

Array = npt.NDArray[Any]


class MinimumCut:
    """A network with its minimum cut; made by ``tightmap.maxflow``.

    value         cost of the cut: the maximum flow
    error         how far it may be above the least one, from rounding capacities (0 for whole numbers)
    source_side   which nodes are on the side of the source, in the shape of the nodes: the fewest that can be
    """

    value: float
    error: float
    source_side: npt.NDArray[np.bool_]

    def __init__(self, source: Array, sink: Array, edges: Array | None, pairs: list[tuple[Array, Array]], offsets: Any):
        self._source, self._sink, self._edges, self._pairs, self._offsets = source, sink, edges, pairs, offsets
        self._flow: Flow | None = None
        self._solve_afresh()

    # ------------------------------------------------------------------------------------------ solving

    def _solve_afresh(self) -> None:
        """Solve; again, with more bits for the others, where the largest capacities are far beyond what is paid."""
        self._limit = np.inf  # larger capacities than this count as this
        largest = self._solve_rounded()
        while self._rounded and 0.0 < 4.0 * self.value < largest:
            self._limit = 2.0 * self.value
            largest = self._solve_rounded()

    def _solve_rounded(self) -> float:
        """Solve in whole numbers; the largest finite capacity, as it counts."""
        arrays = [self._source, self._sink, *(a for pair in self._pairs for a in pair)]
        finite = [float(np.abs(np.where(np.isfinite(a), a, 0)).max(initial=0)) if a.size else 0.0 for a in arrays]
        whole = all(np.issubdtype(a.dtype, np.integer) or (a[np.isfinite(a)] % 1 == 0).all() for a in arrays)
        nodes = self._source.size
        # Upper bound on the sum of all finite capacities: a cut that costs more pays an infinite one
        count = 2 * nodes + sum(self._spread(a) for pair in self._pairs for a in pair)
        largest = max(finite, default=0.0)
        largest = min(largest, self._limit)
        room = ROOM - int(np.ceil(np.log2(max(count, 2))))
        if whole and largest < 2.0**room:
            self._scale = 1.0
        else:
            self._scale = 2.0 ** min(min(BITS, room) - int(np.ceil(np.log2(largest))), 1000)
        self._around = 0.0  # of the capacities of one node, except its terminals
        self._infinite = int(np.ceil(count * max(1.0, largest * self._scale))) + 1
        self._rounded = not (whole and self._scale == 1.0)
        self.error = 0.5 * count / self._scale if self._rounded else 0.0
        pairs = [(self._whole(a), self._whole(b)) for a, b in self._pairs]
        s, t = self._whole(self._source), self._whole(self._sink)
        if self._edges is not None:
            (a, b) = pairs[0]
            self._flow = MaxFlow(nodes, self._edges[:, 0], self._edges[:, 1], a, b, s, t)
        else:
            self._around = 2.0 * sum(float(max(a.max(initial=0), b.max(initial=0))) for a, b in pairs)
            dtype = np.int32 if self._fits(SMALL) else np.int64
            forward, backward = [a for a, _ in pairs], [b for _, b in pairs]
            self._flow = GridFlow(self._offsets, forward, backward, s, t, dtype)
        self._read()
        return largest

    def _fits(self, most: float) -> bool:
        """Whether what meets at one node stays below a number, whatever the flow is."""
        terminals = max(float(self._source.max(initial=0)), float(self._sink.max(initial=0)))
        return self._around + terminals * self._scale < most

    def _spread(self, capacity: Array) -> int:
        """On how many edges a capacity lies."""
        return capacity.size if capacity.ndim else self._source.size

    def _whole(self, a: Array) -> Array:
        if np.issubdtype(a.dtype, np.integer) and self._scale == 1.0:
            if float(a.max(initial=0)) > self._limit:  # of any width: more than 63 bits would become negative
                a = np.minimum(a, a.dtype.type(np.ceil(self._limit)))
            return a.astype(np.int64, copy=False)
        finite = np.isfinite(a)
        scaled = np.rint(np.where(finite, np.minimum(a, self._limit), 0) * self._scale)
        return np.where(finite, scaled, self._infinite).astype(np.int64)

    def _read(self) -> None:
        assert self._flow is not None
        flow = self._flow.solve()
        side = self._flow.source_side()
        self.source_side = np.ascontiguousarray(side).reshape(self._source.shape)
        if flow >= self._infinite:
            self.value = np.inf
        elif self._rounded:
            self.value = self.cost(self.source_side)
        else:
            self.value = flow if all(np.issubdtype(a.dtype, np.integer) for a in self._everything()) else float(flow)

    def _everything(self) -> list[Array]:
        return [self._source, self._sink, *(a for pair in self._pairs for a in pair)]

    def cost(self, source_side: npt.ArrayLike) -> float:
        """What the cut with these nodes on the side of the source costs."""
        side = as_array(source_side, "cost: source_side")
        if side.size != self._source.size or side.dtype.kind not in "biuf":
            raise ModelError(
                f"cost: source_side must say of {self._source.size} nodes whether they are on the side of the source, "
                f"got {side.dtype} of the shape {side.shape}"
            )
        side = side.astype(bool).reshape(self._source.shape)
        with np.errstate(over="ignore"):
            return self._cost(side)

    def _cost(self, side: npt.NDArray[np.bool_]) -> float:
        # as float64: sums of whole numbers would wrap around
        total = float(self._sink[side].sum(dtype=np.float64)) + float(self._source[~side].sum(dtype=np.float64))
        if self._edges is not None:
            p, q = side[self._edges[:, 0]], side[self._edges[:, 1]]
            return total + _paid(self._pairs[0][0], p & ~q) + _paid(self._pairs[0][1], q & ~p)
        for offset, (a, b) in zip(self._offsets, self._pairs, strict=True):
            tails, heads = ends(side.shape, offset)
            p, q = side[tails], side[heads]
            total += _paid(a, p & ~q) + _paid(b, q & ~p)
        return total

    def update(self, source: npt.ArrayLike, sink: npt.ArrayLike) -> MinimumCut:
        """Solve again with other terminal capacities, going on from the flow that is there; returns itself.

        Worthwhile when few of them change: frames of a film, strokes of a user, steps of a parameter.
        """
        s, t = (_own(a, name) for a, name in ((source, "source"), (sink, "sink")))
        if s.shape != self._source.shape or t.shape != self._source.shape:
            raise ModelError(
                f"update: source and sink must have the shape {self._source.shape}, got {s.shape}, {t.shape}"
            )
        before = self._whole(self._source), self._whole(self._sink)
        self._source, self._sink = s, t
        assert self._flow is not None
        exact = self._rounded or all((a[np.isfinite(a)] * self._scale % 1 == 0).all() for a in (s, t))
        exact = exact and self._limit == np.inf  # which follows from the terminals as they were
        if not exact or not self._fits(SMALL if self._flow.cap.dtype == np.int32 else 2.0**BITS):
            self._solve_afresh()  # in another unit, or in wider numbers
            return self
        ds, dt = self._whole(s) - before[0], self._whole(t) - before[1]
        cells = np.nonzero((ds != 0) | (dt != 0))
        nodes = self._flow.node(cells) if isinstance(self._flow, GridFlow) else cells[0]
        self._flow.add_terminals(nodes, ds[cells], dt[cells])
        self._read()
        return self

    def __repr__(self) -> str:
        inside = int(self.source_side.sum())
        return f"MinimumCut(value={self.value:.9g}, {inside} of {self.source_side.size} nodes on the source side)"


def _paid(capacity: Array, cut: Array) -> float:
    return (
        float(capacity[cut].sum(dtype=np.float64))
        if capacity.ndim
        else (float(capacity) * int(cut.sum()) if cut.any() else 0.0)
    )


def _own(a: npt.ArrayLike, name: str) -> Array:
    return _checked(as_array(a, f"maxflow: {name}").copy(), name)


def _checked(a: Array, name: str) -> Array:
    if a.dtype == bool:
        a = a.astype(np.int64)
    if a.dtype.kind not in "iuf":
        raise ModelError(f"maxflow: {name} must be numbers, got {a.dtype}")
    if a.dtype.kind == "f" and a.dtype.itemsize > 8:  # long doubles have more range
        with np.errstate(over="ignore"):
            narrow = a.astype(np.float64)
        if (np.isinf(narrow) & np.isfinite(a)).any():
            raise ModelError(f"maxflow: {name}: a number is more than float64 can hold")
        a = narrow
    if np.isnan(a).any() or (a < 0).any():
        raise ModelError(f"maxflow: {name} must be at least 0; a negative or missing capacity has no cut")
    return a


def maxflow(
    source: npt.ArrayLike,
    sink: npt.ArrayLike,
    capacity: npt.ArrayLike | Sequence[npt.ArrayLike] = 1,
    reverse: npt.ArrayLike | Sequence[npt.ArrayLike] | None = None,
    *,
    edges: npt.ArrayLike | None = None,
    offsets: npt.ArrayLike | None = None,
) -> MinimumCut:
    """Maximum flow and minimum cut of a network with one source and one sink.

    source, sink   capacities from the source and to the sink, one per node; their shape is that of the nodes.
                   ``inf`` ties a node to its side
    edges          (m, 2) pairs of nodes, with ``capacity`` and ``reverse`` a number or (m,).  Without it the nodes are
                   a grid of as many dimensions as ``source`` has
    offsets        (k, d) steps to the neighbours on a grid; by default one step along each axis.  One of each pair of
                   opposite steps
    capacity       on a grid a number, or one entry per offset: numbers, or arrays over the cells that have that
                   neighbour (for a step along the axis of length n, n - 1 cells)
    reverse        capacities of the way back, the same as there by default

    Whole numbers are solved exactly.  ``cut.update(source, sink)`` solves again from the present flow.
    """
    s, t = _own(source, "source"), _own(sink, "sink")
    if s.shape != t.shape:
        raise ModelError(f"maxflow: source has the shape {s.shape} and sink {t.shape}; both are one number per node")
    if s.ndim == 0:
        raise ModelError("maxflow: source and sink must be arrays with one number per node")
    if edges is not None:
        return _on_edges(s, t, as_array(edges, "maxflow: edges"), capacity, reverse, offsets)
    steps = np.eye(s.ndim, dtype=np.int64) if offsets is None else as_array(offsets, "maxflow: offsets")
    if steps.ndim != 2 or steps.shape[1] != s.ndim or steps.dtype.kind not in "iu":
        raise ModelError(f"maxflow: offsets must be whole numbers of the shape (k, {s.ndim}), got {steps.shape}")
    if not steps.any(axis=1).all():
        raise ModelError("maxflow: an offset of zeros joins a node to itself")
    there = _per_offset(capacity, steps, s.shape, "capacity")
    back = there if reverse is None else _per_offset(reverse, steps, s.shape, "reverse")
    pairs = list(zip(there, back, strict=True))
    inside = [all(abs(int(o)) < n for n, o in zip(s.shape, step, strict=True)) for step in steps]
    pairs = [pair for pair, some in zip(pairs, inside, strict=True) if some]  # the others have no cells to join
    steps = steps[np.array(inside, dtype=bool)].astype(np.int64)
    require(framed_cells(s.shape, steps) * (24.0 + 16.0 * len(steps)), f"a network of the shape {s.shape}")
    return MinimumCut(s, t, None, pairs, steps)


def _on_edges(s: Array, t: Array, pairs: Array, capacity: Any, reverse: Any, offsets: Any) -> MinimumCut:
    if offsets is not None:
        raise ModelError("maxflow: give edges or offsets, not both")
    if s.ndim != 1:
        raise ModelError(f"maxflow: with edges, source and sink are flat, one number per node; got {s.shape}")
    if pairs.size == 0:
        pairs = pairs.reshape(0, 2).astype(np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ModelError(f"maxflow: edges must be whole numbers of the shape (m, 2), got {pairs.dtype} {pairs.shape}")
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(s)):
        raise ModelError(f"maxflow: edges name nodes outside 0..{len(s) - 1}")
    require(24.0 * len(s) + 60.0 * len(pairs), f"a network of {len(s)} nodes and {len(pairs)} edges")

    def per_edge(given: Any, name: str) -> Array:
        a = _own(given, name)
        if a.ndim and a.shape != (len(pairs),):
            raise ModelError(f"maxflow: {name} must be one number or one per edge, {len(pairs)}; got {a.shape}")
        return np.broadcast_to(a, (len(pairs),)).copy() if a.ndim == 0 else a

    there = per_edge(capacity, "capacity")
    back = there if reverse is None else per_edge(reverse, "reverse")
    return MinimumCut(s, t, pairs.astype(np.int64), [(there, back)], None)


def _per_offset(given: Any, steps: Array, shape: tuple[int, ...], name: str) -> list[Array]:
    """One capacity per offset: a number, or an array over the cells that have that neighbour."""
    each = list(given) if isinstance(given, list | tuple) or np.ndim(given) else [given] * len(steps)
    if len(each) != len(steps):
        raise ModelError(f"maxflow: {name} must be one number or one entry per offset, {len(steps)}; got {len(each)}")
    out = []
    for offset, entry in zip(steps, each, strict=True):
        a = _own(entry, name)
        wanted = tuple(max(0, n - abs(int(o))) for n, o in zip(shape, offset, strict=True))
        if a.ndim and a.shape != wanted:
            raise ModelError(
                f"maxflow: {name} of offset {tuple(map(int, offset))} must have the shape {wanted}, got {a.shape}"
            )
        out.append(a)
    return out
