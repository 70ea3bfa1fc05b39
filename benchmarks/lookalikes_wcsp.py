"""Still more models made at random (lookalikes.py, lookalikes_csp.py), in the likeness of collections of weighted CSPs.

    long clauses     weighted clauses of three to twelve variables beside hard ones of two and three
    latin squares    a square with holes: no number twice in a row or a column, every number has its price
    magic            sums of rows and columns of a square are the same, kept by partial sums of three variables
    labelled edges   numbers for the vertices of a graph, so that all differences along edges differ
    packing          items into bins by partial loads, of which none may be too large
    triples          random soft tables of three variables
    crowded colours  colours for the edges of a random graph, of which some must be broken, or none can be kept
    sums of bits     rows of a 0/1 program as tables of up to eight variables
    set covers       every row is covered by at least one chosen column; scopes of up to fifteen
    big warehouses   more sites and shops, each shop a choice among all sites
    meetings         times for meetings, which cannot coincide where somebody is in both; travel takes time
    still life       as many living cells as possible, none of which is born or dies (tables of nine variables)
    grid net         a grid of binary conditional tables, most of them deterministic
    pattern          few parts of an object in a picture, each with many places

Every function takes a seed and gives the same model for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

import tightmap as tm

FORBIDDEN = math.inf


def long_clauses(seed: int, n: int = 80, hard: int = 150, soft: int = 60) -> tm.Model:
    """A clause is a table with one entry that costs something; a satisfying labelling of the hard ones is planted."""
    rng = np.random.default_rng([seed, 201])
    model = tm.Model([2] * n)
    truth = rng.integers(0, 2, n)
    for k in range(hard + soft):
        size = int(rng.integers(2, 4)) if k < hard else int(rng.integers(3, 13))
        scope = rng.choice(n, size, replace=False)
        broken = rng.integers(0, 2, size)
        if k < hard and (broken == truth[scope]).all():
            broken[0] ^= 1
        table = np.zeros([2] * size)
        table[tuple(broken)] = FORBIDDEN if k < hard else float(rng.integers(1, 20))
        model.add_factors([scope], table)
    model.add_unaries(rng.integers(0, 6, (n, 2)).astype(float))
    return model


def latin_squares(seed: int, n: int = 9, holes: float = 0.6) -> tm.Model:
    rng = np.random.default_rng([seed, 202])
    rows, columns, numbers = rng.permutation(n), rng.permutation(n), rng.permutation(n)
    square = numbers[(rows[:, None] + columns) % n]
    model = tm.Model([n] * (n * n))
    costs = rng.integers(0, 50, (n * n, n)).astype(float)
    for cell in np.flatnonzero(rng.random(n * n) >= holes):
        fixed = np.arange(n) != square.reshape(-1)[cell]
        costs[cell, fixed] = FORBIDDEN
    model.add_unaries(costs)
    different = np.where(np.eye(n) > 0, FORBIDDEN, 0.0)
    lines = [[r * n + c for c in range(n)] for r in range(n)] + [[r * n + c for r in range(n)] for c in range(n)]
    model.add_factors([pair for line in lines for pair in itertools.combinations(line, 2)], different)
    return model


def magic(seed: int, n: int = 4, most: int = 5) -> tm.Model:
    """Cells, then the partial sums of every line; cells have costs, and the sums of all lines are the same."""
    rng = np.random.default_rng([seed, 203])
    truth = rng.integers(0, most, (n, n))
    total = int(truth[0].sum())
    lines = [[r * n + c for c in range(n)] for r in range(n)] + [[r * n + c for r in range(n)] for c in range(n)]
    partial = n * most - n + 1
    model = tm.Model([most] * (n * n) + [partial] * (len(lines) * (n - 1)))
    model.add_unaries(rng.integers(0, 30, (n * n, most)).astype(float), np.arange(n * n))
    x, y, z = np.meshgrid(np.arange(most), np.arange(most), np.arange(partial), indexing="ij")
    first = np.where(x + y == z, 0.0, FORBIDDEN)
    x, y, z = np.meshgrid(np.arange(partial), np.arange(most), np.arange(partial), indexing="ij")
    later = np.where(x + y == z, 0.0, FORBIDDEN)
    for k, line in enumerate(lines):
        sums = n * n + k * (n - 1) + np.arange(n - 1)
        model.add_factors([[line[0], line[1], sums[0]]], first)
        for p in range(2, n):
            model.add_factors([[sums[p - 2], line[p], sums[p - 1]]], later)
        model.add_unaries([np.where(np.arange(partial) == total, 0.0, FORBIDDEN)], [sums[-1]])
    return model


def labelled_edges(seed: int, n: int = 7, edges: int = 9, more: int = 2) -> tm.Model:
    """Vertices, then edges, whose labels are the differences."""
    rng = np.random.default_rng([seed, 204])
    pairs = list(itertools.combinations(range(n), 2))
    chosen = [pairs[k] for k in rng.choice(len(pairs), edges, replace=False)]
    size = edges + 1 + more
    model = tm.Model([size] * (n + edges))
    costs = rng.integers(0, 20, (n + edges, size)).astype(float)
    costs[n:, 0] = FORBIDDEN
    model.add_unaries(costs)
    a, b, d = np.meshgrid(*[np.arange(size)] * 3, indexing="ij")
    gap = np.where(np.abs(a - b) == d, 0.0, FORBIDDEN)
    model.add_factors([[i, j, n + e] for e, (i, j) in enumerate(chosen)], gap)
    different = np.where(np.eye(size) > 0, FORBIDDEN, 0.0)
    model.add_factors(list(itertools.combinations(range(n), 2)), different)
    model.add_factors(list(itertools.combinations(range(n, n + edges), 2)), different)
    return model


def packing(seed: int, items: int = 16, bins: int = 4) -> tm.Model:
    """Items choose bins at a price; loads of a bin are added up item by item, none above its capacity."""
    rng = np.random.default_rng([seed, 205])
    weight = rng.integers(2, 9, items)
    capacity = int(weight.sum() / bins * 1.1) + 1
    model = tm.Model([bins] * items + [capacity + 1] * (bins * items))
    model.add_unaries(rng.integers(0, 40, (items, bins)).astype(float), np.arange(items))
    for b in range(bins):
        for i in range(items):
            load = items + b * items + i
            before = np.arange(capacity + 1)
            own = np.where(np.arange(bins) == b, weight[i], 0)
            if i == 0:
                model.add_factors([[0, load]], np.where(own[:, None] == before, 0.0, FORBIDDEN))
            else:
                allowed = before[:, None, None] + own[None, :, None] == before[None, None, :]
                model.add_factors([[load - 1, i, load]], np.where(allowed, 0.0, FORBIDDEN))
    return model


def triples(seed: int, n: int = 22, labels: int = 4, tables: int = 50) -> tm.Model:
    rng = np.random.default_rng([seed, 206])
    model = tm.Model([labels] * n)
    for _ in range(tables):
        costs = rng.integers(1, 10, [labels] * 3) * (rng.random([labels] * 3) < 0.5)
        model.add_factors([rng.choice(n, 3, replace=False)], costs.astype(float))
    return model


def crowded_colours(seed: int, n: int = 40, colours: int = 4, density: float = 0.26) -> tm.Model:
    """Even seeds: every broken edge costs one; odd seeds: edges are hard, and there may be no colouring."""
    rng = np.random.default_rng([seed, 207])
    model = tm.Model([colours] * n)
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < density]
    model.add_factors(pairs, np.eye(colours) if seed % 2 == 0 else np.where(np.eye(colours) > 0, FORBIDDEN, 0.0))
    return model


def sums_of_bits(seed: int, n: int = 60, rows: int = 40) -> tm.Model:
    rng = np.random.default_rng([seed, 208])
    model = tm.Model([2] * n)
    model.add_unaries(np.column_stack((np.zeros(n), -rng.integers(5, 40, n).astype(float))))
    for _ in range(rows):
        size = int(rng.integers(4, 9))
        weight = rng.integers(1, 12, size)
        bits = np.indices([2] * size).reshape(size, -1)
        load = (weight @ bits).reshape([2] * size)
        model.add_factors([rng.choice(n, size, replace=False)], np.where(load > 0.5 * weight.sum(), FORBIDDEN, 0.0))
    return model


def set_covers(seed: int, rows: int = 60, columns: int = 70) -> tm.Model:
    """Label 1: the column is chosen."""
    rng = np.random.default_rng([seed, 209])
    model = tm.Model([2] * columns)
    model.add_unaries(np.column_stack((np.zeros(columns), rng.integers(5, 30, columns).astype(float))))
    for _ in range(rows):
        size = int(rng.integers(4, 16))
        table = np.zeros([2] * size)
        table[(0,) * size] = FORBIDDEN
        model.add_factors([rng.choice(columns, size, replace=False)], table)
    return model


def big_warehouses(seed: int, sites: int = 40, shops: int = 80) -> tm.Model:
    """Sites are open (label 1, at a price) or not; a shop takes one that is open."""
    rng = np.random.default_rng([seed, 210])
    where, whose = rng.random((sites, 2)), rng.random((shops, 2))
    far = np.linalg.norm(whose[:, None] - where, axis=2)
    model = tm.Model([2] * sites + [sites] * shops)
    model.add_unaries(np.column_stack((np.zeros(sites), rng.integers(3000, 7000, sites).astype(float))), range(sites))
    demand = rng.integers(5, 40, shops)
    model.add_unaries(np.rint(far * demand[:, None] * 150.0), range(sites, sites + shops))
    for i in range(sites):
        closed = np.zeros((2, sites))
        closed[0, i] = FORBIDDEN
        model.add_factors([[i, sites + j] for j in range(shops)], closed)
    return model


def meetings(seed: int, n: int = 30, slots: int = 20, people: int = 30) -> tm.Model:
    rng = np.random.default_rng([seed, 211])
    model = tm.Model([slots] * n)
    model.add_unaries(rng.integers(0, 30, (n, slots)).astype(float))
    place = rng.random((n, 2))
    groups = [set(rng.choice(n, int(rng.integers(2, 5)), replace=False).tolist()) for _ in range(people)]
    time = np.arange(slots)
    for i, j in itertools.combinations(range(n), 2):
        if any(i in g and j in g for g in groups):
            travel = 1 + int(3 * np.linalg.norm(place[i] - place[j]))
            model.add_factors([[i, j]], np.where(np.abs(time[:, None] - time) < travel, FORBIDDEN, 0.0))
    return model


def still_life(seed: int, side: int = 7) -> tm.Model:
    """A cell with its eight neighbours; the border is dead; every living cell is worth something of its own."""
    rng = np.random.default_rng([seed, 212])
    outer = side + 2
    model = tm.Model([2] * (outer * outer))
    number = np.arange(outer * outer).reshape(outer, outer)
    inside = number[1:-1, 1:-1].reshape(-1)
    border = np.setdiff1d(number.reshape(-1), inside)
    model.add_unaries([[0.0, FORBIDDEN]] * len(border), border)
    model.add_unaries(np.column_stack((rng.integers(3, 6, len(inside)), np.zeros(len(inside)))).astype(float), inside)
    bits = np.indices([2] * 9).reshape(9, -1)
    around = bits[:4].sum(0) + bits[5:].sum(0)
    stable = np.where(bits[4] == 1, (around == 2) | (around == 3), around != 3)
    table = np.where(stable, 0.0, FORBIDDEN).reshape([2] * 9)
    for r in range(1, outer - 1):
        for c in range(1, outer - 1):
            model.add_factors([number[r - 1 : r + 2, c - 1 : c + 2].reshape(-1)], table)
    return model


def grid_net(seed: int, side: int = 16, sure: float = 0.75) -> tm.Model:
    """Every variable depends on the one above and the one to the left; one variable in twenty is seen."""
    rng = np.random.default_rng([seed, 213])
    number = np.arange(side * side).reshape(side, side)
    model = tm.Model([2] * (side * side))
    state = np.zeros((side, side), dtype=np.int64)
    for r in range(side):
        for c in range(side):
            parents = [(r - 1, c)] * (r > 0) + [(r, c - 1)] * (c > 0)
            if rng.random() < sure and parents:
                one = rng.integers(0, 2, [2] * len(parents)).astype(float)
            else:
                one = rng.uniform(0.05, 0.95, [2] * len(parents))
            chance = one[tuple(state[p] for p in parents)]
            state[r, c] = rng.random() < chance
            with np.errstate(divide="ignore"):
                table = -np.log(np.stack((1.0 - one, one), axis=-1))
            if parents:
                model.add_factors([[*[number[p] for p in parents], number[r, c]]], table)
            else:
                model.add_unaries(table[None], [number[r, c]])
    for cell in rng.choice(side * side, side * side // 20, replace=False):
        seen = state.reshape(-1)[cell]
        model.add_unaries([[FORBIDDEN, 0.0] if seen else [0.0, FORBIDDEN]], [number.reshape(-1)[cell]])
    return model


def pattern(seed: int, parts: int = 12, places: int = 150) -> tm.Model:
    """Places are points; parts keep their distances, a place looks more or less like a part."""
    rng = np.random.default_rng([seed, 214])
    shape = rng.random((parts, 2))
    turn = rng.uniform(-0.5, 0.5)
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    model = tm.Model([places] * parts)
    points = np.concatenate(
        (shape @ rotation + rng.normal(0.0, 0.03, (parts, 2)), 1.6 * rng.random((places - parts, 2)) - 0.3)
    )
    points = points[rng.permutation(places)]
    model.add_unaries(rng.random((parts, places)) * 2.0)
    far = np.linalg.norm(points[:, None] - points, axis=2)
    for i, j in itertools.combinations(range(parts), 2):
        if rng.random() < 0.6:
            want = float(np.linalg.norm(shape[i] - shape[j]))
            model.add_factors([[i, j]], np.minimum(20.0 * np.abs(far - want), 3.0) + 5.0 * np.eye(places))
    return model


FAMILIES: dict[str, Callable[[int], tm.Model]] = {
    "long clauses": long_clauses,
    "latin squares": latin_squares,
    "magic": magic,
    "labelled edges": labelled_edges,
    "packing": packing,
    "triples": triples,
    "crowded colours": crowded_colours,
    "sums of bits": sums_of_bits,
    "set covers": set_covers,
    "big warehouses": big_warehouses,
    "meetings": meetings,
    "still life": still_life,
    "grid net": grid_net,
    "pattern": pattern,
}
