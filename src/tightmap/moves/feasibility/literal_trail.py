"""What the search for a feasible labelling works on: literals, constraints, the trail along which all is undone.

A Boolean b stands for "variable i has label s", one per label; a variable with two labels has a single one.  Literal 2b
says that it is so and 2b + 1 that it is not, so ``lit ^ 1`` is the opposite.  What is known is a list of true literals,
the trail, divided into levels: level 0 follows from the model, each further one from one more decision.  Every literal
on the trail remembers why it is true, so that a failure can be traced back to the decisions behind it (learn.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.runtime.bits import ONE
from tightmap.runtime.compiled import lean

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]

# the scalars of the search: a record of whole numbers, which kernels and Python read and change by name
COUNTERS = np.dtype(
    [
        ("trail_length", np.int64),
        ("propagated", np.int64),  # literals of the trail whose consequences have been drawn
        ("level", np.int64),  # decisions in force
        ("changes", np.int64),  # entries of Store.changed in use
        ("queued", np.int64),  # entries of Store.queue in use
        ("moves", np.int64),  # entries of Store.moves in use
        ("arena_used", np.int64),  # entries of Store.arena in use
        ("learnt", np.int64),  # clauses that came from failures
        ("conflicts", np.int64),  # failures so far
        ("restarts", np.int64),
        ("until_restart", np.int64),  # failures before the search starts again from level 0
        ("open_variables", np.int64),  # entries of Store.heap in use
        ("work", np.int64),  # about a nanosecond each
        ("learnt_limit", np.int64),  # learnt clauses, beyond which some are forgotten
        ("core_length", np.int64),  # literals of Store.learnt that form a core
    ],
    align=True,
)
TABLE, VARIABLE, MASK, SUPPORT = range(4)  # columns of Rules.slot
SLOT, WORD = 0, 1  # columns of Rules.table
ORIGIN, TO, OF, ON, LEAST = range(5)  # columns of Rules.arc
GONE, TAKEN = 0, 1  # columns of Rules.effect
AT, PLACE, REASON = 0, 1, 2  # columns of Store.info
# why a literal is true: 4 * x + one of these, where x is a clause, a table (arcs are counted on from there), a literal
# or a variable; -1: no reason
BY_CLAUSE, BY_TABLE, BY_LITERAL, BY_LABELS = range(4)
GIVEN = -1
# a clause in Store.arena: its length, number of levels it joins, the conflict at which it last served, the next clauses
# in the lists of its two watched literals, then its literals, watched ones first
LENGTH, JOINS, SERVED, NEXT, FIRST = 0, 1, 2, 3, 5
NONE = np.uint64(0)


class Rules(NamedTuple):
    """The variables and the tables; none of this changes.

    A table lists its allowed tuples, and a word has one bit for each of 64 of them; mask k of a label marks the tuples
    that contain it.  Masks are shared by all tables that forbid the same.
    """

    offset: Ints  # (n + 1,) where the labels of a variable start
    owner: Shorts  # (Booleans,) variable
    literal: Shorts  # (labels,) the literal that says that this label is taken
    effect: Shorts  # (literals, 2) label that is gone, label that is taken when this literal is true; -1 for none
    near: Ints  # (n + 1,) where the slots of a variable start in ``slots``
    slots: Shorts
    slot: Ints  # (slots, 4) table, variable, where the masks and the supports of its labels start
    table: Ints  # (tables + 1, 2) first slot, first word
    masks: Words
    all: Words  # the words of all tables with every tuple alive
    # tables of two variables are arcs instead, where the labels of each fit into a word (arcs.py)
    arcs: Ints  # (n + 1,) where the arcs from a variable start
    # (arcs, 5) from, to, where in ``beside`` the labels of either start; fewest supports of a label of the second
    arc: Ints
    beside: Words  # which labels of the other variable a table allows beside a label
    cost: npt.NDArray[np.float64]  # (labels,) cheaper labels are tried first


class Store(NamedTuple):
    """All that changes."""

    counters: np.recarray  # (1,) COUNTERS: counters[0].level
    value: npt.NDArray[np.int8]  # (literals,) 1 true, -1 false, 0 open
    info: Ints  # (Booleans, 3) level, place on the trail, reason
    trail: Shorts  # (Booleans,) true literals
    mark: Ints  # (levels, 2) how long the trail and the list of changed words were before each level
    size: Shorts  # (n,) labels left
    taken: Shorts  # (n,) the label taken, or -1
    domain: Words  # (n,) the labels left, as bits, where there are arcs
    moves: Shorts  # variables whose arcs are to be looked at
    moved: npt.NDArray[np.uint8]  # (n,) whether it is among them
    words: Words  # living tuples of all tables
    changed: Ints  # words that changed ...
    before: Words  # ... and what they were
    support: Shorts  # per slot and label: the word in which its last support was found
    queue: Shorts  # tables to look at
    waiting: npt.NDArray[np.uint8]  # (tables,) whether it is in the queue
    head: Shorts  # (literals,) first clause that watches a literal: 2 * clause + which of its two watches; -1 for none
    arena: Shorts  # the clauses
    cause: Shorts  # literals that explain a failure or another literal
    learnt: Shorts  # the clause that is being made
    seen: npt.NDArray[np.uint8]  # (Booleans,)
    touched: Shorts  # Booleans that were seen
    scratch: Words
    activity: npt.NDArray[np.float64]  # (n + 1,) how often a variable took part in failures of late; the last: a step
    heap: Shorts  # open variables, the most active on top
    where: Shorts  # (n,) place in the heap, or -1
    phase: Shorts  # (n,) the label that a variable had last
    stamp: Ints  # (levels,) for counting levels


@lean
def sift_up(s, k):
    heap, where, activity = s.heap, s.where, s.activity
    i = heap[k]
    while k > 0:
        up = (k - 1) >> 1
        if not activity[i] > activity[heap[up]]:
            break
        heap[k] = heap[up]
        where[heap[k]] = k
        k = up
    heap[k] = i
    where[i] = k


@lean
def sift_down(s, k):
    heap, where, activity = s.heap, s.where, s.activity
    size = s.counters[0].open_variables
    i = heap[k]
    while 2 * k + 1 < size:
        d = 2 * k + 1
        if d + 1 < size and activity[heap[d + 1]] > activity[heap[d]]:
            d += 1
        if not activity[heap[d]] > activity[i]:
            break
        heap[k] = heap[d]
        where[heap[k]] = k
        k = d
    heap[k] = i
    where[i] = k


@lean
def push(s, i):
    """Variable i is open again."""
    if s.where[i] < 0:
        k = s.counters[0].open_variables
        s.counters[0].open_variables = k + 1
        s.heap[k] = i
        sift_up(s, k)


@lean
def pop(s):
    """The most active variable, taken out of the heap, which is not empty."""
    i = s.heap[0]
    s.where[i] = -1
    k = s.counters[0].open_variables - 1
    s.counters[0].open_variables = k
    if k > 0:
        s.heap[0] = s.heap[k]
        sift_down(s, 0)
    return i


@lean
def believe(r, s, lit, reason):
    """Make an open literal true."""
    c = s.counters[0]
    b = lit >> 1
    t = c.trail_length
    s.value[lit] = 1
    s.value[lit ^ 1] = -1
    s.info[b, AT] = c.level
    s.info[b, PLACE] = t
    s.info[b, REASON] = reason
    s.trail[t] = lit
    c.trail_length = t + 1
    i = r.owner[b]
    at = r.effect[lit, GONE]
    if at >= 0:
        s.size[i] -= 1
        s.domain[i] &= ~(ONE << np.uint64((at - r.offset[i]) & 63))
    if r.effect[lit, TAKEN] >= 0:
        s.taken[i] = r.effect[lit, TAKEN]


@lean
def open_level(s):
    """Begin a level for the next decision."""
    c = s.counters[0]
    c.level += 1
    s.mark[c.level, 0] = c.trail_length
    s.mark[c.level, 1] = c.changes


@lean
def undo(r, s, level):
    """Back to where a level had been propagated."""
    c = s.counters[0]
    if level >= c.level:
        return
    for k in range(c.queued):
        s.waiting[s.queue[k]] = 0
    c.queued = 0
    for k in range(c.moves):
        s.moved[s.moves[k]] = 0
    c.moves = 0
    for t in range(c.trail_length - 1, s.mark[level + 1, 0] - 1, -1):
        lit = s.trail[t]
        s.value[lit] = 0
        s.value[lit ^ 1] = 0
        i = r.owner[lit >> 1]
        at = r.effect[lit, GONE]
        if at >= 0:
            s.size[i] += 1
            s.domain[i] |= ONE << np.uint64((at - r.offset[i]) & 63)
        if r.effect[lit, TAKEN] >= 0:
            s.phase[i] = r.effect[lit, TAKEN]
            s.taken[i] = -1
            push(s, i)
    for t in range(c.changes - 1, s.mark[level + 1, 1] - 1, -1):
        s.words[s.changed[t]] = s.before[t]
    c.trail_length = c.propagated = s.mark[level + 1, 0]
    c.changes = s.mark[level + 1, 1]
    c.level = level
