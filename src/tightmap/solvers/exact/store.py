"""The costs that the exact search works on, and the trail along which every change is undone.

Tables are never touched.  A function keeps one shift per position and label (cost = table - shifts), and what varies
lives in one array of numbers, so that undoing a decision is a walk back along one trail.  Few, wide arrays: each one
costs compilation time in every kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.runtime.compiled import compiled, lean

Ints = npt.NDArray[np.int64]

# State.number: places of the counters
LEVEL, TOP, UPPER, WORK, CULPRIT, LAST, NODES, BACKTRACKS, SOLUTIONS, USED, OPEN, LIMIT, REPLAYED, GRAIN = range(14)
OFF, ARCS, NEAR = 0, 1, 2  # columns of Net.node
TO, ROW, SHIFT, BACK, PAIR = 0, 1, 2, 3, 4  # columns of Net.arc
ARC, DIRECTED, EXIST, RAISED, LOOSE = 0, 1, 2, 3, 4  # rows of State.flag
GOOD, BEST, TRIAL = 0, 1, 2  # rows of State.pick
ROUNDS = 100  # most rounds of one propagation; it may stop anywhere, because every state on the way is sound
WIDE = 20_000  # a function of three or more variables is left alone while more tuples of its labels are alive
HUGE = np.int64(1) << 62  # larger than every cost


class Net(NamedTuple):
    """The functions of one component.  A function of two variables appears as two arcs, one each way."""

    node: Ints  # (n + 1, 3) where the labels, the arcs and the wide functions of a variable start
    unary: Ints  # the unaries as given
    arc: Ints  # (arcs, 5) other variable, start of the table (a row per own label), of the shifts; arc back; function
    near: Ints  # (., 2) wide functions of a variable, and its position in each
    wide: Ints  # (wide functions + 1, 2) where the positions and the table start
    slot: Ints  # (positions, 3) variable, start of its shifts, stride in the table
    tables: Ints


class State(NamedTuple):
    """All that changes.  ``value`` holds c0, then the unaries, then the sizes of the domains, then the shifts."""

    value: Ints
    stamp: Ints  # level at which a number was last noted on the trail
    trail: Ints  # (., 2) place and old number
    number: Ints  # the counters
    domain: npt.NDArray[np.int32]  # (2, labels): living labels of a variable first; where a label stands
    flag: npt.NDArray[np.uint8]  # (5, n) which consistencies of a variable have to be looked at again
    support: npt.NDArray[np.int32]  # per shift of an arc: the partner that had cost 0
    pick: Ints  # (3, n) label with existential support, best labelling, scratch
    weight: npt.NDArray[np.float64]  # conflicts per function: pairs, then wide ones
    scratch: Ints  # (3, .)


@lean
def put(s, k, v):
    """Change one number, noting the old one once per level."""
    if s.stamp[k] != s.number[LEVEL]:
        t = s.number[TOP]
        s.trail[t, 0] = k
        s.trail[t, 1] = s.value[k]
        s.number[TOP] = t + 1
        s.stamp[k] = s.number[LEVEL]
    s.value[k] = v


@lean
def undo(s, mark):
    """Back to where the trail was ``mark`` long; a new level begins."""
    for t in range(s.number[TOP] - 1, mark - 1, -1):
        s.value[s.trail[t, 0]] = s.trail[t, 1]
    s.number[TOP] = mark
    s.number[LEVEL] += 1
    for k in range(s.flag.shape[0]):
        for i in range(s.flag.shape[1]):
            s.flag[k, i] = 0


@lean
def raised(s, i):
    """A label of i that cost nothing now costs something or is gone: what relied on it is to be looked at again."""
    s.flag[DIRECTED, i] = 1
    s.flag[RAISED, i] = 1
    s.flag[LOOSE, i] = 1


@lean
def drop(net, s, i, x):
    """Remove label x of variable i."""
    o = net.node[i, OFF]
    k = 1 + len(net.unary) + i
    size = s.value[k] - 1
    p = s.domain[1, o + x]
    y = s.domain[0, o + size]
    s.domain[0, o + p] = y
    s.domain[1, o + y] = p
    s.domain[0, o + size] = x
    s.domain[1, o + x] = size
    put(s, k, size)
    s.flag[ARC, i] = 1
    if s.value[1 + o + x] == 0:  # only a label without cost can have been a full support
        raised(s, i)


@compiled
def settle(net, s, i):
    """Node consistency of variable i; False when nothing is left of it or c0 reaches the upper bound."""
    o = net.node[i, OFF]
    value = s.value
    size = value[1 + len(net.unary) + i]
    if size == 0:
        return False
    s.flag[LOOSE, i] = 0
    low = value[1 + o + s.domain[0, o]]
    high = low
    for k in range(1, size):
        v = value[1 + o + s.domain[0, o + k]]
        low = min(low, v)
        high = max(high, v)
    if low > 0:
        put(s, 0, value[0] + low)
        for k in range(size):
            x = 1 + o + s.domain[0, o + k]
            put(s, x, value[x] - low)
        high -= low
    room = s.number[UPPER] - value[0]
    if room <= 0:
        return False
    if high >= room:
        for k in range(size - 1, -1, -1):
            x = s.domain[0, o + k]
            if value[1 + o + x] >= room:
                drop(net, s, i, x)
    return True
