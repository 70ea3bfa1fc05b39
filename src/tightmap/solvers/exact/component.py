"""One connected component of the integer model, laid out for the kernels, and its search from root to proof."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightmap.solvers.exact import trailed_costs as ec
from tightmap.solvers.exact.consistency import propagate
from tightmap.solvers.exact.network import Network, Table
from tightmap.solvers.exact.root_messages import message_pass
from tightmap.solvers.exact.search import CLOSED, FULL, GOING, Tree, burst, close_burst, cost_of
from tightmap.solvers.exact.trailed_costs import Ints, Net, SearchState, undo

GLIMPSE = 20_000_000  # effort of a first search, before message passing, which many models do not need
LOOKS = 4  # times that a first search can look at all functions; where that is more, there is none
NODE = 10_000  # what a node counts for in this, beside its work
PASSES = 200  # most passes of message passing at the root
STALL = 10  # it ends earlier when so many passes close less than ...
GAIN = 0.01  # ... this part of the gap


def build_net(network: Network, variables: list[int]) -> tuple[Net, int]:
    """Flat arrays of the functions on ``variables`` (a whole component) in that order, and how many numbers vary."""
    place = {v: k for k, v in enumerate(variables)}
    cards = np.array([network.cards[v] for v in variables], dtype=np.int64)
    n = len(variables)
    off = np.concatenate(([0], np.cumsum(cards)))
    scopes = sorted({s for v in variables for s in network.touching[v]})
    pairs = [s for s in scopes if len(s) == 2]
    wides = [s for s in scopes if len(s) > 2]
    at, row = 1 + int(off[-1]) + n, 0  # where the shifts start; where the next table starts
    tables: list[Table] = []
    # arcs that leave each variable: other end, start of the table, start of the shifts, function, which side of it
    leaving: list[list[tuple[int, int, int, int, int]]] = [[] for _ in variables]
    for e, pair in enumerate(pairs):
        i, j = place[pair[0]], place[pair[1]]
        table = network.functions[pair]
        leaving[i].append((j, row, at, e, 0))
        leaving[j].append((i, row + table.size, at + int(cards[i]), e, 1))
        at += int(cards[i] + cards[j])
        row += 2 * table.size
        tables += [table, table.T]
    arcs = [(*a,) for own in leaving for a in sorted(own)]
    number = {(e, side): k for k, (_, _, _, e, side) in enumerate(arcs)}
    arc = np.array([(j, r, h, number[e, 1 - side]) for j, r, h, e, side in arcs], dtype=np.int64).reshape(-1, 4)
    near: list[list[tuple[int, int]]] = [[] for _ in variables]
    wide: list[tuple[int, int]] = []
    slots: list[tuple[int, int, int]] = []
    for f, scope in enumerate(wides):
        order = sorted(range(len(scope)), key=lambda p: place[scope[p]])
        table = network.functions[scope].transpose(order)
        wide.append((len(slots), row))
        stride = np.cumprod([1, *table.shape[:0:-1]])[::-1]
        for k, p in enumerate(order):
            i = place[scope[p]]
            near[i].append((f, k))
            slots.append((i, at, int(stride[k])))
            at += int(cards[i])
        row += table.size
        tables.append(table)
    wide.append((len(slots), row))
    node = np.zeros((n + 1, 3), dtype=np.int64)
    node[:, ec.OFF] = off
    node[1:, ec.ARCS] = np.cumsum([len(x) for x in leaving])
    node[1:, ec.NEAR] = np.cumsum([len(x) for x in near])
    flat = np.concatenate([t.reshape(-1) for t in tables]) if tables else np.zeros(0, dtype=np.int64)

    def ints(rows: list[Any], width: int) -> Ints:
        return np.array(rows, dtype=np.int64).reshape(-1, width)

    unary = np.concatenate([network.unary[v] for v in variables])
    pieces = [pair for own in near for pair in own]
    return Net(node, unary, arc, ints(pieces, 2), ints(wide, 2), ints(slots, 3), flat), at


class Component:
    """The search of one component.  ``bound`` and ``upper`` are in units of the network.

    ``grain``: the least by which a labelling has to be cheaper; ``dominance``: whether labels are compared.
    """

    def __init__(
        self, network: Network, variables: list[int], upper: int, grain: int, dominance: bool, labels: Ints | None
    ) -> None:
        self.variables = np.array(variables, dtype=np.int64)
        self.net, size = build_net(network, variables)
        cards = np.diff(self.net.node[:, ec.OFF])
        n, total = len(variables), len(self.net.unary)
        value = np.zeros(size, dtype=np.int64)
        value[1 : 1 + total] = self.net.unary
        value[1 + total : 1 + total + n] = cards
        inner = np.concatenate([np.arange(c) for c in cards]).astype(np.int32)
        pick = np.full((3, n), -1, dtype=np.int64)
        pick[ec.GOOD] = 0
        degree = np.zeros((2, n), dtype=np.int64)
        degree[0] = np.diff(self.net.node[:, ec.ARCS]) + np.diff(self.net.node[:, ec.NEAR])

        def ints(*shape: int) -> Ints:
            return np.zeros(shape, dtype=np.int64)

        self.state = SearchState(
            value, ints(size), ints(16 * size, 2), np.zeros(1, ec.COUNTERS).view(np.recarray), np.stack((inner, inner)),
            np.zeros((6, n // 64 + 1), dtype=np.uint64), np.zeros(size, dtype=np.int32), pick,
            degree, ints(3, max(n, int(cards.max()))),
        )  # fmt: skip
        room = 4 * total + 1024
        owner = np.repeat(np.arange(n), cards).astype(np.int32)
        self.tree = Tree(ints(room, 2), ints(room, 2), ints(total + 4, 4), owner)
        count = self.state.counters[0]
        count.level, count.upper, count.last_conflict, count.burst_limit = 1, upper, -1, 1
        self.grain, self.whole = grain, network.whole
        count.grain, count.dominance = grain, dominance
        self.best = upper  # cost of the best labelling, or what it has to stay below
        self.root_bound = 0
        self.removed = 0  # labels that are not needed for the best labelling, by what the root alone proves
        self.passes = 0
        self.gains: list[int] = []
        wides = (s for s in {s for v in variables for s in network.touching[v]} if len(s) > 2)
        # each variable of a wide function asks for its projections to all of them
        once = len(self.net.tables) + sum(len(s) ** 2 * network.functions[s].size for s in wides)
        self.glimpsed = LOOKS * once > GLIMPSE
        self.rooted = self.closed = False
        self.known = -1  # how many better labellings had been found when the root was last made consistent
        if labels is not None:
            self.offer(labels)

    def offer(self, labels: Ints) -> None:
        """Labels (of this component) to beat."""
        cost, count = int(cost_of(self.net, labels)), self.state.counters[0]
        if cost <= count.upper:
            count.upper = cost - count.grain + 1
            self.best = cost
            self.state.pick[ec.BEST] = labels
            self.known = -1  # the root is to be looked at again

    @property
    def labels(self) -> Ints | None:
        """The best labelling below the upper bound that was given, if one is known."""
        return self.state.pick[ec.BEST] if self.state.pick[ec.BEST, 0] >= 0 else None

    @property
    def nodes(self) -> int:
        return int(self.state.counters[0].nodes)

    @property
    def work(self) -> int:
        return int(self.state.counters[0].work)

    @property
    def effort(self) -> int:
        """Work, that of the nodes themselves included."""
        return self.work + NODE * self.nodes

    @property
    def bound(self) -> int:
        """What every labelling of the component costs at least (or ``best``, when none is cheaper)."""
        if self.closed:
            return self.best if self.whole or self.labels is None else self.best - self.grain + 1
        low, count = self.root_bound, self.state.counters[0]
        if self.rooted and count.paused:
            low = int(count.floor)
        elif self.rooted and count.open_nodes:
            low = int(self.tree.heap[0, 0])
        if self.whole:
            low = -(-low // self.grain) * self.grain
        return min(low, int(count.upper) + (self.grain - 1) * self.whole)

    def _commit(self) -> None:
        self.state.counters[0].trail_length = 0
        self.state.counters[0].level += 1
        self.root_bound = max(self.root_bound, int(self.state.value[0]))
        total, n = len(self.net.unary), len(self.variables)
        self.removed = total - int(self.state.value[1 + total : 1 + total + n].sum())

    def _consistent(self) -> bool:
        """Propagation of everything at the root."""
        for i in range(len(self.variables)):
            self.state.flag[:, i >> 6] |= np.uint64(1 << (i & 63))
        return bool(propagate(self.net, self.state))

    def step(self, work: int) -> None:
        """About so much work (entries of tables looked at)."""
        if self.closed:
            return
        if not self.glimpsed:
            self.glimpsed = True
            self._open_root()
            self._search(GLIMPSE)
            if not self.closed:
                self._back_to_root()
        elif self.rooted:
            self._search(work)
        else:
            self._root_step(work)

    def _search(self, work: int) -> None:
        count = self.state.counters[0]
        end = self.effort + work
        while not self.closed and self.effort < end:
            if count.solutions != self.known:  # a better upper bound prunes at the root, too
                self.known = int(count.solutions)
                if count.paused:
                    close_burst(self.state, self.tree, count.paused == GOING)
                undo(self.state, 0)
                if not self._consistent():
                    self.closed = True
                    return
                self._commit()
            status = burst(self.net, self.state, self.tree, work)
            if count.solutions != self.known:
                self.best = int(count.upper + count.grain) - 1
            if status == CLOSED:
                self.closed = True
                return
            if status == FULL:
                self._grow()

    def _root_step(self, work: int) -> None:
        begin = int(self.state.counters[0].work)
        while self.state.counters[0].work - begin < work:
            for forward in (True, False):
                if not message_pass(self.net, self.state, forward):
                    self.closed = True
                    return
                self._commit()
            self.passes += 1
            self.gains.append(self.root_bound)
            gap = self.best - self.root_bound
            stalled = len(self.gains) > STALL and self.gains[-1] - self.gains[-1 - STALL] <= GAIN * gap
            if self.passes >= PASSES or stalled:
                self._open_root()
                return

    def _open_root(self) -> None:
        """The search begins: the root is the only open node."""
        if not self._consistent():
            self.closed = True
            return
        self._commit()
        self.rooted = True
        self.tree.decision[0] = -1
        self.tree.heap[0] = self.root_bound, 0
        self.state.counters[0].decisions = self.state.counters[0].open_nodes = 1

    def _back_to_root(self) -> None:
        """Give up all open nodes; the best labelling stays."""
        count = self.state.counters[0]
        undo(self.state, 0)
        count.paused = count.depth = 0
        count.burst_limit, count.last_conflict = 1, -1
        self.rooted = False

    def _grow(self) -> None:
        """A longer trail and a larger tree; decisions that no open node needs go first."""
        s, t, count = self.state, self.tree, self.state.counters[0]
        undo(s, 0)
        self.state = s._replace(trail=np.zeros((2 * len(s.trail), 2), dtype=np.int64))
        used, openings = int(count.decisions), int(count.open_nodes)
        keep = np.zeros(used, dtype=bool)
        at = np.unique(t.heap[:openings, 1])
        while len(at):
            keep[at] = True
            at = np.unique(t.decision[at, 0])
            at = at[at >= 0]
            at = at[~keep[at]]
        fresh = np.cumsum(keep) - 1
        decision = t.decision[:used][keep]
        inner = decision[:, 0] >= 0
        decision[inner, 0] = fresh[decision[inner, 0]]
        heap = t.heap[:openings].copy()
        heap[:, 1] = fresh[heap[:, 1]]
        room = 2 * (len(decision) + 2 * len(t.frame) + 512)

        def longer(x: Ints) -> Ints:
            return np.concatenate((x, np.zeros((room - len(x), 2), dtype=np.int64)))

        self.tree = t._replace(decision=longer(decision), heap=longer(heap))
        count.decisions = len(decision)
