"""The state of expansion moves on one pairwise model: labels, kept duals and work space around the kernels of moves.py.

With equal label counts heights and duals are stored label by label, so that a move reads contiguous memory; otherwise
variable by variable, and a move gathers and scatters its label.

On large models of small whole costs they are kept in 16 bits (``compact``): a move works on 32 bits and puts back what
it has changed.  A label whose numbers have become too large for that stays in 32 bits from then on, so the moves are
the same, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.energy.energies import message_offsets
from tightmap.graph.graph import Graph
from tightmap.graphcut.maxflow import TIME, Trees, new_trees
from tightmap.graphcut.moves import (
    CLOCK,
    TRUNCATED,
    Move,
    change_heights,
    expand,
    fill_heights,
    gather,
    initial_duals,
    move,
    proves,
    relabel,
    scatter,
)
from tightmap.graphcut.network import Grid
from tightmap.graphcut.pairwise import PairModel, other_unaries
from tightmap.runtime.memory import require
from tightmap.runtime.pace import EVER, TimeUp

MOST = (1 << 15) - 1  # what 16 bits hold
DRIFT = 8.0  # times the largest sum of costs around a variable, that heights may become before duals begin anew


def _spans(model: PairModel) -> npt.NDArray[np.int64]:
    """Larger label count of the two ends of every edge number, 0 where one is dead.

    Kernels look at all neighbours on a grid, also at those that no factor joins, so that these have duals too.
    """
    net, room = model.net, model.room.astype(np.int64)
    if isinstance(net, Grid):
        around = np.zeros((model.nodes, net.degree // 2), np.int64)
        for k, stride in enumerate(net.strides[::2]):
            own, other = room[model.node], room[model.node + stride]
            around[model.node, k] = np.where(other > 0, np.maximum(own, other), 0)
        return around.ravel()
    spans = np.zeros(len(net.heads) // 2, np.int64)
    np.maximum.at(spans, net.edges, room[net.heads])  # every edge has an arc to each of its ends
    return spans


def _small(values: npt.NDArray[Any]) -> bool:
    """Whether 16 bits hold these numbers."""
    return int(values.max()) <= MOST and int(values.min()) >= -MOST


@dataclass(eq=False)
class Expansion:
    """Labels, duals and work space of expansion moves on one pairwise model."""

    model: PairModel
    largest: bool  # switch the largest optimal set instead of the smallest
    compact: bool = False  # in 16 bits where that is exact: for moves alone, the duals are not to be seen afterwards

    def __post_init__(self) -> None:
        model, net = self.model, self.model.net
        self.count = int(model.room.max(initial=1))
        self.uniform = bool((model.room[model.node] == self.count).all())
        self.tried = np.full(self.count, -1, np.int64)  # clock at the last move on every label
        self.truncated_before = 0  # in runs from earlier labellings
        self.paths = 0  # augmenting paths in all moves: how hard the cuts were
        self.move_data: Move | None = None
        self.compact = self.compact and self._begins_small()
        self.beyond: dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}  # heights and duals that need 32 bits
        self.y: npt.NDArray[Any] | None = None
        arcs = model.nodes * net.degree if isinstance(net, Grid) else len(net.heads)
        self.cap, self.term = np.zeros(arcs, model.unary.dtype), np.zeros(model.nodes, model.unary.dtype)
        self.trees: Trees = new_trees(model.nodes, net)
        edges, nodes = len(model.edges.kind), model.nodes
        self.sizes = np.zeros(0, np.int32)
        if self.uniform:  # label-major planes
            self.start, self.label_step = np.arange(nodes), nodes
            self.first, self.edge_step = np.arange(edges), edges
            self.y_size = self.count * edges
        else:
            sizes = _spans(model)
            self.start, self.label_step = np.cumsum(model.room, dtype=np.int64) - model.room, 1
            self.first, self.edge_step = np.cumsum(sizes) - sizes, 1
            self.y_size = int(sizes.sum())
            self.sizes = sizes.astype(np.int32)

    def _begins_small(self) -> bool:
        """Whether 16 bits hold all heights and duals of a start, whatever its labels are."""
        model = self.model
        if not self.uniform or model.unary.dtype != np.int32:
            return False
        unary = max(int(model.unary.max(initial=0)), -int(model.unary.min(initial=0)))
        return unary + model.around / model.scale <= MOST

    def begin(self, labels: npt.NDArray[np.integer]) -> None:
        """Start from a labelling of the variables, with fresh duals."""
        model = self.model
        dtype = model.unary.dtype
        nodes, edges = model.nodes, len(model.edges.kind)
        self.truncated_before = self.truncated
        x = self._of_nodes(labels)
        if model.settled is not None:
            x = np.where(model.settled >= 0, model.settled, x)
        if self.y is None:
            kept = np.dtype(np.int16) if self.compact else dtype
            self.h = np.zeros(self.count * nodes if self.uniform else len(model.unary), kept)
            require(float(self.y_size) * kept.itemsize, f"the kept flow of {edges} pairs of neighbours")
            self.y = np.zeros(self.y_size, kept)
            parts = {name: np.zeros(edges, dtype) for name in ("yc", "yu", "yv")}
            parts |= {name: np.zeros(nodes, dtype) for name in ("hx", "hc")}
            parts |= {name: np.zeros(nodes, np.int32) for name in ("touched", "order", "changed")}
            self.move_data = Move(edges=model.edges, cards=model.cards, x=x, state=np.zeros(5, np.int64), **parts)
        else:  # memory that is in use already: fresh pages would cost as much as a move
            assert self.move_data is not None
            self.beyond.clear()
            self.y[:] = 0
            for part in (self.move_data.yu, self.move_data.yv, self.move_data.touched, self.move_data.changed):
                part[:] = 0
            self.move_data.x[:] = x
            self.move_data.state[:] = 0
        if self.uniform:
            fill_heights(model.unary, model.node, self.count, nodes, self.h)
        else:
            self.h[:] = model.unary  # dead nodes have no labels, so the layout is the same
        initial_duals(
            self.move_data, model.net, self.y, self.first, self.edge_step, self.h, self.start, self.label_step
        )
        self.move_data.hx[model.node] = self.h[self.start[model.node] + self.label_step * x[model.node]]
        self.tried[:] = -1

    def forget_unaries(self) -> None:
        """They are part of the heights by now: there will be no other start, and on large models they take room."""
        self.model = replace(self.model, unary=self.model.unary[:0].copy())

    def _of_nodes(self, labels: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        x = np.full(self.model.nodes, -1, np.int32)
        x[self.model.node] = labels
        return x

    def renew(self, graph: Graph) -> bool:
        """Take in the unaries of a graph that differs in nothing else; False where that takes a model made anew.

        Duals remain what they are, whatever the unaries: the invariant is about pairs.  The flow of the moves so far is
        kept, and the next ones have to push only what the change makes room for.
        """
        after = other_unaries(self.model, graph)
        if after is None or self.y is None or self.model.settled is not None:
            return False
        model, offset = self.model, graph.arrays.offset
        most = float(change_heights(model.unary, after, offset, model.node, self.start, self.label_step, self.h))
        self.model = replace(model, unary=after)
        # what all labels of an edge have in common may drift from frame to frame: no sum is to leave the exact numbers
        limit = DRIFT * (model.around / model.scale + float(np.abs(after).max(initial=0)))
        return most <= limit

    def go_on(self, labels: npt.NDArray[np.integer]) -> None:
        """From these labels with the duals that are there; all labels are to be tried again."""
        s = self.move_data
        assert s is not None and self.y is not None
        args = self.y, self.first, self.edge_step, self.h, self.start, self.label_step
        relabel(s, self.model.net, *args, self._of_nodes(labels))
        self.truncated_before, self.paths = -int(s.state[TRUNCATED]), 0

    def move(self, c: int, left: float = EVER) -> int:
        """Best expansion of label c; returns how many variables took it.

        TimeUp when that takes more than ``left`` seconds: labels are what they were, but no other move may follow.
        """
        s, model = self.move_data, self.model
        assert s is not None and self.y is not None  # begin() comes first
        if self.tried[c] == s.state[CLOCK]:
            return 0
        nodes, edges = model.nodes, len(s.yu)
        if self.uniform:
            hc, yc = self.h[c * nodes : (c + 1) * nodes], self.y[c * edges : (c + 1) * edges]
            if not self.compact:
                s = s._replace(hc=hc, yc=yc)
            elif c in self.beyond:
                s = s._replace(hc=self.beyond[c][0], yc=self.beyond[c][1])
            else:
                s.hc[:] = hc
                s.yc[:] = yc
        else:
            gather(c, self.h, self.start, model.room, s.hc)
            gather(c, self.y, self.first, self.sizes, s.yc)
        self.trees.control[TIME] = 0
        changed = move(s, model.net, self.cap, self.term, self.trees, c, self.tried[c], self.largest, left)
        if changed < 0:
            raise TimeUp
        if self.compact and c not in self.beyond:
            if _small(s.hc) and _small(s.yc):
                hc[:] = s.hc
                yc[:] = s.yc
            else:
                self.beyond[c] = s.hc.copy(), s.yc.copy()
        elif not self.uniform:
            scatter(c, self.h, self.start, model.room, s.hc)
            scatter(c, self.y, self.first, self.sizes, s.yc)
        self.paths += int(self.trees.control[TIME])
        self.tried[c] = s.state[CLOCK]
        return int(changed)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        assert self.move_data is not None
        return self.move_data.x[self.model.node].astype(np.int64)

    @property
    def truncated(self) -> int:
        """Arcs that were cut so far because a table is not a metric."""
        now = 0 if self.move_data is None else int(self.move_data.state[TRUNCATED])
        return self.truncated_before + now

    @property
    def cost(self) -> float:
        """Energy (without the graph's constant) by the invariant."""
        assert self.move_data is not None
        return float(self.move_data.hx[self.model.node].sum(dtype=np.float64)) * self.model.scale

    def proven(self) -> bool:
        """Do the duals prove the labels optimal?  Cheap where they do not; never on other edges than Potts."""
        s = self.move_data
        assert s is not None and self.y is not None
        return bool(proves(s, self.model.net, self.y, self.first, self.edge_step, self.h, self.start, self.label_step))

    def messages(self, graph: Graph, share: float = 1.0) -> npt.NDArray[np.float64]:
        """The duals times ``share``, as messages for energies.lower_bound (of a model without settled variables)."""
        out = np.empty(int(message_offsets(graph)[-1]))
        model = self.model
        expand(
            graph.arrays, self.y, self.first[model.number], self.edge_step, share * model.scale,
            model.diagonal_of, model.diagonals, message_offsets(graph), out,
        )  # fmt: skip
        return out
