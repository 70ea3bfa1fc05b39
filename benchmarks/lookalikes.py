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
}
