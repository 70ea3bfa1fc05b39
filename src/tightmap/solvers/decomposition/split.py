"""The shares of the unary costs, one vector over all copies: what the methods of this family work on.

From messages m of any dual method, and back to messages that are worth at least as much:

    u_i^T = sum over the factors f of T with i of -m_{f->i}, plus an equal part of theta_i + sum_f m_{f->i};
    m_{f->r} = the message of f towards the root of its tree,   m_{f->j} = -c_j for its other members.

In the second form every variable that is not a root has nothing left and every factor a minimum of zero, so the bound
of the messages is the sum of the minima of the trees.  (A chain hands on its shares alone: what pairs of labels add to
the bound has no place in messages to single variables.)
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, Certified, certify
from tightmap.energy.energies import message_offsets
from tightmap.factors.kernels import most_labels, workspace
from tightmap.graph.graph import FloatArray, Graph
from tightmap.graph.one_form import one_form
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER, TimeUp
from tightmap.solvers.decomposition.oracle import minimise, up_tree
from tightmap.solvers.decomposition.subproblems import TREE, Subproblems

Places = npt.NDArray[np.int32]


@dataclass
class Solved:
    """All subproblems minimised at some shares."""

    labels: Places  # of every place
    value: FloatArray  # minimum of every subproblem
    factors: FloatArray  # the part of it that its factors cost
    raw: float  # their sum, with the constant
    bound: Certified


class Split:
    """The subproblems of a graph with room for working on them."""

    def __init__(self, graph: Graph, sub: Subproblems) -> None:
        self.graph, self.sub = graph, sub
        self.scratch = workspace(graph.arrays)
        self.cost = np.empty(sub.entries)
        self.copies = np.diff(sub.copy_start)

    def equal_shares(self) -> FloatArray:
        return self.from_messages(np.zeros(int(message_offsets(self.graph)[-1])))

    def from_messages(self, messages: FloatArray) -> FloatArray:
        u = np.zeros(self.sub.entries)
        _from_messages(self.graph.arrays, self.sub, message_offsets(self.graph), messages, u)
        return u

    def to_messages(self, u: FloatArray) -> FloatArray:
        offsets = message_offsets(self.graph)
        messages = np.zeros(int(offsets[-1]))
        _to_messages(self.graph.arrays, self.sub, offsets, u, self.cost, messages, self.scratch)
        return messages

    def balance(self, u: FloatArray) -> float:
        """Make the copies add up to the unary costs again; returns the size of what rounding still leaves open."""
        return float(_balance(self.graph.arrays, self.sub, u))

    def solve(self, u: FloatArray, left: float = EVER) -> Solved:
        """Minimise all subproblems; the shares are balanced before.  TimeUp after so many seconds."""
        sub, graph = self.sub, self.graph
        open_end = self.balance(u)
        x = np.zeros(len(sub.variable), dtype=np.int32)
        value, factors, error = np.empty(sub.number), np.empty(sub.number), np.empty(sub.number)
        parallel.run(
            minimise, sub.number, graph.arrays, sub, u, self.cost, x, value, factors, error, self.scratch, left
        )
        if left < EVER and np.isneginf(value).any():
            raise TimeUp
        raw = math.fsum((graph.constant, *value.tolist()))
        bound = certify(graph, raw, 1.01 * UNIT * (math.fsum(error.tolist()) + open_end))
        return Solved(x, value, factors, raw, bound)

    def labelling(self, x: Places, favoured: int) -> npt.NDArray[np.int64]:
        """A labelling of all variables: that of one class of subproblems, of the first copy where it has none."""
        sub = self.sub
        labels = x[sub.copy[sub.copy_start[:-1]]].astype(np.int64)
        places = slice(
            int(sub.place_start[sub.class_start[favoured]]), int(sub.place_start[sub.class_start[favoured + 1]])
        )
        labels[sub.variable[places]] = x[places]
        return labels


@one_form
@compiled
def _from_messages(g, sub, offsets, messages, u):
    widest = most_labels(g.cards)
    total = np.empty(widest)
    for e in range(len(sub.factor)):
        f = sub.factor[e]
        for p in range(g.scope_start[f + 1] - g.scope_start[f]):
            base = sub.at[sub.member[sub.member_start[e] + p]]
            start = offsets[g.scope_start[f] + p]
            for s in range(g.cards[g.scope[g.scope_start[f] + p]]):
                u[base + s] -= messages[start + s]
    for i in range(len(g.cards)):
        c = g.cards[i]
        for s in range(c):
            total[s] = g.unary[g.offset[i] + s]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            start = offsets[g.scope_start[g.adj_factor[a]] + g.adj_pos[a]]
            for s in range(c):
                total[s] += messages[start + s]
        count = sub.copy_start[i + 1] - sub.copy_start[i]
        for o in range(sub.copy_start[i], sub.copy_start[i + 1]):
            base = sub.at[sub.copy[o]]
            for s in range(c):
                u[base + s] += total[s] / count


@one_form
@compiled
def _to_messages(g, sub, offsets, u, cost, messages, scratch):
    start = np.zeros(128, np.int64)
    out, work = np.empty(max(scratch, most_labels(g.cards) + 1)), np.empty(scratch)
    uses = np.zeros(len(sub.variable), np.int64)
    for s in range(len(u)):
        cost[s] = u[s]
    sent = np.empty(sub.sent_at[len(sub.factor)])
    for t in range(len(sub.kind)):
        tree = sub.kind[t] == TREE
        if tree:
            up_tree(g, sub, t, cost, sent, True, start, out, work, EVER)
        for m in range(sub.member_start[sub.entry_start[t]], sub.member_start[sub.entry_start[t + 1]]):
            uses[sub.member[m]] += 1
        for e in range(sub.entry_start[t], sub.entry_start[t + 1]):
            f = sub.factor[e]
            for p in range(g.scope_start[f + 1] - g.scope_start[f]):
                to = offsets[g.scope_start[f] + p]
                q = sub.member[sub.member_start[e] + p]
                for s in range(sub.at[q + 1] - sub.at[q]):
                    if not tree:
                        messages[to + s] = -u[sub.at[q] + s] / uses[q]
                    elif p == sub.towards[e]:
                        messages[to + s] = sent[sub.sent_at[e] + s]
                    else:
                        messages[to + s] = -cost[sub.at[q] + s]


@one_form
@compiled
def _balance(g, sub, u):
    size = 0.0
    for i in range(len(g.cards)):
        first, last = sub.copy_start[i], sub.copy_start[i + 1]
        largest = 0.0
        for s in range(g.cards[i]):
            missing = g.unary[g.offset[i] + s]
            here = abs(missing)
            for o in range(first, last):
                v = u[sub.at[sub.copy[o]] + s]
                missing -= v
                here += abs(v)
            u[sub.at[sub.copy[first]] + s] += missing
            largest = max(largest, here + abs(missing))
        size += 4.0 * (last - first + 1) * largest
    return size
