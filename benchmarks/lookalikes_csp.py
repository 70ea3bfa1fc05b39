"""More models made at random (lookalikes.py), in the likeness of collections of constraint and graphical models.

    circuits          gates of which some are broken: the cheapest explanation of what comes out (hard tables)
    auctions          bids on bundles of goods, each of which is sold once
    queens            as many queens as rows, none threatens another, every field has its price
    rulers            marks on a ruler, all distances differ, the shortest one
    cliques           the largest set of vertices that are all neighbours
    designs           50 to 200 rotamers for every site of a protein
    conditional net   a network of conditional tables with several states, some of them seen
    hypertree         a tree of large tables that overlap, and a few more that close circles
    codes             the likeliest word of a code of sparse parity checks, after noise
    sum colouring     neighbours differ, and every colour costs more than the one before it
    crossword         words for places that cross, from long lists, some words better than others
    covers            every row is covered by exactly one chosen column, at least cost
    rosters           shifts of nurses: who may follow whom, how many are needed, what everybody would like
    jobs              when each job begins: no two on one machine at once, lateness costs
    pairs of clauses  weighted clauses of two variables, more than can be met

Every function takes a seed and gives the same model for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import tightmap as tm

FORBIDDEN = math.inf
NOT_BOTH = np.array([[0.0, 0.0], [0.0, FORBIDDEN]])


def circuits(seed: int, inputs: int = 20, gates: int = 150) -> tm.Model:
    """Variables: the wires, then whether each gate is broken (then it may give anything)."""
    rng = np.random.default_rng([seed, 101])
    wires = inputs + gates
    model = tm.Model([2] * (wires + gates))
    truth = list(rng.integers(0, 2, inputs))
    model.add_unaries(np.column_stack((np.zeros(gates), rng.integers(5, 20, gates))), np.arange(wires, wires + gates))
    for g in range(gates):
        a, b = rng.choice(np.arange(max(0, inputs + g - 40), inputs + g), 2, replace=False)
        what = [lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y][int(rng.integers(3))]
        table = np.zeros((2, 2, 2, 2))  # first input, second, output, broken
        for x in range(2):
            for y in range(2):
                table[x, y, 1 - what(x, y), 0] = FORBIDDEN
        model.add_factors([[a, b, inputs + g, wires + g]], table)
        truth.append(int(what(truth[a], truth[b])) ^ int(rng.random() < 0.05))
    seen = np.concatenate((np.arange(inputs), rng.choice(np.arange(inputs, wires), gates // 4, replace=False)))
    for w in seen:
        model.add_unaries([[FORBIDDEN, 0.0] if truth[w] else [0.0, FORBIDDEN]], [w])
    return model


def auctions(seed: int, bids: int = 150, goods: int = 60) -> tm.Model:
    """Label 1: the bid wins; a bid that loses costs its value."""
    rng = np.random.default_rng([seed, 102])
    worth = rng.uniform(1.0, 100.0, goods)
    bundles = [set(rng.choice(goods, int(rng.integers(2, 7)), replace=False).tolist()) for _ in range(bids)]
    value = [round(sum(worth[g] for g in b) * rng.uniform(0.8, 1.3)) for b in bundles]
    model = tm.Model([2] * bids)
    model.add_unaries([[float(v), 0.0] for v in value])
    pairs = [[i, j] for i in range(bids) for j in range(i + 1, bids) if bundles[i] & bundles[j]]
    model.add_factors(pairs, NOT_BOTH)
    return model


def queens(seed: int, n: int = 18) -> tm.Model:
    rng = np.random.default_rng([seed, 103])
    model = tm.Model([n] * n)
    model.add_unaries(rng.integers(1, 10 * n, (n, n)).astype(float))
    column = np.arange(n)
    for i in range(n):
        for j in range(i + 1, n):
            gap = np.abs(column[:, None] - column)
            model.add_factors([[i, j]], np.where((gap == 0) | (gap == j - i), FORBIDDEN, 0.0))
    return model


def rulers(seed: int, marks: int = 6, longest: int = 20) -> tm.Model:
    """Variables: marks 1, 2, ..., then the distances of all pairs; the first mark is at 0, some lengths cost."""
    rng = np.random.default_rng([seed, 104])
    pairs = [(i, j) for j in range(1, marks) for i in range(j)]
    size = longest + 1
    model = tm.Model([size] * (marks - 1 + len(pairs)))
    model.add_unaries([np.arange(size, dtype=float)], [marks - 2])
    worn = rng.choice(np.arange(1, size), 3, replace=False)
    x = np.arange(size)
    distance = {}
    for k, (i, j) in enumerate(pairs):
        d = distance[i, j] = marks - 1 + k
        cost = np.zeros(size)
        cost[0], cost[worn] = FORBIDDEN, 5.0
        model.add_unaries([cost], [d])
        if i == 0:
            model.add_factors([[j - 1, d]], np.where(x[:, None] == x, 0.0, FORBIDDEN))
        else:
            fits = x[None, :, None] - x[:, None, None] == x
            model.add_factors([[i - 1, j - 1, d]], np.where(fits, 0.0, FORBIDDEN))
    every = sorted(distance.values())
    different = np.where(np.eye(size) > 0, FORBIDDEN, 0.0)
    model.add_factors([[a, b] for k, a in enumerate(every) for b in every[k + 1 :]], different)
    return model


def cliques(seed: int, n: int = 120, density: float = 0.7) -> tm.Model:
    rng = np.random.default_rng([seed, 105])
    model = tm.Model([2] * n)
    model.add_unaries(np.column_stack((np.ones(n), np.zeros(n))))
    i, j = np.triu_indices(n, 1)
    apart = rng.random(len(i)) > density
    model.add_factors(np.column_stack((i, j))[apart], NOT_BOTH)
    return model


def designs(seed: int, n: int = 14) -> tm.Model:
    rng = np.random.default_rng([seed, 106])
    labels, place = rng.integers(50, 200, n), rng.random((n, 3))
    kinds = [np.sort(rng.integers(0, 20, count)) for count in labels]  # the amino acid of every rotamer
    own = rng.normal(0, 2, 20)
    between = rng.normal(0, 1, (20, 20))
    model = tm.Model(labels)
    for i in range(n):
        model.add_unaries([np.round(own[kinds[i]] + rng.gamma(1.5, 2.0, labels[i]), 6)], [i])
        for j in range(i + 1, n):
            far = float(np.linalg.norm(place[i] - place[j]))
            if far > 0.75:
                continue
            reach = math.exp(-3.0 * far)
            table = reach * (between[np.ix_(kinds[i], kinds[j])] + rng.normal(0, 0.7, (labels[i], labels[j])))
            clash = rng.random(table.shape) < 0.4 * reach
            model.add_factors([[i, j]], np.round(np.where(clash, 30 * rng.random(table.shape), table), 6))
    return model


def conditional_net(seed: int, n: int = 120) -> tm.Model:
    rng = np.random.default_rng([seed, 107])
    labels = rng.integers(2, 6, n)
    model = tm.Model(labels)
    truth = np.zeros(n, np.int64)
    for i in range(n):
        near = np.arange(max(0, i - 15), i)
        parents = np.sort(rng.choice(near, min(len(near), int(rng.integers(0, 4))), replace=False))
        shape = (*labels[parents], labels[i])
        table = rng.dirichlet(np.full(labels[i], 0.4), shape[:-1]).reshape(shape)
        table = np.where(table < 0.01, 0.0, table)  # some things never happen
        table /= table.sum(axis=-1, keepdims=True)
        truth[i] = rng.choice(labels[i], p=table[tuple(truth[parents])])
        with np.errstate(divide="ignore"):
            cost = -np.log(table)
        if len(parents):
            model.add_factors([[*parents, i]], cost)
        else:
            model.add_unaries([cost], [i])
    for i in rng.choice(n, n // 6, replace=False):
        cost = np.full(labels[i], FORBIDDEN)
        cost[truth[i]] = 0.0
        model.add_unaries([cost], [i])
    return model


def hypertree(seed: int, tables: int = 60, order: int = 5, more: int = 12) -> tm.Model:
    rng = np.random.default_rng([seed, 108])
    scopes = [list(range(order))]
    n = order
    for _ in range(tables - 1):
        base = scopes[int(rng.integers(len(scopes)))]
        shared = rng.choice(base, int(rng.integers(1, 4)), replace=False).tolist()
        fresh = list(range(n, n + order - len(shared)))
        n += len(fresh)
        scopes.append(sorted(shared + fresh))
    scopes += [np.sort(rng.choice(n, 3, replace=False)).tolist() for _ in range(more)]
    labels = rng.integers(3, 7, n)
    model = tm.Model(labels)
    for scope in scopes:
        model.add_factors([scope], np.round(rng.exponential(10.0, tuple(labels[scope])), 3))
    return model


def codes(seed: int, n: int = 144, noise: float = 0.75) -> tm.Model:
    """Every bit is in three checks, every check has six bits; the word that was sent is all zero, as any other."""
    rng = np.random.default_rng([seed, 109])
    model = tm.Model([2] * n)
    received = 1.0 + noise * rng.normal(size=n)
    model.add_unaries(np.column_stack((np.zeros(n), 2.0 * received / noise**2)))
    odd = np.indices((2,) * 6).sum(axis=0) % 2 == 1
    for _ in range(3):
        model.add_factors(np.sort(rng.permutation(n).reshape(-1, 6), axis=1), np.where(odd, FORBIDDEN, 0.0))
    return model


def sum_colouring(seed: int, n: int = 60, colours: int = 8) -> tm.Model:
    rng = np.random.default_rng([seed, 110])
    model = tm.Model([colours] * n)
    model.add_unaries(rng.integers(1, 6, n)[:, None] * np.arange(1.0, colours + 1))
    i, j = np.triu_indices(n, 1)
    edge = rng.random(len(i)) < 0.2
    model.add_factors(np.column_stack((i, j))[edge], np.where(np.eye(colours) > 0, FORBIDDEN, 0.0))
    return model


def crossword(seed: int, side: int = 11, words: int = 150) -> tm.Model:
    """Places of four to nine letters, in rows and columns of a grid with some black fields."""
    rng = np.random.default_rng([seed, 111])
    open_ = np.ones((side, side), bool)
    open_[rng.integers(0, side, 6), rng.integers(0, side, 6)] = False
    places = []
    for turned in (False, True):
        field = open_.T if turned else open_
        for r in range(0, side, 2):
            start = 0
            for c in range(side + 1):
                if c == side or not field[r, c]:
                    if c - start >= 4:
                        places.append([(x, r) if turned else (r, x) for x in range(start, c)])
                    start = c + 1
    letters = np.array([12, 2, 3, 4, 12, 2, 2, 6, 7, 1, 1, 4, 2, 7, 8, 2, 1, 6, 6, 9, 3, 1, 2, 1, 2, 1], float)
    grid = rng.choice(26, (side, side), p=letters / letters.sum())  # one solution is hidden in the lists
    lists = []
    for place in places:
        own = rng.choice(26, (words, len(place)), p=letters / letters.sum())
        own[int(rng.integers(words))] = [grid[f] for f in place]
        lists.append(own)
    model = tm.Model([words] * len(places))
    model.add_unaries(rng.integers(1, 100, (len(places), words)).astype(float))
    for a in range(len(places)):
        for b in range(a + 1, len(places)):
            for field in set(places[a]) & set(places[b]):
                mine, theirs = lists[a][:, places[a].index(field)], lists[b][:, places[b].index(field)]
                model.add_factors([[a, b]], np.where(mine[:, None] == theirs, 0.0, 20.0))
    return model


def covers(seed: int, rows: int = 50, columns: int = 130) -> tm.Model:
    """Columns of two to five rows; one cover is hidden among them."""
    rng = np.random.default_rng([seed, 112])
    order, chosen, at = rng.permutation(rows), [], 0
    while at < rows:
        step = int(rng.integers(2, 6))
        chosen.append(set(order[at : at + step].tolist()))
        at += step
    sets = chosen + [
        set(rng.choice(rows, int(rng.integers(2, 6)), replace=False).tolist()) for _ in range(columns - len(chosen))
    ]
    model = tm.Model([2] * columns)
    model.add_unaries([[0.0, float(rng.integers(5, 15) * len(s))] for s in sets])
    for r in range(rows):
        mine = [c for c, s in enumerate(sets) if r in s]
        exactly = np.where(np.indices((2,) * len(mine)).sum(axis=0) == 1, 0.0, FORBIDDEN)
        model.add_factors([mine], exactly)
    return model


def rosters(seed: int, nurses: int = 7, days: int = 14) -> tm.Model:
    """Shifts: free, early, late, night.  After a late or a night shift there is no early one."""
    rng = np.random.default_rng([seed, 113])
    shift = np.arange(nurses * days).reshape(nurses, days)
    model = tm.Model([4] * shift.size)
    model.add_unaries(rng.choice([0.0, 0.0, 1.0, 5.0, 20.0], (shift.size, 4)))
    follow = np.zeros((4, 4))
    follow[2, 1] = follow[3, 1] = follow[3, 2] = FORBIDDEN
    follow[3, 0] = follow[0, 3] = 2.0
    model.add_factors(np.stack((shift[:, :-1], shift[:, 1:]), -1).reshape(-1, 2), follow)
    long = np.zeros((4,) * 5)
    long[1:, 1:, 1:, 1:, 1:] = FORBIDDEN  # five days without a free one
    model.add_factors(np.stack([shift[:, k : days - 4 + k] for k in range(5)], -1).reshape(-1, 5), long)
    at = np.indices((4,) * nurses)
    for day in range(days):
        table = np.zeros((4,) * nurses)
        for kind, needed in ((1, 2), (2, 1), (3, 1)):
            count = (at == kind).sum(axis=0)
            table = np.where(count < needed, FORBIDDEN, table + 3.0 * (count - needed))
        model.add_factors([shift[:, day]], table)
    return model


def jobs(seed: int, n: int = 14, horizon: int = 45, machines: int = 2) -> tm.Model:
    rng = np.random.default_rng([seed, 114])
    length, due = rng.integers(2, 8, n), rng.integers(5, 35, n)
    on = rng.integers(0, machines, n)
    begin = np.arange(horizon)
    model = tm.Model([horizon] * n)
    for i in range(n):
        late = np.maximum(0, begin + length[i] - due[i]) * float(rng.integers(1, 10))
        model.add_unaries([late + np.maximum(0, due[i] - begin - length[i]) * float(rng.integers(0, 2))], [i])
    for i in range(n):
        for j in range(i + 1, n):
            if on[i] == on[j]:
                apart = (begin[:, None] + length[i] <= begin) | (begin + length[j] <= begin[:, None])
                model.add_factors([[i, j]], np.where(apart, 0.0, FORBIDDEN))
            elif rng.random() < 0.1:  # one after the other
                model.add_factors([[i, j]], np.where(begin[:, None] + length[i] <= begin, 0.0, FORBIDDEN))
    return model


def pairs_of_clauses(seed: int, n: int = 100, ratio: float = 4.0) -> tm.Model:
    rng = np.random.default_rng([seed, 115])
    model = tm.Model([2] * n)
    for _ in range(int(ratio * n)):
        table = np.zeros((2, 2))
        table[tuple(rng.integers(0, 2, 2))] = float(rng.integers(1, 10))
        model.add_factors([rng.choice(n, 2, replace=False)], table)
    return model


FAMILIES: dict[str, Callable[[int], tm.Model]] = {
    "circuits": circuits,
    "auctions": auctions,
    "queens": queens,
    "rulers": rulers,
    "cliques": cliques,
    "designs": designs,
    "conditional net": conditional_net,
    "hypertree": hypertree,
    "codes": codes,
    "sum colouring": sum_colouring,
    "crossword": crossword,
    "covers": covers,
    "rosters": rosters,
    "jobs": jobs,
    "pairs of clauses": pairs_of_clauses,
}
