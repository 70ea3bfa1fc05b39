"""Hybrid best-first search over decisions "x is v" / "x is not v" (Allouche et al. 2015).

Open nodes are kept as sequences of decisions in a tree, in a heap by lower bound.  A burst takes the best one, replays
its decisions on the root, and searches depth-first below it until so many backtracks are used up; what is then open
joins the heap.  The smallest bound of the heap is a lower bound of the whole component at any time, and dives keep
finding labellings.  The number of backtracks adapts: replaying should take between 5 and 10 per cent of the nodes.

The next variable is the one of the last conflict, else the one with the fewest labels per function to variables that
are open; its label is that of the best labelling if that costs nothing, or one with existential support.  Weights of
functions that grow with their conflicts (Boussemart et al. 2004) were tried: where it is the sum of many costs that
fails, the function that moved cost last says little (Latin squares took ten times as many nodes with them).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.runtime.compiled import lean
from tightmap.solvers.exact.consistency import propagate
from tightmap.solvers.exact.trailed_costs import (
    ARC,
    ARCS,
    BEST,
    GOOD,
    OFF,
    ROW,
    TO,
    TRIAL,
    Ints,
    drop,
    mark,
    put,
    raised,
    undo,
)

LARGEST_BURST = 10_000  # most backtracks of a burst
SPLIT = 10  # a domain of more labels is halved instead of trying one label
IS, IS_NOT, IS_AT_MOST, IS_ABOVE = range(4)
CLOSED, PAUSED, FULL = 0, 1, 2  # how a burst ends: nothing is open any more; others are open; no room for more nodes
GOING, STUCK = 1, 2  # a burst stopped between two nodes; STUCK: the next one contradicts a domain


class Tree(NamedTuple):
    """Decisions of open nodes, the heap of open nodes, and the frames of the present dive.

    A decision is 4 * (place of the label) + kind, with kinds "is", "is not", "is at most", "is above"; the other branch
    has the last bit turned.
    """

    decision: Ints  # (., 2) parent, decision
    heap: Ints  # (., 2) bound, node
    frame: Ints  # (., 4) decision, length of the trail before it, bound before it, 1 in the second branch
    owner: npt.NDArray[np.int32]  # variable of every label


@lean
def before(heap, bound, node, k):
    """Smallest bound on top; of equal ones the latest, which is the deepest."""
    return bound < heap[k, 0] or (bound == heap[k, 0] and node > heap[k, 1])


@lean
def heap_push(t, c, bound, node):
    heap = t.heap
    k = c.open_nodes
    c.open_nodes = k + 1
    while k > 0 and before(heap, bound, node, (k - 1) >> 1):
        up = (k - 1) >> 1
        heap[k, 0] = heap[up, 0]
        heap[k, 1] = heap[up, 1]
        k = up
    heap[k, 0] = bound
    heap[k, 1] = node


@lean
def heap_pop(t, c):
    """Remove the top and return its node."""
    heap = t.heap
    node = heap[0, 1]
    size = c.open_nodes - 1
    c.open_nodes = size
    bound, last = heap[size, 0], heap[size, 1]
    k = 0
    while 2 * k + 1 < size:
        d = 2 * k + 1
        if d + 1 < size and before(heap, heap[d + 1, 0], heap[d + 1, 1], d):
            d += 1
        if before(heap, bound, last, d):
            break
        heap[k, 0] = heap[d, 0]
        heap[k, 1] = heap[d, 1]
        k = d
    heap[k, 0] = bound
    heap[k, 1] = last
    return node


@lean
def cost_of(net, labels):
    """Cost of a labelling by the functions as they were given."""
    total = np.int64(0)
    for i in range(len(labels)):
        total += net.unary[net.node[i, OFF] + labels[i]]
        for arc in range(net.node[i, ARCS], net.node[i + 1, ARCS]):
            j = net.arc[arc, TO]
            if i < j:
                width = net.node[j + 1, OFF] - net.node[j, OFF]
                total += net.tables[net.arc[arc, ROW] + labels[i] * width + labels[j]]
    for f in range(len(net.wide) - 1):
        at = net.wide[f, 1]
        for q in range(net.wide[f, 0], net.wide[f + 1, 0]):
            at += net.slot[q, 2] * labels[net.slot[q, 0]]
        total += net.tables[at]
    return total


@lean
def count_degrees(net, s):
    """Functions of two variables leave the degrees where one of these has been decided, and join them again later."""
    sizes = 1 + len(net.unary)
    for j in range(len(net.node) - 1):
        decided = np.int64(s.value[sizes + j] == 1)
        if decided != s.degree[1, j]:
            s.degree[1, j] = decided
            s.counters[0].work += net.node[j + 1, ARCS] - net.node[j, ARCS]
            for arc in range(net.node[j, ARCS], net.node[j + 1, ARCS]):
                s.degree[0, net.arc[arc, TO]] += 1 - 2 * decided


@lean
def choose(net, s):
    """The decision to try next, or -1 when every variable has one label."""
    n = len(net.node) - 1
    sizes = 1 + len(net.unary)
    value, domain, place = s.value, s.domain[0], s.domain[1]
    pick = s.counters[0].last_conflict
    if pick < 0 or value[sizes + pick] == 1:
        pick = -1
        least = np.inf
        most = np.int64(0)
        count_degrees(net, s)
        for i in range(n):
            size = value[sizes + i]
            if size == 1:
                continue
            score = size / (1e-3 + s.degree[0, i])
            if score > least * (1.0 + 1e-9):
                continue
            o = net.node[i, OFF]
            high = np.int64(0)
            for k in range(size):
                high = max(high, value[1 + o + domain[o + k]])
            if pick < 0 or score < least * (1.0 - 1e-9) or high > most:
                least = score
                most = high
                pick = i
        s.counters[0].work += 2 * n
    if pick < 0:
        return np.int64(-1)
    o = net.node[pick, OFF]
    size = value[sizes + pick]
    for turn in range(2):
        x = s.pick[GOOD if turn else BEST, pick]
        if x >= 0 and place[o + x] < size and value[1 + o + x] == 0:
            break
        x = -1
    if x < 0:
        x = np.int64(domain[o])
        for k in range(1, size):
            y = domain[o + k]
            if value[1 + o + y] < value[1 + o + x] or (value[1 + o + y] == value[1 + o + x] and y < x):
                x = np.int64(y)
    if size <= SPLIT:
        return 4 * (o + x)
    half = size // 2
    y = -1
    while half > 0:
        y += 1
        if place[o + y] < size:
            half -= 1
    return 4 * (o + np.int64(y)) + (IS_AT_MOST if x <= y else IS_ABOVE)


@lean
def decide(net, s, t, what):
    """Apply a decision; False when it contradicts the domain."""
    at, kind = what >> 2, what & 3
    i = t.owner[at]
    o = net.node[i, OFF]
    k = 1 + len(net.unary) + i
    if kind >= IS_AT_MOST:
        for h in range(s.value[k] - 1, -1, -1):
            x = s.domain[0, o + h]
            if (x > at - o) == (kind == IS_AT_MOST):
                drop(net, s, i, x)
    elif s.domain[1, at] >= s.value[k]:
        return kind == IS_NOT
    elif kind == IS_NOT:
        drop(net, s, i, at - o)
    elif s.value[k] > 1:
        y = s.domain[0, o]
        p = s.domain[1, at]
        s.domain[0, o + p] = y
        s.domain[1, o + y] = p
        s.domain[0, o] = at - o
        s.domain[1, at] = 0
        put(s, k, 1)
        mark(s, ARC, i)
        raised(s, i)
    return s.value[k] > 0


@lean
def close_burst(s, t, alive):
    """Put what is still open of a dive into the heap; ``alive``: the end of the dive itself is open too."""
    c = s.counters[0]
    c.paused = 0
    at = c.node
    for k in range(c.depth):
        what = t.frame[k, 0]
        if t.frame[k, 3] == 0 and t.frame[k, 2] < c.upper:
            t.decision[c.decisions, 0] = at
            t.decision[c.decisions, 1] = what ^ 1
            heap_push(t, c, t.frame[k, 2], c.decisions)
            c.decisions += 1
        t.decision[c.decisions, 0] = at
        t.decision[c.decisions, 1] = what
        at = c.decisions
        c.decisions += 1
    if alive and s.value[0] < c.upper:
        heap_push(t, c, max(s.value[0], c.floor), at)


@lean
def burst(net, s, t, work):
    """One burst of the search, or a part of one that takes more work; returns CLOSED, PAUSED or FULL.

    A dive that is cut off by the clock goes on where it was: otherwise a dive that takes longer than a step, as in a
    large model, would never reach a labelling.
    """
    c = s.counters[0]
    n = len(net.node) - 1
    labels = len(net.unary)
    room = 2 * len(s.value)
    going = True
    if c.paused:
        going = c.paused == GOING
    else:
        if c.open_nodes == 0 or t.heap[0, 0] >= c.upper:
            c.open_nodes = 0
            return CLOSED
        if (
            len(t.decision) - c.decisions < 2 * labels + 4
            or len(t.heap) - c.open_nodes < labels + 4
            or len(s.trail) < 2 * room
        ):
            return FULL
        c.floor = t.heap[0, 0]
        c.node = heap_pop(t, c)
        c.depth = c.used = 0
        undo(s, 0)
        length = 0
        at = c.node
        while t.decision[at, 0] >= 0:
            t.frame[length, 0] = t.decision[at, 1]
            length += 1
            at = t.decision[at, 0]
        for k in range(length - 1, -1, -1):
            going = going and decide(net, s, t, t.frame[k, 0])
        c.replayed += length
    c.paused = 0
    begin = c.work
    depth = c.depth
    full = False
    while True:
        c.nodes += 1
        if going and propagate(net, s):
            at = choose(net, s)
            if at >= 0:
                full = c.trail_length + room > len(s.trail)
                if full:
                    break
                if depth > 0 and c.work - begin > work:
                    c.paused = GOING
                    break
                t.frame[depth, 0] = at
                t.frame[depth, 1] = c.trail_length
                t.frame[depth, 2] = max(s.value[0], c.floor)
                t.frame[depth, 3] = 0
                depth += 1
                c.level += 1
                going = decide(net, s, t, at)
                continue
            for i in range(n):
                s.pick[TRIAL, i] = s.domain[0, net.node[i, OFF]]
            cost = cost_of(net, s.pick[TRIAL])
            if cost < c.upper:
                c.upper = cost - c.grain + 1
                c.solutions += 1
                for i in range(n):
                    s.pick[BEST, i] = s.pick[TRIAL, i]
        elif depth > 0:
            c.last_conflict = t.owner[t.frame[depth - 1, 0] >> 2]
        # go back to the deepest frame whose other branch may hold something
        while depth > 0 and (t.frame[depth - 1, 3] == 1 or t.frame[depth - 1, 2] >= c.upper):
            depth -= 1
        if depth == 0:
            break
        c.used += 1
        c.backtracks += 1
        if c.used > c.burst_limit:
            break
        undo(s, t.frame[depth - 1, 1])
        t.frame[depth - 1, 0] ^= 1
        t.frame[depth - 1, 3] = 1
        going = decide(net, s, t, t.frame[depth - 1, 0])
        if c.work - begin > work:
            c.paused = GOING if going else STUCK
            break
    c.depth = depth
    if c.paused:
        return PAUSED
    close_burst(s, t, full)
    if c.replayed * 10 > c.nodes:
        if c.burst_limit <= LARGEST_BURST:
            c.burst_limit *= 2
    elif c.replayed * 20 < c.nodes and c.burst_limit >= 2:
        c.burst_limit //= 2
    return FULL if full else PAUSED
