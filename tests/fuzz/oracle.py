"""What a recipe means, worked out without the library: every factor as a table, every labelling with its energy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from naive import growth_string, labellings, pattern_order

from .recipe import ROWS, Call, Recipe

UNIT = 2.0**-53  # a rounded operation is wrong by at most this share of its result
SUBNORMAL = 5e-324  # and by at most this where the result is too small for that

Table = tuple[tuple[int, ...], np.ndarray]  # scope, cost of every labelling of it


def tables(recipe: Recipe) -> list[Table]:
    """All terms of the energy, constants and evidence included, in the order of the calls."""
    return [table for call in recipe.calls for table in call_tables(recipe.cards, call)]


def call_tables(cards: list[int], call: Call) -> Iterator[Table]:
    """The terms that one call adds."""
    name, given = call
    if name == "add_constant":
        yield (), np.asarray(given["cost"], dtype=np.float64)
    elif name == "add_unaries":
        nodes = given.get("nodes", range(len(cards)))
        for i, row in zip(nodes, given["costs"], strict=True):
            yield (int(i),), np.asarray(row, dtype=np.float64)
    elif name == "clamp":
        for i, label in given["evidence"].items():
            yield (int(i),), np.where(np.arange(cards[i]) == label, 0.0, np.inf)
    else:
        scopes = given[ROWS[name]]
        weights = given.get("weights")
        weights = np.broadcast_to(1.0 if weights is None else np.asarray(weights, dtype=np.float64), (len(scopes),))
        for c, scope in enumerate(scopes):
            values = _values(cards, call, c, tuple(scope))
            with np.errstate(invalid="ignore"):  # a weight of zero switches a factor off, even a hard one
                yield tuple(scope), np.where(weights[c] == 0.0, 0.0, weights[c] * values)


def _values(cards: list[int], call: Call, c: int, scope: tuple[int, ...]) -> np.ndarray:
    """Factor c of a call before its weight, by the definitions in the documentation of Model."""
    name, given = call
    shape = tuple(cards[i] for i in scope)
    if name in ("add_factors", "add_indexed_factors"):
        table = np.asarray(given["tables"], dtype=np.float64)
        row = given["index"][c] if name == "add_indexed_factors" else c
        table = table if table.ndim == len(scope) else table[row]
        assert table.shape == shape
        return table
    x = np.indices(shape)
    if name == "add_potts":
        return (x[0] != x[1]).astype(np.float64)
    if name in ("add_truncated_linear", "add_truncated_quadratic"):
        limit = given.get("limit", np.inf)
        limit = limit[c] if isinstance(limit, list) else limit
        return np.minimum(abs(x[0] - x[1]) ** (1 if name == "add_truncated_linear" else 2), limit)
    if name == "add_pn_potts":
        own = np.asarray(given.get("label_costs") or np.zeros(min(shape)), dtype=np.float64)
        alike = (x == x[0]).all(axis=0)
        return np.where(alike, own[np.where(alike, x[0], 0)], given.get("disagreement", 1.0))
    if name == "add_label_patterns":
        rank = {pattern: r for r, pattern in enumerate(pattern_order(len(scope)))}
        flat = [given["values"][rank[growth_string(labels)]] for labels in labellings(shape)]
        return np.array(flat, dtype=np.float64).reshape(shape)
    if name == "add_sparse":
        table = np.full(shape, float(given.get("default", 0.0)))
        for entry, value in zip(given["entries"], given["values"], strict=True):
            table[tuple(entry)] = value
        return table
    assert name == "add_second_difference", name
    first, middle, last = (np.asarray(given["values"][i], dtype=np.float64)[x[p]] for p, i in enumerate(scope))
    return np.minimum(abs(first - 2.0 * middle + last), given.get("limit", np.inf))


class Oracle:
    """Energies of all labellings of a recipe, and how far rounding may have moved them."""

    def __init__(self, recipe: Recipe) -> None:
        self.cards = recipe.cards
        self.terms = tables(recipe)
        shape = tuple(recipe.cards)
        states = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), dtype=np.int64)
        total = np.zeros(states.shape[1], dtype=np.longdouble)  # so that the sum itself rounds less than what it checks
        magnitude = np.zeros(states.shape[1])
        for scope, table in self.terms:
            value = table[tuple(states[i] for i in scope)]
            total += value
            magnitude += np.where(np.isfinite(value), abs(value), 0.0)
        self.energies = total.astype(np.float64).reshape(shape)
        self.free = bool(np.isfinite(total).all())  # nothing is forbidden
        best = int(np.argmin(total))
        self.optimum = float(total[best])
        self.labels = states[:, best].tolist()
        self.size = float(magnitude.max())
        self.rounding = self.lost(float(magnitude[best]) if np.isfinite(self.optimum) else self.size)
        self.blur = self.lost(self.size)
        self.tolerance = 1e-9 * sum(_range(table) for _, table in self.terms) + self.blur

    def energy(self, labels: Any) -> float:
        """Energy of a labelling; NaN if it is none."""
        if len(labels) != len(self.cards) or not all(0 <= s < c for s, c in zip(labels, self.cards, strict=True)):
            return float("nan")
        return float(self.energies[tuple(labels)])

    def lost(self, magnitude: float) -> float:
        """What rounding can change in a sum of all terms, of numbers that add up to this without their signs."""
        return (len(self.terms) + 4) * (UNIT * magnitude + SUBNORMAL)

    def descent(self) -> float:
        """The highest energy at which coordinate descent can end, wherever it begins and whatever its order is.

        Descent adds costs up in a unit in which they are ordinary numbers; in the user's, a product of a weight and a
        cost below 1e-308 is rounded to whole multiples of the smallest number, so that what is a minimum there need
        not be one here.
        """
        stuck = np.ones(self.energies.shape, dtype=bool)
        for axis in range(self.energies.ndim):
            stuck &= self.energies <= self.energies.min(axis=axis, keepdims=True) + self.lost(0.0)
        return float(self.energies[stuck].max())


def _range(table: np.ndarray) -> float:
    """How far the finite costs of a table are apart: what a constant added to them does not change."""
    finite = table[np.isfinite(table)]
    return float(finite.max() - finite.min()) if finite.size else 0.0


def plain(table: Any) -> Any:
    """Arrays as lists, for recipes."""
    return np.asarray(table, dtype=np.float64).tolist()
