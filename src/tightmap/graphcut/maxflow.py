"""Maximum flow / minimum cut by two search trees that are kept between augmentations.

The network has nodes 0..n-1, residual capacities ``cap`` on paired arcs (network.py) and one number ``term[p]`` per
node: residual capacity from the source when positive, to the sink when negative.  A tree S of nodes reachable from the
source and a tree T of nodes that reach the sink are grown until they touch (grow), flow is pushed along the path
(augment), and nodes that lost their parent look for another one or leave the tree (adopt).  The trees survive an
augmentation, and they survive a change of capacities: ``repair_nodes`` and ``repair_arcs`` mend them, so that the next
``run`` continues from the old flow.  flow.py wraps this for whoever just wants a cut.

At the end S is the smallest source side of a minimum cut, and the complement of T the largest one.

Capacities may be any integer or float type.  ``eps`` is the residual capacity that still counts as none: 0 for
integers, a little above the rounding error for floats.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from tightmap.graphcut.network import Csr, Grid, arc, back, degree, head, sister
from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, end_of, late

TERMINAL = -1  # the parent is a terminal
ORPHAN = -2  # in a tree, but the parent is lost
NONE = -3  # not in a tree
FAR = 1 << 30

HEAD, COUNT, TIME, ORPHANS = 0, 1, 2, 3  # entries of Trees.control
STEP_WORK = 50  # nanoseconds of a step of the search, about: how often the clock is looked at


class Trees(NamedTuple):
    """Search trees and queues of one network; allocate with ``new_trees``."""

    side: npt.NDArray[np.int8]  # 1 in S, -1 in T, 0 free
    parent: npt.NDArray[np.signedinteger]  # slot of the parent, or one of the three names above
    stamp: npt.NDArray[np.int32]  # time at which the distance was known to be right
    depth: npt.NDArray[np.int32]  # distance to the terminal
    queue: npt.NDArray[np.int32]  # ring of active nodes
    queued: npt.NDArray[np.uint8]
    orphans: npt.NDArray[np.int32]  # stack
    control: npt.NDArray[np.int64]


def new_trees(n: int, net: Csr | Grid) -> Trees:
    slot = np.int8 if isinstance(net, Grid) else np.int32
    return Trees(
        np.zeros(n, np.int8),
        np.full(n, NONE, slot),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.uint8),
        np.zeros(n, np.int32),
        np.zeros(4, np.int64),
    )


@singledispatch
def pending(lazy, p):
    """Are the capacities around p still to be computed?  With ``lazy=None`` all of them are there from the start.

    Other types overload this function and ``touch`` to compute capacities when the search first reaches a node: a
    search that stays small then costs little, however large the network is (moves.py).  They say it twice, for compiled
    code (``overload``) and for plain Python (``register``).
    """
    return False


@singledispatch
def touch(lazy, net, cap, p):
    """Compute the capacities of the arcs that leave or enter p."""


@overload(pending, inline="always")
def _pending_nothing(lazy, p):
    if lazy is None or isinstance(lazy, types.NoneType):
        return lambda lazy, p: False
    return None


@overload(touch)
def _touch_nothing(lazy, net, cap, p):
    if lazy is None or isinstance(lazy, types.NoneType):
        return lambda lazy, net, cap, p: None
    return None


@lean
def plant(t, term, eps, grow_sink):
    """Start both trees afresh from the terminals.

    Without ``grow_sink`` the nodes next to the sink wait to be found: right when most nodes are there, as in a move
    that changes few labels.  S is as complete as ever, but T is not, so only the smallest source side can be read.
    """
    t.control[:] = 0
    count = 0
    for p in range(len(term)):
        t.stamp[p] = 0
        t.depth[p] = 1
        t.queued[p] = 0
        if term[p] > eps:
            t.side[p] = 1
            t.parent[p] = TERMINAL
            t.queue[count] = p
            t.queued[p] = 1
            count += 1
        elif term[p] < -eps:
            t.side[p] = -1
            t.parent[p] = TERMINAL
            if grow_sink:
                t.queue[count] = p
                t.queued[p] = 1
                count += 1
        else:
            t.side[p] = 0
            t.parent[p] = NONE
    t.control[COUNT] = count


@lean
def push_to_neighbours(net, cap, term, eps, lazy):
    """Send what can go from a source node straight to a sink node next to it; returns the flow.

    In a move most flow travels one arc, and this sweep is far cheaper than growing trees for it.
    """
    flow = term[0] - term[0]
    for p in range(len(term)):
        if term[p] > eps:
            if pending(lazy, p):
                touch(lazy, net, cap, p)
            for k in range(degree(net, p)):
                c = cap[arc(net, p, k)]
                if c > eps:
                    q = head(net, p, k)
                    if term[q] < -eps:
                        f = min(min(term[p], c), -term[q])
                        term[p] -= f
                        term[q] += f
                        cap[arc(net, p, k)] -= f
                        cap[sister(net, p, k)] += f
                        flow += f
                        if term[p] <= eps:
                            break
    return flow


@lean
def run(net, cap, term, eps, t, lazy, left):
    """Augment until S and T cannot touch any more, or for ``left`` seconds; returns the flow that was added.

    Whether it came to its end is what ``ended`` says; where it did not, another call goes on.

    One long function on purpose: the trees live in local names, which is twice as fast as passing them around.
    """
    side, parent, stamp, depth = t.side, t.parent, t.stamp, t.depth
    queue, queued, orphans = t.queue, t.queued, t.orphans
    n = len(queue)
    first, count, time, lost = t.control[HEAD], t.control[COUNT], t.control[TIME], t.control[ORPHANS]
    time += 1  # distances found before the capacities were changed are not to be trusted
    flow = eps - eps
    until = end_of(left)
    work = 0
    while count > 0 or lost > 0:
        work += STEP_WORK
        if work > LOOK:
            work = 0
            if late(until):
                break
        # -------------------------------------------------------------------------------------------- adopt
        while lost > 0:
            lost -= 1
            work += STEP_WORK
            p = np.uint64(orphans[lost])
            if pending(lazy, p):
                touch(lazy, net, cap, np.int64(p))
            mine = side[p]
            best = -1
            best_depth = FAR
            for k in range(degree(net, p)):
                q = head(net, p, k)
                if side[q] != mine or parent[q] == ORPHAN:
                    continue
                if (cap[sister(net, p, k)] if mine > 0 else cap[arc(net, p, k)]) <= eps:
                    continue
                # does the tree path of q end at a terminal, and how far is it?
                far = 0
                i = q
                while True:
                    if stamp[i] == time:
                        far += depth[i]
                        break
                    far += 1
                    up = parent[i]
                    if up == TERMINAL:
                        stamp[i] = time
                        depth[i] = 1
                        break
                    if up == ORPHAN:
                        far = FAR
                        break
                    i = head(net, i, up)
                if far < FAR:
                    if far < best_depth:
                        best = k
                        best_depth = far
                    i = q
                    while stamp[i] != time:
                        stamp[i] = time
                        depth[i] = far
                        far -= 1
                        i = head(net, i, parent[i])
            if best >= 0:
                parent[p] = best
                stamp[p] = time
                depth[p] = best_depth + 1
                continue
            side[p] = 0
            parent[p] = NONE
            for k in range(degree(net, p)):
                q = head(net, p, k)
                if side[q] == mine:
                    if queued[q] == 0 and (cap[sister(net, p, k)] if mine > 0 else cap[arc(net, p, k)]) > eps:
                        queued[q] = 1
                        tail = first + count
                        queue[tail - n if tail >= n else tail] = q
                        count += 1
                    if parent[q] == back(net, p, k):
                        parent[q] = ORPHAN
                        orphans[lost] = q
                        lost += 1
        # -------------------------------------------------------------------------------------------- grow
        if count == 0:
            break
        p = np.uint64(queue[first])
        mine = side[p]
        meet = -1
        if mine != 0:
            if pending(lazy, p):
                touch(lazy, net, cap, np.int64(p))
            for k in range(degree(net, p)):
                if (cap[arc(net, p, k)] if mine > 0 else cap[sister(net, p, k)]) <= eps:
                    continue
                q = head(net, p, k)
                other = side[q]
                if other == 0:
                    side[q] = mine
                    parent[q] = back(net, p, k)
                    stamp[q] = stamp[p]
                    depth[q] = depth[p] + 1
                    if queued[q] == 0:
                        queued[q] = 1
                        tail = first + count
                        queue[tail - n if tail >= n else tail] = q
                        count += 1
                elif other == mine:
                    if stamp[q] <= stamp[p] and depth[q] > depth[p] + 1:
                        parent[q] = back(net, p, k)  # a shorter way to the terminal
                        stamp[q] = stamp[p]
                        depth[q] = depth[p] + 1
                else:
                    meet = k
                    break
        if meet < 0:
            first += 1
            if first >= n:
                first = 0
            count -= 1
            queued[p] = 0
            continue
        # -------------------------------------------------------------------------------------------- augment
        # source .. a -> b .. sink; p stays at the head of the queue, because it may meet more
        time += 1
        q = head(net, p, meet)
        a = p if mine > 0 else q
        b = q if mine > 0 else p
        slot = meet if mine > 0 else back(net, p, meet)
        bridge = arc(net, a, slot)
        f = cap[bridge]
        i = a
        while parent[i] != TERMINAL:
            f = min(f, cap[sister(net, i, parent[i])])
            i = head(net, i, parent[i])
        f = min(f, term[i])
        i = b
        while parent[i] != TERMINAL:
            f = min(f, cap[arc(net, i, parent[i])])
            i = head(net, i, parent[i])
        f = min(f, -term[i])
        flow += f
        cap[bridge] -= f
        cap[sister(net, a, slot)] += f
        i = a
        while parent[i] != TERMINAL:
            up = parent[i]
            s = sister(net, i, up)
            cap[arc(net, i, up)] += f
            cap[s] -= f
            j = head(net, i, up)
            if cap[s] <= eps:
                parent[i] = ORPHAN
                orphans[lost] = i
                lost += 1
            i = j
        term[i] -= f
        if term[i] <= eps:
            parent[i] = ORPHAN
            orphans[lost] = i
            lost += 1
        i = b
        while parent[i] != TERMINAL:
            up = parent[i]
            s = arc(net, i, up)
            cap[s] -= f
            cap[sister(net, i, up)] += f
            j = head(net, i, up)
            if cap[s] <= eps:
                parent[i] = ORPHAN
                orphans[lost] = i
                lost += 1
            i = j
        term[i] += f
        if term[i] >= -eps:
            parent[i] = ORPHAN
            orphans[lost] = i
            lost += 1
    t.control[HEAD], t.control[COUNT], t.control[TIME], t.control[ORPHANS] = first, count, time, lost
    return flow


@lean
def ended(t):
    """Whether the last ``run`` left nothing to do."""
    return t.control[COUNT] == 0 and t.control[ORPHANS] == 0


@lean
def _activate(t, p):
    if t.queued[p] == 0:
        t.queued[p] = 1
        t.queue[(t.control[HEAD] + t.control[COUNT]) % len(t.queue)] = p
        t.control[COUNT] += 1


@lean
def _orphan(t, p):
    t.parent[p] = ORPHAN
    t.orphans[t.control[ORPHANS]] = p
    t.control[ORPHANS] += 1


@lean
def repair_nodes(net, term, eps, t, nodes):
    """Make the trees fit again after term[nodes] was changed; ``run`` then continues."""
    for i in range(len(nodes)):
        p = np.int64(nodes[i])
        side = t.side[p]
        want = 1 if term[p] > eps else (-1 if term[p] < -eps else 0)
        for k in range(degree(net, p)):  # p may be claimed by either tree, in whatever order things happen next
            q = head(net, p, k)
            if t.side[q] != 0:
                _activate(t, q)
        if want == 0:
            if t.parent[p] == TERMINAL:
                _orphan(t, p)
            continue
        if side == -want:
            for k in range(degree(net, p)):
                q = head(net, p, k)
                if t.side[q] == side and t.parent[q] == back(net, p, k):
                    _orphan(t, q)
        if t.parent[p] == ORPHAN:
            for j in range(t.control[ORPHANS]):  # it has found a parent before anyone looked for one
                if t.orphans[j] == p:
                    t.control[ORPHANS] -= 1
                    t.orphans[j] = t.orphans[t.control[ORPHANS]]
                    break
        t.side[p] = want
        t.parent[p] = TERMINAL
        t.stamp[p] = t.control[TIME]
        t.depth[p] = 1
        _activate(t, p)


@lean
def repair_arcs(net, cap, eps, t, tails, slots):
    """Make the trees fit again after the capacities of these arcs (and of their sisters) were changed."""
    for i in range(len(tails)):
        for turn in range(2):
            p = np.int64(tails[i])
            k = np.int64(slots[i])
            q = head(net, p, k)
            if turn == 1:
                p, q, k = q, p, back(net, p, k)
            if cap[arc(net, p, k)] > eps:
                if t.side[p] == 1 and t.side[q] != 1:
                    _activate(t, p)
                if t.side[q] == -1 and t.side[p] != -1:
                    _activate(t, q)
            else:
                if t.side[q] == 1 and t.parent[q] == back(net, p, k):
                    _orphan(t, q)
                if t.side[p] == -1 and t.parent[p] == k:
                    _orphan(t, p)
