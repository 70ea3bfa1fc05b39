"""Costs as constraints: every function gets Booleans that say how much it costs.

A function with costs 0 < c_1 < c_2 < ... (whole numbers) gets z_1, z_2, ..., where z_k says that it costs c_k or more,
and becomes the table of all (labels, z_1, z_2, ...) that fit together; labels with a cost of the upper bound or more do
not.  Then

    cost of a labelling = floor + sum of (c_k - c_{k-1}) over all z_k that are true,

and the question is which z can all be false together: a question for constraint propagation and learning.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.moves.feasibility.constraints import Constraints, Tables
from tightmap.solvers.exact.network import Network, Table

FUNCTIONS = 20_000  # most functions
LEVELS = 32  # most different costs of a function
BOOLEANS = 20_000  # most z of all functions together
TUPLES = 1_000_000  # most entries of all functions together


@dataclass
class Levels:
    """The constraints, and the labels that shall not be taken, each with a weight."""

    variables: list[int]  # of the network; then come the z, then variables that are still free for other use
    offset: npt.NDArray[np.int64]
    given: Constraints
    labels: npt.NDArray[np.int64]  # to be avoided, numbered through
    weights: list[int]
    floor: int  # what every labelling costs
    used: int  # variables that have a meaning


def levels(net: Network, goal: int, spare: int) -> Levels | None:
    """The network in this form, as far as labellings below ``goal`` (in units, constant left out) are concerned.

    None where there are too many different costs, or where it is clear at once that there is no such labelling.
    """
    if len(net.functions) > FUNCTIONS:
        return None
    variables = [i for i in range(len(net.cards)) if i not in net.gone and net.cards[i] > 1]
    place = {i: k for k, i in enumerate(variables)}
    groups: dict[tuple[Any, ...], list[list[int]]] = defaultdict(list)
    steps: dict[tuple[Any, ...], npt.NDArray[np.int64]] = {}
    avoid: list[tuple[int, int, int]] = []  # variable, label, weight
    first = np.concatenate(([0], np.cumsum([net.cards[i] for i in variables]))).astype(np.int64)
    alive = np.ones(int(first[-1]), np.bool_)
    floor = sum(int(net.unary[i][0]) for i in range(len(net.cards)) if i not in net.gone and net.cards[i] == 1)
    count, entries = len(variables), 0
    functions: list[tuple[list[int], Table]] = [([k], net.unary[i]) for k, i in enumerate(variables)]
    functions += [([place[i] for i in scope], table) for scope, table in net.functions.items()]
    for scope, table in functions:
        costs = table[table < goal]
        if len(costs) == 0:
            return None
        low = int(costs.min())
        floor += low
        levels_here = np.unique(costs)[1:]
        if len(scope) == 1:
            alive[first[scope[0]] : first[scope[0] + 1]] = table < goal
            if len(table) == 2 and len(costs) == 2:
                if len(levels_here):
                    avoid.append((scope[0], int(table[1] > table[0]), int(levels_here[0]) - low))
                continue
        if len(scope) == 1 and len(levels_here) == 0:
            continue
        entries += table.size
        if len(levels_here) > LEVELS or entries > TUPLES or count > BOOLEANS + len(variables):
            return None
        which = np.where(table < goal, np.searchsorted(levels_here, table, side="right"), -1)
        key = (table.shape, which.tobytes())
        steps[key] = which
        zs = list(range(count, count + len(levels_here)))
        count += len(zs)
        groups[key].append(scope + zs)
        avoid += [(z, 1, int(w)) for z, w in zip(zs, np.diff(levels_here, prepend=low), strict=True)]
    size = int(first[-1]) + 2 * (count - len(variables) + spare)
    offset = np.concatenate((first, np.arange(int(first[-1]) + 2, size + 1, 2))).astype(np.int64)
    given = Constraints(np.concatenate((alive, np.ones(size - len(alive), np.bool_))))
    for (shape, _), scopes in groups.items():
        which = steps[shape, _]
        tuples = np.argwhere(which >= 0)
        extra = len(scopes[0]) - len(shape)
        above = (which[which >= 0][:, None] > np.arange(extra)).astype(np.int64)
        given.tables.append(Tables(np.array(scopes), (*shape, *[2] * extra), np.concatenate((tuples, above), axis=1)))
    labels = np.array([offset[i] + x for i, x, _ in avoid], dtype=np.int64)
    return Levels(variables, offset, given, labels, [w for _, _, w in avoid], floor, count)
