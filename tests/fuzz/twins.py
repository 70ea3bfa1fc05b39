"""Other ways to write the same model: what is claimed about one must fit what is claimed about the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .costs import map_costs
from .oracle import Oracle, plain, tables
from .recipe import ROWS, Call, Recipe

POWERS = (-1000, -500, -100, -30, -1, 10, 100, 900)
FACTORS = (1e-300, 1e-12, 1e-9, 1e6)
LARGEST = 1e300  # of what all costs add up to

Rng = np.random.Generator


@dataclass(frozen=True)
class Twin:
    """energy of the twin = factor * energy of the model + shift, for labellings that correspond.

    same : nothing is rounded, so that not only claims but also statuses must be the same
    subset : the twin has some of the labellings only (evidence)
    """

    recipe: Recipe
    factor: float = 1.0
    shift: float = 0.0
    same: bool = False
    subset: bool = False


def scaled(recipe: Recipe, rng: Rng) -> Twin:
    """All costs multiplied by one positive number, often a power of two, which rounds nothing."""
    entries = [np.abs(t).max(initial=0.0, where=np.isfinite(t)) for _, t in tables(recipe)]  # paid by nobody, perhaps
    size = max(Oracle(recipe).size, _largest(recipe), *map(float, entries))
    if rng.random() < 0.6:
        factor = 2.0 ** float(rng.choice(POWERS))
    else:
        factor = float(rng.choice(FACTORS)) if rng.random() < 0.7 else LARGEST / max(size, 1.0)
    while not size * factor <= LARGEST:
        factor /= 2.0**200
    calls = [map_costs(call, lambda a: a * factor) for call in recipe.calls]
    twin = recipe.with_calls(calls)
    # costs near the smallest numbers there are get lost beside ordinary ones, in one unit sooner than in another
    exact = np.frexp(factor)[0] == 0.5 and all(
        np.array_equal(a, b / factor) and all((np.abs(c[c != 0.0]) > 1e-290).all() for c in (a, b))
        for (_, a), (_, b) in zip(tables(recipe), tables(twin), strict=True)
    )
    return Twin(twin, factor, same=bool(exact))


def _largest(recipe: Recipe) -> float:
    """The largest number that is multiplied, whether or not any labelling has to pay it."""
    numbers = [0.0]

    def note(a: np.ndarray) -> np.ndarray:
        numbers.extend(np.abs(a[np.isfinite(a)]).ravel())
        return a

    for call in recipe.calls:
        map_costs(call, note)
    return float(max(numbers))


def shifted(recipe: Recipe, rng: Rng) -> Twin:
    """A constant added."""
    shift = float(rng.choice([1.0, -1.0, 0.1, 1e6, -1e9, 1e12]))
    return Twin(recipe.with_calls([*recipe.calls, ("add_constant", {"cost": shift})]), shift=shift)


def shuffled(recipe: Recipe, rng: Rng) -> Twin:
    """The variables in another order (a grid is then only a graph)."""
    new = rng.permutation(len(recipe.cards))
    old = np.argsort(new)

    def rows(values: list) -> list:
        return [values[i] for i in old]

    calls: list[Call] = []
    for name, given in recipe.calls:
        given = dict(given)
        if name == "clamp":
            given["evidence"] = {int(new[i]): s for i, s in given["evidence"].items()}
        elif name == "add_unaries" and "nodes" in given:
            given["nodes"] = new[given["nodes"]].tolist()
        elif name == "add_unaries":
            given["costs"] = rows(given["costs"])
        elif name != "add_constant":
            given[ROWS[name]] = [[int(new[i]) for i in scope] for scope in given[ROWS[name]]]
        if name == "add_second_difference":
            given["values"] = rows(given["values"])
        calls.append((name, given))
    return Twin(replace(recipe, cards=rows(recipe.cards), calls=calls, grid=None))


def _from_tables(cards: list[int], terms: list) -> list[Call]:
    calls: list[Call] = []
    for scope, table in terms:
        if len(scope) == 0:
            calls.append(("add_constant", {"cost": float(table)}))
        elif len(scope) == 1:
            calls.append(("add_unaries", {"costs": [plain(table)], "nodes": list(scope)}))
        else:
            calls.append(("add_factors", {"scopes": [list(scope)], "tables": plain(table)}))
    return calls


def dense(recipe: Recipe, rng: Rng) -> Twin:
    """Every factor as a table of its own."""
    return Twin(recipe.with_calls(_from_tables(recipe.cards, tables(recipe))))


def relabelled(recipe: Recipe, rng: Rng) -> Twin:
    """The labels of every variable in another order."""
    order = [rng.permutation(c) for c in recipe.cards]
    terms = [(scope, table[np.ix_(*(order[i] for i in scope))] if scope else table) for scope, table in tables(recipe)]
    return Twin(recipe.with_calls(_from_tables(recipe.cards, terms)))


def halved(recipe: Recipe, rng: Rng) -> Twin:
    """Every factor twice, with half of its cost each."""
    halves = [call if call[0] == "clamp" else map_costs(call, lambda a: a * 0.5) for call in recipe.calls]
    return Twin(recipe.with_calls(halves + [call for call in halves if call[0] != "clamp"]))


def clamped(recipe: Recipe, rng: Rng) -> Twin:
    """Evidence about one variable."""
    free = set(range(len(recipe.cards)))
    for name, given in recipe.calls:
        if name == "clamp":
            free -= set(given["evidence"])
    if not free:
        return Twin(recipe, same=True)
    i = int(rng.choice(sorted(free)))
    evidence = {i: int(rng.integers(recipe.cards[i]))}
    return Twin(recipe.with_calls([*recipe.calls, ("clamp", {"evidence": evidence})]), subset=True)


def few_bits(recipe: Recipe, rng: Rng) -> Twin:
    """Costs and duals in few bits where that is exact, or no longer: not a bit of any result may differ."""
    return Twin(replace(recipe, sizes=tuple({*recipe.sizes} ^ {"few bits"})), same=True)


TWINS: dict[str, Callable[[Recipe, Rng], Twin]] = {
    "scaled": scaled,
    "shifted": shifted,
    "shuffled": shuffled,
    "dense": dense,
    "relabelled": relabelled,
    "halved": halved,
    "clamped": clamped,
    "few bits": few_bits,
}
