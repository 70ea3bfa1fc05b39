"""Maximum flow / minimum cut by two search trees that are kept between augmentations.

The network has nodes 0..n-1, residual capacities ``cap`` on paired arcs (network.py) and one number ``term[p]`` per
node: residual capacity from the source when positive, to the sink when negative.  A tree S of nodes reachable from the
source and a tree T of nodes that reach the sink are grown until they touch (grow), flow is pushed along the path
(augment), and nodes that lost their parent look for another one or leave the tree (adopt).  The trees survive an
augmentation, and they survive a change of capacities: ``change_terminals`` and ``change_arcs`` repair them, so that
the next ``run`` continues from the old flow.

At the end S is the smallest source side of a minimum cut, and the complement of T the largest one.

Capacities may be any integer or float type.  ``eps`` is the residual capacity that still counts as none: 0 for
integers, a little above the rounding error for floats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import overload

from tightmap.graphcut.network import Csr, Grid, arc, back, degree, head, sister

TERMINAL = -1  # the parent is a terminal
ORPHAN = -2  # in a tree, but the parent is lost
NONE = -3  # not in a tree
FAR = 1 << 30

HEAD, COUNT, TIME, ORPHANS = 0, 1, 2, 3  # entries of Trees.control


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


def touch(lazy, net, cap, p):
    """Called before the capacities around p are looked at for the first time.

    With ``lazy=None`` all capacities are there already.  Other types overload this function to compute them on demand:
    a search that stays small then costs little, however large the network is (moves.py).
    """


@overload(touch, inline="always")
def _touch_nothing(lazy, net, cap, p):
    if lazy is None or isinstance(lazy, types.NoneType):
        return lambda lazy, net, cap, p: None
    return None


@njit(cache=True, nogil=True, inline="always")
def _activate(t, p):
    if t.queued[p] == 0:
        t.queued[p] = 1
        n = len(t.queue)
        tail = t.control[HEAD] + t.control[COUNT]
        if tail >= n:
            tail -= n
        t.queue[tail] = p
        t.control[COUNT] += 1


@njit(cache=True, nogil=True, inline="always")
def _orphan(t, p):
    t.parent[p] = ORPHAN
    t.orphans[t.control[ORPHANS]] = p
    t.control[ORPHANS] += 1


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def push_to_neighbours(net, cap, term, eps, lazy):
    """Send what can go from a source node straight to a sink node next to it; returns the flow.

    In a move most flow travels one arc, and this sweep is far cheaper than growing trees for it.
    """
    flow = term[0] - term[0]
    for p in range(len(term)):
        if term[p] > eps:
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


@njit(cache=True, nogil=True, inline="always")
def _augment(net, cap, term, eps, t, p, k):
    """Push along the path source .. p -> q .. sink; nodes behind a saturated arc become orphans."""
    q = head(net, p, k)
    f = cap[arc(net, p, k)]
    i = p
    while t.parent[i] != TERMINAL:
        s = sister(net, i, t.parent[i])
        f = min(f, cap[s])
        i = head(net, i, t.parent[i])
    f = min(f, term[i])
    i = q
    while t.parent[i] != TERMINAL:
        f = min(f, cap[arc(net, i, t.parent[i])])
        i = head(net, i, t.parent[i])
    f = min(f, -term[i])

    cap[arc(net, p, k)] -= f
    cap[sister(net, p, k)] += f
    i = p
    while t.parent[i] != TERMINAL:
        up = t.parent[i]
        s = sister(net, i, up)
        cap[arc(net, i, up)] += f
        cap[s] -= f
        j = head(net, i, up)
        if cap[s] <= eps:
            _orphan(t, i)
        i = j
    term[i] -= f
    if term[i] <= eps:
        _orphan(t, i)
    i = q
    while t.parent[i] != TERMINAL:
        up = t.parent[i]
        a = arc(net, i, up)
        cap[a] -= f
        cap[sister(net, i, up)] += f
        j = head(net, i, up)
        if cap[a] <= eps:
            _orphan(t, i)
        i = j
    term[i] += f
    if term[i] >= -eps:
        _orphan(t, i)
    return f


@njit(cache=True, nogil=True, inline="always")
def _adopt(net, cap, eps, t, lazy):
    """Find a new parent for every orphan, the one nearest to the terminal, or set the orphan free."""
    time = t.control[TIME]
    while t.control[ORPHANS] > 0:
        t.control[ORPHANS] -= 1
        p = np.int64(t.orphans[t.control[ORPHANS]])
        touch(lazy, net, cap, p)
        side = t.side[p]
        best = -1
        best_depth = FAR
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if t.side[q] != side or t.parent[q] == ORPHAN:
                continue
            if (cap[sister(net, p, k)] if side > 0 else cap[arc(net, p, k)]) <= eps:
                continue
            # does the tree path of q end at a terminal, and how far is it?
            depth = 0
            i = q
            while True:
                if t.stamp[i] == time:
                    depth += t.depth[i]
                    break
                depth += 1
                up = t.parent[i]
                if up == TERMINAL:
                    t.stamp[i] = time
                    t.depth[i] = 1
                    break
                if up == ORPHAN:
                    depth = FAR
                    break
                i = head(net, i, up)
            if depth < FAR:
                if depth < best_depth:
                    best = k
                    best_depth = depth
                i = q
                while t.stamp[i] != time:
                    t.stamp[i] = time
                    t.depth[i] = depth
                    depth -= 1
                    i = head(net, i, t.parent[i])
        if best >= 0:
            t.parent[p] = best
            t.stamp[p] = time
            t.depth[p] = best_depth + 1
            continue
        t.side[p] = 0
        t.parent[p] = NONE
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if t.side[q] == side:
                if (cap[sister(net, p, k)] if side > 0 else cap[arc(net, p, k)]) > eps:
                    _activate(t, q)
                if t.parent[q] == back(net, p, k):
                    _orphan(t, q)


@njit(cache=True, nogil=True)
def run(net, cap, term, eps, t, lazy):
    """Augment until S and T cannot touch any more; returns the flow that was added."""
    flow = term[0] - term[0] if len(term) > 0 else eps - eps
    n = len(t.queue)
    while t.control[COUNT] > 0:
        p = np.int64(t.queue[t.control[HEAD]])
        t.control[HEAD] += 1
        if t.control[HEAD] >= n:
            t.control[HEAD] = 0
        t.control[COUNT] -= 1
        t.queued[p] = 0
        side = t.side[p]
        if side == 0:
            continue
        touch(lazy, net, cap, p)
        k = 0
        while k < degree(net, p):
            if (cap[arc(net, p, k)] if side > 0 else cap[sister(net, p, k)]) <= eps:
                k += 1
                continue
            q = head(net, p, k)
            other = t.side[q]
            if other == 0:
                t.side[q] = side
                t.parent[q] = back(net, p, k)
                t.stamp[q] = t.stamp[p]
                t.depth[q] = t.depth[p] + 1
                _activate(t, q)
                k += 1
            elif other == side:
                if t.stamp[q] <= t.stamp[p] and t.depth[q] > t.depth[p] + 1:
                    t.parent[q] = back(net, p, k)  # a shorter way to the terminal
                    t.stamp[q] = t.stamp[p]
                    t.depth[q] = t.depth[p] + 1
                k += 1
            else:
                t.control[TIME] += 1
                near = p if side > 0 else q
                flow += _augment(net, cap, term, eps, t, near, k if side > 0 else back(net, p, k))
                _adopt(net, cap, eps, t, lazy)
                if t.side[p] != side:
                    break  # p left the tree; else look at the same arc again
    return flow
