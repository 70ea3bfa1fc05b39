"""What the relaxation of a partition problem violates: cycles, by shortest paths or among all triangles, and stars.

    cycle   y_e <= sum of y_f over the other pairs f of a cycle
    star    sum over t of (1 - y_vt) - sum over t < t' of (1 - y_tt') <= 1,   v and a set T of others: of those that are
            in one part with v, all pairs are in one part

Where nearly all pairs are there, triangles are all cycles that count.  Stars are grown greedily from every pair, by the
t that adds most to the left side.

References: Chopra and Rao 1993; Groetschel and Wakabayashi 1989, who call the stars 2-partition inequalities.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, end_of, late

VIOLATED = 1e-3  # what is violated by less is no row
HOP = 1e-4  # length of every pair beside its y: short cycles are preferred
LONGEST = 64  # pairs of a cycle
RESTS = 7  # calls for which a pair that no cycle was found for is passed over, at most
STAR = 10  # variables around the one in the middle of a star


@lean
def _sift_down(heap, key, place, count, at):
    v = heap[at]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[child]] >= key[v]:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = v
    place[v] = at


@lean
def _sift_up(heap, key, place, at):
    v = heap[at]
    while at > 0 and key[heap[(at - 1) // 2]] > key[v]:
        heap[at] = heap[(at - 1) // 2]
        place[heap[at]] = at
        at = (at - 1) // 2
    heap[at] = v
    place[v] = at


@lean
def find_paths(adj_start, adj_to, adj_pair, pairs, y, key, place, heap, by, seen, rest, out_start, out, begin, left):
    """Shortest paths that are shorter than the pair that they go around, from pair ``begin`` on.

    Row k of ``out`` is the pair, then those of its path.  Returns how many rows, and the pair to go on with.  A pair
    without such a path, whose search is the longest, rests for some calls: rest[e] = [calls to go, calls last time].
    """
    until = end_of(left)
    rows = 0
    used = 0
    work = 0
    for e in range(begin, len(pairs)):
        limit = y[e] - VIOLATED
        if work > LOOK:
            work = 0
            if late(until):
                return rows, e
        if limit <= 0.0:
            continue
        if rest[e, 0] > 0:
            rest[e, 0] -= 1
            continue
        if rows + 1 >= len(out_start) or used + LONGEST > len(out):
            return rows, e
        source, sink = pairs[e, 0], pairs[e, 1]
        count = 1
        heap[0] = source
        place[source] = 0
        key[source] = 0.0
        seen[source] = e + 1
        by[source] = -1
        found = False
        while count > 0:
            v = heap[0]
            if v == sink:
                found = True
                break
            count -= 1
            place[v] = -1
            if count > 0:
                heap[0] = heap[count]
                _sift_down(heap, key, place, count, 0)
            for k in range(adj_start[v], adj_start[v + 1]):
                f = adj_pair[k]
                if f == e:
                    continue
                work += 1
                u = adj_to[k]
                far = key[v] + y[f] + HOP
                if far >= limit:
                    continue
                if seen[u] != e + 1:
                    seen[u] = e + 1
                    place[u] = count
                    heap[count] = u
                    count += 1
                elif place[u] < 0 or far >= key[u]:
                    continue
                key[u] = far
                by[u] = f
                _sift_up(heap, key, place, place[u])
        if not found:
            rest[e, 1] = min(2 * rest[e, 1] + 1, RESTS)
            rest[e, 0] = rest[e, 1]
        if found:
            rest[e, 1] = 0
            out[used] = e
            length = 1
            v = sink
            while v != source and length < LONGEST:
                f = by[v]
                out[used + length] = f
                length += 1
                v = pairs[f, 0] if pairs[f, 1] == v else pairs[f, 1]
            if v == source:
                used += length
                rows += 1
                out_start[rows] = used
    return rows, len(pairs)


@lean
def find_triangles(n, number, y, out, amount):
    """Violated triangles of every pair, the worst only; number[u, v] is the pair, -1 where there is none."""
    rows = 0
    for u in range(n):
        for v in range(u + 1, n):
            e = number[u, v]
            if e < 0 or y[e] <= VIOLATED:
                continue
            worst = VIOLATED
            chosen = -1
            for k in range(n):
                f, h = number[u, k], number[v, k]
                if f >= 0 and h >= 0 and y[e] - y[f] - y[h] > worst:
                    worst = y[e] - y[f] - y[h]
                    chosen = k
            if chosen >= 0 and rows < len(out):
                out[rows, 0] = e
                out[rows, 1] = number[u, chosen]
                out[rows, 2] = number[v, chosen]
                amount[rows] = worst
                rows += 1
    return rows


@lean
def find_stars(n, number, y, out, size, amount):
    """Violated stars: row k of ``out`` is the middle and then the others, size[k] in all; returns how many rows."""
    rows = 0
    for v in range(n):
        for i in range(n):
            if i == v or number[v, i] < 0:
                continue
            near = 1.0 - y[number[v, i]]
            if near <= VIOLATED or near >= 1.0 - VIOLATED or rows >= len(out):
                continue
            out[rows, 0] = v
            out[rows, 1] = i
            count = 2
            left = near
            while count <= STAR:
                best = VIOLATED
                chosen = -1
                for j in range(n):
                    e = number[v, j]
                    if j == v or e < 0 or 1.0 - y[e] <= best:
                        continue
                    gain = 1.0 - y[e]
                    for k in range(1, count):
                        f = number[out[rows, k], j]
                        if f < 0:  # the same one, or a pair that is not there
                            gain = -1.0
                            break
                        gain -= 1.0 - y[f]
                    if gain > best:
                        best = gain
                        chosen = j
                if chosen < 0:
                    break
                out[rows, count] = chosen
                count += 1
                left += best
            if left > 1.0 + 10 * VIOLATED and count > 3:
                size[rows] = count
                amount[rows] = left - 1.0
                rows += 1
    return rows
