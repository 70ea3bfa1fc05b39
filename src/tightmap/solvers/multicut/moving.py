"""Local search over partitions: single variables move, parts join, and small regions are taken apart and settled anew.

Let s(v, A) = sum of w_uv over u in A, plus d of the triples v, u, k with u in A and k in another part than u and v:
what v saves by being in part A rather than alone.

    move    v from A to the part B (or to none) with the largest s(v, B) > s(v, A)
    join    A and B where the sum of what lies between them is positive
    shake   take a connected region out of its parts, or hand it to one of them, or join two parts; then move and join
            what is around until nothing gains; keep what is worse by d with probability exp(-d / warmth), else go back

All moves are on a trail, so a shake costs as much as the region is large, whatever the size of the model.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.runtime.random_numbers import next_word, uniform
from tightmap.solvers.multicut.problem import FloatArray, IntArray, SignedGraph

REGION = 24  # variables of the largest region that is taken apart
GAIN = 1e-10  # of the sum of all sizes: a smaller gain is rounding


class Around(NamedTuple):
    """What is around every variable."""

    start: IntArray
    to: IntArray
    weight: FloatArray
    tri_start: IntArray
    tri_a: IntArray
    tri_b: IntArray
    tri_extra: FloatArray


class Walk(NamedTuple):
    """A partition that changes, and room for what that takes."""

    part: IntArray
    size: IntArray  # of every part
    head: IntArray  # first member of every part, -1 for none
    next: IntArray  # of every variable in its part
    prev: IntArray
    free: IntArray  # stack of parts that are empty; its height is tally[0]
    tally: IntArray  # 0 height of free, 1 length of the trail, 2 of the queue, 3 trail overflow
    trail_who: IntArray
    trail_part: IntArray
    queue: IntArray
    queued: IntArray
    gain: FloatArray  # by part
    stamp: IntArray  # by part
    touched: IntArray
    region: IntArray
    clock: IntArray  # 0 stamps given out so far, 1 shakes so far
    random: np.ndarray


def around(problem: SignedGraph) -> Around:
    n = problem.n
    a, b = problem.pairs[:, 0], problem.pairs[:, 1]
    who, to, w = np.concatenate((a, b)), np.concatenate((b, a)), np.concatenate((problem.weight, problem.weight))
    order = np.argsort(who, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(who, minlength=n))))
    t = problem.triples
    mine = np.concatenate((t[:, 0], t[:, 1], t[:, 2]))
    first = np.concatenate((t[:, 1], t[:, 0], t[:, 0]))
    second = np.concatenate((t[:, 2], t[:, 2], t[:, 1]))
    extra = np.concatenate((problem.extra,) * 3)
    by = np.argsort(mine, kind="stable")
    tri_start = np.concatenate(([0], np.cumsum(np.bincount(mine, minlength=n))))
    return Around(start, to[order], w[order], tri_start, first[by], second[by], extra[by])


def new_walk(problem: SignedGraph, random: np.ndarray) -> Walk:
    n, trail = problem.n, 64 * problem.n + 4096

    def room(size: int = n + 1) -> IntArray:
        return np.zeros(size, np.int64)

    return Walk(
        part=room(), size=room(), head=room(), next=room(), prev=room(), free=room(), tally=room(4),
        trail_who=room(trail), trail_part=room(trail), queue=room(), queued=room(), gain=np.zeros(n + 1),
        stamp=room(), touched=room(), region=room(REGION), clock=room(2), random=random,
    )  # fmt: skip


@lean
def begin_from(walk, part):
    """Set the partition; its numbers are 0..n-1 or fewer."""
    n = len(part)
    for p in range(n):
        walk.size[p] = 0
        walk.head[p] = -1
        walk.queued[p] = 0
    for v in range(n):
        p = part[v]
        walk.part[v] = p
        walk.size[p] += 1
        walk.prev[v] = -1
        walk.next[v] = walk.head[p]
        if walk.head[p] >= 0:
            walk.prev[walk.head[p]] = v
        walk.head[p] = v
    walk.tally[0] = 0
    for p in range(n):
        if walk.size[p] == 0:
            walk.free[walk.tally[0]] = p
            walk.tally[0] += 1
    walk.tally[1] = walk.tally[2] = walk.tally[3] = 0


@lean
def _move(walk, v, target):
    """Move a variable; target -1 is a part of its own."""
    old = walk.part[v]
    if target < 0:
        walk.tally[0] -= 1
        target = walk.free[walk.tally[0]]
    elif walk.size[target] == 0:  # going back into a part that has become empty: take it off the stack
        k = walk.tally[0] - 1
        while walk.free[k] != target:
            k -= 1
        walk.tally[0] -= 1
        walk.free[k] = walk.free[walk.tally[0]]
    before, after = walk.prev[v], walk.next[v]
    if before >= 0:
        walk.next[before] = after
    else:
        walk.head[old] = after
    if after >= 0:
        walk.prev[after] = before
    walk.size[old] -= 1
    if walk.size[old] == 0:
        walk.free[walk.tally[0]] = old
        walk.tally[0] += 1
    walk.part[v] = target
    walk.prev[v] = -1
    walk.next[v] = walk.head[target]
    if walk.head[target] >= 0:
        walk.prev[walk.head[target]] = v
    walk.head[target] = v
    walk.size[target] += 1


@lean
def _noted_move(walk, v, target):
    if walk.tally[1] < len(walk.trail_who):
        walk.trail_who[walk.tally[1]] = v
        walk.trail_part[walk.tally[1]] = walk.part[v]
        walk.tally[1] += 1
    else:
        walk.tally[3] = 1
    _move(walk, v, target)


@lean
def _enqueue(walk, v):
    if walk.queued[v] == 0:
        walk.queued[v] = 1
        n = len(walk.queue)
        walk.queue[walk.tally[2] % n] = v
        walk.tally[2] += 1


@lean
def _sum_to(walk, p, amount, found):
    """Add to what joining part p saves; returns the number of parts seen."""
    if walk.stamp[p] != walk.clock[0]:
        walk.stamp[p] = walk.clock[0]
        walk.gain[p] = 0.0
        walk.touched[found] = p
        found += 1
    walk.gain[p] += amount
    return found


@lean
def _savings(around, walk, v, within, found):
    """Add s(v, A) of all parts A around v to ``gain``; triples within part ``within``, which moves as a whole, not."""
    part = walk.part
    for e in range(around.start[v], around.start[v + 1]):
        found = _sum_to(walk, part[around.to[e]], around.weight[e], found)
    for t in range(around.tri_start[v], around.tri_start[v + 1]):
        a, b = part[around.tri_a[t]], part[around.tri_b[t]]
        if a != b and a != within and b != within:
            found = _sum_to(walk, a, around.tri_extra[t], found)
            found = _sum_to(walk, b, around.tri_extra[t], found)
    return found


@lean
def settle(around, walk, least, first, until):
    """Move what is in the queue, and what that touches, until nothing gains; what was saved, and whether in time."""
    n = len(walk.queue)
    saved = 0.0
    work = 0
    at = first
    while at < walk.tally[2]:
        v = walk.queue[at % n]
        at += 1
        walk.queued[v] = 0
        walk.clock[0] += 1
        found = _savings(around, walk, v, -1, 0)
        work += 4 * (around.start[v + 1] - around.start[v]) + 4 * (around.tri_start[v + 1] - around.tri_start[v])
        own = walk.part[v]
        here = walk.gain[own] if walk.stamp[own] == walk.clock[0] else 0.0
        best = here + least
        target = -2
        if walk.size[own] > 1 and best < 0.0:
            best = 0.0
            target = -1
        for k in range(found):
            p = walk.touched[k]
            if p != own and walk.gain[p] > best:
                best = walk.gain[p]
                target = p
        if target > -2:
            saved += best - here
            _noted_move(walk, v, target)
            for e in range(around.start[v], around.start[v + 1]):
                _enqueue(walk, around.to[e])
        if work > LOOK:
            work = 0
            if late(until):
                while at < walk.tally[2]:
                    walk.queued[walk.queue[at % n]] = 0
                    at += 1
                return saved, at, False
    return saved, at, True


@lean
def join_part(around, walk, p, least):
    """Join a part with the neighbour that saves most by it; what that saved."""
    walk.clock[0] += 1
    found = 0
    v = walk.head[p]
    while v >= 0:
        found = _savings(around, walk, v, p, found)
        v = walk.next[v]
    best = least
    target = -1
    for k in range(found):
        q = walk.touched[k]
        if q != p and walk.gain[q] > best:
            best = walk.gain[q]
            target = q
    if target < 0:
        return 0.0
    small, large = (p, target) if walk.size[p] <= walk.size[target] else (target, p)
    while walk.head[small] >= 0:
        v = walk.head[small]
        _noted_move(walk, v, large)
        _enqueue(walk, v)
        for e in range(around.start[v], around.start[v + 1]):
            _enqueue(walk, around.to[e])
    return best


@lean
def descend(around, walk, least, left):
    """From the partition as it is to one where neither moves nor joins gain; what was saved, and whether in time."""
    until = end_of(left)
    n = len(walk.queue) - 1
    saved = 0.0
    walk.tally[1] = walk.tally[2] = walk.tally[3] = 0
    shift = next_word(walk.random) % np.uint64(n)
    for v in range(n):
        _enqueue(walk, (v + np.int64(shift)) % n)
    at = 0
    while True:
        gained, at, in_time = settle(around, walk, least, at, until)
        saved += gained
        if not in_time:
            return saved, False
        joined = 0.0
        for p in range(n):
            if walk.size[p] > 0:
                joined += join_part(around, walk, p, least)
                walk.tally[1] = 0
                if p % 64 == 0 and late(until):
                    while at < walk.tally[2]:
                        walk.queued[walk.queue[at % len(walk.queue)]] = 0
                        at += 1
                    return saved + joined, False
        saved += joined
        if joined == 0.0:
            return saved, True


@lean
def _drawn(walk, below):
    return np.int64(next_word(walk.random) >> np.uint64(33)) % below


@lean
def shakes(around, walk, least, warmth, many, left):
    """So many shakes (fewer when time is up); returns how many, and what they saved in all.

    What is worse by d is kept with probability exp(-d / warmth).
    """
    until = end_of(left)
    n = len(walk.queue) - 1
    total = 0.0
    for made in range(many):
        if late(until):
            return made, total
        walk.tally[1] = walk.tally[2] = walk.tally[3] = 0
        # a connected region, grown from a variable drawn at random
        limit = 1 + _drawn(walk, REGION)
        count = 1
        walk.region[0] = _drawn(walk, n)
        tries = 0
        while count < limit and tries < 4 * limit:
            tries += 1
            v = walk.region[_drawn(walk, count)]
            around_v = around.start[v + 1] - around.start[v]
            if around_v == 0:
                break
            u = around.to[around.start[v] + _drawn(walk, around_v)]
            known = False
            for k in range(count):
                known = known or walk.region[k] == u
            if not known:
                walk.region[count] = u
                count += 1
        kind = _drawn(walk, 4)
        target = -1
        saved = 0.0
        if kind == 0:  # all of it into one part, that of a neighbour of its first variable
            v = walk.region[count - 1]
            target = walk.part[v]
        elif kind == 1:  # all of it into a new part
            target = -2
        elif kind == 2 and count > 1:  # join two parts
            p, q = walk.part[walk.region[0]], walk.part[walk.region[count - 1]]
            if p != q and walk.size[p] + walk.size[q] < 4 * n // 3:
                count = 0
                walk.clock[0] += 1
                found = 0
                v = walk.head[p]
                while v >= 0:
                    found = _savings(around, walk, v, p, found)
                    v = walk.next[v]
                if walk.stamp[q] == walk.clock[0]:
                    saved += walk.gain[q]
                small, large = (p, q) if walk.size[p] <= walk.size[q] else (q, p)
                while walk.head[small] >= 0:
                    v = walk.head[small]
                    _noted_move(walk, v, large)
                    _enqueue(walk, v)
                    for e in range(around.start[v], around.start[v + 1]):
                        _enqueue(walk, around.to[e])
        for k in range(count):
            v = walk.region[k]
            own = walk.part[v]
            if own == target or (target < 0 and walk.size[own] == 1):
                if target == -2:
                    target = own
                _enqueue(walk, v)
                continue
            walk.clock[0] += 1
            _savings(around, walk, v, -1, 0)
            here = walk.gain[own] if walk.stamp[own] == walk.clock[0] else 0.0
            there = 0.0
            if target >= 0 and walk.stamp[target] == walk.clock[0]:
                there = walk.gain[target]
            saved += there - here
            _noted_move(walk, v, max(target, -1))
            if target == -2:
                target = walk.part[v]
        for k in range(count):  # from a member drawn at random on: the order decides who joins whom
            v = walk.region[k]
            for e in range(around.start[v], around.start[v + 1]):
                if kind != 3:
                    _enqueue(walk, around.to[e])
            if kind >= 2:
                _enqueue(walk, v)
        at = 0
        while True:
            first = walk.tally[1]
            gained, at, in_time = settle(around, walk, least, at, until)
            saved += gained
            joined = 0.0
            if in_time:
                changed = walk.tally[1] if first else 0
                for k in range(max(0, changed - 32), changed):
                    p = walk.part[walk.trail_who[k]]
                    if walk.size[p] > 0 and walk.size[p] <= 4 * REGION:
                        joined += join_part(around, walk, p, least)
            saved += joined
            if joined == 0.0 or not in_time:
                break
        while at < walk.tally[2]:
            walk.queued[walk.queue[at % len(walk.queue)]] = 0
            at += 1
        if saved < 0.0 and walk.tally[3] == 0 and (warmth <= 0.0 or saved < warmth * np.log(uniform(walk.random))):
            for k in range(walk.tally[1] - 1, -1, -1):
                _move(walk, walk.trail_who[k], walk.trail_part[k])
        else:
            total += saved
    return many, total
