"""Models for the memory check: every shape that has its own way of laying out memory, small, from fixed seeds.

What matters is where indices come from: label counts that differ, grids with gaps, variables without factors or with
one label, factors that shrink when one-label variables are folded away, counts beyond 8 and 16 bits, sizes around the
eight lanes of a vector.  Costs are arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import tightmap as tm
from problems import KINDS, random_model, tree_model

PAIR_KINDS = ("potts", "linear", "wide", "quadratic", "shared", "dense", "sparse", "mixed")
GRIDS = ((1, 9), (9, 1), (2, 7), (7, 2), (3, 3), (2, 2), (8, 8), (9, 11), (17, 5), (5, 17), (16, 7))


def add_pairs(model, rng, edges, kind, integral, odd=True):
    """Costs of one kind on pairs of variables; ``odd``: some of the weights may be negative or zero."""
    if not len(edges):
        return
    edges = np.asarray(edges)
    cards = model.cardinalities
    weights = rng.integers(1, 6, len(edges)).astype(float) if integral else rng.random(len(edges)) * 4.0
    if odd and rng.random() < 0.15:
        weights[rng.random(len(edges)) < 0.3] *= -1.0
    if odd and rng.random() < 0.1:
        weights[rng.random(len(edges)) < 0.3] = 0.0
    if kind == "mixed":
        share = rng.integers(0, 4, len(edges))
        for number, other in enumerate(("potts", "linear", "quadratic", "dense")):
            add_pairs(model, rng, edges[share == number], other, integral, odd)
    elif kind == "potts":
        model.add_potts(edges, weights)
    elif kind in ("linear", "wide"):
        limit = float(rng.choice([0.0, 1.0, 2.0, 3.0]) if kind == "linear" else rng.choice([6.0, 12.5, np.inf]))
        model.add_truncated_linear(edges, weights, limit)
    elif kind == "quadratic":
        model.add_truncated_quadratic(edges, weights, float(rng.choice([1.0, 4.0, 9.5, 100.0, np.inf])))
    elif kind == "shared" and len(set(cards[edges].ravel().tolist())) == 1:
        model.add_factors(edges, _table(rng, cards[edges[0]], integral), weights=np.abs(weights))
    else:
        for edge in edges:
            table = _table(rng, cards[edge], integral)
            if kind == "sparse":
                chosen = np.argwhere(rng.random(table.shape) < 0.3)
                model.add_sparse(edge[None], chosen, table[tuple(chosen.T)], 0.5, [1.0])
            else:
                model.add_factors(edge[None], table[None])


def _table(rng, shape, integral):
    table = rng.normal(size=tuple(shape)) * 3.0
    table = np.round(table) if integral else table
    if rng.random() < 0.2:
        table[rng.random(table.shape) < 0.1] = np.inf
    return table


def label_counts(rng, n, largest, how):
    """Equal counts, uneven ones, or uneven ones with many variables of one label."""
    if how == "equal":
        return np.full(n, largest)
    cards = rng.integers(max(1, largest // 3), largest + 1, n)
    if how == "ones":
        cards[rng.random(n) < 0.3] = 1
    return cards


def grid_edges(height, width, displacements):
    r, c = np.mgrid[:height, :width]
    parts = []
    for down, right in displacements:
        inside = (r + down < height) & (c + right >= 0) & (c + right < width)
        first = (r * width + c)[inside]
        parts.append(np.stack([first, first + down * width + right], axis=1))
    return np.concatenate(parts)


def random_grid(rng):
    """A grid of any shape and neighbourhood, complete or with gaps."""
    height, width = GRIDS[rng.integers(len(GRIDS))]
    labels = int(rng.choice([2, 3, 4, 5, 7, 8, 9, 17]))
    kind = PAIR_KINDS[rng.integers(len(PAIR_KINDS))]
    how = str(rng.choice(["equal", "equal", "uneven", "ones"]))
    integral = bool(rng.random() < 0.5)
    neighbours = [
        [(0, 1), (1, 0)],
        [(0, 1), (1, 0)],
        [(0, 1), (1, 0), (1, 1), (1, -1)],
        [(0, 1), (1, 1)],
        [(1, -1), (1, 0)],
        [(0, 1), (1, 0), (0, 2), (2, 0)],
    ][rng.integers(6)]
    edges = grid_edges(height, width, neighbours)
    gaps = rng.integers(5)
    if gaps == 1 and len(edges) > 1:  # one pair, often the last one
        edges = np.delete(edges, -1 if rng.random() < 0.5 else rng.integers(len(edges)), axis=0)
    elif gaps == 2:  # a row without edges
        row = rng.integers(height)
        edges = edges[(edges // width != row).all(axis=1)]
    elif gaps == 3:
        edges = edges[rng.random(len(edges)) < 0.6]
    elif gaps == 4 and len(edges):  # some pairs twice, the other way round
        edges = np.concatenate([edges, edges[rng.random(len(edges)) < 0.3][:, ::-1]])
    cards = label_counts(rng, height * width, labels, how)
    if how == "equal" and rng.random() < 0.5:
        model = tm.Model.grid(height, width, labels)
    else:
        model = tm.Model(cards)
    unaries = [rng.random(c) * 5.0 for c in model.cardinalities]
    model.add_unaries([np.round(u) for u in unaries] if integral else unaries)
    add_pairs(model, rng, edges, kind, integral)
    return model


def random_pairs(rng):
    """A pairwise model on a tree, ring, star, complete or random graph, with isolated variables."""
    n = int(rng.integers(2, 24))
    shape = rng.integers(5)
    if shape == 0:
        edges = [(int(rng.integers(i)), i) for i in range(1, n)]
    elif shape == 1:
        edges = [(i, (i + 1) % n) for i in range(n) if n > 2]
    elif shape == 2:
        edges = [(0, i) for i in range(1, n)]
    else:
        edges = [(i, j) for i in range(n) for j in range(i) if rng.random() < (1.0 if shape == 3 and n < 10 else 0.3)]
    order = rng.permutation(n + 3)  # three variables stay alone
    cards = label_counts(rng, n + 3, int(rng.choice([2, 3, 5, 9])), str(rng.choice(["equal", "uneven", "ones"])))
    model = tm.Model(cards)
    model.add_unaries([rng.normal(size=c) for c in cards])
    if edges:
        add_pairs(model, rng, order[np.array(edges)], PAIR_KINDS[rng.integers(len(PAIR_KINDS))], False)
    return model


def random_factors(rng):
    """Factors of all kinds on up to five variables, repeated ones among them."""
    hard = 0.15 if rng.random() < 0.3 else 0.0
    order = int(rng.integers(2, 6))
    model = random_model(
        rng, n=int(rng.integers(1, 10)), labels=int(rng.integers(2, 5)), factors=int(rng.integers(0, 14)),
        order=order, kinds=KINDS, hard=hard, integral=bool(rng.random() < 0.4), ragged=bool(rng.random() < 0.7),
    )  # fmt: skip
    if rng.random() < 0.2:
        model.clamp({0: int(model.cardinalities[0]) - 1})
    return model


def random_hypertree(rng):
    return tree_model(rng, n=int(rng.integers(2, 14)), labels=int(rng.integers(2, 7)), order=int(rng.integers(2, 5)))


RANDOM: tuple[Callable[[np.random.Generator], tm.Model], ...] = (
    random_grid, random_grid, random_pairs, random_factors, random_factors, random_hypertree,
)  # fmt: skip


def grid_with_gap(low=4, high=9, seed=0, gap=(7, 8)):
    """3 x 3 variables with uneven label counts, and one pair of neighbours that no factor joins."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(low, high, 9)
    edges = [tuple(e) for e in grid_edges(3, 3, [(0, 1), (1, 0)]).tolist()]
    model = tm.Model(cards)
    model.add_unaries([rng.random(c) for c in cards])
    model.add_potts([e for e in edges if e != gap], np.full(len(edges) - 1, 5.0))
    return model


def uneven_grid(rng, height, width):
    """Uneven label counts, and about one pair of neighbours in four that no factor joins."""
    cards = label_counts(rng, height * width, 9, "uneven") + 1
    model = tm.Model(cards)
    model.add_unaries([rng.random(c) for c in cards])
    edges = grid_edges(height, width, [(0, 1), (1, 0)])
    edges = edges[rng.random(len(edges)) < 0.75]
    model.add_potts(edges, rng.random(len(edges)))
    return model


def grid(height, width, labels, kind, neighbours=4, integral=False, seed=1):
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(height, width, labels)
    u = rng.random((height * width, labels)) * 6.0
    model.add_unaries(np.round(u) if integral else u)
    add_pairs(model, rng, model.edges(neighbours), kind, integral, odd=False)
    return model


def _many_labels(cards, kind):
    rng = np.random.default_rng(5)
    model = tm.Model(cards)
    model.add_unaries([rng.random(c) * 9.0 for c in cards])
    edges = [(i, i + 1) for i in range(len(cards) - 1)]
    add_pairs(model, rng, edges, kind, False, odd=False)
    return model


def _folded():
    """Factors that have one variable, or none, left once one-label variables are gone."""
    rng = np.random.default_rng(6)
    model = tm.Model([1, 3, 1, 2, 1, 4])
    model.add_unaries([rng.random(c) for c in model.cardinalities])
    for scope in ([0, 2], [0, 2, 4], [0, 1], [1, 2, 3], [0, 1, 2, 3, 4], [5, 4], [4]):
        model.add_factors([scope], rng.normal(size=tuple(model.cardinalities[scope])))
    model.add_potts([[0, 2], [0, 5], [1, 3]], [1.0, 2.0, 3.0])
    model.add_pn_potts([[0, 2, 4], [0, 1, 5]], [1.0, 2.0], rng.random(4), disagreement=1.5)
    return model


def _second_order(height, width, labels):
    rng = np.random.default_rng(8)
    model = tm.Model.grid(height, width, labels)
    model.add_unaries(rng.random((height * width, labels)) * 4.0)
    index = np.arange(height * width).reshape(height, width)
    across = np.stack([index[:, :-2].ravel(), index[:, 1:-1].ravel(), index[:, 2:].ravel()], axis=1)
    down = np.stack([index[:-2].ravel(), index[1:-1].ravel(), index[2:].ravel()], axis=1)
    triples = np.concatenate([across, down])
    values = [np.sort(rng.random(labels)) * labels for _ in range(height * width)]
    model.add_second_difference(triples, rng.random(len(triples)) + 0.5, values, 2.5)
    return model


def _all_different(n):
    model = tm.Model(np.full(n, n))
    model.add_unaries(np.random.default_rng(9).random((n, n)))
    model.add_factors([(i, j) for i in range(n) for j in range(i)], np.where(np.eye(n) > 0, np.inf, 0.0))
    return model


def _binary(n, density):
    rng = np.random.default_rng(10)
    model = tm.Model(np.full(n, 2))
    model.add_unaries(rng.normal(size=(n, 2)))
    edges = np.array([(i, j) for i in range(n) for j in range(i) if rng.random() < density])
    model.add_factors(edges, rng.normal(size=(len(edges), 2, 2)))
    return model


def _wide_factors():
    """The largest factor there is, of 127 variables, and one of ten with a few listed costs."""
    rng = np.random.default_rng(13)
    model = tm.Model(np.full(130, 2))
    model.add_unaries(rng.random((130, 2)))
    model.add_pn_potts([rng.permutation(130)[:127]], [2.0], rng.random(2), disagreement=3.0)
    model.add_sparse([np.arange(10)], rng.integers(0, 2, (6, 10)), rng.normal(size=6), 0.25)
    return model


def _zero(kind):
    model = tm.Model.grid(4, 5, 3)
    add_pairs(model, np.random.default_rng(11), model.edges(), kind, True, odd=False)
    return model


def _names(n, density, triples=0):
    """Labels that are only names: Potts weights of both signs, patterns of three."""
    rng = np.random.default_rng(12)
    pairs = [[i, j] for i in range(n) for j in range(i) if rng.random() < density]
    model = tm.Model([n] * n)
    model.add_potts(pairs, rng.normal(size=len(pairs)))
    for _ in range(triples):
        model.add_label_patterns([rng.choice(n, 3, replace=False)], rng.normal(size=5))
    return model


FIXED: dict[str, Callable[[], tm.Model]] = {
    "no variables": lambda: tm.Model([]),
    "one label each": lambda: tm.Model([1, 1, 1]),
    "no factors": lambda: _many_labels([3], "potts"),
    "uneven grid with a gap": grid_with_gap,
    "uneven grid with a gap in front": lambda: grid_with_gap(gap=(0, 1)),
    "uneven grid with a gap, many labels": lambda: grid_with_gap(150, 400),
    "all folded": _folded,
    "names, all pairs": lambda: _names(14, 1.0),
    "names, few pairs": lambda: _names(60, 0.06),
    "names, triples": lambda: _names(24, 0.15, 20),
    "no unary costs": lambda: _zero("potts"),
    "more than 255 labels, potts": lambda: _many_labels([300, 257, 256, 255, 600], "potts"),
    "more than 255 labels, linear": lambda: _many_labels([300, 257, 256, 255, 600], "wide"),
    "more than 255 labels, quadratic": lambda: _many_labels([300, 300, 300], "quadratic"),
    "more than 255 labels, dense": lambda: _many_labels([260, 3, 270], "dense"),
    "more than 32767 labels": lambda: _many_labels([33000, 2, 40000], "potts"),
    "more than 65535 labels": lambda: _many_labels([70000, 70000], "wide"),
    "grid of 260 labels": lambda: grid(4, 9, 260, "linear"),
    "second differences": lambda: _second_order(4, 5, 6),
    "second differences, 20 labels": lambda: _second_order(1, 4, 20),
    "wide factors": _wide_factors,
    "all different": lambda: _all_different(5),
    "binary, dense": lambda: _binary(40, 0.5),
    "binary, sparse": lambda: _binary(90, 0.04),
    "binary image": lambda: grid(9, 11, 2, "potts", 8),
    "binary image, whole costs": lambda: grid(9, 11, 2, "quadratic", integral=True),
    "grid of 4 labels, 8 neighbours": lambda: grid(4, 5, 4, "dense", 8),
    "large potts grid": lambda: grid(66, 70, 16, "potts"),
    "large integral grid": lambda: grid(40, 50, 3, "potts", integral=True),
    "large linear grid, 8 neighbours": lambda: grid(33, 41, 9, "linear", 8),
    "large wide grid": lambda: grid(50, 63, 24, "wide"),
    "large quadratic grid": lambda: grid(50, 63, 24, "quadratic"),
    "large dense grid": lambda: grid(64, 66, 18, "shared"),
}


def cases(count: int) -> Iterator[tuple[str, Callable[[], tm.Model]]]:
    """Name and builder of all fixed models and of ``count`` random ones; the same ones every time."""
    yield from FIXED.items()
    for seed in range(count):
        kind = RANDOM[seed % len(RANDOM)]
        yield f"{kind.__name__} {seed}", lambda kind=kind, seed=seed: kind(np.random.default_rng([12, seed]))
