"""Constraint models made at random, larger than those of the other files: thousands of variables or hundreds of labels.

    errors in pedigrees   genotypes of thousands of relatives, of whom some were read wrongly: the fewest corrections
    plants                a hundred sites and as many shops: which sites to open, and where each shop gets its goods
    more plants           the same, twice as many of each
    rotamers              proteins whose residues have up to a hundred and fifty rotamers, most of which clash somewhere
    open shop             tasks with a hundred possible beginnings; those of one job or machine do not overlap
    forced CSP            random tables of forbidden pairs at the threshold, with a hidden solution
    broken CSP            random tables of forbidden pairs without a solution
    large latin squares   holes of latin squares of fifteen to refill at least cost
    long plans            planning with more facts, actions and steps
    smokers               a relational model: friends of friends, habits of friends
    interactions          thousands of binary variables, triples and pairs of both signs, nearly a tree of parts
    labs                  who sits beside whom: a quadratic assignment of a sparse graph to a grid

Every function takes a seed and gives the same model for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import tightmap as tm
from lookalikes import planning


def errors_in_pedigrees(seed: int, people: int = 2000, alleles: int = 5, wrong: float = 0.03) -> tm.Model:
    """A label is an unordered pair of alleles; a child has one of each parent; a correction costs one."""
    rng = np.random.default_rng([seed, 60])
    pairs = [(a, b) for a in range(alleles) for b in range(a, alleles)]
    number = {pair: k for k, pair in enumerate(pairs)}
    table = np.full((len(pairs),) * 3, math.inf)
    for p, one in enumerate(pairs):
        for q, other in enumerate(pairs):
            for a in one:
                for b in other:
                    table[p, q, number[min(a, b), max(a, b)]] = 0.0
    founders = people // 10
    frequency = rng.dirichlet(np.full(alleles, 2.0))
    genotype = np.zeros(people, np.int64)
    trios = []
    for i in range(people):
        if i < founders:
            a, b = rng.choice(alleles, 2, p=frequency)
        else:
            near = range(max(0, i - people // 4), i)  # generations overlap
            mother, father = rng.choice(near, 2, replace=False)
            a, b = rng.choice(pairs[genotype[mother]]), rng.choice(pairs[genotype[father]])
            trios.append((mother, father, i))
        genotype[i] = number[min(a, b), max(a, b)]
    model = tm.Model([len(pairs)] * people)
    model.add_factors(trios, table)
    seen = np.flatnonzero(rng.random(people) < 0.6)
    read = np.where(rng.random(len(seen)) < wrong, rng.integers(0, len(pairs), len(seen)), genotype[seen])
    model.add_unaries((np.arange(len(pairs)) != read[:, None]).astype(float), seen)
    return model


def plants(seed: int, sites: int = 100, shops: int = 100) -> tm.Model:
    """Places in a square; a site costs something to open, a shop the way to the site that it takes."""
    rng = np.random.default_rng([seed, 61])
    model = tm.Model([2] * sites + [sites] * shops)
    model.add_unaries(np.column_stack((np.zeros(sites), rng.integers(300, 900, sites))), np.arange(sites))
    way = np.linalg.norm(rng.random((shops, 1, 2)) - rng.random((1, sites, 2)), axis=2)
    model.add_unaries(np.rint(1000 * way), sites + np.arange(shops))
    for site in range(sites):
        closed = np.zeros((2, sites))
        closed[0, site] = math.inf
        model.add_factors([[site, sites + shop] for shop in range(shops)], closed)
    return model


def rotamers(seed: int, n: int = 40, most: int = 150) -> tm.Model:
    """Residues of a chain that folds; those that are near one another interact."""
    rng = np.random.default_rng([seed, 62])
    labels = rng.integers(8, most, n)
    place = np.cumsum(rng.normal(0, 1, (n, 3)), axis=0) * 0.5
    model = tm.Model(labels)
    for i in range(n):
        model.add_unaries([rng.gamma(2.0, 2.0, labels[i])], [i])
    for i in range(n):
        for j in range(i + 1, n):
            distance = float(np.linalg.norm(place[i] - place[j]))
            if distance > 2.5:
                continue
            near = math.exp(-distance)
            one, other = rng.normal(0, 1, (labels[i], 3)), rng.normal(0, 1, (labels[j], 3))
            apart = np.linalg.norm(one[:, None] - other + 1.5, axis=2)
            clash = np.where(apart < 1.5 * near, 60.0 * (1.5 * near - apart), 0.0)
            model.add_factors([[i, j]], near * rng.normal(0, 1, apart.shape) - np.exp(-apart) + clash)
    return model


def open_shop(seed: int, jobs: int = 4, machines: int = 4, slack: float = 1.15) -> tm.Model:
    """Label: when a task begins; the sum of the beginnings of tasks of late jobs costs."""
    rng = np.random.default_rng([seed, 63])
    length = rng.integers(5, 40, (jobs, machines))
    horizon = int(slack * max(length.sum(axis=0).max(), length.sum(axis=1).max()))
    late = rng.integers(0, 3, jobs)
    size = (horizon - length + 1).reshape(-1)
    model = tm.Model(size)
    for job in range(jobs):
        for machine in range(machines):
            task = job * machines + machine
            model.add_unaries([late[job] * np.arange(size[task], dtype=float)], [task])
    for a in range(jobs * machines):
        for b in range(a):
            if a // machines == b // machines or a % machines == b % machines:
                begin_a, begin_b = np.arange(size[a])[:, None], np.arange(size[b])
                apart = (begin_a + length.flat[a] <= begin_b) | (begin_b + length.flat[b] <= begin_a)
                model.add_factors([[a, b]], np.where(apart, 0.0, math.inf))
    return model


def forced_csp(seed: int, n: int = 35, alpha: float = 0.8, tightness: float = 0.25) -> tm.Model:
    """n variables of n^alpha labels; tables just as many as leave about one solution, and one is hidden."""
    rng = np.random.default_rng([seed, 64])
    labels = round(n**alpha)
    tables = round(-alpha / math.log(1 - tightness) * n * math.log(n))
    hidden = rng.integers(0, labels, n)
    model = tm.Model([labels] * n)
    for _ in range(tables):
        a, b = rng.choice(n, 2, replace=False)
        table = np.where(rng.random((labels, labels)) < tightness, math.inf, 0.0)
        table[hidden[a], hidden[b]] = 0.0
        model.add_factors([[a, b]], table)
    return model


def broken_csp(seed: int, n: int = 200, labels: int = 7, tables: int = 3000) -> tm.Model:
    """No labelling keeps all tables: a small crowded part contradicts itself."""
    rng = np.random.default_rng([seed, 65])
    model = tm.Model([labels] * n)
    core = rng.choice(n, 24, replace=False)
    for k in range(tables):
        a, b = rng.choice(core if k < 200 else n, 2, replace=False)
        model.add_factors([[a, b]], np.where(rng.random((labels, labels)) < 0.25, math.inf, 0.0))
    return model


def large_latin_squares(seed: int, n: int = 15, holes: float = 0.5) -> tm.Model:
    rng = np.random.default_rng([seed, 66])
    square = (np.arange(n)[:, None] + np.arange(n)) % n
    square = square[rng.permutation(n)][:, rng.permutation(n)]
    square = rng.permutation(n)[square]
    model = tm.Model([n] * n * n)
    differ = np.where(np.eye(n) > 0, math.inf, 0.0)
    for r in range(n):
        for c in range(n):
            cost = rng.integers(0, 20, n).astype(float)
            if rng.random() >= holes:
                cost[np.arange(n) != square[r, c]] = math.inf
            model.add_unaries([cost], [r * n + c])
    scopes = [[r * n + c, r * n + d] for r in range(n) for c in range(n) for d in range(c)]
    scopes += [[c * n + r, d * n + r] for r in range(n) for c in range(n) for d in range(c)]
    model.add_factors(scopes, differ)
    return model


def smokers(seed: int, people: int = 25) -> tm.Model:
    """smokes(a), cancer(a), friends(a, b); weights for rules that are broken; some of it is seen."""
    rng = np.random.default_rng([seed, 67])
    friend = 2 * people + np.arange(people * people).reshape(people, people)
    model = tm.Model([2] * (2 * people + people * people))
    model.add_unaries(rng.normal(0, 1, (people, 1)) * [0.0, 1.4], np.arange(people))
    model.add_unaries([[0.0, 2.3]] * people, people + np.arange(people))
    model.add_unaries(rng.normal(1.0, 1.5, (people * people, 1)) * [0.0, 1.0], friend.reshape(-1))
    causes = np.zeros((2, 2))
    causes[1, 0] = 1.5
    model.add_factors([[a, people + a] for a in range(people)], causes)
    alike = np.zeros((2, 2, 2))
    alike[1, 0, 1] = alike[1, 1, 0] = 1.1
    closed = np.zeros((2, 2, 2))
    closed[1, 1, 0] = 0.4
    triples = [(a, b, c) for a in range(people) for b in range(people) for c in range(people) if len({a, b, c}) == 3]
    model.add_factors([[friend[a, b], a, b] for a in range(people) for b in range(people) if a != b], alike)
    model.add_factors([[friend[a, b], friend[b, c], friend[a, c]] for a, b, c in triples], closed)
    return model


def interactions(seed: int, n: int = 6000) -> tm.Model:
    """Parts of some fifty variables with triples inside, and few pairs from part to part."""
    rng = np.random.default_rng([seed, 68])
    model = tm.Model([2] * n)
    model.add_unaries(rng.normal(0, 1, (n, 1)) * [0.0, 1.0])
    for start in range(0, n, 50):
        part = np.arange(start, min(n, start + 50))
        for _ in range(3 * len(part)):
            model.add_factors([rng.choice(part, 3, replace=False)], rng.normal(0, 1, (2, 2, 2)))
    for _ in range(n // 5):
        model.add_factors([rng.choice(n, 2, replace=False)], rng.normal(0, 1, (2, 2)))
    return model


def labs(seed: int, rows: int = 5, columns: int = 6, degree: int = 4) -> tm.Model:
    """Every lab gets a room of its own; those that work together want to be near each other."""
    rng = np.random.default_rng([seed, 69])
    n = rows * columns
    room = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1).reshape(n, 2)
    way = np.abs(room[:, None] - room).sum(axis=2).astype(float)
    flow = np.zeros((n, n))
    for _ in range(degree * n // 2):
        a, b = rng.choice(n, 2, replace=False)
        flow[max(a, b), min(a, b)] += rng.integers(1, 10)
    model = tm.Model([n] * n)
    model.add_unaries(rng.integers(0, 5, (n, n)).astype(float))
    for a in range(n):
        for b in range(a):
            model.add_factors([[a, b]], np.where(np.eye(n) > 0, math.inf, flow[a, b] * way))
    return model


FAMILIES: dict[str, Callable[[int], tm.Model]] = {
    "errors in pedigrees": errors_in_pedigrees,
    "plants": plants,
    "more plants": lambda seed: plants(seed, 200, 200),
    "rotamers": rotamers,
    "open shop": open_shop,
    "forced CSP": forced_csp,
    "broken CSP": broken_csp,
    "large latin squares": large_latin_squares,
    "long plans": lambda seed: planning(seed, 60, 80, 14),
    "smokers": smokers,
    "interactions": interactions,
    "labs": labs,
}
