"""Random models small enough for brute force: every kind of factor, every awkward shape, every kind of number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from problems import random_model, tree_model
from tightmap.factors.pattern import bell

from .costs import hardened, restyled
from .recipe import Call, Recipe, recipe_of
from .sizes import SIZES

STATES = 20_000  # labellings of a model at most
PATTERNS = 5  # variables of a factor of label patterns: the oracle looks at k^k labellings to put them in order
REPEATED = 3_000  # entries of a table with a variable in it twice

Rng = np.random.Generator


def random_recipe(rng: Rng) -> Recipe:
    """A random model; the same generator state gives the same model."""
    names = list(SHAPES)
    odds = np.array([SHAPES[name][0] for name in names])
    recipe = SHAPES[str(rng.choice(names, p=odds / odds.sum()))][1](rng)
    recipe = restyled(recipe, rng)
    if rng.random() < 0.3:
        recipe = hardened(recipe, rng, float(rng.choice([0.02, 0.1, 0.3, 0.6])))
    recipe = _with_extras(recipe, rng)
    if rng.random() < (0.8 if recipe.grid else 0.4):
        recipe = replace(recipe, sizes=tuple(size for size in SIZES if rng.random() < (0.7 if recipe.grid else 0.5)))
    return recipe


# ------------------------------------------------------------------------------------------------- label counts


def _uneven(rng: Rng, n: int, largest: int = 6, least: int = 1) -> list[int]:
    """Random label counts whose product stays below STATES: those that are too large are lowered one by one."""
    cards = rng.integers(least, largest + 1, size=n)
    while np.prod(cards.astype(float)) > STATES:
        cards[int(np.argmax(cards))] -= 1
    return [int(c) for c in cards]


def _cards(rng: Rng, n: int) -> list[int]:
    kind = rng.random()
    if kind < 0.3:
        return [2] * n
    if kind < 0.5:
        most = max(s for s in range(2, 7) if s**n <= STATES)
        return [int(rng.integers(2, most + 1))] * n
    return _uneven(rng, n)


# ------------------------------------------------------------------------------------------------- calls


def _unaries(rng: Rng, cards: list[int]) -> list[Call]:
    if not cards or rng.random() < 0.1:
        return []
    return [("add_unaries", {"costs": [rng.normal(size=c).tolist() for c in cards]})]


def _pairs(rng: Rng, cards: list[int], edges: list[list[int]]) -> list[Call]:
    """Factors on edges: one call of one kind, or every edge on its own."""
    if not edges:
        return []
    if rng.random() < 0.2:
        return [call for edge in edges for call in _pair_call(rng, cards, [edge])]
    return _pair_call(rng, cards, edges)


def _pair_call(rng: Rng, cards: list[int], edges: list[list[int]]) -> list[Call]:
    kind = str(rng.choice(["dense", "dense", "pool", "potts", "potts", "linear", "quadratic", "sparse"]))
    given = {"edges": edges, "weights": np.abs(rng.normal(size=len(edges))).tolist()}
    if kind == "potts":
        return [("add_potts", given)]
    if kind in ("linear", "quadratic"):
        limits = rng.choice([0.0, 1.0, 1.5, 2.0, 4.0, np.inf], size=len(edges)).tolist()
        one = rng.random() < 0.5
        return [(f"add_truncated_{kind}", given | {"limit": limits[0] if one else limits})]
    calls: list[Call] = []
    for shape in sorted({tuple(cards[i] for i in edge) for edge in edges}):
        mine = [edge for edge in edges if tuple(cards[i] for i in edge) == shape]
        weights = rng.normal(size=len(mine)).tolist()
        if kind == "sparse":
            every = np.indices(shape).reshape(2, -1).T
            chosen = every[rng.random(len(every)) < 0.4].tolist()
            costs = {"entries": chosen, "values": rng.normal(size=len(chosen)).tolist(), "default": 0.5}
            calls.append(("add_sparse", {"scopes": mine, **costs, "weights": weights}))
        elif kind == "pool":
            pool = {"tables": rng.normal(size=(2, *shape)).tolist(), "index": rng.integers(0, 2, len(mine)).tolist()}
            calls.append(("add_indexed_factors", {"scopes": mine, **pool, "weights": weights}))
        else:
            own = rng.random() < 0.7
            tables = rng.normal(size=(len(mine), *shape) if own else shape).tolist()
            calls.append(("add_factors", {"scopes": mine, "tables": tables}))
    return calls


def _higher(rng: Rng, cards: list[int], scope: list[int]) -> list[Call]:
    """One factor of three or more variables."""
    k = len(scope)
    shape = tuple(cards[i] for i in scope)
    kind = str(rng.choice(["dense", "pn", "pattern", "sparse", "second"]))
    if kind == "pattern" and k > PATTERNS:
        kind = "pn"
    weights = rng.normal(size=1).tolist()
    if kind == "pn":
        costs = {"label_costs": rng.normal(size=min(shape)).tolist(), "disagreement": 1.0}
        return [("add_pn_potts", {"scopes": [scope], "weights": weights, **costs})]
    if kind == "pattern":
        return [("add_label_patterns", {"scopes": [scope], "values": [0.0] * bell(k), "weights": weights})]
    if kind == "second" and k == 3:
        values = [rng.normal(size=c).tolist() for c in cards]
        limit = float(rng.choice([0.5, 2.0, np.inf]))
        given = {"triples": [scope], "weights": weights, "values": values, "limit": limit}
        return [("add_second_difference", given)]
    if kind == "sparse":
        every = np.indices(shape).reshape(k, -1).T
        chosen = every[rng.random(len(every)) < 0.2].tolist()
        costs = {"entries": chosen, "values": [0.0] * len(chosen), "default": 0.0}
        return [("add_sparse", {"scopes": [scope], **costs, "weights": weights})]
    return [("add_factors", {"scopes": [scope], "tables": rng.normal(size=shape).tolist(), "weights": weights})]


# ------------------------------------------------------------------------------------------------- shapes


def _any(rng: Rng) -> Recipe:
    """Whatever the random models of the test suite are."""
    n = int(rng.integers(1, 9))
    most = max(s for s in range(2, 7) if s**n <= STATES)
    labels = int(rng.integers(2, most + 1))
    factors, order = int(rng.integers(0, 11)), int(rng.integers(2, 6))
    if labels**order > REPEATED:
        order = 3
    return recipe_of(
        random_model(rng, n, labels, factors, order, ragged=bool(rng.random() < 0.6), tidy=bool(rng.random() < 0.5))
    )


def _tree(rng: Rng) -> Recipe:
    order = int(rng.integers(2, 5))
    return recipe_of(tree_model(rng, int(rng.integers(2, 9)), int(rng.integers(2, 4)), order))


def _graph(rng: Rng) -> Recipe:
    """Pairs that form a chain, a star, a ring, a complete graph, or two pieces; some variables are in none."""
    n = int(rng.integers(2, 9))
    cards = _cards(rng, n)
    shape = str(rng.choice(["chain", "star", "ring", "complete", "pieces", "random"]))
    if shape == "chain":
        edges = [[i, i + 1] for i in range(n - 1)]
    elif shape == "star":
        edges = [[0, i] for i in range(1, n)]
    elif shape == "ring":
        edges = [[i, (i + 1) % n] for i in range(n if n > 2 else 1)]
    elif shape == "complete":
        edges = [[i, j] for i in range(n) for j in range(i)]
    elif shape == "pieces":
        edges = [[i, j] for i in range(n) for j in range(i) if i % 2 == j % 2 and rng.random() < 0.8]
    else:
        edges = rng.integers(0, n, size=(int(rng.integers(1, 12)), 2)).tolist()  # loops and repetitions included
    names = rng.permutation(n) if rng.random() < 0.3 else np.arange(n)
    edges = [[int(names[i]) for i in edge] for edge in edges]
    return Recipe(cards, _unaries(rng, cards) + _pairs(rng, cards, edges))


def _grid_edges(height: int, width: int, diagonal: bool) -> list[list[int]]:
    steps = [(0, 1), (1, 0)] + ([(1, 1), (1, -1)] if diagonal else [])
    return [
        [r * width + c, (r + a) * width + c + b]
        for a, b in steps
        for r in range(height)
        for c in range(width)
        if r + a < height and 0 <= c + b < width
    ]


def _grid(rng: Rng) -> Recipe:
    """Grids made by Model.grid and grids that only look like one, with uneven label counts and missing edges."""
    sizes = [
        (1, 5),
        (5, 1),
        (2, 2),
        (2, 3),
        (3, 2),
        (2, 4),
        (3, 3),
        (3, 4),
        (2, 6),
        (2, 7),
        (7, 2),
        (4, 3),
        (1, 12),
        (1, 1),
    ]
    height, width = sizes[int(rng.integers(len(sizes)))]
    n = height * width
    edges = _grid_edges(height, width, bool(rng.random() < 0.25))
    declared = rng.random() < 0.5
    if declared:
        most = max(s for s in range(1, 7) if s**n <= STATES)
        cards = [int(rng.integers(1 if most == 1 else 2, most + 1))] * n
    else:
        cards = _uneven(rng, n, least=2 if rng.random() < 0.7 else 1)
    if rng.random() < 0.5:
        missing = int(rng.integers(1, 3))
        edges = [edge for e, edge in enumerate(edges) if e not in rng.choice(len(edges) or 1, size=missing)]
    grid = (height, width) if declared else None
    return Recipe(cards, _unaries(rng, cards) + _pairs(rng, cards, edges), grid)


def _image(rng: Rng) -> Recipe:
    """What images are made of: all edges to four or eight neighbours, one after the other, of one kind."""
    height, width = ((3, 3), (3, 4), (4, 3))[int(rng.integers(3))]
    n = height * width
    cards = [int(rng.integers(2, 4)) if n == 9 else 2] * n
    edges = _grid_edges(height, width, bool(rng.random() < 0.5))
    name = str(rng.choice(["add_potts", "add_truncated_linear", "add_truncated_quadratic"]))
    weight = float(abs(rng.normal()))
    weights = weight if rng.random() < 0.3 else np.abs(rng.normal(size=len(edges))).tolist()
    given: dict[str, Any] = {"edges": edges, "weights": weights}
    if name != "add_potts":
        given["limit"] = float(rng.choice([1.0, 2.0, 4.0]))
    unaries: Call = ("add_unaries", {"costs": rng.normal(size=(n, cards[0])).tolist()})
    return Recipe(cards, [unaries, (name, given)], (height, width))


def _wide(rng: Rng) -> Recipe:
    """One variable with more labels than a byte can count, and a few ordinary ones."""
    wide = int(rng.integers(250, 420))
    cards = [wide, *_uneven(rng, int(rng.integers(1, 4)), largest=3)]
    order = rng.permutation(len(cards))
    cards = [cards[i] for i in order]
    edges = [[i, j] for i in range(len(cards)) for j in range(i + 1, len(cards)) if rng.random() < 0.8]
    return Recipe(cards, _unaries(rng, cards) + _pairs(rng, cards, edges))


def _orders(rng: Rng) -> Recipe:
    """Factors of three to five variables, overlapping, with some pairs between."""
    n = int(rng.integers(3, 9))
    cards = _cards(rng, n)
    calls = _unaries(rng, cards)
    for _ in range(int(rng.integers(1, 6))):
        k = int(rng.integers(3, min(5, n) + 1))
        calls += _higher(rng, cards, rng.permutation(n)[:k].tolist())
    edges = [[i, i + 1] for i in range(n - 1) if rng.random() < 0.3]
    return Recipe(cards, calls + _pairs(rng, cards, edges))


def _rules(rng: Rng) -> Recipe:
    """Hard constraints that only just fit, or contradict one another: colourings, orders, exactly one of all."""
    n = int(rng.integers(2, 7))
    labels = int(rng.integers(2, 4))
    cards = [labels] * n
    forbidden = np.where(np.eye(labels) > 0, np.inf, 0.0)
    if rng.random() < 0.3:
        forbidden = np.where(np.tri(labels) > 0, np.inf, 0.0)  # the first label is less than the second
    edges = [[i, j] for i in range(n) for j in range(i + 1, n) if rng.random() < 0.7] or [[0, 1]]
    calls = [*_unaries(rng, cards), ("add_factors", {"scopes": edges, "tables": forbidden.tolist()})]
    if rng.random() < 0.3:
        scope = list(range(min(n, 5)))
        table = np.where(np.indices((labels,) * len(scope)).sum(axis=0) == 1, 0.0, np.inf)
        calls.append(("add_factors", {"scopes": [scope], "tables": table.tolist()}))
    return Recipe(cards, calls)


def _little(rng: Rng) -> Recipe:
    """No variables, no factors, or only variables that have no choice."""
    n = int(rng.integers(0, 4))
    cards = [1] * n if rng.random() < 0.4 else _uneven(rng, n)
    calls: list[Call] = [("add_constant", {"cost": 1.0})] if rng.random() < 0.5 else []
    calls += _unaries(rng, cards)
    if n > 1 and rng.random() < 0.4:
        calls += _pairs(rng, cards, [[0, 1]])
    return Recipe(cards, calls)


def _high(rng: Rng) -> Recipe:
    """Factors of six to eight variables, of every kind that takes so many, some of them on the same variables."""
    n = int(rng.integers(6, 10))
    cards = [2] * n if rng.random() < 0.6 else _uneven(rng, n, largest=3)
    calls = _unaries(rng, cards)
    for _ in range(int(rng.integers(1, 4))):
        k = int(rng.integers(6, min(8, n) + 1))
        calls += _higher(rng, cards, rng.permutation(n)[:k].tolist())
    edges = [[i, i + 1] for i in range(n - 1) if rng.random() < 0.3]
    return Recipe(cards, calls + _pairs(rng, cards, edges))


def _crowded(rng: Rng) -> Recipe:
    """Everything awkward in one model: pieces that do not touch, variables of one label, the same variables again and
    again in another order, with another kind of factor, and several times in one scope."""
    n = int(rng.integers(4, 8))
    cards = _uneven(rng, n, largest=4)
    pieces = [list(range(0, n // 2)), list(range(n // 2, n))]
    calls = _unaries(rng, cards)
    for _ in range(int(rng.integers(3, 8))):
        piece = pieces[int(rng.integers(2))]
        repeated = rng.random() < 0.25
        k = int(rng.integers(2, 5)) if repeated else int(rng.integers(2, len(piece) + 1))
        scope = [int(i) for i in rng.choice(piece, size=k, replace=repeated)]
        calls += _pairs(rng, cards, [scope]) if k == 2 else _higher(rng, cards, scope)
        if rng.random() < 0.5:
            again = [int(i) for i in rng.permutation(scope)]
            calls += _pairs(rng, cards, [again]) if k == 2 else _higher(rng, cards, again)
    return Recipe(cards, calls)


def _wide_pair(rng: Rng) -> Recipe:
    """Two variables of more than a hundred labels each that meet in a factor, and one of few labels beside them."""
    cards = [int(rng.integers(100, 140)), int(rng.integers(100, 140))]
    if rng.random() < 0.5:
        cards = [int(rng.integers(256, 330)), int(rng.integers(10, 20)), 2]
    edges = [[i, j] for i in range(len(cards)) for j in range(i + 1, len(cards))]
    return Recipe(cards, _unaries(rng, cards) + _pairs(rng, cards, edges))


def _names(rng: Rng) -> Recipe:
    """Labels that are only names: pairs of both signs and patterns of three variables, no unaries."""
    n = int(rng.integers(2, 7))
    most = max(s for s in range(2, 8) if s**n <= STATES)
    cards = [int(rng.integers(2, most + 1))] * n
    edges = [[i, j] for i in range(n) for j in range(i + 1, n) if rng.random() < 0.7]
    calls: list[Call] = [("add_potts", {"edges": edges, "weights": rng.normal(size=len(edges)).tolist()})]
    for _ in range(int(rng.integers(0, 4)) if n >= 3 else 0):
        scope = rng.permutation(n)[:3].tolist()
        if rng.random() < 0.7:
            values = rng.normal(size=bell(3)).tolist()
            calls.append(("add_label_patterns", {"scopes": [scope], "values": values, "weights": [1.0]}))
        else:
            costs = {"label_costs": [0.0] * cards[0], "disagreement": 1.0}
            calls.append(("add_pn_potts", {"scopes": [scope], "weights": [1.0], **costs}))
    return Recipe(cards, calls)


SHAPES: dict[str, tuple[float, Callable[[Rng], Recipe]]] = {
    "any": (3.0, _any),
    "tree": (1.0, _tree),
    "graph": (3.0, _graph),
    "grid": (3.0, _grid),
    "image": (5.0, _image),
    "wide": (0.7, _wide),
    "orders": (2.0, _orders),
    "rules": (1.5, _rules),
    "little": (0.8, _little),
    "high": (0.8, _high),
    "crowded": (1.5, _crowded),
    "wide pair": (0.3, _wide_pair),
    "names": (1.0, _names),
}


def _with_extras(recipe: Recipe, rng: Rng) -> Recipe:
    """Sometimes: a constant, costs of some variables a second time, a call a second time, evidence."""
    calls, n = list(recipe.calls), len(recipe.cards)
    if rng.random() < 0.2:
        calls.append(("add_constant", {"cost": float(rng.choice([1.0, -2.5, 0.1, 1e6, -1e9]))}))
    if n and rng.random() < 0.15:
        nodes = rng.integers(0, n, size=int(rng.integers(1, 4))).tolist()
        costs = [rng.integers(-2, 3, size=recipe.cards[i]).astype(float).tolist() for i in nodes]
        calls.append(("add_unaries", {"costs": costs, "nodes": nodes}))
    if calls and rng.random() < 0.1:
        calls.append(calls[int(rng.integers(len(calls)))])
    if n and rng.random() < 0.1:
        i = int(rng.integers(n))
        calls.append(("clamp", {"evidence": {i: int(rng.integers(recipe.cards[i]))}}))
    return recipe.with_calls(calls)
