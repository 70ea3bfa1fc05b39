"""Cost functions of toulbar2's formats .wcsp and .cfn: tables, arithmetic, and what a bound on the total forbids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import labelling_numbers
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.source import AXES, check_entries
from tightmap.model.model import Model

SMALL = 1 << 12  # a table of at most so many entries is written out in memory; a larger, sparser one stays sparse
PIECE = 1 << 20  # entries of arithmetic tables made at a time
_Rule = Callable[[IntArray, IntArray, list[float]], FloatArray]


# ------------------------------------------------------------------------------------------------ arithmetic


def _hinge(gap: npt.NDArray[Any], most: float) -> FloatArray:
    """max(0, gap) where gap is at most ``most``, else forbidden."""
    return np.where(gap <= most, np.maximum(gap, 0.0), np.inf)


def _equality(x: IntArray, y: IntArray, p: list[float]) -> FloatArray:
    gap = abs(y + p[0] - x)
    return np.where(gap <= p[1], gap, np.inf)


def _disjunction(x: IntArray, y: IntArray, p: list[float]) -> FloatArray:
    return np.where((x >= y + p[1]) | (y >= x + p[0]), 0.0, p[2])


def _special_disjunction(x: IntArray, y: IntArray, p: list[float]) -> FloatArray:
    cx, cy, xinf, yinf, wx, wy = p
    apart = (x >= y + cy) | (y >= x + cx)
    legal = (x <= xinf) & (y <= yinf) & (apart | (x >= xinf) | (y >= yinf))
    return np.where(legal, wx * (x == xinf) + wy * (y == yinf), np.inf)


# keyword -> (number of parameters, table): binary arithmetic on the label indices of the first and second variable
RULES: dict[str, tuple[int, _Rule]] = {
    ">=": (2, lambda x, y, p: _hinge(y + p[0] - x, p[1])),
    ">": (2, lambda x, y, p: _hinge(y + p[0] + 1 - x, p[1])),
    "<=": (2, lambda x, y, p: _hinge(x - p[0] - y, p[1])),
    "<": (2, lambda x, y, p: _hinge(x - p[0] + 1 - y, p[1])),
    "=": (2, _equality),
    "disj": (3, _disjunction),
    "sdisj": (6, _special_disjunction),
}


def rule_costs(word: str, parameters: list[float], shape: tuple[int, int]) -> FloatArray:
    """The table of an arithmetic cost function of two variables, +inf where it forbids; flat, in C order."""
    table = np.empty(shape)
    y = np.arange(shape[1])[None, :]
    step = max(1, PIECE // shape[1])
    for low in range(0, shape[0], step):
        x = np.arange(low, min(low + step, shape[0]))[:, None]
        table[low : low + step] = RULES[word][1](x, y, parameters)
    return table.reshape(-1)


# ------------------------------------------------------------------------------------------------ tables


class Collector:
    """Tables that are read one by one and added to the model together, those of one shape in one call."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.found: dict[tuple[int, ...], tuple[list[IntArray], list[FloatArray]]] = {}
        self.entries = 0.0

    def room(self, entries: float) -> None:
        """Announce table entries before they are made."""
        self.entries += entries
        check_entries(self.entries, "the tables of this file")

    def add(self, scope: IntArray, table: FloatArray) -> None:
        scopes, costs = self.found.setdefault(table.shape, ([], []))
        scopes.append(scope)
        costs.append(table)

    def flush(self) -> None:
        for shape in list(self.found):
            scopes, costs = self.found.pop(shape)  # what has been added is let go
            tables = costs[0][None] if len(costs) == 1 else np.stack(costs)
            costs.clear()
            self.model.add_factors(np.stack(scopes), tables)


@dataclass(frozen=True)
class Table:
    """A cost function in extension, before it is known how large its dense twin would be."""

    default: float
    labels: IntArray | None  # (T, k); None when the costs are all of the table, in C order
    costs: FloatArray  # (T,)

    def least(self, size: float) -> float:
        """The smallest cost, of ``size`` entries in all."""
        lowest = float(self.costs.min(initial=np.inf))
        everything = self.labels is None or len(self.costs) >= size
        return lowest if everything else min(lowest, self.default)

    def forbidding(self, threshold: float) -> Table:
        """The same with +inf for every cost at or above a threshold."""
        if threshold == np.inf:
            return self
        costs = np.where(self.costs >= threshold, np.inf, self.costs)
        return replace(self, default=np.inf if self.default >= threshold else self.default, costs=costs)

    def add(self, pool: Collector, scope: IntArray) -> None:
        """Add it to a model, as a table or as a sparse factor; a labelling listed twice keeps its last cost."""
        model = pool.model
        labels = self.labels
        cards = model.cardinalities[scope]
        if len(scope) > AXES:  # NumPy has no tables of so many axes: variables with one label do not need theirs
            busy = cards > 1
            scope, cards = scope[busy], cards[busy]
            labels = None if labels is None else labels[:, busy]
        shape = tuple(cards.tolist())
        size = table_size(cards)
        if labels is not None and len(shape) >= 2 and size > SMALL and 4 * len(self.costs) < size:
            costs = self.costs
            if size < 2.0**62 and len(labels):
                keys = labelling_numbers(labels, shape)
                last = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
                labels, costs = labels[last], costs[last]
            model.add_sparse(scope[None], labels, costs, self.default)
            return
        check_entries(size, f"a table on variables {scope.tolist()}")
        pool.room(size)
        if labels is None:
            table = self.costs.reshape(shape)
        elif not shape:
            table = np.array(self.costs[-1] if len(self.costs) else self.default)
        else:
            table = np.full(shape, self.default)
            table[tuple(labels.T)] = self.costs
        pool.add(scope, table)


def table_size(cards: IntArray) -> float:
    """Entries of a table (a float: it may be astronomically large)."""
    with np.errstate(over="ignore"):
        return float(np.prod(cards.astype(np.float64)))


# ------------------------------------------------------------------------------------------------ bounds


def thresholds(least: FloatArray, bound: float) -> FloatArray:
    """From which cost on an entry of each function is beyond ``bound`` whatever the other functions say.

    ``least`` is the smallest cost of every function.  A bound is one on the total: an entry is forbidden when it and
    the smallest costs of all others reach the bound.  The sum is exact, in the decimal numbers that stand in the file,
    so that an entry that just reaches the bound is recognised and one that just does not is kept.
    """
    if not len(least) or np.isinf(bound) or np.isinf(least).any():  # no bound, or no labelling is possible at all
        return np.full(len(least), np.inf)
    values, which, counts = np.unique(least, return_inverse=True, return_counts=True)
    exact = [Fraction(repr(v)) for v in values.tolist()]
    slack = Fraction(repr(float(bound))) - sum(e * c for e, c in zip(exact, counts.tolist(), strict=True))
    return np.array([_nearest(slack + e) for e in exact])[which.reshape(-1)]


def _nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return np.inf if number > 0 else -np.inf
