"""The costs that the exact search moves about, and the trail along which every change is undone.

Tables are never touched.  A function keeps one shift per position and label (cost = table - shifts), and what varies
lives in one array of numbers, so that undoing a decision is a walk back along one trail.  Few, wide arrays: each one
costs compilation time in every kernel.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.runtime.bits import ONE
from tightmap.runtime.compiled import compiled, lean

Ints = npt.NDArray[np.int64]

# the scalars of the search: a record of whole numbers, which kernels and Python read and change by name
COUNTERS = np.dtype(
    [
        ("level", np.int64),  # of the present decision; numbers of older levels are noted before they change
        ("trail_length", np.int64),
        ("upper", np.int64),  # only labellings below this cost are looked for
        ("work", np.int64),  # entries of tables looked at
        ("last_conflict", np.int64),  # the variable of the last decision that failed; -1 for none
        ("nodes", np.int64),
        ("backtracks", np.int64),
        ("solutions", np.int64),  # better labellings found
        ("decisions", np.int64),  # rows of Tree.decision in use
        ("open_nodes", np.int64),  # rows of Tree.heap in use
        ("burst_limit", np.int64),  # backtracks of the next burst
        ("replayed", np.int64),  # decisions made again at the beginning of a burst
        ("grain", np.int64),  # the least by which a labelling has to be cheaper
        ("paused", np.int64),  # a burst has stopped half-way: GOING or STUCK, else 0
        ("node", np.int64),  # where the present burst began
        ("floor", np.int64),  # the least bound of all open nodes when it began
        ("depth", np.int64),  # frames in use
        ("used", np.int64),  # backtracks of the present burst
        ("dominance", np.int64),  # whether labels are compared with one another
    ],
    align=True,
)
# columns of Net.node: where what belongs to a variable starts
OFF = 0  # its labels
ARCS = 1  # the arcs that leave it
NEAR = 2  # its wide functions, in Net.near
# columns of Net.arc
TO = 0  # the variable at the other end
ROW = 1  # start of the table, one row per own label
SHIFT = 2  # start of the shifts of the own labels, in SearchState.value
BACK = 3  # the arc in the other direction
# rows of SearchState.flag: what has to be done for a variable, one bit each
ARC = 0  # its neighbours look for supports: labels of it are gone
DIRECTED = 1  # full supports of the variables before it
EXIST = 2  # a label with existential support
RAISED = 3  # it and the neighbours after it are asked for existential supports
LOOSE = 4  # node consistency
DOMINATED = 5  # labels that another one makes superfluous
# rows of SearchState.pick: a label per variable
GOOD = 0  # had existential support when last asked
BEST = 1  # of the best labelling, or -1
TRIAL = 2  # of the labelling at hand
ROUNDS = 100  # most rounds of one propagation; it may stop anywhere, because every state on the way is sound
MOST_TUPLES = 20_000  # a function of three or more variables is left alone while more tuples of its labels are alive
HUGE = np.int64(1) << 62  # larger than every cost


class Net(NamedTuple):
    """The functions of one component.  A function of two variables appears as two arcs, one each way."""

    node: Ints  # (n + 1, 3) where the labels, the arcs and the wide functions of a variable start
    unary: Ints  # the unaries as given
    arc: Ints  # (arcs, 4) other variable, start of the table (a row per own label), of the shifts; arc back
    near: Ints  # (., 2) wide functions of a variable, and its position in each
    wide: Ints  # (wide functions + 1, 2) where the positions and the table start
    slot: Ints  # (positions, 3) variable, start of its shifts, stride in the table
    tables: Ints


class SearchState(NamedTuple):
    """All that changes.  ``value`` holds c0, then the unaries, then the sizes of the domains, then the shifts."""

    value: Ints
    stamp: Ints  # level at which a number was last noted on the trail
    trail: Ints  # (., 2) place and old number
    counters: np.recarray  # (1,) COUNTERS: counters[0].level
    domain: npt.NDArray[np.int32]  # (2, labels): living labels of a variable first; where a label stands
    flag: npt.NDArray[np.uint64]  # (6, words) which consistencies of a variable have to be looked at again, as bits
    support: npt.NDArray[np.int32]  # per shift: the partner, or the number of the tuple, that had cost 0
    pick: Ints  # (3, n) label with existential support, best labelling, scratch
    degree: Ints  # (2, n) functions of a variable, pairs with a decided one left out; 1 where it counts as decided
    scratch: Ints  # (3, .)


@lean
def put(s, k, v):
    """Change one number, noting the old one once per level."""
    if s.stamp[k] != s.counters[0].level:
        t = s.counters[0].trail_length
        s.trail[t, 0] = k
        s.trail[t, 1] = s.value[k]
        s.counters[0].trail_length = t + 1
        s.stamp[k] = s.counters[0].level
    s.value[k] = v


@lean
def undo(s, mark):
    """Back to where the trail was ``mark`` long; a new level begins."""
    for t in range(s.counters[0].trail_length - 1, mark - 1, -1):
        s.value[s.trail[t, 0]] = s.trail[t, 1]
    s.counters[0].trail_length = mark
    s.counters[0].level += 1
    for k in range(s.flag.shape[0]):
        for w in range(s.flag.shape[1]):
            s.flag[k, w] = 0


@lean
def mark(s, what, i):
    """Something has to be done for variable i."""
    s.flag[what, i >> 6] |= ONE << np.uint64(i & 63)


@lean
def unmark(s, what, i):
    """It is done, or about to be; whether it had to be."""
    bit = ONE << np.uint64(i & 63)
    word = s.flag[what, i >> 6]
    s.flag[what, i >> 6] = word & ~bit
    return (word & bit) != 0


@lean
def raised(s, i):
    """A label of i that cost nothing now costs something or is gone: what relied on it is to be looked at again."""
    mark(s, DIRECTED, i)
    mark(s, RAISED, i)
    mark(s, LOOSE, i)


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
    mark(s, ARC, i)
    if s.value[1 + o + x] == 0:  # only a label without cost can have been a full support
        raised(s, i)


@compiled
def node_consistency(net, s, i):
    """Move the least cost of variable i to c0, drop labels that cost too much; False: nothing is left below upper."""
    o = net.node[i, OFF]
    value = s.value
    size = value[1 + len(net.unary) + i]
    if size == 0:
        return False
    if unmark(s, LOOSE, i):
        mark(s, DOMINATED, i)
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
    room = s.counters[0].upper - value[0]
    if room <= 0:
        return False
    if high >= room:
        for k in range(size - 1, -1, -1):
            x = s.domain[0, o + k]
            if value[1 + o + x] >= room:
                drop(net, s, i, x)
    return True
