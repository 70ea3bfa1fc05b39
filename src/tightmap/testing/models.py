"""Small random models of every kind, for tests of methods: seeded, so that a failure can be repeated."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tightmap.model.model import Model

KINDS = ("dense", "shared", "weighted", "potts", "linear", "quadratic", "pn", "pattern", "sparse", "second")


def random_model(
    rng: np.random.Generator,
    n: int = 5,
    labels: int = 3,
    factors: int = 6,
    order: int = 3,
    kinds: tuple[str, ...] = KINDS,
    hard: float = 0.0,
    integral: bool = False,
    ragged: bool = True,
    tidy: bool = False,
    ones: bool = True,
) -> Model:
    """A random model.

    hard: probability of a +inf entry in dense tables.  tidy: no repeated variables, no one-label variables.
    """
    low = 1 if ones and not tidy else 2
    cards = rng.integers(low, labels + 1, size=n) if ragged else np.full(n, labels)
    model = Model(cards)

    def numbers(shape: Any) -> Any:
        v = rng.normal(size=shape) * 3
        return np.round(v) if integral else v

    model.add_unaries([numbers(c) for c in cards])
    model.add_constant(float(numbers(())))
    for _ in range(factors):
        kind = kinds[rng.integers(len(kinds))]
        k = 2 if kind in ("potts", "linear", "quadratic") else int(rng.integers(2, max(order, 2) + 1))
        if kind == "second":
            k = 3
            if order < 3 or n < 3:
                continue
        if tidy:
            if k > n:
                continue
            scope = rng.permutation(n)[:k]
        else:
            scope = rng.integers(0, n, size=k)
        shape = tuple(cards[scope])
        weight = float(numbers(())) or 1.0
        if kind in ("dense", "shared", "weighted"):
            table = numbers(shape)
            if hard:
                table = np.where(rng.random(shape) < hard, np.inf, table)
                weight = abs(weight)
            if kind == "dense":
                model.add_factors(scope[None], table[None])
            elif kind == "shared":
                model.add_factors(np.stack([scope, scope]), table)
            else:
                model.add_factors(scope[None], table, weights=[weight])
        elif kind == "potts":
            model.add_potts(scope[None], [weight])
        elif kind == "linear":
            model.add_truncated_linear(scope[None], [weight], float(rng.choice([0.0, 1.0, 1.5, 2.0, np.inf])))
        elif kind == "quadratic":
            model.add_truncated_quadratic(scope[None], [weight], float(rng.choice([0.0, 1.0, 2.5, 4.0, np.inf])))
        elif kind == "pn":
            model.add_pn_potts(scope[None], [weight], numbers(labels), disagreement=float(numbers(())))
        elif kind == "pattern":
            from tightmap.factors.pattern import bell

            model.add_label_patterns(scope[None], numbers(bell(k)), [weight])
        elif kind == "sparse":
            every = np.indices(shape).reshape(k, -1).T
            chosen = every[rng.random(len(every)) < 0.3]
            model.add_sparse(scope[None], chosen, numbers(len(chosen)), float(numbers(())), [weight])
        else:
            values = [numbers(c) for c in cards]
            model.add_second_difference(scope[None], [weight], values, float(rng.choice([0.5, 2.0, np.inf])))
    return model


def tree_model(rng: np.random.Generator, n: int = 7, labels: int = 3, order: int = 2) -> Model:
    """A random tree (order 2) or hypertree: scopes share one variable with what came before."""
    cards = rng.integers(2, labels + 1, size=n)
    model = Model(cards)
    model.add_unaries([rng.normal(size=c) for c in cards])
    done = [0]
    free = list(range(1, n))
    while free:
        take = min(len(free), int(rng.integers(1, order)))
        scope = [int(rng.choice(done))] + [free.pop() for _ in range(take)]
        rng.shuffle(scope)
        model.add_factors([scope], rng.normal(size=tuple(cards[scope])))
        done += [i for i in scope if i not in done]
    return model


def grid_model(
    rng: np.random.Generator,
    height: int = 5,
    width: int = 6,
    labels: int = 3,
    kind: str = "potts",
    integral: bool = True,
) -> Model:
    """A grid with random integral unaries and non-negative weights (metric for Potts and linear)."""
    model = Model.grid(height, width, labels)
    u = rng.random((height * width, labels)) * 10
    model.add_unaries(np.round(u) if integral else u)
    edges = model.edges()
    w = rng.random(len(edges)) * 4
    w = np.ceil(w) if integral else w
    if kind == "potts":
        model.add_potts(edges, w)
    elif kind == "linear":
        model.add_truncated_linear(edges, w, 2.0)
    elif kind == "quadratic":
        model.add_truncated_quadratic(edges, w, 4.0)
    else:
        t = rng.normal(size=(len(edges), labels, labels)) * 3
        model.add_factors(edges, np.round(t) if integral else t)
    return model


def optimum(model: Model) -> float:
    """The lowest energy of all labellings, one after the other; +inf when none is feasible."""
    spans = [range(int(c)) for c in model.cardinalities]
    return min((model.energy(np.array(x, dtype=np.int64)) for x in itertools.product(*spans)), default=model.constant)
