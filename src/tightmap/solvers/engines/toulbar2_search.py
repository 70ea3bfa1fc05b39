"""What the process of method "toulbar2" does: tables to toulbar2, its answer back (toulbar2.py).

toulbar2 prints what it finds while it searches, so only the end is told here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

FORBIDDEN = -1


def search(problem: dict[str, Any], tell: Callable[..., None]) -> None:
    pytoulbar2: Any = import_module("pytoulbar2")
    most = problem["known"] if problem["known"] is not None else _most(problem) + 1
    network = pytoulbar2.CFN(ubinit=most, vac=problem["vac"], seed=problem["seed"] % 2**31 + 1, verbose=0)
    cards, offset = problem["cards"].tolist(), problem["offset"].tolist()
    first, begin = problem["scope_start"].tolist(), problem["begin"].tolist()
    scope = problem["scope"].tolist()
    try:
        for i, count in enumerate(cards):
            network.AddVariable(f"x{i}", range(count))
        for i in range(len(cards)):
            network.AddFunction([i], _costs(problem["unary"][offset[i] : offset[i + 1]], most))
        for f in range(len(begin) - 1):
            costs = _costs(problem["tables"][begin[f] : begin[f + 1]], most)
            if any(costs):
                network.AddFunction(scope[first[f] : first[f + 1]], costs)
        answer = network.Solve(showSolutions=1)
    except network.Contradiction:
        answer = None
    if answer is not None:
        tell(labels=[int(s) for s in answer[0]], units=round(answer[1]), end="optimal")
    else:
        tell(end="infeasible" if problem["known"] is None else "none better")


def _most(problem: dict[str, Any]) -> int:
    """What no allowed labelling exceeds; toulbar2's own estimate counts forbidden entries, and may overflow."""
    largest = [np.maximum.reduceat(problem["unary"], problem["offset"][:-1])]
    if len(problem["tables"]):
        largest.append(np.maximum.reduceat(problem["tables"], problem["begin"][:-1]))
    return sum(int(np.maximum(part, 0).sum()) for part in largest)


def _costs(units: Any, most: int) -> list[float]:
    """A forbidden entry costs the upper bound, which no labelling may reach: no sum of such costs overflows."""
    return [float(most) if c == FORBIDDEN else float(c) for c in units.tolist()]
