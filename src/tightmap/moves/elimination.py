"""Subgraphs of small width inside a graph, minimised exactly by variable elimination while the rest stays.

Generalises the forests of moves/forests.py.  Given a region and the labels each of its variables may take, variables
are eliminated one after the other, always the one whose table (over itself and the neighbours it has left, fill-in
included) is smallest.  Where even the smallest table is too large, one variable of it is held at its present label
instead and elimination goes on: what is left is an induced subgraph of bounded width, nearly all of the region when the
graph is sparse (Hamze and de Freitas 2004 with trees; Selby 2014 with wider graphs).  Its exact minimum given
everything else is one pass of min-sum elimination and one pass back, for factors of any order and kind.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.kernels import add_slice, load_unary, most_labels, value
from tightmap.runtime.bits import ONE, lowest_bit
from tightmap.runtime.compiled import compiled, lean, shared
from tightmap.runtime.random_numbers import uniform

REGION = 2048  # most variables in a region
JITTER = 0.3  # random part of the scores (logarithms of table sizes), so that every call gives another order
WIDTH = 24  # most neighbours that share a table with the variable that is eliminated


@lean
def ball(g, centre, size, skip, random, place, region):
    """Breadth first from ``centre``: fills ``region``, sets place[i] to the place in it, returns the count.

    Neighbours are visited from a random one on, and passed over with probability ``skip`` (another may bring them in),
    so that two balls around the same variable of a dense graph differ.
    """
    region[0] = centre
    place[centre] = 0
    count = 1
    head = 0
    while head < count and count < size:
        i = region[head]
        head += 1
        degree = g.adj_start[i + 1] - g.adj_start[i]
        turn = int(uniform(random) * degree)
        for t in range(degree):
            f = g.adj_factor[g.adj_start[i] + (t + turn) % degree]
            for p in range(g.scope_start[f], g.scope_start[f + 1]):
                j = g.scope[p]
                if place[j] < 0 and count < size and not (skip > 0.0 and uniform(random) < skip):
                    region[count] = j
                    place[j] = count
                    count += 1
    return count


@shared(allocates=True)
def choose_subgraph(g, region, place, domain_start, limit, far, stir, random, order, first, others):
    """Which variables of the region to eliminate, in which order, with tables of at most ``limit`` entries.

    order    places of the eliminated variables, in order; the count is returned
    first    others[first[q]:first[q + 1]]: positions in ``order`` of the further variables in the table of order[q],
             ascending
    far      weight of the distance from the centre of the region in the choice of variables to hold; with 0 those with
             the largest tables are held, which leaves most variables free but seldom moves hubs
    stir     weight of chance in that choice
    """
    r = len(region)
    words = (r + 63) >> 6
    near = np.zeros((r, words), np.uint64)
    size = np.empty(r)  # logarithm of the number of labels
    score = np.empty(r)
    tie = np.empty(r)
    hold = np.empty(r)
    for q in range(r):
        size[q] = np.log(domain_start[q + 1] - domain_start[q])
        tie[q] = JITTER * uniform(random)
        hold[q] = far * q + stir * uniform(random)
        i = region[q]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            for p in range(g.scope_start[f], g.scope_start[f + 1]):
                at = place[g.scope[p]]
                if at >= 0 and at != q:
                    near[q, at >> 6] |= ONE << np.uint64(at & 63)
    for q in range(r):
        score[q] = size[q]
        for w in range(words):
            word = near[q, w]
            while word != 0:
                score[q] += size[(w << 6) + lowest_bit(word)]
                word &= word - ONE
    alive = np.arange(r)
    left = r
    most = np.log(limit) + 1e-9
    position = np.full(r, -1, np.int64)
    raw = np.empty(r * WIDTH, np.int64)
    start = np.zeros(r + 1, np.int64)
    count = 0
    while left > 0:
        at = 0
        least = np.inf
        for k in range(left):
            q = alive[k]
            if score[q] + tie[q] < least:
                least = score[q] + tie[q]
                at = k
        v = alive[at]
        gone = v
        if score[v] > most:  # hold one variable of this table
            worst = score[v] + hold[v]
            for w in range(words):
                word = near[v, w]
                while word != 0:
                    u = (w << 6) + lowest_bit(word)
                    word &= word - ONE
                    if score[u] + hold[u] > worst:
                        worst = score[u] + hold[u]
                        gone = u
            for w in range(words):
                word = near[gone, w]
                while word != 0:
                    u = (w << 6) + lowest_bit(word)
                    word &= word - ONE
                    near[u, gone >> 6] &= ~(ONE << np.uint64(gone & 63))
                    score[u] -= size[gone]
        else:
            position[v] = count
            order[count] = v
            top = start[count]
            for w in range(words):
                word = near[v, w]
                while word != 0:
                    u = (w << 6) + lowest_bit(word)
                    word &= word - ONE
                    raw[top] = u
                    top += 1
                    score[u] -= size[v]
                    near[u, v >> 6] &= ~(ONE << np.uint64(v & 63))
            for k in range(start[count], top):
                u = raw[k]
                for w in range(words):
                    fill = near[v, w] & ~near[u, w]
                    if w == u >> 6:
                        fill &= ~(ONE << np.uint64(u & 63))
                    near[u, w] |= fill
                    while fill != 0:
                        score[u] += size[(w << 6) + lowest_bit(fill)]
                        fill &= fill - ONE
            count += 1
            start[count] = top
        if gone != v:
            at = 0
            while alive[at] != gone:
                at += 1
        left -= 1
        alive[at] = alive[left]
    top = 0
    first[0] = 0
    for k in range(count):
        low = top
        for e in range(start[k], start[k + 1]):
            own = position[raw[e]]
            if own >= 0:  # it was not held at its label later on
                at = top
                while at > low and others[at - 1] > own:
                    others[at] = others[at - 1]
                    at -= 1
                others[at] = own
                top += 1
        first[k + 1] = top
    return count


@compiled
def _accumulate(table, size, dim, has, k, source):
    """table += source, which has the digits p with has[p] only; digit 0 runs fastest in both."""
    block = 1
    p = 0
    while p < k and has[p]:
        block *= dim[p]
        p += 1
    repeat = 1  # digits that the source does not have, right after those
    while p < k and not has[p]:
        repeat *= dim[p]
        p += 1
    stride = np.empty(k + 1, np.int64)
    digit = np.zeros(k + 1, np.int64)
    current = block
    for q in range(p, k):
        stride[q] = current if has[q] else 0
        if has[q]:
            current *= dim[q]
    t = 0
    s = 0
    while t < size:
        for _ in range(repeat):
            for b in range(block):
                table[t + b] += source[s + b]
            t += block
        q = p
        while q < k:
            digit[q] += 1
            s += stride[q]
            if digit[q] < dim[q]:
                break
            s -= stride[q] * dim[q]
            digit[q] = 0
            q += 1


@shared(allocates=True)
def minimise_subgraph(g, labels, region, place, domain_start, domain, count, order, first, others, noise, pool, choice):
    """Exact minimum over the chosen subgraph, given the rest, into labels; returns the work (-1: pool too small).

    domain  labels that place q may take: domain[domain_start[q]:domain_start[q + 1]]
    noise   random costs per entry of domain (zeros for a plain minimum)
    pool, choice  space for the messages and their minimising labels
    """
    rank = np.full(len(region), -1, np.int64)  # place -> position in order
    total = work = 0
    largest = 1
    for k in range(count):
        rank[order[k]] = k
    for k in range(count):
        size = 1
        for e in range(first[k], first[k + 1]):
            q = order[others[e]]
            size *= domain_start[q + 1] - domain_start[q]
        total += size
        q = order[k]
        size *= domain_start[q + 1] - domain_start[q]
        work += size * (2 + first[k + 1] - first[k])
        largest = max(largest, size)
    if total > len(pool):
        return -1
    table = np.empty(largest)
    small = np.empty(largest)
    begin = np.empty(count + 1, np.int64)  # of messages in the pool
    begin[0] = 0
    head = np.full(count, -1, np.int64)  # messages that arrive at a position
    after = np.full(count, -1, np.int64)
    dim = np.empty(WIDTH + 2, np.int64)
    has = np.empty(WIDTH + 2, np.bool_)
    free = np.empty(WIDTH + 2, np.int64)
    digit = np.empty(WIDTH + 2, np.int64)
    row = np.empty(most_labels(g.cards))
    for k in range(count):
        v = order[k]
        i = region[v]
        own = domain_start[v + 1] - domain_start[v]
        dim[0] = own
        width = 1
        size = own
        for e in range(first[k], first[k + 1]):
            q = order[others[e]]
            dim[width] = domain_start[q + 1] - domain_start[q]
            size *= dim[width]
            width += 1
        load_unary(g, i, row)
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            alone = True
            for p in range(g.scope_start[f], g.scope_start[f + 1]):
                j = g.scope[p]
                if j != i and place[j] >= 0 and rank[place[j]] >= 0:
                    alone = False
            if alone:
                add_slice(g, f, int(g.adj_pos[a]), labels, row, 1.0)
        for s in range(own):
            table[s] = row[domain[domain_start[v] + s]] + noise[domain_start[v] + s]
        for t in range(own, size):
            table[t] = table[t - own]
        # factors whose first variable in the order is this one
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            mine = True
            members = 0
            for p in range(g.scope_start[f], g.scope_start[f + 1]):
                at = place[g.scope[p]]
                if at >= 0 and rank[at] >= 0:
                    if rank[at] < k:
                        mine = False
                        break
                    m = members  # insertion sort: positions in the order, ascending
                    while m > 0 and free[m - 1] > rank[at]:
                        free[m] = free[m - 1]
                        m -= 1
                    free[m] = rank[at]
                    members += 1
            if not mine or members < 2:
                continue
            entries = 1
            m = 0
            for p in range(width):
                at = k if p == 0 else others[first[k] + p - 1]
                has[p] = m < members and free[m] == at
                if has[p]:
                    m += 1
                    entries *= dim[p]
            for m in range(members):
                q = order[free[m]]
                digit[m] = labels[region[q]]
                labels[region[q]] = domain[domain_start[q]]
                free[m] = q
            # costs of all labellings of the free variables, without noise; the first variable runs fastest
            t = 0
            where = np.zeros(members, np.int64)
            while t < entries:
                small[t] = value(g, f, labels)
                t += 1
                m = 0
                while m < members:
                    q = free[m]
                    where[m] += 1
                    if where[m] < domain_start[q + 1] - domain_start[q]:
                        labels[region[q]] = domain[domain_start[q] + where[m]]
                        break
                    where[m] = 0
                    labels[region[q]] = domain[domain_start[q]]
                    m += 1
            for m in range(members):
                labels[region[free[m]]] = digit[m]
            _accumulate(table, size, dim, has, width, small)
        child = head[k]
        while child >= 0:
            m = first[child]
            for p in range(width):
                at = k if p == 0 else others[first[k] + p - 1]
                has[p] = m < first[child + 1] and others[m] == at
                if has[p]:
                    m += 1
            _accumulate(table, size, dim, has, width, pool[begin[child] : begin[child + 1]])
            child = after[child]
        base = begin[k]
        entries = size // own
        for t in range(entries):
            least = table[t * own]
            best = 0
            for s in range(1, own):
                if table[t * own + s] < least:
                    least = table[t * own + s]
                    best = s
            pool[base + t] = least
            choice[base + t] = best
        begin[k + 1] = base + entries
        if first[k + 1] > first[k]:
            up = others[first[k]]
            after[k] = head[up]
            head[up] = k
    taken = np.empty(count, np.int64)
    for k in range(count - 1, -1, -1):
        at = 0
        stride = 1
        for e in range(first[k], first[k + 1]):
            q = order[others[e]]
            at += stride * taken[others[e]]
            stride *= domain_start[q + 1] - domain_start[q]
        taken[k] = choice[begin[k] + at]
        v = order[k]
        labels[region[v]] = domain[domain_start[v] + taken[k]]
    return work
