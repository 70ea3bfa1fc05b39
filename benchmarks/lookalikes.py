"""Models made at random in the likeness of families that methods are tried on: nobody has tuned anything for them.

    grid of tables        conditional tables of three binary variables on a grid, half of them nearly deterministic
    grid of pairs         a table of its own for every pair of neighbours, labels without any order
    pedigree              who inherits which allele from whom at several places of a chromosome, some genotypes known
    planning              a cheapest plan of so many steps: actions with conditions and effects, frame axioms, a goal
    random CSP            tables of random costs, some entries forbidden
    dense QUBO            quadratic functions of binary variables
    matching              points to points, each at most once
    photomontage          from which of several pictures each pixel is taken; seams cost the differences along them
    noisy parity          clauses of three binary variables, a fifth of them hard
    radio links           frequencies of transmitters in pairs at a fixed distance; what is too near costs
    satellite             which pictures to take in which orbit: two or three of them may exclude each other
    warehouses            which to open, and where each shop gets its goods from
    proteins              a rotamer for every residue, all pairs interact, some clash
    surfaces              regions of a picture with seven labels, pairs and triples of neighbours
    colouring             maps that need one colour more than there are
    assignment            objects to places, quadratic costs, each place once
    diagnosis             findings that any of several diseases may cause, with leaks (noisy-or)
    spin glass            couplings of +1 and -1 on a torus
    fields                a sparse random graph of two labels, couplings and fields of both signs
    belief net            two layers of binary variables, every one with every one of the other layer
    dynamic net           some hidden variables that change from step to step, and what is seen of them
    characters            binary pixels, learnt couplings of both signs with many pixels around
    regions               an over-segmented picture: neighbouring regions are to have the same label or another one
    communities           a clustering of a graph by modularity: all pairs, both signs, as many labels as nodes
    cell tracking         cells that move, divide, come and go: binary, hard constraints of flow and exclusion
    object parts          parts of an object among candidates, all pairs
    clauses               weighted clauses of three variables, more than can be met

Every function takes a seed and gives the same model for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import tightmap as tm
from tightmap.problems import match_points, random_points


def points(seed: int) -> tm.Model:
    left, right, _ = random_points(seed, 16, 3)
    return match_points(left, right, strength=10.0)


def table_grid(seed: int, side: int = 26) -> tm.Model:
    rng = np.random.default_rng([seed, 1])
    model = tm.Model([2] * side**2)
    for r in range(1, side):
        for c in range(1, side):
            p = rng.uniform(0.02, 0.98, (2, 2, 2))
            p[..., 1] = 1 - p[..., 0]
            if rng.random() < 0.5:
                p = np.where(p > 0.5, 1.0, 1e-3)
            model.add_factors([[(r - 1) * side + c, r * side + c - 1, r * side + c]], -np.log(p))
    return model


def pair_grid(seed: int, side: int = 60, labels: int = 4) -> tm.Model:
    rng = np.random.default_rng([seed, 6])
    model = tm.Model.grid(side, side, labels)
    model.add_unaries(rng.random((side * side, labels)))
    edges = model.edges()
    model.add_factors(edges, rng.random((len(edges), labels, labels)))
    return model


def pedigree(seed: int, people: int = 60, places: int = 5, alleles: int = 3) -> tm.Model:
    """A variable for each of the two alleles of everybody at every place, and from which grandparent each came."""
    rng = np.random.default_rng([seed, 7])
    founders = people // 3
    parents = [None if i < founders else rng.choice(i, 2, replace=False) for i in range(people)]
    frequency = rng.dirichlet(np.ones(alleles) * 2, places)
    allele = np.arange(people * places * 2).reshape(people, places, 2)
    source = allele + allele.size
    model = tm.Model([alleles] * allele.size + [2] * allele.size)
    truth = np.zeros(allele.shape, np.int64)
    copied = np.full((2, alleles, alleles, alleles), math.inf)
    for a in range(alleles):
        copied[0, a, :, a] = copied[1, :, a, a] = 0.0  # switch, from the mother's side, from the father's side, own
    crossing = -np.log(np.array([[0.9, 0.1], [0.1, 0.9]]))
    for i, both in enumerate(parents):
        which = rng.integers(0, 2, 2)  # what each parent passes on: the mother's allele or the father's
        for place in range(places):
            for side in range(2):
                if both is None:
                    model.add_unaries([-np.log(frequency[place])], [allele[i, place, side]])
                    truth[i, place, side] = rng.choice(alleles, p=frequency[place])
                    continue
                of = int(both[side])
                which[side] ^= rng.random() < 0.1
                truth[i, place, side] = truth[of, place, which[side]]
                scope = [source[i, place, side], *allele[of, place], allele[i, place, side]]
                model.add_factors([scope], copied)
                if place:
                    model.add_factors([source[i, place - 1 : place + 1, side]], crossing)
            if rng.random() < 0.5:  # both alleles are known, but not which is whose
                seen = np.full((alleles, alleles), math.inf)
                a, b = truth[i, place]
                seen[a, b] = seen[b, a] = 0.0
                model.add_factors([allele[i, place]], seen)
    return model


def planning(seed: int, facts: int = 24, actions: int = 30, steps: int = 8) -> tm.Model:
    """Actions may run side by side unless one spoils what another needs or adds."""
    rng = np.random.default_rng([seed, 8])
    needs = [set(rng.choice(facts, 2, replace=False).tolist()) for _ in range(actions)]
    adds = [set(rng.choice(facts, 2, replace=False).tolist()) for _ in range(actions)]
    spoils = [{int(rng.integers(facts))} - adds[a] for a in range(actions)]
    state = set(rng.choice(facts, facts // 3, replace=False).tolist())
    begin = set(state)
    for _ in range(steps):  # what random actions lead to can be reached
        able = [a for a in range(actions) if needs[a] <= state]
        if able:
            a = able[int(rng.integers(len(able)))]
            state = (state - spoils[a]) | adds[a]
    fact = np.arange(facts * (steps + 1)).reshape(steps + 1, facts)
    act = fact.size + np.arange(actions * steps).reshape(steps, actions)
    model = tm.Model([2] * (fact.size + act.size))
    for f in range(facts):
        model.add_unaries([[math.inf, 0.0] if f in begin else [0.0, math.inf]], [fact[0, f]])
        if f in state and rng.random() < 0.5:
            model.add_unaries([[math.inf, 0.0]], [fact[steps, f]])
    price = rng.integers(1, 20, actions).astype(float)
    implies = np.array([[0.0, 0.0], [math.inf, 0.0]])
    excludes = np.array([[0.0, 0.0], [0.0, math.inf]])
    for t in range(steps):
        for a in range(actions):
            model.add_unaries([[0.0, price[a]]], [act[t, a]])
            for f in needs[a]:
                model.add_factors([[act[t, a], fact[t, f]]], implies)
            for f in adds[a]:
                model.add_factors([[act[t, a], fact[t + 1, f]]], implies)
            for f in spoils[a]:
                model.add_factors([[act[t, a], fact[t + 1, f]]], excludes)
            for b in range(a):
                if spoils[a] & (needs[b] | adds[b]) or spoils[b] & (needs[a] | adds[a]):
                    model.add_factors([[act[t, b], act[t, a]]], excludes)
        for f in range(facts):  # what was not true needs an action that adds it, what was true one that spoils it
            for causes, now in (
                ([a for a in range(actions) if f in adds[a]], 1),
                ([a for a in range(actions) if f in spoils[a]], 0),
            ):
                table = np.zeros((2,) * (2 + len(causes)))
                table[(1 - now, now, *(0 for _ in causes))] = math.inf
                model.add_factors([[fact[t, f], fact[t + 1, f], *act[t, causes]]], table)
    return model


def random_csp(seed: int, n: int = 120, labels: int = 8) -> tm.Model:
    rng = np.random.default_rng([seed, 2])
    model = tm.Model([labels] * n)
    pairs = np.array([(i, j) for i in range(n) for j in range(i + 1, n)])
    pairs = pairs[rng.random(len(pairs)) < 0.06]
    for pair in pairs:
        table = rng.integers(0, 100, (labels, labels)).astype(float)
        table[rng.random(table.shape) < 0.15] = math.inf
        model.add_factors([pair], table)
    return model


def dense_qubo(seed: int, n: int = 200) -> tm.Model:
    rng = np.random.default_rng([seed, 3])
    model = tm.Model([2] * n)
    i, j = np.triu_indices(n, 1)
    keep = rng.random(len(i)) < 0.5
    tables = np.zeros((int(keep.sum()), 2, 2))
    tables[:, 1, 1] = rng.integers(-100, 101, len(tables))
    model.add_factors(np.column_stack((i, j))[keep], tables)
    unary = np.zeros((n, 2))
    unary[:, 1] = rng.integers(-100, 101, n)
    model.add_unaries(unary)
    return model


def parity(seed: int, n: int = 300) -> tm.Model:
    rng = np.random.default_rng([seed, 5])
    model = tm.Model([2] * n)
    for k in range(int(4.0 * n)):
        scope = rng.choice(n, 3, replace=False)
        table = np.zeros((2, 2, 2))
        table[tuple(rng.integers(0, 2, 3))] = math.inf if k % 5 == 0 else float(rng.integers(1, 10))
        model.add_factors([scope], table)
    return model


def _scene(rng: np.random.Generator, h: int, w: int) -> np.ndarray:
    """A picture with detail of all sizes, the coarser the stronger, as photographs have; mean 0, deviation 1."""
    out = np.zeros((h, w))
    for size in (128, 64, 32, 16, 8, 4):
        knots = rng.normal(0, size**0.9, (h // size + 2, w // size + 2))
        y, x = np.arange(h) / size, np.arange(w) / size
        i, j = y.astype(int), x.astype(int)
        fy, fx = (y - i)[:, None], (x - j)[None]
        upper = knots[i][:, j] * (1 - fx) + knots[i][:, j + 1] * fx
        lower = knots[i + 1][:, j] * (1 - fx) + knots[i + 1][:, j + 1] * fx
        out += upper * (1 - fy) + lower * fy
    return (out - out.mean()) / out.std()


def photomontage(seed: int, shape: tuple[int, int] = (160, 200), labels: int = 5) -> tm.Model:
    """Pictures of one scene in which things have moved, and strokes that must come from one of them."""
    rng = np.random.default_rng([seed, 4])
    h, w = shape
    scene = _scene(rng, h, w)
    pictures = np.empty((labels, h, w))
    for picture in pictures:
        picture[:] = 128 + 45 * (1 + rng.normal(0, 0.02)) * scene + rng.normal(0, 3)
        moved = _scene(rng, h, w) > 0.7
        picture[moved] = 128 + 45 * _scene(rng, h, w)[moved]
        picture += rng.normal(0, 3, shape)
    pictures = np.rint(np.clip(pictures, 0, 255))
    unary = np.zeros((h, w, labels))
    for l in range(labels):
        for _ in range(4):
            r, c = rng.integers(0, h - h // 12), rng.integers(0, w - w // 6)
            unary[r : r + h // 12, c : c + w // 6] = math.inf
            unary[r : r + h // 12, c : c + w // 6, l] = 0.0
    model = tm.Model.grid(h, w, labels)
    model.add_unaries(unary.reshape(-1, labels))
    index = np.arange(h * w).reshape(shape)
    for a, b, pa, pb in (
        (index[:, :-1], index[:, 1:], pictures[:, :, :-1], pictures[:, :, 1:]),
        (index[:-1], index[1:], pictures[:, :-1], pictures[:, 1:]),
    ):
        pa, pb = pa.reshape(labels, -1).T, pb.reshape(labels, -1).T
        tables = np.abs(pa[:, :, None] - pa[:, None, :]) + np.abs(pb[:, :, None] - pb[:, None, :])
        model.add_factors(np.column_stack((a.reshape(-1), b.reshape(-1))), tables)
    return model


def radio_links(seed: int, n: int = 60) -> tm.Model:
    """Transmitters 2k and 2k + 1 differ by 238 exactly; the other pairs cost where they are nearer than asked for."""
    rng = np.random.default_rng([seed, 9])
    band = np.array([16 + 14 * k for k in range(12)] + [254 + 14 * k for k in range(12)] + [30 + 238, 44 + 238])
    sets = [np.sort(rng.choice(band, int(rng.integers(12, len(band))), replace=False)) for _ in range(n // 2)]
    both = [np.unique(np.concatenate((s, s + 238, s - 238))) for s in sets]
    domain = [d[(d > 0) & (d < 800)] for d in both for _ in range(2)]
    model = tm.Model([len(d) for d in domain])
    for k in range(0, n, 2):
        apart = np.abs(domain[k][:, None] - domain[k + 1][None]) == 238
        model.add_factors([[k, k + 1]], np.where(apart, 0.0, math.inf))
    for i in range(n):
        for j in range(i + 1, n):
            if rng.random() < 0.1 and j != i ^ 1:
                near = np.abs(domain[i][:, None] - domain[j][None]) <= rng.choice([20, 60, 120, 160])
                model.add_factors([[i, j]], near * float(rng.choice([1, 10, 100, 1000])))
    return model


def satellite(seed: int, n: int = 150) -> tm.Model:
    """Label 0: the picture is not taken, which costs its value; others: which camera takes it."""
    rng = np.random.default_rng([seed, 10])
    labels = rng.choice([2, 4], n, p=[0.3, 0.7])
    model = tm.Model(labels)
    for i in range(n):
        cost = np.zeros(labels[i])
        cost[0] = float(rng.choice([1, 2, 1000, 1001, 2000]))
        model.add_unaries([cost], [i])
    for i in range(n):
        for j in range(i + 1, min(n, i + 25)):
            if rng.random() < 0.25:
                table = np.where(rng.random((labels[i], labels[j])) < 0.5, math.inf, 0.0)
                table[0], table[:, 0] = 0.0, 0.0
                model.add_factors([[i, j]], table)
    for _ in range(n):
        first = int(rng.integers(n - 12))
        scope = np.sort(first + rng.choice(12, 3, replace=False))
        table = np.where(rng.random(tuple(labels[scope])) < 0.5, math.inf, 0.0)
        table[0], table[:, 0], table[:, :, 0] = 0.0, 0.0, 0.0
        model.add_factors([scope], table)
    return model


def warehouses(seed: int, sites: int = 20, shops: int = 50) -> tm.Model:
    rng = np.random.default_rng([seed, 11])
    where, who = rng.random((sites, 2)), rng.random((shops, 2))
    model = tm.Model([2] * sites + [sites] * shops)
    model.add_unaries(np.column_stack((np.zeros(sites), rng.integers(1500, 3000, sites))), np.arange(sites))
    way = np.rint(1000 * np.linalg.norm(who[:, None] - where[None], axis=2))
    model.add_unaries(way, np.arange(sites, sites + shops))
    for s in range(sites):
        table = np.zeros((2, sites))
        table[0, s] = math.inf
        model.add_factors([[s, sites + k] for k in range(shops)], table)
    return model


def proteins(seed: int, n: int = 30) -> tm.Model:
    rng = np.random.default_rng([seed, 12])
    labels, place = rng.integers(5, 60, n), rng.random((n, 3))
    model = tm.Model(labels)
    for i in range(n):
        model.add_unaries([rng.normal(0, 3, labels[i])], [i])
        for j in range(i + 1, n):
            reach = 2.5 * math.exp(-4 * float(np.linalg.norm(place[i] - place[j])))
            table = rng.normal(0, reach, (labels[i], labels[j]))
            clash = rng.random(table.shape) < 0.3 * reach / 2.5
            model.add_factors([[i, j]], np.where(clash, 100 * rng.random(table.shape), table))
    return model


def surfaces(seed: int, side: int = 25, labels: int = 7) -> tm.Model:
    rng = np.random.default_rng([seed, 13])
    index = np.arange(side * side).reshape(side, side)
    model = tm.Model([labels] * side**2)
    model.add_unaries(rng.gamma(1.0, 1.0, (side**2, labels)))
    edges = tm.Model.grid(side, side, labels).edges()
    model.add_factors(edges, rng.exponential(1.0, (len(edges), 1, 1)) * (1 - np.eye(labels)))
    triples = np.stack((index[:-1, :-1], index[:-1, 1:], index[1:, :-1]), -1).reshape(-1, 3)
    triples = triples[rng.random(len(triples)) < 0.3]
    model.add_factors(triples, rng.gamma(0.3, 1.0, (len(triples), labels, labels, labels)))
    return model


def colouring(seed: int, n: int = 120, colours: int = 4) -> tm.Model:
    rng = np.random.default_rng([seed, 14])
    place = rng.random((n, 2))
    far = np.linalg.norm(place[:, None] - place[None], axis=2)
    pairs = np.argwhere(np.triu(far < 0.15, 1))
    model = tm.Model([colours] * n)
    model.add_factors(pairs, rng.integers(1, 10, (len(pairs), 1, 1)) * np.eye(colours))
    return model


def assignment(seed: int, n: int = 12) -> tm.Model:
    rng = np.random.default_rng([seed, 15])
    flow, way = rng.integers(0, 10, (n, n)), rng.integers(1, 10, (n, n))
    model = tm.Model([n] * n)
    for i in range(n):
        for j in range(i + 1, n):
            table = (flow[i, j] * way + flow[j, i] * way.T).astype(float)
            table[np.eye(n, dtype=bool)] = math.inf
            model.add_factors([[i, j]], table)
    return model


def diagnosis(seed: int, diseases: int = 150, findings: int = 250) -> tm.Model:
    rng = np.random.default_rng([seed, 16])
    model = tm.Model([2] * diseases)
    rare = rng.uniform(0.01, 0.1, diseases)
    model.add_unaries(-np.log(np.column_stack((1 - rare, rare))))
    for _ in range(findings):
        scope = rng.choice(diseases, int(rng.integers(2, 5)), replace=False)
        absent = np.array(1 - rng.uniform(0.001, 0.05))
        for _ in scope:
            absent = np.multiply.outer(absent, [1.0, rng.uniform(0.05, 0.9)])
        model.add_factors([scope], -np.log(1 - absent if rng.random() < 0.3 else absent))
    return model


def spin_glass(seed: int, side: int = 30) -> tm.Model:
    rng = np.random.default_rng([seed, 17])
    index = np.arange(side * side).reshape(side, side)
    edges = np.concatenate([np.stack((index, np.roll(index, -1, axis)), -1).reshape(-1, 2) for axis in (0, 1)])
    model = tm.Model([2] * side**2)
    sign = rng.choice([-1.0, 1.0], (len(edges), 1, 1))
    model.add_factors(edges, sign * np.array([[-1.0, 1.0], [1.0, -1.0]]))
    return model


def fields(seed: int, n: int = 400, degree: int = 4) -> tm.Model:
    rng = np.random.default_rng([seed, 18])
    pairs = np.unique(np.sort(rng.integers(0, n, (n * degree // 2, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    model = tm.Model([2] * n)
    model.add_unaries(rng.normal(0, 0.5, (n, 2)))
    model.add_factors(pairs, rng.normal(0, 1, (len(pairs), 1, 1)) * np.array([[-1.0, 1.0], [1.0, -1.0]]))
    return model


def belief_net(seed: int, upper: int = 40, lower: int = 60) -> tm.Model:
    rng = np.random.default_rng([seed, 19])
    model = tm.Model([2] * (upper + lower))
    model.add_unaries(np.column_stack((np.zeros(upper + lower), rng.normal(0, 1.5, upper + lower))))
    pairs = [(i, upper + j) for i in range(upper) for j in range(lower)]
    tables = np.zeros((len(pairs), 2, 2))
    tables[:, 1, 1] = rng.normal(0, 1, len(pairs))
    model.add_factors(pairs, tables)
    return model


def dynamic_net(seed: int, hidden: int = 12, steps: int = 25, labels: int = 3) -> tm.Model:
    """Every variable depends on itself and on two others a step before; half of them are seen through noise."""
    rng = np.random.default_rng([seed, 20])
    index = np.arange(hidden * steps).reshape(steps, hidden)
    model = tm.Model([labels] * index.size)
    for i in range(hidden):
        others = rng.choice(np.delete(np.arange(hidden), i), 2, replace=False)
        change = rng.dirichlet(np.full(labels, 0.3), (labels, labels, labels))
        for t in range(1, steps):
            model.add_factors([[*index[t - 1, [i, *others]], index[t, i]]], -np.log(change + 1e-6))
        seen = rng.dirichlet(np.full(labels, 0.7), labels)
        if i % 2:
            model.add_unaries(-np.log(seen[:, rng.integers(0, labels, steps)].T + 1e-6), index[:, i])
    return model


def characters(seed: int, shape: tuple[int, int] = (40, 50), around: int = 32) -> tm.Model:
    """Strokes of which a part was wiped out; couplings depend on the offset alone, as if learnt."""
    rng = np.random.default_rng([seed, 21])
    h, w = shape
    ink = _scene(rng, h, w) > 0.5
    clear = rng.random(shape) < 0.6
    clear[h // 4 : h // 2, w // 4 : w // 2] = False
    model = tm.Model([2] * (h * w))
    data = np.where(clear, np.where(ink, -1.0, 1.0), 0.0) + rng.normal(0, 0.6, shape)
    model.add_unaries(np.stack((np.zeros(shape), data), -1).reshape(-1, 2))
    index = np.arange(h * w).reshape(shape)
    steps = [(dr, dc) for dr in range(-6, 7) for dc in range(7) if (dc, dr) > (0, 0)]
    for k in rng.choice(len(steps), around, replace=False):
        dr, dc = steps[k]
        a = index[max(0, -dr) : h - max(0, dr), : w - dc]
        b = index[max(0, dr) : h + min(0, dr), dc:]
        table = rng.normal(0, 0.35, (2, 2)) - 0.15 * np.eye(2)
        model.add_factors(np.column_stack((a.reshape(-1), b.reshape(-1))), table)
    return model


def _planar(rng: np.random.Generator, n: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Places in the unit square, and the pairs of them that are near each other."""
    place = rng.random((n, 2))
    far = np.linalg.norm(place[:, None] - place[None], axis=2)
    return place, np.argwhere(np.triu(far < reach / math.sqrt(n), 1))


def regions(seed: int, n: int = 300, labels: int = 8) -> tm.Model:
    rng = np.random.default_rng([seed, 22])
    place, pairs = _planar(rng, n, 1.5)
    owner = np.argmin(np.linalg.norm(place[:, None] - rng.random((12, 1, 2)).reshape(1, 12, 2), axis=2), axis=1)
    same = owner[pairs[:, 0]] == owner[pairs[:, 1]]
    model = tm.Model([labels] * n)
    model.add_potts(pairs, np.where(same, 1.0, -1.0) + rng.normal(0, 1.2, len(pairs)))
    return model


def communities(seed: int, n: int = 40) -> tm.Model:
    rng = np.random.default_rng([seed, 23])
    group = rng.integers(0, 5, n)
    i, j = np.triu_indices(n, 1)
    edge = rng.random(len(i)) < np.where(group[i] == group[j], 0.5, 0.1)
    degree = np.bincount(i[edge], minlength=n) + np.bincount(j[edge], minlength=n)
    gain = (edge - degree[i] * degree[j] / degree.sum()) / degree.sum() * 2.0
    model = tm.Model([n] * n)
    model.add_potts(np.column_stack((i, j)), gain)
    return model


def cell_tracking(seed: int, cells: int = 25, frames: int = 12) -> tm.Model:
    """A variable for every cell that was detected, and for every move between two frames; a cell has one past."""
    rng = np.random.default_rng([seed, 24])
    place = [rng.random((cells, 2))]
    for _ in range(frames - 1):
        moved = place[-1] + rng.normal(0, 0.04, place[-1].shape)
        place.append(np.concatenate((moved[rng.random(len(moved)) > 0.1], rng.random((cells // 8, 2)))))
    first = np.concatenate(([0], np.cumsum([len(x) for x in place])))
    moves = []
    for t in range(frames - 1):
        far = np.linalg.norm(place[t][:, None] - place[t + 1][None], axis=2)
        moves += [(first[t] + a, first[t + 1] + b, far[a, b]) for a, b in np.argwhere(far < 0.15)]
    n = int(first[-1])
    model = tm.Model([2] * (n + len(moves)))
    model.add_unaries([[0.0, c] for c in rng.normal(-1.5, 2.0, n)], np.arange(n))
    model.add_unaries([[0.0, 20 * far + rng.normal(0, 0.5) - 1] for _, _, far in moves], n + np.arange(len(moves)))
    into: list[list[int]] = [[] for _ in range(n)]
    out: list[list[int]] = [[] for _ in range(n)]
    for k, (a, b, _) in enumerate(moves):
        model.add_factors([[n + k, a], [n + k, b]], np.array([[0.0, 0.0], [math.inf, 0.0]]))
        out[a].append(n + k)
        into[b].append(n + k)
    for i in range(n):
        for own, most, price in ((into[i], 1, 3.0), (out[i], 2, 2.0)):
            own = own[:7]
            count = np.indices((2,) * (len(own) + 1)).sum(axis=0)
            table = np.where(count - np.indices(count.shape)[0] > most, math.inf, 0.0)
            table[(1,) + (0,) * len(own)] = price  # it comes from nowhere, or ends
            model.add_factors([[i, *own]], table)
    return model


def object_parts(seed: int, n: int = 60, labels: int = 11) -> tm.Model:
    rng = np.random.default_rng([seed, 25])
    place = rng.random((n, labels, 2))
    truth = rng.random((n, 2))
    place[:, 0] = truth + rng.normal(0, 0.02, (n, 2))
    model = tm.Model([labels] * n)
    model.add_unaries(rng.gamma(2.0, 20.0, (n, labels)))
    for i in range(n):
        for j in range(i):
            off = place[i][:, None] - place[j][None] - (truth[i] - truth[j])
            fit = 60.0 * np.exp(-20 * (off**2).sum(-1)) * rng.random()
            model.add_factors([[i, j]], rng.normal(0, 8, (labels, labels)) - fit)
    return model


def clauses(seed: int, n: int = 120, ratio: float = 6.0) -> tm.Model:
    rng = np.random.default_rng([seed, 26])
    model = tm.Model([2] * n)
    for _ in range(int(ratio * n)):
        table = np.zeros((2, 2, 2))
        table[tuple(rng.integers(0, 2, 3))] = float(rng.integers(1, 10))
        model.add_factors([rng.choice(n, 3, replace=False)], table)
    return model


FAMILIES: dict[str, Callable[[int], tm.Model]] = {
    "grid of tables": table_grid,
    "grid of pairs": pair_grid,
    "large grid of pairs": lambda seed: pair_grid(seed, 300, 4),
    "pedigree": pedigree,
    "planning": planning,
    "random CSP": random_csp,
    "dense QUBO": dense_qubo,
    "matching": points,
    "photomontage": photomontage,
    "large photomontage": lambda seed: photomontage(seed, (700, 700)),
    "noisy parity": parity,
    "radio links": radio_links,
    "satellite": satellite,
    "warehouses": warehouses,
    "proteins": proteins,
    "surfaces": surfaces,
    "colouring": colouring,
    "assignment": assignment,
    "diagnosis": diagnosis,
    "spin glass": spin_glass,
    "fields": fields,
    "belief net": belief_net,
    "dynamic net": dynamic_net,
    "characters": characters,
    "regions": regions,
    "communities": communities,
    "cell tracking": cell_tracking,
    "object parts": object_parts,
    "clauses": clauses,
}
