"""Contraction and min-marginals of label patterns without going through all labellings.

A labelling of k positions is a partition of them (its pattern) and different labels for the blocks of the partition.
There are Bell(k) partitions whatever the number of labels is: 877 of seven positions, which have 12^7 labellings.

Contraction.  Let Z(C) be the sum over labels l of the product of x_p(l), p in C.  The sum over all *different* labels
of the blocks of a partition is, by inclusion and exclusion, a sum over the ways to merge blocks:

    sum over mergers of  prod over merged blocks C, made of b blocks, of  (-1)^(b - 1) (b - 1)! Z(C).

Min-marginal.  Given a partition, the cheapest different labels of its blocks are an assignment problem (Kuhn 1955).
Most partitions need none: those whose blocks would not beat the best so far even with labels that may be equal, and
those whose blocks have different best labels anyway.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.factors.pattern_ranks import COMPLETIONS, IN_ORDER, MAX_ARITY, pattern_rank
from tightmap.runtime.compiled import lean

UNIT = 2.0**-53


def pattern_workspace(arity: int, labels: int) -> int:
    """Entries of scratch space that the two kernels need."""
    return 2 * (1 << arity) + arity * labels + 8 * (labels + 1) + 8 * (arity + 2)


def merger_counts() -> list[int]:
    """Pairs of a partition of k positions and a merger of its blocks, for k = 0, 1, ...: the terms of a contraction."""
    counts = []
    for k in range(MAX_ARITY + 1):
        second = [[0] * (k + 1) for _ in range(k + 1)]  # Stirling numbers: partitions of n things into b blocks
        second[0][0] = 1
        for n in range(1, k + 1):
            for b in range(1, n + 1):
                second[n][b] = b * second[n - 1][b] + second[n - 1][b - 1]
        counts.append(sum(second[k][b] * int(COMPLETIONS[b, 0]) for b in range(k + 1)))
    return counts


MERGERS = np.array(merger_counts(), dtype=np.float64)


@lean
def _next_string(group, k):
    """The next restricted growth string in lexicographic order, in place; False after the last."""
    for p in range(k - 1, 0, -1):
        top = 0.0
        for q in range(p):
            top = max(top, group[q])
        if group[p] <= top:
            group[p] += 1.0
            for q in range(p + 1, k):
                group[q] = 0.0
            return True
    return False


@lean
def _blocks(group, k, block):
    """Sets of positions (bit p for position p) of the blocks of a growth string; returns how many there are."""
    count = 0
    for p in range(k):
        b = int(group[p])
        if b == count:
            block[b] = 0.0
            count += 1
        block[b] += 1 << p
    return count


@lean
def _common_labels(g, f, members):
    """Labels that all positions of a set have."""
    a = g.scope_start[f]
    least = g.cards[g.scope[a]] if members & 1 else 1 << 62
    for p in range(1, g.scope_start[f + 1] - a):
        if members >> p & 1:
            least = min(least, g.cards[g.scope[a + p]])
    return least


# ---------------------------------------------------------------------------------------------- contraction


@lean
def _merge_blocks(block, blocks, home, cost, mass, share, stack):
    """Add a partition's terms to ``share``: for every merger, the product of the masses of all but the set of pos."""
    width = blocks + 1
    union = stack[:width]
    count = stack[width : 2 * width]
    choice = stack[2 * width : 3 * width]
    used = stack[3 * width : 4 * width]
    scale = stack[4 * width : 5 * width]
    scale[0] = cost
    used[0] = 0.0
    choice[0] = -1.0
    level = 0
    while level >= 0:
        c = int(choice[level])
        if c >= 0:
            union[c] -= block[level]
            count[c] -= 1.0
        c += 1
        if c > used[level]:
            level -= 1
            continue
        choice[level] = c
        if c == used[level]:
            union[c] = block[level]
            count[c] = 1.0
            scale[level + 1] = scale[level]
            used[level + 1] = used[level] + 1.0
        else:
            scale[level + 1] = -scale[level] * count[c]
            union[c] += block[level]
            count[c] += 1.0
            used[level + 1] = used[level]
        if level + 1 < blocks:
            level += 1
            choice[level] = -1.0
            continue
        product = scale[blocks]
        own = int(choice[home])
        for u in range(int(used[blocks])):
            if u != own:
                product *= mass[int(union[u])]
        share[int(union[own])] += product


@lean
def pattern_contract(g, f, pos, x, start, out, work):
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    t = g.param[f]
    sets = 1 << k
    mass = work[:sets]
    share = work[sets : 2 * sets]
    group = work[2 * sets : 2 * sets + k]
    block = work[2 * sets + k : 2 * sets + 2 * k]
    stack = work[2 * sets + 2 * k :]
    for members in range(1, sets):
        share[members] = 0.0
        if members >> pos & 1:
            continue
        total = 0.0
        for s in range(_common_labels(g, f, members)):
            product = 1.0
            for p in range(k):
                if members >> p & 1:
                    product *= x[start[p] + s]
            total += product
        mass[members] = total
    usual = g.params[t + COMPLETIONS[k, 0] - 1]  # all different; patterns that cost the same need no look
    product = usual
    for p in range(k):
        group[p] = 0.0
        if p != pos:
            product *= mass[1 << p]
    share[1 << pos] = product
    rank = 0
    more = True
    while more:
        cost = g.params[t + rank] - usual
        rank += 1
        if cost != 0.0:
            blocks = _blocks(group, k, block)
            _merge_blocks(block, blocks, int(group[pos]), cost, mass, share, stack)
        more = _next_string(group, k)
    for members in range(1, sets):
        if members >> pos & 1 == 0 or share[members] == 0.0:
            continue
        for s in range(_common_labels(g, f, members)):
            product = g.weight[f] * share[members]
            for p in range(k):
                if members >> p & 1 and p != pos:
                    product *= x[start[p] + s]
            out[s] += product


# ---------------------------------------------------------------------------------------------- min-marginals


@lean
def _different_labels(rows, count, labels, without, scratch):
    """Cheapest choice of different labels, one for each of ``count`` rows, none of them ``without``; +inf if none.

    The Hungarian method, one row after the other along a shortest path of reduced costs.  Afterwards
    scratch[l + 1] > 0 exactly for the labels l that are taken.  Label 0 is column 1: column 0 stands for "no label".
    """
    width = labels + 1
    match = scratch[:width]
    back = scratch[width : 2 * width]
    least = scratch[2 * width : 3 * width]
    seen = scratch[3 * width : 4 * width]
    column = scratch[4 * width : 5 * width]
    price = scratch[5 * width :]  # of the rows, from one
    for j in range(width):
        match[j] = 0.0
        column[j] = 0.0
    for i in range(count + 1):
        price[i] = 0.0
    for i in range(1, count + 1):
        match[0] = i
        for j in range(width):
            least[j] = np.inf
            seen[j] = 0.0
        at = 0
        while match[at] != 0.0:
            seen[at] = 1.0
            row = int(match[at])
            step = np.inf
            to = 0
            for j in range(1, width):
                if seen[j] == 0.0 and j - 1 != without:
                    v = rows[(row - 1) * labels + j - 1] - price[row] - column[j]
                    if v < least[j]:
                        least[j] = v
                        back[j] = at
                    if least[j] < step:
                        step = least[j]
                        to = j
            if step == np.inf:
                return np.inf
            for j in range(width):
                if seen[j] != 0.0:
                    price[int(match[j])] += step
                    column[j] -= step
                else:
                    least[j] -= step
            at = to
        while at != 0:
            before = int(back[at])
            match[at] = match[before]
            at = before
    total = 0.0
    for j in range(1, width):
        if match[j] != 0.0:
            total += rows[(int(match[j]) - 1) * labels + j - 1]
    match[0] = 0.0
    return total


@lean
def _sum_at(g, f, members, h, start, s):
    """Sum of the vectors of a set of positions at one label, +inf where one of them does not have it."""
    a = g.scope_start[f]
    total = 0.0
    for p in range(g.scope_start[f + 1] - a):
        if members >> p & 1:
            total += h[start[p] + s] if s < g.cards[g.scope[a + p]] else np.inf
    return total


@lean
def _try_partition(g, f, pos, h, start, cost, block, blocks, home, low, best, out, scratch):
    """Lower out[s] where this partition, of this cost, offers less; ``cost`` has the weight in it."""
    n = g.cards[g.scope[g.scope_start[f] + pos]]
    members = int(block[home])
    with_mine = members - (1 << pos)
    total = 0.0
    for b in range(blocks):
        if b != home:
            total += low[int(block[b])]
    mine = scratch[:n]
    hope = False
    for s in range(min(n, _common_labels(g, f, members))):
        mine[s] = _sum_at(g, f, with_mine, h, start, s)
        hope |= cost + total + mine[s] < out[s]
    if not hope:
        return
    labels = 0
    clash = False
    for b in range(blocks):
        if b != home:
            labels = max(labels, _common_labels(g, f, int(block[b])))
            for c in range(b):
                if c != home and best[int(block[b])] == best[int(block[c])]:
                    clash = True
    rows = scratch[n : n + (blocks - 1) * labels]
    rest = scratch[n + (blocks - 1) * labels :]
    taken = rest[: labels + 1]
    assignment = rest[labels + 1 :]
    size = 0.0
    row = 0
    filled = False
    slack = 0.0
    for l in range(labels + 1):
        taken[l] = 0.0
    if not clash:
        for b in range(blocks):
            if b != home:
                taken[int(best[int(block[b])]) + 1] = 1.0
    for s in range(min(n, _common_labels(g, f, members))):
        if not cost + total + mine[s] < out[s]:
            continue
        if (clash or (s < labels and taken[s + 1] != 0.0)) and not filled:
            for b in range(blocks):
                if b != home:
                    for l in range(labels):
                        v = _sum_at(g, f, int(block[b]), h, start, l)
                        rows[row * labels + l] = v
                        if v < np.inf:
                            size = max(size, abs(v))
                    row += 1
            filled = True
            # what rounding in the prices of the assignment can have cost at most, many times over
            slack = 32.0 * UNIT * row * row * size
            if clash:
                total = _different_labels(rows, row, labels, -1, assignment) - slack
                for l in range(labels + 1):
                    taken[l] = assignment[l]
                if not cost + total + mine[s] < out[s]:
                    continue
        if s < labels and taken[s + 1] != 0.0:
            v = cost + mine[s] + (_different_labels(rows, row, labels, s, assignment) - slack)
        else:
            v = cost + mine[s] + total
        out[s] = min(out[s], v)


@lean
def pattern_minmarg(g, f, pos, h, start, out, work):
    a = g.scope_start[f]
    k = g.scope_start[f + 1] - a
    n = g.cards[g.scope[a + pos]]
    w = g.weight[f]
    t = g.param[f]
    sets = 1 << k
    low = work[:sets]  # smallest sum of the vectors of a set of positions at one label
    best = work[sets : 2 * sets]  # that label
    group = work[2 * sets : 2 * sets + k]
    block = work[2 * sets + k : 2 * sets + 2 * k]
    scratch = work[2 * sets + 2 * k :]
    low[0] = 0.0
    for members in range(1, sets):
        if members >> pos & 1:
            continue
        low[members] = np.inf
        best[members] = 0.0
        for s in range(_common_labels(g, f, members)):
            v = _sum_at(g, f, members, h, start, s)
            if v < low[members]:
                low[members] = v
                best[members] = s
    total = 0.0
    for p in range(k):
        group[p] = 0.0
        if p != pos:
            total += low[1 << p]
            block[p] = best[1 << p]
    for s in range(n):
        out[s] = total + w * g.params[t + pattern_rank(block, IN_ORDER[:k], pos, s)]
    if total == np.inf:
        return
    rank = 0
    more = True
    while more:
        cost = w * g.params[t + rank]
        rank += 1
        blocks = _blocks(group, k, block)
        home = int(group[pos])
        bound = cost + low[int(block[home]) - (1 << pos)]
        for b in range(blocks):
            if b != home:
                bound += low[int(block[b])]
        worst = out[0]
        for s in range(1, n):
            worst = max(worst, out[s])
        if bound < worst:
            _try_partition(g, f, pos, h, start, cost, block, blocks, home, low, best, out, scratch)
        more = _next_string(group, k)
