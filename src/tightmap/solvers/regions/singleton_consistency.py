"""Which clusters raise the bound most, by singleton arc consistency (Lev-Ran, Arkhipov, Kolmogorov 2026).

Let b_i and b_ij be the reparametrised costs, and let only labels and pairs of labels within d of their minimum be
allowed:

    b_i(s) <= min b_i + d,     b_ij(s, t) <= min b_ij + d.

If no labelling is allowed everywhere, every labelling costs more than d above the bound, and a relaxation that sees so
raises it.  Such a contradiction is looked for around one variable i at a time: set x_i = s and remove from the others,
along the pairs, the labels that have no allowed partner left.  If some variable loses all its labels, for every allowed
s, there is a contradiction.

Removing labels behind x_i = s along the pair (u, v) is what the messages of a cluster (i, u, v) do for all s at once.
So the clusters that see the contradiction are the triplets of i with the pairs along which labels were removed; only
those that the loss of the last label really needed are kept.

Contradictions with the largest d come first, among these the ones of fewest pairs; and no pair serves two of them in a
round: what the first one gains from its costs the second one cannot gain again.  (Without the last rule the bound of
uai/Grids_18 after 8 s was -14030, with it -13181; frustrated cycles gave -13479.)
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import FloatArray, IntArray
from tightmap.moves.context import Labels
from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import TimeUp
from tightmap.solvers.regions.regions import Regions
from tightmap.solvers.regions.tighten import Pairs, reparametrised_singles

ENTRIES = 1_000_000  # of a triplet: messages of a larger one would take longer than they are worth
SHRINK = 0.5  # from one d to the next smaller one
LEVELS = 24  # how many of them, at most
DEEPEST = 0.02  # of the largest d with a contradiction; smaller ones wait for a later round
WORK = 300_000_000  # a search ends after it has looked at so many table entries
SLICE_WORK = 20_000_000  # the clock is looked at after so many of them
GIVEN = -1  # reason of a label that is gone: it costs too much, or another one was chosen


class Constraints(NamedTuple):
    """The allowed pairs of labels, seen from both ends, and scratch for removing labels."""

    at: IntArray  # (n + 1,) first label of every variable
    start: IntArray  # (n + 1,) arcs that leave each variable
    other: IntArray  # (arcs,) where each leads
    twin: IntArray  # (arcs,) the same pair seen from there
    pair: IntArray  # (arcs,) number of its pair
    table: IntArray  # (arcs,) where its table starts, which is read as table[s * row + t * column]
    row: IntArray
    column: IntArray
    alive: npt.NDArray[np.uint8]  # (labels,) whether each is still there
    left: IntArray  # (n,) how many are
    reason: IntArray  # (labels,) the arc, from the variable itself, along which it was removed; or GIVEN
    when: IntArray  # (labels,) in which order they were removed
    removed: IntArray  # (labels,) the removed ones in that order
    queue: IntArray  # (n,) ring of variables that lost labels
    queued: npt.NDArray[np.uint8]
    wanted: npt.NDArray[np.uint8]  # (labels,) of an explanation
    used: npt.NDArray[np.uint8]  # (pairs,) whether the explanations so far need it
    needed: IntArray  # (room,) those pairs, of one contradiction after the other


@lean
def _partner(c, cost, most, arc, s, v):
    """Does label s still have an allowed partner at the other end v?  And how many entries were looked at."""
    first = c.table[arc] + s * c.row[arc]
    for t in range(c.at[v + 1] - c.at[v]):
        if c.alive[c.at[v] + t] and cost[first + t * c.column[arc]] <= most:
            return True, t + 1
    return False, c.at[v + 1] - c.at[v]


@lean
def _remove_behind(c, cost, most, i):
    """Remove labels behind the choice of variable i until nothing changes: a variable without labels or -1; the work.

    Labels without partners go in turn; ``most[p]`` is what pair p may cost.
    """
    n = len(c.left)
    begin, end, count, work = 0, 1, 0, 0
    c.queue[0] = i
    c.queued[i] = 1
    lost = -1
    while begin < end and lost < 0:
        u = c.queue[begin % n]
        c.queued[u] = 0
        begin += 1
        for back in range(c.start[u], c.start[u + 1]):
            v = c.other[back]
            if v == i:
                continue
            arc = c.twin[back]
            some = False
            for s in range(c.at[v + 1] - c.at[v]):
                x = c.at[v] + s
                if not c.alive[x]:
                    continue
                found, looked = _partner(c, cost, most[c.pair[arc]], arc, s, u)
                work += looked
                if not found:
                    c.alive[x] = 0
                    c.left[v] -= 1
                    c.reason[x] = arc
                    c.when[x] = count
                    c.removed[count] = x
                    count += 1
                    some = True
            if c.left[v] == 0:
                lost = v
                break
            if some and not c.queued[v]:
                c.queued[v] = 1
                c.queue[end % n] = v
                end += 1
    for k in range(begin, end):
        c.queued[c.queue[k % n]] = 0
    return lost, count, work


@lean
def _explain(c, cost, most, owner, lost, count, filled):
    """Note the pairs that the loss of all labels of ``lost`` needed, walking back from the last removal."""
    for x in range(c.at[lost], c.at[lost + 1]):
        if c.reason[x] >= 0:
            c.wanted[x] = 1
    for k in range(count - 1, -1, -1):
        x = c.removed[k]
        if not c.wanted[x]:
            continue
        c.wanted[x] = 0
        arc = c.reason[x]
        u = c.other[arc]
        if not c.used[c.pair[arc]]:
            c.used[c.pair[arc]] = 1
            c.needed[filled] = c.pair[arc]
            filled += 1
        first = c.table[arc] + (x - c.at[owner[x]]) * c.row[arc]
        for t in range(c.at[u + 1] - c.at[u]):
            y = c.at[u] + t
            # its partners were gone by then; those that were never allowed need no explanation
            if c.reason[y] >= 0 and c.when[y] < k and cost[first + t * c.column[arc]] <= most[c.pair[arc]]:
                c.wanted[y] = 1
    return filled


@lean
def _restore(c, count, owner):
    for k in range(count):
        x = c.removed[k]
        c.alive[x] = 1
        c.reason[x] = GIVEN
        c.left[owner[x]] += 1


@lean
def _contradiction(c, cost, most, owner, here, i, filled):
    """Whether every label of variable i leads to a contradiction, where the list of pairs ends then, and the work."""
    begin, size = c.at[i], c.at[i + 1] - c.at[i]
    whole, work, end = c.left[i], 0, filled
    for s in range(size):
        here[s] = c.alive[begin + s]
        c.alive[begin + s] = 0
    c.left[i] = 1
    refuted = True
    for s in range(size):
        if not here[s]:
            continue
        c.alive[begin + s] = 1
        lost, count, looked = _remove_behind(c, cost, most, i)
        work += looked
        if lost >= 0:
            end = _explain(c, cost, most, owner, lost, count, end)
        else:
            refuted = False
        _restore(c, count, owner)
        c.alive[begin + s] = 0
        if not refuted:
            break
    for s in range(size):
        c.alive[begin + s] = here[s]
    c.left[i] = whole
    for k in range(filled, end):
        c.used[c.needed[k]] = 0
    return refuted, end, work


@lean
def contradictions(c, cost, most, owner, here, variables, begin, end_of, work):
    """Look at variables[begin:] until ``work`` is used up or there is no room for more.

    Returns the next one to look at and the work that was done; ``end_of[k]`` is where the pairs of the contradiction
    around variables[k] end in ``c.needed``, or -1 where there is none.
    """
    done, filled, k = 0, 0, begin
    while k < len(variables) and done < work and filled + len(c.used) <= len(c.needed):
        refuted, end, looked = _contradiction(c, cost, most, owner, here, variables[k], filled)
        done += looked + 1
        end_of[k] = end if refuted else -1
        filled = end if refuted else filled
        k += 1
    return k, done


def constraints_of(pairs: Pairs, cards: IntArray) -> Constraints:
    """The pairs as arcs from both ends."""
    n, count = len(cards), len(pairs.region)
    tail = np.concatenate((pairs.ends[:, 0], pairs.ends[:, 1]))
    head = np.concatenate((pairs.ends[:, 1], pairs.ends[:, 0]))
    columns = cards[pairs.ends[:, 1]]
    ones = np.ones(count, dtype=np.int64)
    by = np.argsort(tail, kind="stable")
    rank = np.empty_like(by)
    rank[by] = np.arange(2 * count)
    at = np.concatenate(([0], np.cumsum(cards)))
    labels = int(at[-1])
    return Constraints(
        at,
        np.concatenate(([0], np.cumsum(np.bincount(tail, minlength=n)))),
        head[by],
        rank[(by + count) % (2 * count)],
        np.tile(np.arange(count), 2)[by],
        np.tile(pairs.start[:-1], 2)[by],
        np.concatenate((columns, ones))[by],
        np.concatenate((ones, columns))[by],
        np.ones(labels, dtype=np.uint8),
        cards.copy(),
        np.full(labels, GIVEN),
        np.zeros(labels, dtype=np.int64),
        np.zeros(labels, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.uint8),
        np.zeros(labels, dtype=np.uint8),
        np.zeros(count, dtype=np.uint8),
        np.zeros(4 * count + 1024, dtype=np.int64),
    )


def allow(c: Constraints, single: FloatArray, single_low: FloatArray, owner: IntArray, d: float) -> None:
    """Only labels within d of the cheapest one of their variable."""
    c.alive[:] = single <= single_low[owner] + d
    c.left[:] = np.add.reduceat(c.alive.astype(np.int64), c.at[:-1])


def contradictions_within(
    c: Constraints, table: FloatArray, most: FloatArray, owner: IntArray, variables: IntArray, left: Callable[[], float]
) -> tuple[list[tuple[int, IntArray]], int]:
    """All variables around which there is a contradiction, with the pairs that it needs; and the work."""
    found: list[tuple[int, IntArray]] = []
    here = np.zeros(int(np.diff(c.at).max(initial=1)), dtype=np.uint8)
    end_of = np.full(len(variables), -1)
    begin = work = 0
    while begin < len(variables) and work < WORK:
        if left() <= 0.0:
            raise TimeUp
        begun, filled = begin, 0
        begin, done = contradictions(c, table, most, owner, here, variables, begin, end_of, SLICE_WORK)
        work += done
        for k in begun + np.flatnonzero(end_of[begun:begin] >= 0):
            found.append((int(variables[k]), c.needed[filled : end_of[k]].copy()))
            filled = int(end_of[k])
    return found, work


def singleton_clusters(
    regions: Regions,
    neg: FloatArray,
    pairs: Pairs,
    labels: Labels,
    wanted: int,
    least: float,
    left: Callable[[], float],
) -> tuple[list[tuple[int, ...]], float]:
    """Triplets (and the pairs they need) that see contradictions, largest d first, and the sum of these d.

    About ``wanted`` of them, all of d above ``least``; TimeUp where ``left`` says that no time is left.
    """
    cards = regions.graph.arrays.cards.astype(np.int64)
    n = len(cards)
    if len(pairs.region) < 3:
        return [], 0.0
    c = constraints_of(pairs, cards)
    owner = np.repeat(np.arange(n), cards)
    single = reparametrised_singles(regions, neg)
    single_low = np.minimum.reduceat(single, c.at[:-1])
    # a labelling that is within d of all minima has no contradiction: d stays below the largest excess of this one
    where = pairs.start[:-1] + labels[pairs.ends[:, 0]] * cards[pairs.ends[:, 1]] + labels[pairs.ends[:, 1]]
    excess = float((pairs.table[where] - pairs.low).max())
    excess = max(excess, float((single[c.at[:-1] + labels] - single_low).max()))
    known_pairs = set(map(tuple, pairs.ends.tolist()))
    known = set(regions.clusters)
    added: list[tuple[int, ...]] = []
    total, first, work, d = 0.0, 0.0, 0, SHRINK * excess
    open_ones = np.ones(n, dtype=bool)  # variables without a contradiction so far
    taken = np.zeros(len(pairs.region), dtype=bool)  # pairs of contradictions that were found: their costs are spent
    for _ in range(LEVELS):
        if d <= max(least, DEEPEST * first) or len(added) >= wanted or work > WORK:
            break
        allow(c, single, single_low, owner, d)
        found, done = contradictions_within(c, pairs.table, pairs.low + d, owner, np.flatnonzero(open_ones), left)
        work += done
        for i, used in sorted(found, key=lambda f: len(f[1])):
            if len(added) >= wanted:
                break
            if taken[used].any() or (cards[i] * cards[pairs.ends[used]].prod(axis=1)).max(initial=0) > ENTRIES:
                continue
            taken[used] = True
            open_ones[i] = False
            fresh = _triplets(i, pairs.ends[used], known, known_pairs)
            if fresh:
                first = max(first, d)
                total += d
                added += fresh
        d *= SHRINK
    return added, total


def _triplets(
    i: int, used: IntArray, known: set[tuple[int, ...]], known_pairs: set[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """The triplets of i with these pairs, and the pairs in them, that are not there yet."""
    added: list[tuple[int, ...]] = []
    for u, v in used.tolist():
        triplet = tuple(sorted((i, u, v)))
        if i in (u, v) or triplet in known:
            continue
        for pair in (triplet[:2], triplet[::2], triplet[1:]):
            if pair not in known_pairs:
                known_pairs.add(pair)
                added.append(pair)
        known.add(triplet)
        added.append(triplet)
    return added
